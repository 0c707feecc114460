use super::*;
use crate::id::{ContainerId, SandboxId};
use crate::runtime::fake::{Behaviour, FakeRuntime, Faults, Mishap, Run};
use crate::runtime::labels;
use client::TokioClock;
use jiff::Timestamp;
use proto::cri as pb;
use tokio_util::sync::CancellationToken;

fn fake() -> FakeRuntime {
    let fake = FakeRuntime::new(Arc::new(TokioClock::starting_at(Timestamp::UNIX_EPOCH)), 1);
    fake.add_image("img");
    fake
}

async fn start(fake: &FakeRuntime, uid: &str) -> (SandboxId, ContainerId) {
    let labels = [(labels::POD_UID.to_owned(), uid.to_owned())];
    let sandbox = pb::PodSandboxConfig {
        labels: labels.clone().into_iter().collect(),
        ..Default::default()
    };
    let id = fake.run_pod_sandbox(sandbox.clone(), "").await.expect("sandbox");
    let config = pb::ContainerConfig {
        metadata: Some(pb::ContainerMetadata {
            name: "c".into(),
            attempt: 0,
        }),
        image: Some(pb::ImageSpec {
            image: "img".into(),
            ..Default::default()
        }),
        labels: labels
            .into_iter()
            .chain([(labels::CONTAINER_NAME.to_owned(), "c".to_owned())])
            .collect(),
        ..Default::default()
    };
    let container = fake.create_container(&id, config, &sandbox).await.expect("create");
    fake.start_container(&container).await.expect("start");
    (id, container)
}

fn state(watch: &watch::Receiver<Option<Arc<ObservedPod>>>) -> Option<ContainerState> {
    watch.borrow().as_deref().and_then(|o| o.newest("c")).map(|c| c.state)
}

async fn until(watch: &mut watch::Receiver<Option<Arc<ObservedPod>>>, wanted: ContainerState) {
    let seen = watch.wait_for(|o| {
        o.as_deref()
            .and_then(|o| o.newest("c"))
            .is_some_and(|c| c.state == wanted)
    });
    tokio::time::timeout(Duration::from_secs(300), seen)
        .await
        .expect("observed in time")
        .expect("open");
}

fn observer(fake: &FakeRuntime, sweep_seconds: u64) -> Pleg {
    let clock = Arc::new(client::TokioClock::starting_at(jiff::Timestamp::UNIX_EPOCH));
    let metrics = crate::metrics::Metrics::new("n").pods;
    Pleg::new(
        Arc::new(fake.clone()),
        Duration::from_secs(sweep_seconds),
        clock,
        metrics,
    )
}

