//! What pods are said to have on disk, over real files.

use super::*;
use crate::eviction::notice::tests::told_by;
use crate::eviction::rank::{Candidate, choose};
use crate::eviction::threshold::Amount;
use crate::host::WorkError;
use crate::parts::testing::{context, dependencies};
use crate::pod::testing::{at, container, observed, pod};
use crate::pod::view::Life;
use crate::runtime::RuntimeError;
use crate::runtime::fake::{FakeRuntime, Mishap};
use client::TokioClock;
use proto::api::quantity::Quantity;
use std::fs;
use std::sync::mpsc;
use tonic::Code;

struct World {
    dir: tempfile::TempDir,
    runtime: FakeRuntime,
    sight: Sight,
    events: crate::events::Sink,
    pods: Vec<Arc<PodSnapshot>>,
}

impl World {
    fn new(names: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let clock = Arc::new(TokioClock::starting_at(at(0)));
        let runtime = FakeRuntime::new(clock.clone(), 1);
        let mut node = context();
        node.root_dir = dir.path().join("kubelet");
        node.pod_logs_dir = dir.path().join("logs");
        let (parts, events, _) = Parts::new(dependencies(dir.path(), node, Arc::new(runtime.clone()), clock));
        let snapshot = |name: &&str| {
            let seen = observed(name).sandbox(true).running("c").build();
            Arc::new(PodSnapshot {
                pod: Arc::new(pod(name).with(container("c")).build()),
                status: Arc::default(),
                observed: Arc::new(seen),
                active: true,
                ended: false,
                life: Life::default(),
            })
        };
        Self {
            sight: Sight::new(parts, Roots::default()),
            events,
            pods: names.iter().map(snapshot).collect(),
            runtime,
            dir,
        }
    }

    fn uid(&self, place: usize) -> PodUid {
        pod_object::uid(&self.pods[place].pod)
    }

    /// Makes a file in a pod's own directory.
    fn write(&self, place: usize, name: &str, bytes: usize) {
        let path = self.dir.path().join(format!("kubelet/pods/{}/{name}", self.uid(place)));
        fs::create_dir_all(path.parent().expect("a parent")).expect("dirs");
        fs::write(path, vec![b'x'; bytes]).expect("written");
    }

    async fn uses(&mut self, signal: Signal, disks: Disks) -> Option<Vec<Option<PodUse>>> {
        self.sight.uses(&self.pods, signal, disks).await
    }

    /// Who would go.
    async fn first(&mut self, signal: Signal, disks: Disks) -> Option<PodUid> {
        let uses = self.uses(signal, disks).await?;
        let paired = self.pods.iter().zip(uses);
        let mut candidates: Vec<Candidate<'_>> = paired
            .map(|(snapshot, used)| Candidate {
                pod: &snapshot.pod,
                used,
            })
            .collect();
        choose(&mut candidates, signal, disks).map(|first| pod_object::uid(first.pod))
    }
}

#[tokio::test]
async fn who_has_most_on_disk_goes_and_what_containers_write_into_files_of_the_kubelets_counts() {
    let one = Disks::default();
    let mut world = World::new(&["a", "b", "c"]);
    world.write(0, "etc-hosts", 1_000);
    world.write(1, "etc-hosts", 3_000_000);
    world.write(2, "containers/c/0", 6_000_000);
    assert_eq!(world.first(Signal::NodeFsAvailable, one).await, Some(world.uid(2)));
    world.write(2, "containers/c/0", 0);
    assert_eq!(world.first(Signal::NodeFsAvailable, one).await, Some(world.uid(1)));
    for number in 0..50 {
        world.write(0, &format!("containers/c/{number}"), 0);
    }
    assert_eq!(world.first(Signal::NodeFsInodesFree, one).await, Some(world.uid(0)));
}

