use super::*;
use bytes::Bytes;
use futures::channel::mpsc;
use http::{Request, Response};
use http_body_util::{BodyExt, Either, Full, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

type Frame = Result<http_body::Frame<Bytes>, std::io::Error>;

/// A scripted API server for one resource: it keeps objects and can cut watches or expire revisions.
#[derive(Default)]
struct Script {
    revision: u64,
    objects: BTreeMap<String, Value>,
    watchers: Vec<mpsc::UnboundedSender<Frame>>,
    lists: usize,
    watches: Vec<u64>,
    expired_below: u64,
    fail_lists: usize,
    /// What failing lists are answered with, in place of 503.
    fail_with: Option<u16>,
    /// Whether informers read objects by way of trees.
    by_trees: bool,
    /// What the next lists are answered with, in place of what there is.
    answers: Vec<String>,
    log: Vec<(u64, Value)>,
}

#[derive(Clone, Default)]
struct Server(Arc<Mutex<Script>>);

fn line(value: &Value) -> Frame {
    Ok(http_body::Frame::data(Bytes::from(format!("{value}\n"))))
}

fn gone() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "too old", "reason": "Expired", "code": 410})
}

impl Server {
    fn script(&self) -> std::sync::MutexGuard<'_, Script> {
        self.0.lock().unwrap()
    }

    fn write(&self, name: &str, data: Option<&str>) {
        let mut s = self.script();
        s.revision += 1;
        let revision = s.revision;
        let meta = json!({"name": name, "namespace": "default", "uid": name, "resourceVersion": revision.to_string(),
            "managedFields": [{"manager": "x"}]});
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"v": data.unwrap_or("")}});
        let kind = match data {
            None => {
                s.objects.remove(name);
                "DELETED"
            }
            Some(_) if s.objects.insert(name.to_owned(), object.clone()).is_some() => "MODIFIED",
            Some(_) => "ADDED",
        };
        let event = json!({"type": kind, "object": object});
        s.log.push((revision, event.clone()));
        s.watchers.retain(|w| w.unbounded_send(line(&event)).is_ok());
    }

    fn cut_watches(&self) {
        self.script().watchers.clear();
    }

    fn expire(&self) {
        let mut s = self.script();
        s.revision += 1;
        s.expired_below = s.revision;
        s.watchers.clear();
    }

    fn answer(
        &self,
        request: &Request<Body>,
    ) -> Response<Either<Full<Bytes>, StreamBody<mpsc::UnboundedReceiver<Frame>>>> {
        let mut s = self.script();
        let query = request.uri().query().unwrap_or_default().to_owned();
        if query.contains("watch=true") {
            let from = query
                .split('&')
                .find_map(|p| p.strip_prefix("resourceVersion="))
                .unwrap();
            let from: u64 = from.parse().unwrap();
            s.watches.push(from);
            let (send, receive) = mpsc::unbounded();
            if from < s.expired_below {
                send.unbounded_send(line(&json!({"type": "ERROR", "object": gone()})))
                    .unwrap();
            } else {
                for (_, event) in s.log.iter().filter(|(r, _)| *r > from) {
                    send.unbounded_send(line(event)).unwrap();
                }
                s.watchers.push(send);
            }
            return Response::new(Either::Right(StreamBody::new(receive)));
        }
        s.lists += 1;
        if s.fail_lists > 0 {
            s.fail_lists -= 1;
            return Response::builder()
                .status(s.fail_with.unwrap_or(503))
                .body(Either::Left(Full::from("busy")))
                .unwrap();
        }
        if let Some(text) = s.answers.pop() {
            return Response::new(Either::Left(Full::from(text)));
        }
        let items: Vec<_> = s.objects.values().cloned().collect();
        let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "items": items,
            "metadata": {"resourceVersion": s.revision.to_string()}});
        Response::new(Either::Left(Full::from(list.to_string())))
    }

    fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let response = server.answer(&request);
            async move { Ok::<_, std::io::Error>(response.map(|b| b.map_err(tower::BoxError::from))) }
        });
        kube::Client::new(service, "default")
    }

    fn reflector(&self, listener: impl Listener<ConfigMap>) -> Reflector {
        Reflector::spawn(Api::namespaced(self.client(), "default"), Options::default(), listener)
    }

    fn informer(&self) -> Informer<ConfigMap> {
        let client = self.client();
        match self.script().by_trees {
            true => Informer::spawn_as_tree(Api::namespaced(client, "default"), Options::default()),
            false => Informer::spawn(Api::namespaced(client, "default"), Options::default()),
        }
    }
}

fn value(informer: &Informer<ConfigMap>, name: &str) -> Option<String> {
    informer
        .get("default", name)
        .and_then(|c| c.data.clone())
        .and_then(|d| d.get("v").cloned())
}

#[tokio::test(start_paused = true)]
async fn lists_then_follows() {
    list_then_follow(Server::default()).await;
}

