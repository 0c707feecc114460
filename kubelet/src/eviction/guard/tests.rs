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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tonic::Code;

/// Remembers what it was asked to free, and whether images must stay.
#[derive(Default)]
pub(super) struct Asked(Mutex<Vec<&'static str>>, AtomicBool);

/// Begins to free images, and takes the machine's memory meanwhile.
struct Hangs(PathBuf);

#[async_trait::async_trait]
impl Reclaim for Hangs {
    async fn delete_all_unused_containers(&self) -> Result<(), CollectError> {
        Ok(())
    }

    fn may_delete_images(&self) -> bool {
        true
    }

    async fn delete_unused_images(&self) -> Result<(), CollectError> {
        std::fs::write(&self.0, "MemTotal: 4194304 kB\nMemFree: 1 kB\n").expect("written");
        std::future::pending().await
    }
}

#[tokio::test]
async fn memory_that_runs_short_does_not_wait_for_a_disk_that_is_freed() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (mut guard, uid, _kill) = short_of_memory(dir.path());
    let meminfo = dir.path().join("meminfo");
    // So near to the threshold that it is looked at often.
    std::fs::write(&meminfo, "MemTotal: 4194304 kB\nMemFree: 1100000 kB\n").expect("written");
    guard.rules.thresholds.push(of(Signal::NodeFsAvailable, "1Ei"));
    guard.reclaim = Arc::new(Hangs(meminfo));
    // What does not break off would wait for ever.
    let next = tokio::time::timeout(Duration::from_secs(100), guard.turn()).await;
    let next = next.expect("broken off");
    assert!(
        !guard.killer.has(&uid) && next <= Instant::now(),
        "it is looked again at once"
    );
    guard.turn().await;
    assert!(guard.killer.has(&uid), "for memory");
    assert_eq!(guard.parts.pressure.borrow().len(), 2);
}

/// Takes the machine's memory with the first image, and time until it is told to go on.
struct Slow {
    meminfo: PathBuf,
    begun: AtomicUsize,
    ended: AtomicUsize,
    /// Goes on as soon as it is asked whether to begin anew.
    goes_on_when_asked: bool,
    goes_on: tokio::sync::Semaphore,
}

#[async_trait::async_trait]
impl Reclaim for Slow {
    async fn delete_all_unused_containers(&self) -> Result<(), CollectError> {
        Ok(())
    }

    fn may_delete_images(&self) -> bool {
        if self.goes_on_when_asked && self.begun.load(Ordering::Relaxed) > 0 {
            self.goes_on.add_permits(1);
        }
        true
    }

    async fn delete_unused_images(&self) -> Result<(), CollectError> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        std::fs::write(&self.meminfo, SHORT).expect("written");
        self.goes_on.acquire().await.expect("open").forget();
        self.ended.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// A machine of 4 GiB: near its threshold of 1 GiB so that it is looked at often, and below that.
const NEAR: &str = "MemTotal: 4194304 kB\nMemFree: 1100000 kB\n";
const SHORT: &str = "MemTotal: 4194304 kB\nMemFree: 1 kB\n";

/// A guard that began to free a disk, and broke that off for memory, of which there is enough again.
async fn broken_off(dir: &Path, goes_on_when_asked: bool) -> (Guard, PodUid, Arc<Slow>) {
    let (mut guard, uid, _kill) = short_of_memory(dir);
    let meminfo = dir.join("meminfo");
    std::fs::write(&meminfo, NEAR).expect("written");
    guard.rules.thresholds.push(of(Signal::NodeFsAvailable, "1Ei"));
    let slow = Arc::new(Slow {
        meminfo: meminfo.clone(),
        begun: 0.into(),
        ended: 0.into(),
        goes_on_when_asked,
        goes_on: tokio::sync::Semaphore::new(0),
    });
    guard.reclaim = slow.clone();
    guard.turn().await;
    assert!(!guard.killer.has(&uid), "memory fell meanwhile");
    std::fs::write(&meminfo, NEAR).expect("written");
    (guard, uid, slow)
}

#[tokio::test]
async fn what_is_being_freed_goes_on_while_memory_comes_first() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (mut guard, uid, slow) = broken_off(dir.path(), true).await;
    guard.turn().await;
    assert_eq!(slow.begun.load(Ordering::Relaxed), 1, "it went on");
    assert!(guard.freeing.is_empty() && guard.killer.has(&uid), "and was not enough");
}

