//! An API server that knows Nodes: list, watch, and the patch of a status.

use bytes::Bytes;
use futures::channel::mpsc;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Either, Full, StreamBody};
use k8s_openapi::api::core::v1::Node;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

type Frame = Result<http_body::Frame<Bytes>, std::io::Error>;
type Reply = Response<Either<Full<Bytes>, StreamBody<mpsc::UnboundedReceiver<Frame>>>>;

#[derive(Default)]
struct Table {
    revision: u64,
    nodes: BTreeMap<String, Value>,
    watchers: Vec<mpsc::UnboundedSender<Frame>>,
    log: Vec<(u64, Value)>,
}

/// The server; clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Server(Arc<Mutex<Table>>);

fn line(value: &Value) -> Frame {
    Ok(http_body::Frame::data(Bytes::from(format!("{value}\n"))))
}

impl Server {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap()
    }

    /// Makes a node, or changes it.
    pub(crate) fn change(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut table = self.table();
        let new = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        let mut node = table.nodes.get(name).cloned().unwrap_or(new);
        change(&mut node);
        table.put(name, node);
    }

    /// A node leaves the cluster.
    pub(crate) fn delete(&self, name: &str) {
        let mut table = self.table();
        let node = table.nodes.remove(name).unwrap();
        table.tell("DELETED", node);
    }

    /// A node as it is now.
    pub(crate) fn node(&self, name: &str) -> Node {
        serde_json::from_value(self.table().nodes[name].clone()).unwrap()
    }

    /// A client of this server; to be called inside a runtime.
    pub(crate) fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let reply = server.answer(&Request::from_parts(parts, body));
                Ok::<_, std::io::Error>(reply.map(|body| body.map_err(tower::BoxError::from)))
            }
        });
        kube::Client::new(service, "default")
    }

    fn answer(&self, request: &Request<Bytes>) -> Reply {
        let path: Vec<&str> = request.uri().path().split('/').skip(1).collect();
        let query = request.uri().query().unwrap_or_default();
        let mut table = self.table();
        match (request.method(), &*path) {
            (&Method::GET, ["api", "v1", "nodes"]) if query.contains("watch=true") => table.watch(query),
            (&Method::GET, ["api", "v1", "nodes"]) => table.list(),
            (&Method::PATCH, ["api", "v1", "nodes", name, "status"]) => {
                let kind = request.headers()["content-type"].to_str().unwrap();
                assert_eq!(kind, "application/strategic-merge-patch+json");
                let patch: Value = serde_json::from_slice(request.body()).unwrap();
                let Some(mut node) = table.nodes.get(*name).cloned() else {
                    let missing = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404});
                    let body = Either::Left(Full::from(missing.to_string()));
                    return Response::builder().status(404).body(body).unwrap();
                };
                merge(&mut node, &patch);
                let body = table.put(name, node).to_string();
                Response::new(Either::Left(Full::from(body)))
            }
            other => panic!("nobody asks for {other:?}"),
        }
    }
}

impl Table {
    fn put(&mut self, name: &str, node: Value) -> Value {
        let is_new = self.nodes.insert(name.to_owned(), node.clone()).is_none();
        let node = self.tell(if is_new { "ADDED" } else { "MODIFIED" }, node);
        self.nodes.insert(name.to_owned(), node.clone());
        node
    }

    fn tell(&mut self, kind: &str, mut node: Value) -> Value {
        self.revision += 1;
        node["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let event = json!({"type": kind, "object": node});
        self.log.push((self.revision, event.clone()));
        self.watchers
            .retain(|watcher| watcher.unbounded_send(line(&event)).is_ok());
        node
    }

    fn list(&self) -> Reply {
        let items: Vec<&Value> = self.nodes.values().collect();
        let list = json!({"apiVersion": "v1", "kind": "NodeList", "items": items,
            "metadata": {"resourceVersion": self.revision.to_string()}});
        Response::new(Either::Left(Full::from(list.to_string())))
    }

    fn watch(&mut self, query: &str) -> Reply {
        let from = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
        let from: u64 = from.unwrap().parse().unwrap();
        let (send, receive) = mpsc::unbounded();
        for (_, event) in self.log.iter().filter(|(revision, _)| *revision > from) {
            send.unbounded_send(line(event)).unwrap();
        }
        self.watchers.push(send);
        Response::new(Either::Right(StreamBody::new(receive)))
    }
}

/// What a strategic merge patch does with annotations and conditions.
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => drop(into.as_object_mut().unwrap().remove(key)),
            value => merge(&mut into[key], value),
        }
    }
}
