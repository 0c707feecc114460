//! What is asked of the server before writes that depend on it, and turns on the thread.

use super::*;
use crate::controller::kept::Kept;
use crate::controller::tests::world::informers_of;
use crate::controller::write::{Adopter, PODS, PatchKind, REPLICA_SETS};
use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;

struct Nothing;

impl Controller for Nothing {
    const NAME: &'static str = "nothing";

    fn wire(&self, _wiring: &mut Wiring) {}

    fn plan(&self, _key: &Key, _now: Timestamp) -> Plan {
        Plan::default()
    }
}

/// Of a server whose owner has this deletionTimestamp, if it has any; each method it is asked by is told.
fn running(deleted: Option<&'static str>) -> (Running<Nothing>, mpsc::UnboundedReceiver<Method>) {
    let (tell, told) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_watched = request.uri().query().is_some();
        let tell = tell.clone();
        async move {
            if is_watched {
                // An informer's list.
                std::future::pending::<()>().await;
            }
            tell.send(request.method().clone()).unwrap();
            let object = json!({"metadata": {"uid": "u", "deletionTimestamp": deleted, "resourceVersion": "7"}});
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(object.to_string().into_bytes())))
        }
    });
    (running_over(Nothing, kube::Client::new(service, "default")), told)
}

fn running_over<C: Controller>(controller: C, client: kube::Client) -> Running<C> {
    let clock: Arc<dyn Clock> = Arc::new(client::SystemClock);
    let environment = Environment {
        informers: Informers::spawn(&client, 0, Kept::Asked),
        recorder: Recorder::spawn(client.clone(), Arc::clone(&clock), "nothing"),
        client,
        clock,
        metrics: QueueMetrics::default(),
        shutdown: CancellationToken::new(),
    };
    Running {
        controller,
        queue: Arc::new(Queue::counted(environment.metrics.clone())),
        environment,
        failures: Mutex::default(),
        repeats: Mutex::default(),
        named: AtomicU64::new(0),
    }
}

fn patches() -> Vec<Write> {
    let adopter = Arc::new(Adopter {
        resource: REPLICA_SETS,
        key: Key::new("default", "web"),
        uid: "u".to_owned(),
    });
    let patch = |name: &str| Write::patch(PODS, Key::new("default", name), PatchKind::Strategic, json!({}));
    vec![patch("stranger"), patch("orphan").adopted_by(&adopter)]
}

#[tokio::test(start_paused = true)]
async fn nothing_is_given_to_an_owner_that_goes_though_no_informer_shows_it() {
    let key = Key::new("default", "web");
    let (refusing, mut told) = running(Some("2026-01-01T00:00:00Z"));
    let writes = patches();
    let refused = timeout(Duration::from_secs(60), refusing.batches(&key, &writes));
    let failure = refused.await.expect("nothing is written").unwrap();
    assert_eq!(
        failure.message,
        "default/web has just been deleted at 2026-01-01T00:00:00Z"
    );
    assert_eq!((told.try_recv().ok(), told.try_recv().ok()), (Some(Method::GET), None));

    let (adopting, mut told) = running(None);
    let mut methods = Vec::new();
    tokio::select! {
        biased;
        // It waits for an informer that shows nothing.
        _ = adopting.batches(&key, &writes) => panic!("nothing shows the write"),
        () = async {
            while methods.len() < 2 {
                methods.push(told.recv().await.unwrap());
            }
        } => {}
    }
    assert_eq!(methods, [Method::GET, Method::PATCH]);
    let (other, mut told) = running(None);
    tokio::select! {
        biased;
        _ = other.batches(&key, &writes[..1]) => panic!("nothing shows the write"),
        method = told.recv() => assert_eq!(method, Some(Method::PATCH), "who lets go is asked nothing"),
    }
}

/// Whose writes have nothing to do with each other.
struct Alone;

impl Controller for Alone {
    const NAME: &'static str = "alone";
    const EACH_ALONE: bool = true;

    fn wire(&self, _wiring: &mut Wiring) {}

    fn plan(&self, _key: &Key, _now: Timestamp) -> Plan {
        Plan::default()
    }
}

/// Whose deletions have nothing to do with what comes after them.
struct Deleting;

impl Controller for Deleting {
    const NAME: &'static str = "deleting";
    const DELETIONS_ALONE: bool = true;

