//! Candidates over one API server, in one process, under a paused clock. Their wall clocks differ by hours.

use super::*;
use crate::apiserver::user::User;
use crate::apiserver::{ApiServer, Parts};
use crate::controller::event::Recorder;
use crate::metrics::Metrics;
use crate::store::memory::Memory;
use client::TokioClock;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const LEASE: &str = "kube-scheduler";
const DRAIN: Duration = Duration::from_secs(5);

/// Who worked when. Two at once are a mistake that the second one notes.
#[derive(Clone, Default)]
struct Ledger {
    active: Arc<AtomicUsize>,
    begun: Arc<Mutex<Vec<(&'static str, Instant)>>>,
    ended: Arc<Mutex<Vec<(&'static str, Instant)>>>,
    together: Arc<AtomicBool>,
}

/// Work under way, until it is dropped.
struct Working(Ledger, &'static str);

impl Working {
    fn begin(ledger: &Ledger, name: &'static str) -> Self {
        if ledger.active.fetch_add(1, Ordering::SeqCst) > 0 {
            ledger.together.store(true, Ordering::SeqCst);
        }
        ledger.begun.lock().unwrap().push((name, Instant::now()));
        Self(ledger.clone(), name)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::SeqCst);
        self.0.ended.lock().unwrap().push((self.1, Instant::now()));
    }
}

impl Ledger {
    fn last(&self) -> Option<(&'static str, Instant)> {
        self.begun.lock().unwrap().last().copied()
    }

    /// Waits until `name` is the one that began last.
    async fn leads(&self, name: &str) -> Instant {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            if let Some((last, at)) = self.last()
                && last == name
            {
                return at;
            }
            assert!(Instant::now() < deadline, "{name} does not lead");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn ended_at(&self, name: &str) -> Option<Instant> {
        let ended = self.ended.lock().unwrap();
        ended.iter().rev().find(|(who, _)| *who == name).map(|(_, at)| *at)
    }
}

struct World {
    server: ApiServer,
    ledger: Ledger,
}

struct Candidate {
    stop: CancellationToken,
    /// While set, its requests are never answered.
    hangs: Arc<AtomicBool>,
    task: JoinHandle<Outcome>,
    metrics: Arc<Metrics>,
}

impl Candidate {
    fn status(&self) -> i64 {
        self.metrics.leading(LEASE).get()
    }
}

impl World {
    async fn start() -> Self {
        let parts = Parts {
            store: Arc::new(Memory::new()),
            clock: Arc::new(TokioClock::starting_at(Timestamp::from_second(1_800_000_000).unwrap())),
            seed: 7,
            gate: Arc::new(crate::apiserver::gate::Open),
        };
        let server = ApiServer::new(parts).await.unwrap();
        let world = Self {
            server,
            ledger: Ledger::default(),
        };
        let namespace = serde_json::from_value(json!({"metadata": {"name": "kube-system"}})).unwrap();
        let namespaces: Api<Namespace> = Api::all(world.client());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        world
    }

    fn client(&self) -> kube::Client {
        self.server.client_as(User::named("root", &["system:masters"]))
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client(), "kube-system")
    }

    /// A candidate whose wall clock is `off` seconds from the server's, and whose work ignores that it should end if `stubborn`.
    fn candidate(&self, name: &'static str, off: i64, stubborn: bool) -> Candidate {
        let hangs = Arc::new(AtomicBool::new(false));
        let (inner, hanging) = (self.client(), hangs.clone());
        let client = kube::Client::new(
            tower::service_fn(move |request| {
                let (inner, hanging) = (inner.clone(), hanging.clone());
                async move {
                    if hanging.load(Ordering::SeqCst) {
                        std::future::pending::<()>().await;
                    }
                    inner.send(request).await
                }
            }),
            "default",
        );
        let wall = Timestamp::from_second(1_800_000_000 + off).unwrap();
        let clock = Arc::new(TokioClock::starting_at(wall));
        let (stop, metrics) = (CancellationToken::new(), Arc::new(Metrics::default()));
        let election = Election {
            namespace: "kube-system".to_owned(),
            name: LEASE.to_owned(),
            identity: name.to_owned(),
            times: Times::default(),
        };
        let recorder = Recorder::spawn(client.clone(), clock.clone(), LEASE);
        let elector = Elector::new(
            election,
            client,
            clock,
            recorder,
            Fence::default(),
            metrics.leading(LEASE),
        );
        let (ledger, shutdown) = (self.ledger.clone(), stop.clone());
        let work = move |shutdown: CancellationToken| {
            let mut set = JoinSet::new();
            set.spawn(async move {
                let _working = Working::begin(&ledger, name);
                shutdown.cancelled().await;
                if stubborn {
                    std::future::pending::<()>().await;
                }
            });
            set
        };
        Candidate {
            stop,
            hangs,
            task: tokio::spawn(elector.run(work, DRAIN, shutdown)),
            metrics,
        }
    }

    /// Both at once, the first of which leads.
    async fn two(&self, stubborn: bool) -> (Candidate, Candidate) {
        let a = self.candidate("a", 3600, stubborn);
        self.ledger.leads("a").await;
        let b = self.candidate("b", -7200, false);
        // Long after anything that is written in it would be over.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(self.ledger.last().map(|(who, _)| who), Some("a"));
        assert_eq!((a.status(), b.status()), (1, 0));
        (a, b)
    }

    fn never_two(&self) {
        assert!(
            !self.ledger.together.load(Ordering::SeqCst),
            "two worked at the same time"
        );
    }

    async fn events(&self) -> Vec<(String, String)> {
        let events: Api<Event> = Api::namespaced(self.client(), "kube-system");
        let listed = events.list(&ListParams::default()).await.unwrap().items.into_iter();
        listed
            .map(|event| {
                let about = event.involved_object;
                assert_eq!(
                    (about.kind.as_deref(), about.name.as_deref()),
                    (Some("Lease"), Some(LEASE))
                );
                (event.reason.unwrap_or_default(), event.message.unwrap_or_default())
            })
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_kill_the_next_leads_when_the_lease_is_over() {
    let world = World::start().await;
    let (a, b) = world.two(false).await;
    let killed = Instant::now();
    a.task.abort();
    let began = world.ledger.leads("b").await;
    // From when the last renewal was written, which is seen when it is.
    let times = Times::default();
    assert!(began - killed <= times.lease, "{:?}", began - killed);
    assert!(began - killed >= times.lease - times.retry, "{:?}", began - killed);
    assert_eq!(b.status(), 1);
    let spec = world.leases().get(LEASE).await.unwrap().spec.unwrap();
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_transitions),
        (Some("b"), Some(1))
    );
    assert_eq!(spec.lease_duration_seconds, Some(15));
    world.never_two();
}

#[tokio::test(start_paused = true)]
async fn at_a_clean_stop_the_next_leads_at_once_and_events_tell() {
    let world = World::start().await;
    let (a, b) = world.two(false).await;
    let stopped = Instant::now();
    a.stop.cancel();
    assert_eq!(a.task.await.unwrap(), Outcome::Stopped);
    let began = world.ledger.leads("b").await;
    assert!(began - stopped < Duration::from_millis(100), "{:?}", began - stopped);
    world.never_two();
    assert_eq!((a.metrics.leading(LEASE).get(), b.status()), (0, 1));
    let events = world.events().await;
    for message in ["a became leader", "a stopped leading", "b became leader"] {
        let event = ("LeaderElection".to_owned(), message.to_owned());
        assert!(events.contains(&event), "{message} is not in {events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_does_not_end_is_given_up_before_the_lease_is() {
    let world = World::start().await;
    let (a, _b) = world.two(true).await;
    let stopped = Instant::now();
    a.stop.cancel();
    let began = world.ledger.leads("b").await;
    assert!(began - stopped >= DRAIN, "{:?}", began - stopped);
    assert!(world.ledger.ended_at("a").is_some_and(|ended| ended <= began));
    world.never_two();
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_has_ended_before_the_next_begins() {
    let world = World::start().await;
    let (a, _b) = world.two(true).await;
    let cut_off = Instant::now();
    a.hangs.store(true, Ordering::SeqCst);
    assert_eq!(a.task.await.unwrap(), Outcome::Lost);
    let ended = world.ledger.ended_at("a").unwrap();
    assert!(ended - cut_off <= Times::default().renew, "{:?}", ended - cut_off);
    let began = world.ledger.leads("b").await;
    assert!(ended < began);
    world.never_two();
}

#[tokio::test(start_paused = true)]
async fn a_short_silence_of_the_server_changes_nothing() {
    let world = World::start().await;
    let (a, b) = world.two(false).await;
    a.hangs.store(true, Ordering::SeqCst);
    b.hangs.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(7)).await;
    a.hangs.store(false, Ordering::SeqCst);
    b.hangs.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.ledger.last().map(|(who, _)| who), Some("a"));
    assert!(!a.task.is_finished() && !b.task.is_finished());
    world.never_two();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_else_wrote_himself_into_is_given_up_at_once() {
    let world = World::start().await;
    let (a, _b) = world.two(true).await;
    let spec = json!({"spec": {"holderIdentity": "stranger", "leaseDurationSeconds": 30}});
    let leases = world.leases();
    leases
        .patch(LEASE, &PatchParams::default(), &Patch::Merge(spec))
        .await
        .unwrap();
    let stolen = Instant::now();
    assert_eq!(a.task.await.unwrap(), Outcome::Lost);
    let ended = world.ledger.ended_at("a").unwrap();
    assert!(ended - stolen <= Times::default().retry, "{:?}", ended - stolen);
    // The stranger never renews, and had thirty seconds.
    let began = world.ledger.leads("b").await;
    assert!(began - stolen >= Duration::from_secs(30), "{:?}", began - stolen);
    world.never_two();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_stays_its_holders() {
    let world = World::start().await;
    let (a, b) = world.two(false).await;
    world.leases().delete(LEASE, &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!a.task.is_finished() && !b.task.is_finished());
    let spec = world.leases().get(LEASE).await.unwrap().spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("a"));
    world.never_two();
}

#[tokio::test(start_paused = true)]
async fn who_waits_ends_when_told_to() {
    let world = World::start().await;
    let (_a, b) = world.two(false).await;
    b.stop.cancel();
    assert_eq!(b.task.await.unwrap(), Outcome::Stopped);
    assert!(world.ledger.ended_at("b").is_none());
}

#[tokio::test(start_paused = true)]
async fn writes_end_with_the_leaders_time_and_reads_do_not() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, kube::Error>(http::Response::new(kube::client::Body::from(b"{}".to_vec()))) }
    });
    let fence = Fence::default();
    let client = fence.guard(kube::Client::new(service, "default"));
    let ask = async |method: &str| {
        let request = http::Request::builder().method(method).uri("/x");
        let request = request.body(Vec::new()).unwrap();
        client.request::<serde_json::Value>(request).await.is_ok()
    };
    assert!(!ask("POST").await, "it never led");
    assert!(fence.is_healthy());
    fence.extend(Instant::now() + Duration::from_secs(10));
    assert!(ask("POST").await && ask("DELETE").await);
    tokio::time::advance(Duration::from_secs(10)).await;
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        assert!(!ask(method).await, "{method}");
    }
    assert!(ask("GET").await);
    assert_eq!(sent.load(Ordering::SeqCst), 3, "what is refused is not sent");
    assert!(fence.is_healthy());
    tokio::time::advance(Duration::from_secs(20)).await;
    assert!(!fence.is_healthy());
    fence.close();
    assert!(fence.is_healthy() && !fence.holds());
}