/// A count of a pod's that does not end until it is let.
async fn hang(world: &World, place: usize) -> (mpsc::Sender<()>, tokio::task::JoinHandle<Result<bool, WorkError>>) {
    let (go_on, hangs) = mpsc::channel::<()>();
    let (begun, is_begun) = tokio::sync::oneshot::channel();
    let (counts, uid) = (world.sight.measurer.counts.clone(), world.uid(place));
    let hung = tokio::spawn(async move {
        let work = move || (begun.send(()), hangs.recv().is_err());
        counts.run(uid.as_str(), work).await.map(|(_, is_over)| is_over)
    });
    is_begun.await.expect("it begins");
    (go_on, hung)
}

#[tokio::test]
async fn nobody_goes_for_a_pod_whose_files_cannot_be_counted() {
    let one = Disks::default();
    let mut world = World::new(&["a", "hangs"]);
    world.write(0, "etc-hosts", 3_000_000);
    let (go_on, hung) = hang(&world, 1).await;
    // A disk may be busy for once, and for a moment; who is never counted does not stay while everybody else goes.
    for _ in 0..4 {
        assert_eq!(world.first(Signal::NodeFsAvailable, one).await, Some(world.uid(0)));
    }
    assert_eq!(world.events.waiting(), []);
    let uid = world.uid(1);
    assert!(!world.sight.hung.ended(&uid, Instant::now()));
    let long_ago = Instant::now().checked_sub(COUNT_FAIR).expect("the machine is up");
    assert!(!world.sight.hung.hangs(&uid, long_ago));
    for goes in [0, 0, 1] {
        assert_eq!(world.first(Signal::NodeFsAvailable, one).await, Some(world.uid(goes)));
    }
    let told = world.events.waiting();
    let reasons: Vec<&str> = told.iter().map(|(reason, _)| reason.as_str()).collect();
    assert_eq!(reasons, ["VolumeConditionAbnormal"], "{told:?}");
    assert!(told[0].1.starts_with("The pod's files cannot be counted"), "{told:?}");
    drop(go_on);
    assert_eq!(hung.await.expect("it ends"), Ok::<_, WorkError>(true));
    assert_eq!(world.first(Signal::NodeFsAvailable, one).await, Some(world.uid(0)));
}

