//! An API server as far as informers need one: lists, and watches that go on from a revision.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use client::Informer;
use client::informer::Options;
use futures::channel::mpsc;
use http::{Request, Response};
use http_body_util::{Either, Full, StreamBody};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::client::Body;
use serde_json::{Value, json};

type Frame = Result<http_body::Frame<Bytes>, std::io::Error>;

#[derive(Default)]
struct State {
    revision: u64,
    /// By plural, then by namespace and name.
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    /// Revision, plural and event.
    log: Vec<(u64, String, Value)>,
    watchers: Vec<(String, mpsc::UnboundedSender<Frame>)>,
    /// Plurals that were listed, each time.
    lists: Vec<String>,
}

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Api(Arc<Mutex<State>>);

fn line(event: &Value) -> Frame {
    Ok(http_body::Frame::data(Bytes::from(format!("{event}\n"))))
}

impl Api {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// How often a kind was listed.
    pub(crate) fn lists(&self, plural: &str) -> usize {
        self.state().lists.iter().filter(|listed| *listed == plural).count()
    }

    pub(crate) fn put(&self, plural: &str, mut object: Value) {
        let key = format!("{}/{}", object["metadata"]["namespace"], object["metadata"]["name"]);
        let mut state = self.state();
        state.revision += 1;
        object["metadata"]["resourceVersion"] = json!(state.revision.to_string());
        let old = state
            .objects
            .entry(plural.to_owned())
            .or_default()
            .insert(key, object.clone());
        let kind = if old.is_some() { "MODIFIED" } else { "ADDED" };
        state.send(plural, json!({"type": kind, "object": object}));
    }

    pub(crate) fn delete(&self, plural: &str, namespace: &str, name: &str) {
        let key = format!("{}/{}", json!(namespace), json!(name));
        let mut state = self.state();
        let mut object = state.objects.get_mut(plural).and_then(|all| all.remove(&key)).unwrap();
        state.revision += 1;
        object["metadata"]["resourceVersion"] = json!(state.revision.to_string());
        state.send(plural, json!({"type": "DELETED", "object": object}));
    }

    fn answer(
        &self,
        request: &Request<Body>,
    ) -> Response<Either<Full<Bytes>, StreamBody<mpsc::UnboundedReceiver<Frame>>>> {
        let plural = request.uri().path().rsplit('/').next().unwrap().to_owned();
        let query = request.uri().query().unwrap_or_default();
        let mut state = self.state();
        if !query.contains("watch=true") {
            state.lists.push(plural.clone());
            let items: Vec<Value> = state
                .objects
                .get(&plural)
                .into_iter()
                .flat_map(|all| all.values().cloned())
                .collect();
            let list = json!({"kind": "List", "apiVersion": "v1", "items": items,
                "metadata": {"resourceVersion": state.revision.to_string()}});
            return Response::new(Either::Left(Full::new(Bytes::from(list.to_string()))));
        }
        let from = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
        let from: u64 = from.and_then(|text| text.parse().ok()).unwrap_or(0);
        let (sender, receiver) = mpsc::unbounded();
        for (revision, of, event) in &state.log {
            if *revision > from && *of == plural {
                sender.unbounded_send(line(event)).unwrap();
            }
        }
        state.watchers.push((plural, sender));
        Response::new(Either::Right(StreamBody::new(receiver)))
    }

    fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let response = api.answer(&request);
            async move { Ok::<_, std::convert::Infallible>(response) }
        });
        kube::Client::new(service, "default")
    }

    pub(crate) fn policies(&self) -> Informer<NetworkPolicy> {
        Informer::spawn(kube::Api::all(self.client()), Options::default())
    }

    pub(crate) fn pods(&self) -> Informer<Pod> {
        Informer::spawn(kube::Api::all(self.client()), Options::default())
    }

    pub(crate) fn namespaces(&self) -> Informer<Namespace> {
        Informer::spawn(kube::Api::all(self.client()), Options::default())
    }
}

impl State {
    fn send(&mut self, plural: &str, event: Value) {
        let revision = self.revision;
        self.log.push((revision, plural.to_owned(), event.clone()));
        self.watchers
            .retain(|(of, watcher)| of != plural || watcher.unbounded_send(line(&event)).is_ok());
    }
}
