use super::entry::{HOLD_DELETING, HOLD_PENDING};
use super::*;
use crate::pod::testing::pod;
use http::{Request, Response};
use k8s_openapi::api::core::v1::{HostIP, PodCondition, PodIP};
use kube::client::Body;
use serde_json::{Value, json};

/// An API server that records what it is asked and answers with scripted codes.
#[derive(Clone, Default)]
struct Server {
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    codes: Arc<Mutex<Vec<u16>>>,
}

impl Server {
    fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let line = format!("{} {}", request.method(), request.uri().path());
                let bytes = request.into_body().collect_bytes().await.expect("body");
                let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                let mut codes = server.codes.lock().expect("codes");
                let code = if codes.is_empty() { 200 } else { codes.remove(0) };
                server.asked.lock().expect("asked").push((line, body));
                let reply = if code == 200 {
                    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "resourceVersion": "7"}})
                } else {
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no",
                           "reason": "x"})
                };
                let response = Response::builder()
                    .status(code)
                    .body(Body::from(reply.to_string().into_bytes()));
                Ok::<_, std::convert::Infallible>(response.expect("response"))
            }
        });
        kube::Client::new(service, "default")
    }

    fn asked(&self) -> Vec<String> {
        self.asked
            .lock()
            .expect("asked")
            .iter()
            .map(|(line, _)| line.clone())
            .collect()
    }

    async fn until(&self, count: usize) {
        for _ in 0..10_000 {
            if self.asked().len() >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("only {:?}", self.asked());
    }
}

fn update(phase: &str, delete: bool) -> Update {
    let status = PodStatus {
        phase: Some(phase.into()),
        ..PodStatus::default()
    };
    Update {
        pod: Arc::new(pod("p").build()),
        status: Arc::new(status),
        delete,
    }
}

fn started(server: &Server) -> (StatusWriter, CancellationToken) {
    let (_, pods) = watch::channel(Pods::default());
    started_with(server, pods)
}

fn started_with(server: &Server, pods: watch::Receiver<Pods>) -> (StatusWriter, CancellationToken) {
    let writer = StatusWriter::new(crate::metrics::Metrics::new("n").pods);
    let shutdown = CancellationToken::new();
    tokio::spawn(writer.clone().run(server.client(), pods, shutdown.clone()));
    (writer, shutdown)
}

#[tokio::test(start_paused = true)]
async fn the_end_is_told_before_the_object_is_deleted() {
    let server = Server::default();
    let (writer, _shutdown) = started(&server);
    writer.publish(&"p".into(), update("Succeeded", true));
    server.until(2).await;
    assert_eq!(
        server.asked(),
        [
            "PATCH /api/v1/namespaces/ns/pods/p/status",
            "DELETE /api/v1/namespaces/ns/pods/p"
        ]
    );
    let asked = server.asked.lock().expect("asked").clone();
    assert_eq!(asked[0].1["metadata"]["uid"], "p");
    assert_eq!(asked[1].1["preconditions"]["uid"], "p");
    assert_eq!(asked[1].1["gracePeriodSeconds"], 0);
}

#[tokio::test(start_paused = true)]
async fn the_same_is_not_sent_twice_and_failures_are_tried_again() {
    let server = Server::default();
    *server.codes.lock().expect("codes") = vec![500, 503, 200];
    let (writer, _shutdown) = started(&server);
    writer.publish(&"p".into(), update("Running", false));
    server.until(3).await;
    writer.publish(&"p".into(), update("Running", false));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.asked().len(), 3, "{:?}", server.asked());
    writer.publish(&"p".into(), update("Failed", false));
    server.until(4).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_never_overtakes_a_status_that_was_not_acknowledged() {
    let server = Server::default();
    *server.codes.lock().expect("codes") = vec![500];
    let (writer, _shutdown) = started(&server);
    writer.publish(&"p".into(), update("Failed", true));
    server.until(3).await;
    let verbs: Vec<_> = server.asked().iter().map(|line| line[..4].to_owned()).collect();
    assert_eq!(verbs, ["PATC", "PATC", "DELE"]);
}