#[tokio::test]
async fn what_was_freed_while_nobody_waited_for_it_is_freed_anew_before_a_pod_goes() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (mut guard, uid, slow) = broken_off(dir.path(), false).await;
    slow.goes_on.add_permits(1);
    while slow.ended.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let again = guard.turn().await;
    assert!(again <= Instant::now() && !guard.killer.has(&uid), "broken off again");
    assert_eq!(slow.begun.load(Ordering::Relaxed), 2, "what is unused now");
}

#[tokio::test]
async fn how_long_it_was_not_known_what_was_freed_does_not_count_once_the_disk_is_well() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (mut guard, _) = short_of_disk(dir.path(), runtime(), &Arc::default());
    for (signal, is_blind) in [(Signal::NodeFsAvailable, true), (Signal::MemoryAvailable, false)] {
        guard.rules.thresholds = vec![of(signal, "1Ei")];
        // Nothing is done while a pod that was ended is waited for.
        guard.waiting = Some(Waiting {
            uid: pod_object::uid(&guard.parts.pods.list()[0].pod),
            until: Instant::now() + Duration::from_secs(3600),
            hurried: true,
            force: None,
        });
        guard.blind = Some(Instant::now());
        guard.turn().await;
        assert_eq!(guard.blind.is_some(), is_blind, "{signal:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_soft_threshold_of_memory_breaks_nothing_off() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (guard, ..) = short_of_memory(dir.path());
    let mut threshold = guard.rules.thresholds[0];
    for (grace, breaks_off) in [(Duration::ZERO, true), (Duration::from_secs(120), false)] {
        threshold.grace = grace;
        let (thresholds, remembered) = ([threshold], Remembered::default());
        let falls = guard
            .sight
            .memory()
            .clone()
            .falls(&thresholds, Signals::new(), &remembered);
        let fell = tokio::time::timeout(Duration::from_secs(600), falls).await;
        assert_eq!(fell.is_ok(), breaks_off, "{grace:?}");
    }
}

/// Frees so much that the disk does not tell what is left: here it is gone.
struct Vanishes(PathBuf);

#[async_trait::async_trait]
impl Reclaim for Vanishes {
    async fn delete_all_unused_containers(&self) -> Result<(), CollectError> {
        Ok(())
    }

    fn may_delete_images(&self) -> bool {
        true
    }

    async fn delete_unused_images(&self) -> Result<(), CollectError> {
        std::fs::remove_dir_all(&self.0).expect("removed");
        Ok(())
    }
}

#[tokio::test]
async fn no_pod_goes_while_it_is_not_known_what_was_freed_but_not_for_ever() {
    let dir = tempfile::tempdir().expect("temp dir");
    let disk = dir.path().join("disk");
    std::fs::create_dir(&disk).expect("made");
    let (mut guard, uid) = short_of_disk(&disk, runtime(), &Arc::default());
    guard.reclaim = Arc::new(Vanishes(disk.clone()));
    for gone in [false, true] {
        std::fs::create_dir_all(&disk).expect("made");
        guard.turn().await;
        assert_eq!(guard.killer.has(&uid), gone);
        after(BLIND_MAX).await;
    }
}

/// Images have bytes, and hardly any inodes.
#[tokio::test]
async fn what_was_freed_is_enough_only_if_nothing_else_that_is_due_is_still_met() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (mut guard, _) = short_of_disk(dir.path(), runtime(), &Arc::default());
    let bytes = of(Signal::NodeFsAvailable, "1");
    let inodes = |amount| of(Signal::NodeFsInodesFree, amount);
    assert!(guard.is_enough(&bytes, &[bytes]).await);
    assert!(guard.is_enough(&bytes, &[bytes, inodes("1")]).await);
    assert!(!guard.is_enough(&bytes, &[bytes, inodes("1Ei")]).await);
}

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

pub(super) fn of(signal: Signal, amount: &str) -> Threshold {
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

pub(super) fn runtime() -> FakeRuntime {
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
async fn so_is_one_that_goes_for_processes_without_which_no_runtime_ends_anything() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (mut guard, uid, kill) = short_of_memory(dir.path());
    guard.rules.thresholds = vec![of(Signal::PidAvailable, "100")];
    std::fs::write(kill.with_file_name("pids.current"), "350").expect("written");
    std::fs::create_dir_all(dir.path().join("sys/kernel")).expect("made");
    std::fs::write(dir.path().join("sys/kernel/pid_max"), "500").expect("written");
    std::fs::write(dir.path().join("loadavg"), "0.00 0.01 0.05 1/450 4567\n").expect("written");
    guard.turn().await;
    assert!(guard.killer.has(&uid));
    after(FORCE).await;
    guard.turn().await;
    assert_eq!(std::fs::read_to_string(&kill).expect("there"), "1");
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