#[tokio::test]
async fn a_disk_that_stands_still_is_told_of_all_its_pods_and_holds_up_no_eviction() {
    let one = Disks::default();
    let names: Vec<String> = (0..HANGS_MAX + 5).map(|number| format!("p{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = World::new(&names);
    world.write(3, "etc-hosts", 3_000_000);
    assert_eq!(world.first(Signal::NodeFsAvailable, one).await, Some(world.uid(3)));
    let mut hung = Vec::new();
    for place in 0..names.len() {
        hung.push(hang(&world, place).await);
    }
    let long_ago = Instant::now().checked_sub(COUNT_FAIR).expect("the machine is up");
    for place in 0..names.len() {
        let uid = world.uid(place);
        world.sight.hung.hangs(&uid, long_ago);
    }
    // What was counted last decides, and nobody is taken to hide.
    for _ in 0..4 {
        let begun = Instant::now();
        assert_eq!(world.first(Signal::NodeFsAvailable, one).await, Some(world.uid(3)));
        assert!(begun.elapsed() < COUNT_FAIR, "{:?}", begun.elapsed());
    }
    let told = world.events.waiting();
    assert_eq!(told.len(), names.len(), "each once: {told:?}");
    drop(hung);
}

#[tokio::test]
async fn layers_the_runtime_does_not_tell_of_are_as_it_told_them_last() {
    let apart = Disks {
        images_apart: true,
        layers_apart: false,
    };
    let mut world = World::new(&["a", "b"]);
    let fail = |world: &World| {
        let error = RuntimeError::new("ListContainerStats", Code::Unknown, "no");
        world.runtime.next("ListContainerStats", Mishap::Fail(error));
    };
    fail(&world);
    assert_eq!(
        world.uses(Signal::ContainerFsAvailable, apart).await,
        None,
        "nothing tells them apart"
    );
    fail(&world);
    assert!(world.uses(Signal::NodeFsAvailable, apart).await.is_some(), "files do");
    let told = |world: &World, bytes| ContainerUsage {
        pod: Some(world.uid(1)),
        name: "c".to_owned(),
        layer: Some((bytes, 1)),
        ..ContainerUsage::default()
    };
    let usage = told(&world, 9_000);
    world.sight.remember(&world.pods, vec![usage]);
    fail(&world);
    assert_eq!(
        world.first(Signal::ContainerFsAvailable, apart).await,
        Some(world.uid(1))
    );
    world.pods.pop();
    let _others = world.uses(Signal::ContainerFsAvailable, apart).await;
    assert!(world.sight.layers.is_empty(), "pods that are gone are forgotten");
}

#[tokio::test]
async fn a_disk_that_does_not_tell_hides_neither_processes_nor_the_other_disk() {
    let mut world = World::new(&[]);
    fs::create_dir(world.dir.path().join("kubelet")).expect("made");
    world.sight.places = Some(Places {
        images: Some(world.dir.path().to_owned()),
        disks: Disks {
            images_apart: true,
            layers_apart: false,
        },
    });
    let (go_on, hangs) = mpsc::channel::<()>();
    let (begun, is_begun) = tokio::sync::oneshot::channel();
    let looks = world.sight.measurer.looks.clone();
    let hung = tokio::spawn(async move {
        looks
            .run("node disk", move || (begun.send(()), hangs.recv().is_err()))
            .await
    });
    is_begun.await.expect("it begins");
    let told = world.sight.signals(Duration::from_millis(100)).await;
    let is_told = |signal| told.contains_key(&signal);
    assert!(!is_told(Signal::NodeFsAvailable));
    assert!(
        is_told(Signal::ImageFsAvailable) && is_told(Signal::ContainerFsAvailable) && is_told(Signal::PidAvailable)
    );
    drop(go_on);
    let (_, is_over) = hung.await.expect("no panic").expect("it ends");
    assert!(is_over);
    let told = world.sight.signals(DISKS_DEADLINE).await;
    assert!(told.contains_key(&Signal::NodeFsAvailable));
}

/// A machine of 4 GiB of which so much is free, kB.
fn memory_left(world: &World, free: u64) {
    let text = format!("MemTotal: 4194304 kB\nMemFree: {free} kB\n");
    fs::write(world.dir.path().join("meminfo"), text).expect("written");
}

fn below(quantity: &str) -> Threshold {
    Threshold {
        signal: Signal::MemoryAvailable,
        amount: Amount::Quantity(Quantity::parse(quantity).expect("a quantity")),
        grace: Duration::ZERO,
        reclaim: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_stall_is_heeded_at_once_and_a_limit_that_is_filled_once_in_a_second() {
    let mut world = World::new(&[]);
    let (notices, stall, at_limit) = told_by();
    world.sight.memory.notices = Arc::new(notices);
    let memory = world.sight.memory().clone();
    let millis = |begun: Instant| begun.elapsed().as_millis();
    let rest = |seconds| {
        let memory = memory.clone();
        async move {
            let begun = Instant::now();
            let until = begun + Duration::from_secs(seconds);
            memory.rest(&[], &Signals::new(), until).await;
            millis(begun)
        }
    };
    assert_eq!(rest(60).await, 10_000, "the kernel says nothing");
    assert_eq!(rest(5).await, 5_000);
    stall();
    assert_eq!(rest(60).await, 100);
    at_limit();
    assert_eq!(rest(60).await, 1_000);
    at_limit();
    stall();
    assert_eq!((rest(60).await, rest(60).await, rest(60).await), (100, 1_000, 10_000));
}

#[tokio::test(start_paused = true)]
async fn a_stall_is_heeded_while_something_is_done_about_disks() {
    let mut world = World::new(&[]);
    let (notices, stall, _) = told_by();
    world.sight.memory.notices = Arc::new(notices);
    world.sight.memory.roots.proc = world.dir.path().to_owned();
    memory_left(&world, 4_000_000);
    let (thresholds, remembered) = ([below("100Mi")], Remembered::default());
    let memory = world.sight.memory().clone();
    let before = memory.look().await;
    assert!(before.contains_key(&Signal::MemoryAvailable));
    memory_left(&world, 1);
    stall();
    let begun = Instant::now();
    memory.falls(&thresholds, before, &remembered).await;
    // By what is left it would have been looked at after a second.
    assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
}
