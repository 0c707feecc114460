//! Which objects are watched, over an API server that has one ConfigMap at most.

use super::*;
use bytes::Bytes;
use client::SystemClock;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::broadcast;

/// The server: what it has, how many watch it, and what becomes of it.
#[derive(Clone)]
struct Server {
    map: Arc<Mutex<Option<Value>>>,
    watches: Arc<AtomicUsize>,
    changes: broadcast::Sender<String>,
}

/// Counts a watch as long as somebody reads it.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Server {
    fn new(map: Option<Value>) -> Self {
        Self {
            map: Arc::new(Mutex::new(map)),
            watches: Arc::default(),
            changes: broadcast::Sender::new(16),
        }
    }

    fn serve(&self, request: &Request<Body>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let query = request.uri().query().unwrap_or_default();
        if !request.uri().path().ends_with("/configmaps") || !query.contains("watch=") {
            let items = self.map.lock().expect("unlocked").clone();
            let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"},
                "items": items.into_iter().collect::<Vec<_>>()});
            return Response::new(Full::new(Bytes::from(list.to_string())).boxed_unsync());
        }
        self.watches.fetch_add(1, Ordering::SeqCst);
        let counted = Counted(self.watches.clone());
        let changes = tokio_stream::wrappers::BroadcastStream::new(self.changes.subscribe());
        let lines = futures::StreamExt::map(changes, move |line| {
            let _ = &counted;
            Ok(Frame::data(Bytes::from(line.unwrap_or_default())))
        });
        Response::new(UnsyncBoxBody::new(StreamBody::new(lines)))
    }

    fn objects(&self) -> Objects {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = server.serve(&request);
            async move { Ok::<_, Infallible>(answer) }
        });
        Objects::new(kube::Client::new(service, "ns"), Arc::new(SystemClock), 1)
    }

    /// Whether so many watch it once everybody who wants to has begun.
    async fn is_watched_by(&self, count: usize) -> bool {
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.watches.load(Ordering::SeqCst) == count
    }
}

fn map(value: &str, immutable: bool) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "immutable": immutable, "data": {"key": value},
        "metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "1"}})
}

fn value(map: Option<Arc<ConfigMap>>) -> Option<String> {
    map?.data.as_ref()?.get("key").cloned()
}

#[tokio::test(start_paused = true)]
async fn what_never_changes_is_watched_no_longer_and_looked_at_anew_for_a_later_pod() {
    let server = Server::new(Some(map("one", true)));
    let objects = server.objects();
    let (a, b) = (PodUid::from("a"), PodUid::from("b"));
    for _ in 0..2 {
        let found = objects.config_map(&a, "ns", "c").await.expect("answered");
        assert_eq!(value(found).as_deref(), Some("one"));
        assert!(server.is_watched_by(0).await);
    }
    *server.map.lock().expect("unlocked") = Some(map("two", true));
    let found = objects.config_map(&b, "ns", "c").await.expect("answered");
    assert_eq!(value(found).as_deref(), Some("two"), "deleted and made anew meanwhile");
    assert!(server.is_watched_by(0).await);
    objects.release(&a);
    objects.release(&b);
    assert_eq!(objects.watched(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_seen_as_soon_as_it_is_made() {
    let server = Server::new(None);
    let objects = server.objects();
    let pod = PodUid::from("a");
    let mut changes = objects.changes(&pod, &[ObjectRef::config_map("ns", "c")]);
    assert_eq!(
        value(objects.config_map(&pod, "ns", "c").await.expect("answered")),
        None
    );
    assert!(server.is_watched_by(1).await);
    let mut made = map("one", false);
    made["metadata"]["resourceVersion"] = "2".into();
    let line = format!("{}\n", json!({"type": "ADDED", "object": made}));
    server.changes.send(line).expect("watched");
    changes.next().await;
    let found = objects.config_map(&pod, "ns", "c").await.expect("answered");
    assert_eq!(value(found).as_deref(), Some("one"));
    assert!(server.is_watched_by(1).await);
}