    fn wire(&self, _wiring: &mut Wiring) {}

    fn plan(&self, _key: &Key, _now: Timestamp) -> Plan {
        Plan::default()
    }
}

/// Of a server that answers what concerns `held` with that code, and counts what it is asked.
fn answering<C: Controller>(controller: C, code: u16) -> (Running<C>, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_watched = request.uri().query().is_some();
        let is_held = request.uri().path().ends_with("/held");
        let counting = Arc::clone(&counting);
        async move {
            if is_watched {
                // An informer's list.
                std::future::pending::<()>().await;
            }
            counting.fetch_add(1, Ordering::Relaxed);
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "x",
                "message": "no", "metadata": {}});
            let (code, body) = if is_held { (code, status) } else { (200, json!({})) };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap())
        }
    });
    (running_over(controller, kube::Client::new(service, "default")), asked)
}

#[tokio::test(start_paused = true)]
async fn what_the_server_refuses_of_one_deletion_stands_in_no_others_way() {
    let delete = |name: &str| {
        let verb = Verb::Delete {
            uid: "u".to_owned(),
            revision: None,
            grace: None,
            propagation: None,
        };
        Write::new(PODS, Key::new("default", name), verb)
    };
    let key = Key::new("default", "web");
    let deletions: Vec<Write> = ["held", "a", "b", "c"].map(delete).into();
    // A plan that does other things, too, may go by what was done before; and who does not answer answers no other.
    let held = Write::patch(PODS, Key::new("default", "held"), PatchKind::Strategic, json!({}));
    let mixed = vec![held, delete("a")];
    let patch = |name: &str| Write::patch(PODS, Key::new("default", name), PatchKind::Strategic, json!({}));
    let then = vec![delete("held"), delete("a"), patch("b/held"), patch("c")];
    for (name, code, writes, expected) in [
        ("a webhook", 403, &deletions, 4),
        ("a conflict", 409, &deletions, 4),
        ("too many requests", 429, &deletions, 1),
        ("its own failure", 500, &deletions, 1),
        ("steps", 403, &mixed, 1),
    ] {
        let (running, asked) = answering(Nothing, code);
        let failure = running.batches(&key, writes).await.unwrap();
        assert_eq!(
            (failure.code, asked.load(Ordering::Relaxed)),
            (code, expected),
            "{name}"
        );
    }
    let (running, asked) = answering(Alone, 403);
    let failure = running.batches(&key, &mixed).await.unwrap();
    assert_eq!((failure.code, asked.load(Ordering::Relaxed)), (403, 2));
    for (code, expected) in [(403, 3), (500, 1)] {
        let (running, asked) = answering(Deleting, code);
        let failure = running.batches(&key, &then).await.unwrap();
        assert_eq!(
            (failure.code, asked.load(Ordering::Relaxed)),
            (code, expected),
            "what is no deletion stops all"
        );
    }
    let (running, asked) = answering(Nothing, 403);
    running.batches(&key, &then).await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

/// Wants nothing, and counts how often it is asked.
struct Counting(Arc<AtomicU64>);

impl Controller for Counting {
    const NAME: &'static str = "counting";

    fn wire(&self, _wiring: &mut Wiring) {}

    fn plan(&self, _key: &Key, _now: Timestamp) -> Plan {
        self.0.fetch_add(1, Ordering::Relaxed);
        Plan::default()
    }
}

#[tokio::test(start_paused = true)]
async fn others_on_the_thread_have_their_turn_between_plans_without_writes() {
    let (Running { mut environment, .. }, _told) = running(None);
    environment.informers = informers_of(BTreeMap::new());
    environment.informers.synced().await;
    let planned = Arc::new(AtomicU64::new(0));
    let counting = Running {
        controller: Counting(Arc::clone(&planned)),
        queue: Arc::new(Queue::counted(environment.metrics.clone())),
        environment,
        failures: Mutex::default(),
        repeats: Mutex::default(),
        named: AtomicU64::new(0),
    };
    ["a", "b"]
        .iter()
        .for_each(|name| counting.queue.add(Key::new("default", *name)));
    let mut processing = std::pin::pin!(counting.process_queue());
    for expected in [1, 2] {
        assert!(futures::poll!(processing.as_mut()).is_pending());
        assert_eq!(planned.load(Ordering::Relaxed), expected);
    }
}
