//! Single turns of a guard.

use super::*;
use crate::cgroup::{CgroupSettings, Cgroups};
use crate::collect::CollectError;
use crate::eviction::threshold::Amount;
use crate::parts::testing::{context, dependencies};
use crate::pod::testing::{container, observed, pod};
use crate::pod::view::Life;
use crate::runtime::RuntimeError;
use crate::runtime::fake::FakeRuntime;
use crate::runtime::fake::Mishap;
use client::TokioClock;
use proto::api::quantity::Quantity;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tonic::Code;

/// Remembers what it was asked to free.
#[derive(Default)]
struct Asked(Mutex<Vec<&'static str>>, AtomicBool);

#[async_trait::async_trait]
impl Reclaim for Asked {
    async fn delete_all_unused_containers(&self) -> Result<(), CollectError> {
        self.0.lock().expect("asked").push("containers");
        Ok(())
    }

    fn may_delete_images(&self) -> bool {
        !self.1.load(Ordering::Relaxed)
    }

    async fn delete_unused_images(&self) -> Result<(), CollectError> {
        self.0.lock().expect("asked").push("images");
        Ok(())
    }
}

#[tokio::test]
async fn a_full_disk_is_freed_of_dead_containers_then_of_images_and_short_memory_of_neither() {
    let dir = tempfile::tempdir().expect("temp dir");
    let clock = Arc::new(TokioClock::starting_at(crate::pod::testing::at(0)));
    let mut node = context();
    node.root_dir = dir.path().to_owned();
    let runtime = Arc::new(FakeRuntime::new(clock.clone(), 1));
    let (parts, _sink, _settings) = Parts::new(dependencies(dir.path(), node, runtime, clock));
    let asked = Arc::new(Asked::default());
    let guard = |thresholds| {
        let rules = Rules {
            thresholds,
            ..Rules::default()
        };
        let roots = Roots {
            proc: dir.path().to_owned(),
            ..Roots::default()
        };
        Guard::new(parts.clone(), rules, Killer::default(), asked.clone(), roots)
    };
    let mut of_disk = guard(vec![of(Signal::NodeFsAvailable, "1Ei")]);
    of_disk.turn().await;
    assert_eq!(*asked.0.lock().expect("asked"), ["containers", "images"]);
    let told = parts.pressure.borrow().clone();
    assert_eq!(
        told.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["DiskPressure"]
    );
    std::fs::write(dir.path().join("meminfo"), "MemTotal: 100 kB\nMemFree: 1 kB\n").expect("written");
    let mut of_memory = guard(vec![of(Signal::MemoryAvailable, "1Gi")]);
    of_memory.turn().await;
    assert_eq!(asked.0.lock().expect("asked").len(), 2);
    assert_eq!(parts.pressure.borrow().len(), 1);
    let mut calm = guard(vec![of(Signal::NodeFsAvailable, "1")]);
    calm.turn().await;
    assert!(parts.pressure.borrow().is_empty());
}

#[test]
fn what_is_freed_is_on_the_file_system_that_runs_short() {
    let apart = |layers_apart| Disks {
        images_apart: true,
        layers_apart,
    };
    let one = Disks::default();
    for (signal, disks, expected) in [
        (Signal::MemoryAvailable, one, (false, false)),
        (Signal::PidAvailable, apart(true), (false, false)),
        (Signal::NodeFsAvailable, one, (true, true)),
        (Signal::ImageFsInodesFree, one, (true, true)),
        (Signal::NodeFsInodesFree, apart(false), (false, false)),
        (Signal::ImageFsAvailable, apart(false), (true, true)),
        (Signal::ContainerFsAvailable, apart(false), (true, true)),
        (Signal::NodeFsAvailable, apart(true), (true, false)),
        (Signal::ContainerFsInodesFree, apart(true), (true, false)),
        (Signal::ImageFsAvailable, apart(true), (false, true)),
    ] {
        assert_eq!(freed(signal, disks), expected, "{signal:?} {disks:?}");
    }
}

fn of(signal: Signal, amount: &str) -> Threshold {
    Threshold {
        signal,
        amount: Amount::Quantity(Quantity::parse(amount).expect("a quantity")),
        grace: Duration::ZERO,
        reclaim: None,
    }
}

/// A guard of a node that runs short of disk, with one pod.
fn short_of_disk(dir: &Path, runtime: FakeRuntime, asked: &Arc<Asked>) -> (Guard, PodUid) {
    let clock = Arc::new(TokioClock::starting_at(crate::pod::testing::at(0)));
    let mut node = context();
    node.root_dir = dir.to_owned();
    let (parts, ..) = Parts::new(dependencies(dir, node, Arc::new(runtime), clock));
    let made = pod("p").with(container("c")).build();
    let uid = pod_object::uid(&made);
    let snapshot = PodSnapshot {
        pod: Arc::new(made),
        status: Arc::default(),
        observed: Arc::new(observed("p").sandbox(true).running("c").build()),
        active: true,
        ended: false,
        life: Life::default(),
    };
    parts.pods.publish(uid.clone(), snapshot);
    let rules = Rules {
        thresholds: vec![
            of(Signal::ContainerFsAvailable, "1Ei"),
            of(Signal::NodeFsAvailable, "1Ei"),
        ],
        ..Rules::default()
    };
    let roots = Roots {
        proc: dir.to_owned(),
        ..Roots::default()
    };
    (Guard::new(parts, rules, Killer::default(), asked.clone(), roots), uid)
}

fn runtime() -> FakeRuntime {
    FakeRuntime::new(Arc::new(TokioClock::starting_at(crate::pod::testing::at(0))), 1)
}

#[tokio::test]
async fn a_pod_goes_for_a_disk_once_it_is_known_which_disk_has_what() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (runtime, asked) = (runtime(), Arc::new(Asked::default()));
    let error = RuntimeError::new("ImageFsInfo", Code::Unknown, "no");
    runtime.next("ImageFsInfo", Mishap::Fail(error));
    let (mut guard, uid) = short_of_disk(dir.path(), runtime, &asked);
    assert_eq!(
        guard.rules.thresholds.len(),
        1,
        "of layers' own file system nothing is said"
    );
    guard.turn().await;
    assert!(!guard.killer.has(&uid) && asked.0.lock().expect("asked").is_empty());
    assert_eq!(guard.parts.pressure.borrow().len(), 1, "it is told all the same");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    guard.turn().await;
    assert!(guard.killer.has(&uid));
}

