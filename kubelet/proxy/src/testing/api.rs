//! A scripted API server: objects by path, watches that follow them, and what was posted.

use bytes::Bytes;
use client::informer::Options;
use client::{AsTree, Informer};
use futures::channel::mpsc;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

use crate::run::Sources;
use crate::serve::Informers;

type Frame = Result<http_body::Frame<Bytes>, std::io::Error>;
type Answer = Response<http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error>>;

pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const SERVICES: &str = "/api/v1/services";
pub(crate) const SERVICE_CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";
pub(crate) const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";

#[derive(Default)]
struct Script {
    revision: u64,
    /// By path and name.
    objects: BTreeMap<(String, String), Value>,
    log: Vec<(u64, String, Value)>,
    watchers: Vec<(String, mpsc::UnboundedSender<Frame>)>,
    asked: Vec<String>,
}

#[derive(Clone)]
pub(crate) struct Server {
    script: Arc<Mutex<Script>>,
    /// What was posted.
    pub(crate) posted: Arc<watch::Sender<Vec<Value>>>,
}

fn line(event: &Value) -> Frame {
    Ok(http_body::Frame::data(Bytes::from(format!("{event}\n"))))
}

impl Server {
    pub(crate) fn new() -> Self {
        Self {
            script: Arc::default(),
            posted: Arc::new(watch::Sender::new(Vec::new())),
        }
    }

    /// Makes or replaces an object; its name is in its metadata.
    pub(crate) fn put(&self, path: &str, mut object: Value) {
        let mut script = self.script.lock().unwrap();
        script.revision += 1;
        let revision = script.revision;
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let before = script.objects.insert((path.to_owned(), name), object.clone());
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        script.tell(path, json!({"type": kind, "object": object}));
    }

    /// What was asked for: path and query.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.script.lock().unwrap().asked.clone()
    }

    fn answer(&self, request: &Request<Body>) -> Answer {
        let mut script = self.script.lock().unwrap();
        script.asked.push(request.uri().to_string());
        let (path, query) = (
            request.uri().path().to_owned(),
            request.uri().query().unwrap_or_default(),
        );
        if !query.contains("watch=true") {
            let of_path = script.objects.iter().filter(|((of, _), _)| *of == path);
            let items: Vec<&Value> = of_path.map(|(_, object)| object).collect();
            let list = json!({"apiVersion": "v1", "kind": "List", "items": items,
                "metadata": {"resourceVersion": script.revision.to_string()}});
            let body = Full::from(list.to_string()).map_err(|never| match never {});
            return Response::new(body.boxed_unsync());
        }
        let from = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
        let from: u64 = from.unwrap().parse().unwrap();
        let (send, receive) = mpsc::unbounded();
        for (_, _, event) in script.log.iter().filter(|(at, of, _)| *at > from && *of == path) {
            send.unbounded_send(line(event)).unwrap();
        }
        script.watchers.push((path, send));
        Response::new(StreamBody::new(receive).boxed_unsync())
    }

    pub(crate) fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                if request.method() != "POST" {
                    return Ok::<_, tower::BoxError>(
                        server.answer(&request).map(|body| body.map_err(tower::BoxError::from)),
                    );
                }
                let bytes = request.into_body().collect().await.unwrap().to_bytes();
                let object = serde_json::from_slice(&bytes).unwrap();
                server.posted.send_modify(|posted| posted.push(object));
                let body = Full::from(bytes).map_err(|never| match never {});
                Ok(Response::new(body.boxed_unsync().map_err(tower::BoxError::from)))
            }
        });
        kube::Client::new(service, "default")
    }

    /// Informers of everything.
    pub(crate) fn informers(&self) -> Informers {
        let all = || kube::Api::<AsTree<_>>::all(self.client());
        let services = Informer::spawn_as_tree(all(), Options::default());
        let all = || kube::Api::<AsTree<_>>::all(self.client());
        let slices = Informer::spawn_as_tree(all(), Options::default());
        let all = || kube::Api::<AsTree<_>>::all(self.client());
        let service_cidrs = Informer::spawn_as_tree(all(), Options::default());
        let all = || kube::Api::<AsTree<_>>::all(self.client());
        Informers {
            service_cidrs,
            nodes: Informer::spawn_as_tree(all(), Options::default()),
            rules: Sources { services, slices },
        }
    }
}

impl Script {
    fn tell(&mut self, path: &str, event: Value) {
        self.log.push((self.revision, path.to_owned(), event.clone()));
        let of_path = |of: &str| of == path;
        self.watchers
            .retain(|(of, send)| !of_path(of) || send.unbounded_send(line(&event)).is_ok());
    }
}