#[tokio::test(start_paused = true)]
async fn what_the_server_has_is_not_sent() {
    let server = Server::default();
    let (writer, _shutdown) = started(&server);
    let status = PodStatus {
        phase: Some("Running".into()),
        ..PodStatus::default()
    };
    let mut known = pod("p").build();
    known.status = Some(status.clone());
    writer.publish(
        &"p".into(),
        Update {
            pod: Arc::new(known),
            status: Arc::new(status),
            delete: false,
        },
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(server.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_gone_is_forgotten() {
    let server = Server::default();
    *server.codes.lock().expect("codes") = vec![404];
    let (writer, _shutdown) = started(&server);
    writer.publish(&"p".into(), update("Failed", true));
    server.until(1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.asked().len(), 1);
    assert!(writer.state().entries.is_empty());
}

#[test]
fn a_body_speaks_of_own_conditions_and_replaces_addresses() {
    let condition = |kind: &str| PodCondition {
        type_: kind.into(),
        status: "True".into(),
        ..PodCondition::default()
    };
    let status = PodStatus {
        conditions: Some(vec![condition("Ready"), condition("example.com/gate")]),
        pod_ips: Some(vec![PodIP { ip: "10.0.0.1".into() }]),
        host_ips: Some(vec![HostIP { ip: "192.0.2.7".into() }]),
        ..PodStatus::default()
    };
    let body = body::patch(&pod("p").build(), &status);
    let kinds: Vec<_> = body["status"]["conditions"]
        .as_array()
        .expect("list")
        .iter()
        .map(|c| &c["type"])
        .collect();
    assert_eq!(kinds, ["Ready"]);
    // What it was not ready for would stay.
    let cleared = body["status"]["conditions"][0].as_object().expect("a condition");
    assert!(
        ["reason", "message", "lastProbeTime"]
            .iter()
            .all(|field| cleared.get(*field) == Some(&Value::Null))
    );
    assert_eq!(
        body["status"]["podIPs"],
        json!([{"ip": "10.0.0.1"}, {"$patch": "replace"}])
    );
    assert_eq!(
        body["status"]["hostIPs"],
        json!([{"ip": "192.0.2.7"}, {"$patch": "replace"}])
    );
    assert_eq!(body["status"]["reason"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_that_is_not_about_the_uid_is_tried_again() {
    let server = Server::default();
    *server.codes.lock().expect("codes") = vec![409, 200];
    let (writer, _shutdown) = started(&server);
    writer.publish(&"p".into(), update("Running", false));
    server.until(2).await;
    assert!(!writer.state().entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_static_pod_goes_to_its_mirror() {
    let annotated = |uid: &str, key: &str, value: &str| {
        let mut pod = pod("p").build();
        pod.metadata.uid = Some(uid.into());
        pod.metadata.annotations = Some([(key.to_owned(), value.to_owned())].into());
        Arc::new(pod)
    };
    let mirrors = |uid: &str, hash: &str| {
        let mirror = annotated(uid, pod_object::annotation::MIRROR, hash);
        Pods {
            mirrors: Arc::new([(pod_object::full_name(&mirror), mirror)].into()),
            ..Pods::default()
        }
    };
    let server = Server::default();
    let (known, pods) = watch::channel(mirrors("other", "of another pod"));
    let (writer, _shutdown) = started_with(&server, pods);
    let told = Update {
        pod: annotated("s", pod_object::annotation::SOURCE, "file"),
        ..update("Running", false)
    };
    writer.publish(&"s".into(), told.clone());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.asked().len(), 0, "nothing shows the pod yet");

    known.send_replace(mirrors("m1", "s"));
    server.until(1).await;
    // The mirror is gone, and what comes in its place is told again.
    *server.codes.lock().expect("codes") = vec![404];
    known.send_replace(mirrors("m2", "s"));
    server.until(2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    known.send_replace(mirrors("m3", "s"));
    server.until(3).await;
    writer.publish(&"s".into(), told);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked = server.asked.lock().expect("asked").clone();
    let uids: Vec<_> = asked.iter().map(|(_, body)| body["metadata"]["uid"].clone()).collect();
    assert_eq!(uids, ["m1", "m2", "m3"]);
}

#[test]
fn only_what_changed_is_queued_and_the_end_of_a_pod_overtakes() {
    let writer = StatusWriter::new(crate::metrics::Metrics::new("n").pods);
    let now = Instant::now();
    let running = update("Running", false);
    for uid in ["a", "b"] {
        writer.publish(&uid.into(), running.clone());
    }
    writer.publish(&"b".into(), update("Failed", false));
    let next = || writer.next_job(now).map(|job| job.uid.to_string());
    assert_eq!([next(), next(), next()], [Some("b".into()), Some("a".into()), None]);
    writer.publish(&"a".into(), running);
    assert!(writer.state().queue.is_empty(), "the very same again");
    writer.publish(&"a".into(), update("Failed", false));
    assert_eq!(next(), None, "one write of a pod at a time");
    writer.finish(&"a".into(), Written::No);
    assert_eq!(next(), None, "a failure is not tried again at once");
    assert!(writer.next_retry(now).is_some_and(|at| at > now));
    writer.forget(&"a".into());
    assert!(writer.state().queue.is_empty());
    assert_eq!(writer.next_retry(now), None);
}

/// A status of a pod that is or is not being deleted.
fn told(phase: &str, deleting: bool) -> Update {
    let mut update = update(phase, false);
    let metadata = &mut Arc::make_mut(&mut update.pod).metadata;
    metadata.deletion_timestamp = deleting.then(|| crate::pod::status::seconds(jiff::Timestamp::UNIX_EPOCH));
    update
}

#[tokio::test(start_paused = true)]
async fn what_is_no_news_yet_is_told_with_what_follows_it() {
    for (first, second, writes) in [
        (told("Pending", false), told("Running", false), 1),
        (told("Running", true), told("Succeeded", true), 1),
        (told("Running", false), told("Unknown", false), 2),
    ] {
        let server = Server::default();
        let (writer, _shutdown) = started(&server);
        for update in [&first, &second] {
            writer.publish(&"p".into(), update.clone());
            tokio::time::sleep(HOLD_PENDING / 4).await;
        }
        assert_eq!(server.asked().len(), writes, "{:?}", first.status.phase);
    }
}

#[tokio::test(start_paused = true)]
async fn what_nothing_follows_is_told_alone() {
    for (update, hold) in [
        (told("Pending", false), HOLD_PENDING),
        (told("Running", true), HOLD_DELETING),
    ] {
        let server = Server::default();
        let (writer, _shutdown) = started(&server);
        // Publishing again puts nothing off.
        for share in [0.4, 0.4, 0.4] {
            assert_eq!(server.asked().len(), 0);
            writer.publish(
                &"p".into(),
                Update {
                    status: Arc::new((*update.status).clone()),
                    ..update.clone()
                },
            );
            tokio::time::sleep(hold.mul_f64(share)).await;
        }
        assert_eq!(server.asked().len(), 1);
    }
}

/// On the real clock: the paused one stands still while a thread works.
#[tokio::test]
async fn a_disk_that_hangs_holds_deletions_and_no_status() {
    use crate::events::Recorder;
    let (server, dir) = (Server::default(), tempfile::tempdir().expect("a directory"));
    let clock = Arc::new(client::TokioClock::starting_at(crate::pod::testing::at(0)));
    let recorder = Recorder::new(clock, "n", None, crate::rate::Rate::default(), 1).0;
    let kept = Arc::new(Kept::open(dir.path(), "n", recorder).expect("a folder"));
    let writer = StatusWriter::new(crate::metrics::Metrics::new("n").pods).with_kept(Some(kept.clone()));
    let (_sender, pods) = watch::channel(Pods::default());
    let shutdown = CancellationToken::new();
    let run = tokio::spawn(writer.clone().run(server.client(), pods, shutdown.clone()));
    let hangs = kept.hang();
    for number in 0..2 * WRITES_MAX {
        writer.publish(&PodUid::new(format!("{number}")), update("Succeeded", true));
    }
    server.until(2 * WRITES_MAX).await;
    writer.publish(&PodUid::new("other"), update("Running", false));
    server.until(2 * WRITES_MAX + 1).await;
    let deleted = |server: &Server| server.asked().iter().filter(|line| line.starts_with("DELETE")).count();
    assert_eq!(deleted(&server), 0, "something may still be kept of them");
    drop(hangs);
    server.until(4 * WRITES_MAX + 1).await;
    assert_eq!(deleted(&server), 2 * WRITES_MAX);
    shutdown.cancel();
    run.await.expect("it ends");
}