#[tokio::test(start_paused = true)]
async fn lists_then_follows_by_way_of_trees() {
    let server = Server::default();
    server.script().by_trees = true;
    list_then_follow(server).await;
}

async fn list_then_follow(server: Server) {
    server.write("a", Some("1"));
    let informer = server.informer();
    informer.synced().await;
    assert_eq!(value(&informer, "a").as_deref(), Some("1"));
    assert_eq!(informer.get("default", "a").unwrap().metadata.managed_fields, None);
    server.write("b", Some("2"));
    server.write("a", None);
    informer.wait_for_revision(3).await;
    assert_eq!(
        (value(&informer, "a"), value(&informer, "b").as_deref()),
        (None, Some("2"))
    );
    assert_eq!(informer.revision(), 3);
}

#[tokio::test(start_paused = true)]
async fn resumes_after_a_cut_without_listing() {
    let server = Server::default();
    server.write("a", Some("1"));
    let informer = server.informer();
    informer.synced().await;
    server.write("a", Some("2"));
    informer.wait_for_revision(2).await;
    server.cut_watches();
    server.write("a", Some("3"));
    informer.wait_for_revision(3).await;
    assert_eq!(value(&informer, "a").as_deref(), Some("3"));
    let script = server.script();
    assert_eq!((script.lists, script.watches.clone()), (1, vec![1, 2]));
}

#[tokio::test(start_paused = true)]
async fn lists_again_when_the_revision_expired_and_tells_of_deletions() {
    list_again(Server::default()).await;
}

#[tokio::test(start_paused = true)]
async fn lists_again_by_way_of_trees() {
    let server = Server::default();
    server.script().by_trees = true;
    list_again(server).await;
}

async fn list_again(server: Server) {
    server.write("a", Some("1"));
    server.write("b", Some("1"));
    let informer = server.informer();
    informer.synced().await;
    let mut changes = informer.subscribe();
    assert_eq!(changes.next().await.len(), 2);
    server.expire();
    server.script().log.clear();
    server.script().objects.remove("a");
    let seen = changes.next().await;
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].key, Key::new("default", "a"));
    assert!(seen[0].old.is_some() && seen[0].new.is_none());
    assert_eq!(server.script().lists, 2);
}

#[tokio::test(start_paused = true)]
async fn failed_lists_are_retried() {
    let server = Server::default();
    server.script().fail_lists = 5;
    server.write("a", Some("1"));
    let informer = server.informer();
    informer.synced().await;
    assert_eq!(server.script().lists, 6);
    assert!(value(&informer, "a").is_some());
}

#[tokio::test(start_paused = true)]
async fn who_need_not_wait_for_what_is_refused_does_not() {
    for (code, is_known, lists) in [(404, false, 1), (403, false, 1), (503, true, 6)] {
        let server = Server::default();
        (server.script().fail_lists, server.script().fail_with) = (5, Some(code));
        let informer = server.informer();
        assert_eq!(informer.synced_or_refused().await, is_known, "{code}");
        assert_eq!(server.script().lists, lists, "{code}");
        // It is asked again.
        informer.synced().await;
        assert!(informer.synced_or_refused().await, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn unread_changes_merge() {
    let server = Server::default();
    server.write("a", Some("1"));
    let informer = server.informer();
    informer.synced().await;
    let mut changes = informer.subscribe();
    assert_eq!(changes.take().len(), 1);
    for i in 2..=5 {
        server.write("a", Some(&i.to_string()));
    }
    server.write("new", Some("x"));
    server.write("new", None);
    informer.wait_for_revision(7).await;
    let seen = changes.take();
    assert_eq!(seen.len(), 1, "created and deleted unread: nothing to tell");
    let version = |o: &Option<Arc<ConfigMap>>| o.as_ref().map(|o| revision_of(&**o));
    assert_eq!((version(&seen[0].old), version(&seen[0].new)), (Some(1), Some(5)));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_ends_the_watch() {
    let server = Server::default();
    let informer = server.informer();
    informer.synced().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(informer);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let watches = server.script().watches.len();
    server.cut_watches();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.script().watches.len(), watches);
}

#[tokio::test(start_paused = true)]
async fn an_event_may_come_in_pieces_and_a_watch_end_in_the_middle_of_one() {
    let server = Server::default();
    let informer = server.informer();
    informer.synced().await;
    while server.script().watchers.is_empty() {
        tokio::task::yield_now().await;
    }
    let text = |name: &str, revision: u64, size: usize| {
        let meta = json!({"name": name, "namespace": "default", "uid": name, "resourceVersion": revision.to_string()});
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"v": "x".repeat(size)}});
        format!("{}\n", json!({"type": "ADDED", "object": object}))
    };
    let send = |piece: &str| {
        let piece = Bytes::copy_from_slice(piece.as_bytes());
        let sent = server.script().watchers[0].unbounded_send(Ok(http_body::Frame::data(piece)));
        sent.unwrap();
    };
    let (large, small) = (text("a", 1, 100_000), text("b", 2, 1));
    let (head, tail) = large.split_at(70_000);
    send(head);
    send(&format!("{tail}{small}"));
    informer.wait_for_revision(2).await;
    assert_eq!(value(&informer, "a").map(|text| text.len()), Some(100_000));
    assert_eq!(value(&informer, "b").as_deref(), Some("x"));
    send(&text("c", 3, 1)[..20]);
    server.script().revision = 2;
    server.cut_watches();
    server.write("d", Some("later"));
    informer
        .wait_until(|informer| informer.get("default", "d").is_some())
        .await;
    assert!(informer.get("default", "c").is_none());
    assert_eq!(server.script().lists, 1, "it went on from where it was");
}

