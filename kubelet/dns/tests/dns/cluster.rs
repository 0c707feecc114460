//! A scripted API server: objects, watches, and a way to go away.

use bytes::Bytes;
use client::informer::{Informer, Object, Options};
use dns::{KnownSources, SearchPaths, Sources};
use futures::channel::mpsc;
use http::{Request, Response};
use http_body_util::{BodyExt, Either, Full, StreamBody};
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

type Frame = Result<http_body::Frame<Bytes>, std::io::Error>;

#[derive(Default)]
struct Script {
    revision: u64,
    away: bool,
    held: Option<&'static str>,
    search: Option<SearchPaths>,
    known: Option<KnownSources>,
    objects: BTreeMap<&'static str, BTreeMap<String, Value>>,
    watchers: Vec<(String, mpsc::UnboundedSender<Frame>)>,
}

/// The API server.
#[derive(Clone, Default)]
pub(crate) struct Cluster(Arc<Mutex<Script>>);

impl Cluster {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap()
    }

    /// Writes an object of a resource (`services`, ...).
    pub(crate) fn put(&self, resource: &'static str, mut object: Value) {
        let mut script = self.script();
        script.revision += 1;
        object["metadata"]["resourceVersion"] = script.revision.to_string().into();
        let key = format!("{}/{}", object["metadata"]["namespace"], object["metadata"]["name"]);
        let objects = script.objects.entry(resource).or_default();
        let kind = if objects.insert(key, object.clone()).is_some() {
            "MODIFIED"
        } else {
            "ADDED"
        };
        script.tell(resource, &json!({"type": kind, "object": object}));
    }

    /// No list of this resource succeeds, or again of every one.
    pub(crate) fn hold(&self, resource: Option<&'static str>) {
        self.script().held = resource;
    }

    /// Who knows search paths.
    pub(crate) fn search(&self, paths: SearchPaths) {
        self.script().search = Some(paths);
    }

    /// Who knows the node's pods.
    pub(crate) fn known(&self, known: KnownSources) {
        self.script().known = Some(known);
    }

    /// No list and no watch succeeds any more, and those there are end.
    pub(crate) fn go_away(&self) {
        let mut script = self.script();
        script.away = true;
        script.watchers.clear();
    }

    fn answer(
        &self,
        request: &Request<Body>,
    ) -> Response<Either<Full<Bytes>, StreamBody<mpsc::UnboundedReceiver<Frame>>>> {
        let mut script = self.script();
        let resource = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        if script.away || script.held == Some(resource.as_str()) {
            return Response::builder()
                .status(503)
                .body(Either::Left(Full::from("away")))
                .unwrap();
        }
        if request.uri().query().unwrap_or_default().contains("watch=true") {
            let (send, receive) = mpsc::unbounded();
            script.watchers.push((resource, send));
            return Response::new(Either::Right(StreamBody::new(receive)));
        }
        let objects = script.objects.get(resource.as_str());
        let items: Vec<Value> = objects.iter().flat_map(|objects| objects.values().cloned()).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items, "metadata": {"resourceVersion": script.revision.to_string()}});
        Response::new(Either::Left(Full::from(list.to_string())))
    }

    fn informer<K: Object + kube::Resource<DynamicType = ()>>(&self) -> Informer<K> {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let response = cluster.answer(&request);
            async move { Ok::<_, std::io::Error>(response.map(|body| body.map_err(tower::BoxError::from))) }
        });
        Informer::spawn(Api::all(kube::Client::new(service, "default")), Options::default())
    }

    /// Informers of it. Must be called inside a runtime.
    pub(crate) fn sources(&self) -> Sources {
        let (search, known) = {
            let script = self.script();
            (script.search.clone(), script.known.clone())
        };
        Sources {
            services: self.informer::<Service>(),
            slices: self.informer::<EndpointSlice>(),
            namespaces: self.informer::<Namespace>(),
            pods: Some(self.informer::<Pod>()),
            search,
            known,
        }
    }
}

impl Script {
    fn tell(&mut self, resource: &str, event: &Value) {
        let line = || Ok(http_body::Frame::data(Bytes::from(format!("{event}\n"))));
        self.watchers
            .retain(|(of, watcher)| of != resource || watcher.unbounded_send(line()).is_ok());
    }
}

/// A namespace.
pub(crate) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// A service with one address and one port `http`.
pub(crate) fn service(namespace: &str, name: &str, address: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterIP": address, "clusterIPs": [address], "ports": [{"name": "http", "port": 80}]}})
}