#[tokio::test]
async fn images_stay_until_it_is_known_who_needs_them_and_pods_wait_a_minute_for_that() {
    let dir = tempfile::tempdir().expect("temp dir");
    let asked = Arc::new(Asked(Mutex::default(), AtomicBool::new(true)));
    let (mut guard, uid) = short_of_disk(dir.path(), runtime(), &asked);
    guard.turn().await;
    assert!(!guard.killer.has(&uid));
    tokio::time::pause();
    tokio::time::advance(IMAGES_PATIENCE).await;
    tokio::time::resume();
    guard.turn().await;
    assert_eq!(*asked.0.lock().expect("asked"), ["containers", "containers"]);
    assert!(guard.killer.has(&uid), "then it goes all the same");
}

/// A guard of a node that runs short of memory, with one pod that has some, and the file by which the kernel kills that.
fn short_of_memory(dir: &Path) -> (Guard, PodUid, PathBuf) {
    let clock = Arc::new(TokioClock::starting_at(crate::pod::testing::at(0)));
    let mut node = context();
    node.root_dir = dir.to_owned();
    let settings = CgroupSettings::with_defaults(node.cgroups.clone());
    let mut own = dependencies(dir, node, Arc::new(runtime()), clock);
    let (tree, made) = (dir.join("tree"), pod("p").with(container("c")).build());
    let uid = pod_object::uid(&made);
    let group = tree.join(format!("kubepods/besteffort/pod{uid}"));
    std::fs::create_dir_all(&group).expect("made");
    for (file, text) in [
        ("memory.current", "4096"),
        ("memory.stat", "inactive_file 0\n"),
        ("memory.high", "max"),
        ("cgroup.kill", ""),
    ] {
        std::fs::write(group.join(file), text).expect("written");
    }
    std::fs::write(tree.join("cgroup.controllers"), "cpu memory pids").expect("written");
    own.cgroups = Cgroups::open(&tree, "/nonexistent", settings).expect("cgroups");
    let (parts, ..) = Parts::new(own);
    let snapshot = PodSnapshot {
        pod: Arc::new(made),
        status: Arc::default(),
        observed: Arc::new(observed("p").sandbox(true).running("c").build()),
        active: true,
        ended: false,
        life: Life::default(),
    };
    parts.pods.publish(uid.clone(), snapshot);
    std::fs::write(dir.join("meminfo"), "MemTotal: 100 kB\nMemFree: 1 kB\n").expect("written");
    let rules = Rules {
        thresholds: vec![of(Signal::MemoryAvailable, "1Gi")],
        ..Rules::default()
    };
    let roots = Roots {
        proc: dir.to_owned(),
        ..Roots::default()
    };
    let guard = Guard::new(parts, rules, Killer::default(), Arc::new(Asked::default()), roots);
    (guard, uid, group.join("cgroup.kill"))
}

async fn after(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_pod_that_goes_for_memory_is_killed_past_a_runtime_that_does_not_end_it() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (mut guard, uid, kill) = short_of_memory(dir.path());
    let killed = || std::fs::read_to_string(&kill).expect("there") == "1";
    guard.turn().await;
    assert!(guard.killer.has(&uid) && guard.grip.is_held());
    let high = std::fs::read_to_string(kill.with_file_name("memory.high"));
    assert_eq!(high.expect("there"), "4096", "it takes no more meanwhile");
    guard.turn().await;
    assert!(!killed(), "it has its grace");
    after(FORCE).await;
    guard.turn().await;
    assert!(killed());
    std::fs::write(&kill, "").expect("written");
    guard.turn().await;
    assert!(!killed(), "once is enough");
}

#[tokio::test]
async fn nobody_kills_what_the_runtime_has_ended() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (mut guard, uid, kill) = short_of_memory(dir.path());
    guard.turn().await;
    let snapshot = guard.parts.pods.by_uid(&uid).expect("there");
    let ended = PodSnapshot {
        ended: true,
        ..(*snapshot).clone()
    };
    guard.parts.pods.publish(uid, ended);
    after(FORCE).await;
    guard.turn().await;
    assert_eq!(std::fs::read_to_string(&kill).expect("there"), "");
}