/// What a listener was told, in words.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    async fn until(&self, count: usize) -> Vec<String> {
        let told = async {
            while self.0.lock().unwrap().len() < count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let told = tokio::time::timeout(Duration::from_secs(600), told).await;
        assert!(told.is_ok(), "{:?}", self.0.lock().unwrap());
        self.0.lock().unwrap().clone()
    }
}

fn said(map: &ConfigMap) -> String {
    let data = map.data.iter().flatten().map(|(_, value)| value.as_str());
    format!("{}={}", map.metadata.name.as_deref().unwrap(), data.collect::<String>())
}

impl Listener<ConfigMap> for Heard {
    fn all(&self, objects: Listed<'_, ConfigMap>) -> Result<(), serde_json::Error> {
        let mut told = Vec::new();
        for object in objects {
            match object {
                Ok(object) => told.push(said(&object)),
                Err(error) => {
                    self.note(format!("some {}", told.join(" ")));
                    return Err(error);
                }
            }
        }
        self.note(format!("all {}", told.join(" ")));
        Ok(())
    }

    fn there(&self, object: ConfigMap) {
        assert_eq!(object.metadata.managed_fields, None);
        self.note(said(&object));
    }

    fn gone(&self, object: ConfigMap) {
        self.note(format!("gone {}", said(&object)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_is_told_once_and_in_order_and_of_all_when_a_revision_expired() {
    let server = Server::default();
    server.write("a", Some("1"));
    server.write("b", Some("1"));
    server.script().fail_lists = 1;
    let heard = Heard::default();
    let reflector = server.reflector(heard.clone());
    reflector.synced().await;
    assert_eq!(heard.until(1).await, ["all a=1 b=1"]);
    server.write("a", Some("2"));
    server.write("c", Some("1"));
    server.write("b", None);
    assert_eq!(heard.until(4).await[1..], ["a=2", "c=1", "gone b="]);
    server.expire();
    server.script().log.clear();
    server.script().objects.remove("a");
    assert_eq!(heard.until(5).await[4], "all c=1");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_cannot_be_read_is_told_as_far_as_it_can_and_asked_for_again() {
    let server = Server::default();
    server.write("a", Some("1"));
    let map = |name: &str, data: Value| json!({"metadata": {"name": name, "namespace": "default"}, "data": data});
    let list = |second: Value| {
        let items = [map("a", json!({"v": "0"})), map("b", second)];
        json!({"metadata": {"resourceVersion": "1"}, "items": items})
    };
    // Nobody writes lists like this; they can be read all the same.
    let blanks = serde_json::to_string_pretty(&list(json!({"v": "2"}))).unwrap();
    server.script().answers = vec![blanks, list(json!(5)).to_string()];
    let heard = Heard::default();
    let reflector = server.reflector(heard.clone());
    reflector.synced().await;
    assert_eq!(heard.until(2).await, ["some a=0", "all a=0 b=2"]);
}

/// Tells when it hears of an object, and waits until it may go on.
struct Slow(std::sync::mpsc::Sender<()>, Mutex<std::sync::mpsc::Receiver<()>>);

impl Listener<ConfigMap> for Slow {
    fn all(&self, _objects: Listed<'_, ConfigMap>) -> Result<(), serde_json::Error> {
        Ok(())
    }

    fn there(&self, _object: ConfigMap) {
        self.0.send(()).unwrap();
        self.1.lock().unwrap().recv().unwrap();
    }

    fn gone(&self, _object: ConfigMap) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stops_waits_for_what_is_being_told_and_nothing_is_told_afterwards() {
    let server = Server::default();
    let (tell, told) = std::sync::mpsc::channel();
    let (go_on, wait) = std::sync::mpsc::channel();
    let reflector = server.reflector(Slow(tell, Mutex::new(wait)));
    reflector.synced().await;
    server.write("a", Some("1"));
    let told = tokio::task::spawn_blocking(move || told.recv().map(|()| told)).await;
    let told = told.unwrap().unwrap();
    let mut stopping = std::pin::pin!(reflector.stop());
    assert!(futures::poll!(stopping.as_mut()).is_pending());
    go_on.send(()).unwrap();
    stopping.await;
    server.write("b", Some("1"));
    assert!(told.recv().is_err(), "it is gone");
}