#[tokio::test(start_paused = true)]
async fn an_exit_is_observed_by_its_event_long_before_a_sweep() {
    let fake = fake();
    let run = Run::For {
        duration: Duration::from_secs(5),
        exit_code: 3,
    };
    fake.script_image(
        "img",
        Behaviour {
            run,
            ..Behaviour::default()
        },
    );
    let pleg = observer(&fake, 3600);
    let shutdown = CancellationToken::new();
    tokio::spawn(pleg.clone().run(shutdown.clone()));
    let mut watch = pleg.watch(&"u".into());
    start(&fake, "u").await;
    pleg.refresh(&"u".into()).await.expect("refresh");
    assert_eq!(state(&watch), Some(ContainerState::Running));
    let before = tokio::time::Instant::now();
    until(&mut watch, ContainerState::Exited).await;
    assert!(
        before.elapsed() < Duration::from_secs(60),
        "seen by a sweep, not by the event"
    );
    shutdown.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_lost_event_is_healed_by_the_sweep() {
    let fake = fake();
    let run = Run::For {
        duration: Duration::from_secs(5),
        exit_code: 3,
    };
    fake.script_image(
        "img",
        Behaviour {
            run,
            ..Behaviour::default()
        },
    );
    fake.set_faults(Faults {
        drop_event: 1.0,
        ..Faults::default()
    });
    let pleg = observer(&fake, 30);
    let shutdown = CancellationToken::new();
    tokio::spawn(pleg.clone().run(shutdown.clone()));
    start(&fake, "u").await;
    let mut watch = pleg.watch(&"u".into());
    until(&mut watch, ContainerState::Exited).await;
    assert!(fake.faults_seen()["drop_event"] > 0);
    assert!(pleg.known().borrow().contains(&PodUid::from("u")));
    shutdown.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_hung_call_holds_up_one_pod_only() {
    let fake = fake();
    start(&fake, "a").await;
    start(&fake, "b").await;
    let pleg = observer(&fake, 3600);
    fake.next("ContainerStatus", Mishap::Hang);
    let (other, stuck) = (pleg.clone(), pleg.clone());
    let hung = tokio::spawn(async move { stuck.refresh(&"a".into()).await });
    tokio::task::yield_now().await;
    let looked = tokio::time::timeout(Duration::from_secs(1), other.refresh(&"b".into())).await;
    looked.expect("not held up").expect("refresh");
    assert!(hung.await.expect("task").is_err());
    pleg.refresh(&"a".into()).await.expect("the next look works");
    assert_eq!(state(&pleg.watch(&"a".into())), Some(ContainerState::Running));
}

#[tokio::test(start_paused = true)]
async fn a_pod_unknown_after_a_sweep_is_observed_as_empty_without_asking() {
    let fake = fake();
    let pleg = observer(&fake, 30);
    assert!(pleg.watch(&"x".into()).borrow().is_none());
    pleg.sweep().await.expect("sweep");
    let calls = fake.calls().len();
    assert!(
        pleg.watch(&"new".into())
            .borrow()
            .as_deref()
            .is_some_and(ObservedPod::is_empty)
    );
    assert_eq!(fake.calls().len(), calls);
}

fn looks(fake: &FakeRuntime) -> usize {
    let calls = fake.calls();
    calls.iter().filter(|call| call.starts_with("ListContainers")).count()
}

/// An observer at work, and a pod it observes as running.
async fn at_work(fake: &FakeRuntime) -> (Pleg, watch::Receiver<Option<Arc<ObservedPod>>>) {
    let pleg = observer(fake, 3600);
    tokio::spawn(pleg.clone().run(CancellationToken::new()));
    start(fake, "u").await;
    let mut watch = pleg.watch(&"u".into());
    until(&mut watch, ContainerState::Running).await;
    // What the first sweep looks at is over by then.
    tokio::time::sleep(Duration::from_secs(60)).await;
    (pleg, watch)
}

/// The id of the one container there is.
fn only(fake: &FakeRuntime) -> String {
    fake.containers()[0].id.to_string()
}

#[tokio::test(start_paused = true)]
async fn the_end_of_what_is_being_stopped_is_seen_by_the_look_of_its_stop() {
    let fake = fake();
    let (pleg, watch) = at_work(&fake).await;
    let before = looks(&fake);
    let ending = pleg.ending(&"u".into(), only(&fake));
    assert!(fake.crash(&"u".into(), "c", 1));
    tokio::time::sleep(EVENT_PATIENCE / 2).await;
    assert_eq!(looks(&fake), before, "the stop's look is waited for");
    pleg.refresh(&"u".into()).await.expect("refresh");
    drop(ending);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(state(&watch), Some(ContainerState::Exited));
    assert_eq!(looks(&fake), before + 1, "{:?}", fake.calls());
}

#[tokio::test(start_paused = true)]
async fn a_stop_holds_no_event_up_for_long_and_those_of_others_not_at_all() {
    for (being_stopped, most) in [
        (None, EVENT_PATIENCE / 2),
        (Some("other"), EVENT_PATIENCE / 2),
        (Some(""), EVENT_PATIENCE * 2),
    ] {
        let fake = fake();
        let (pleg, mut watch) = at_work(&fake).await;
        let id = being_stopped.map(|id| if id.is_empty() { only(&fake) } else { id.to_owned() });
        let _ending = id.map(|id| pleg.ending(&"u".into(), id));
        let before = tokio::time::Instant::now();
        assert!(fake.crash(&"u".into(), "c", 1));
        until(&mut watch, ContainerState::Exited).await;
        assert!(before.elapsed() < most, "{being_stopped:?}: {:?}", before.elapsed());
    }
}

/// How many lists of everything were made.
fn sweeps(fake: &FakeRuntime) -> usize {
    let calls = fake.calls();
    calls.iter().filter(|call| call.trim_end() == "ListPodSandbox").count()
}

#[tokio::test(start_paused = true)]
async fn without_events_an_exit_is_observed_by_a_quick_sweep_until_there_are_some() {
    let fake = fake();
    fake.set_has_events(false);
    let (pleg, mut watch) = at_work(&fake).await;
    let (before, begun) = (sweeps(&fake), tokio::time::Instant::now());
    assert!(fake.crash(&"u".into(), "c", 1));
    until(&mut watch, ContainerState::Exited).await;
    assert!(begun.elapsed() < RELIST_EVERY * 2, "{:?}", begun.elapsed());
    tokio::time::sleep(RELIST_EVERY * 100).await;
    let quick = sweeps(&fake) - before;
    assert!((90..=102).contains(&quick), "{quick}");
    fake.set_has_events(true);
    // By then it was asked again.
    tokio::time::sleep(Duration::from_secs(120)).await;
    let before = sweeps(&fake);
    tokio::time::sleep(Duration::from_secs(3000)).await;
    assert_eq!(sweeps(&fake), before, "events are told: the next sweep is the slow one");
    drop(pleg);
}

#[tokio::test(start_paused = true)]
async fn a_hung_look_is_not_asked_for_again_by_every_quick_sweep() {
    let fake = fake();
    fake.set_has_events(false);
    let (pleg, mut watch) = at_work(&fake).await;
    for _ in 0..2 {
        fake.next("ContainerStatus", Mishap::Hang);
    }
    let (before, lists) = (looks(&fake), sweeps(&fake));
    assert!(fake.crash(&"u".into(), "c", 1));
    tokio::time::sleep(RELIST_EVERY * 60).await;
    assert!(sweeps(&fake) - lists >= 55, "the sweeps go on");
    let of_pod = looks(&fake) - before - (sweeps(&fake) - lists);
    assert!(of_pod <= 1, "{of_pod} looks began");
    assert!(pleg.inner.tasks.len() <= 3, "{} tasks wait", pleg.inner.tasks.len());
    until(&mut watch, ContainerState::Exited).await;
}
