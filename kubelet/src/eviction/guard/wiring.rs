//! What a guard asks of the kernel when it begins.

use super::tests::{Asked, of, runtime};
use super::*;
use crate::cgroup::{CgroupSettings, Cgroups, NodeLimits};
use crate::parts::testing::{context, dependencies};
use client::TokioClock;
use nix::libc::O_NONBLOCK;
use nix::sys::stat::Mode;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A guard of memory on a node whose pods are held to a limit together.
fn guard(dir: &Path) -> Guard {
    let clock = Arc::new(TokioClock::starting_at(crate::pod::testing::at(0)));
    let mut node = context();
    node.root_dir = dir.to_owned();
    let limits = NodeLimits {
        enforced: true,
        memory: 1 << 40,
        ..NodeLimits::default()
    };
    let settings = CgroupSettings {
        node_limits: Some(limits),
        ..CgroupSettings::with_defaults(node.cgroups.clone())
    };
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).expect("made");
    std::fs::write(tree.join("cgroup.controllers"), "cpu memory pids").expect("written");
    let mut own = dependencies(dir, node, Arc::new(runtime()), clock);
    own.cgroups = Cgroups::open(&tree, "/nonexistent", settings).expect("cgroups");
    let rules = Rules {
        thresholds: vec![of(Signal::MemoryAvailable, "1Ki")],
        ..Rules::default()
    };
    let roots = Roots {
        proc: dir.to_owned(),
        ..Roots::default()
    };
    let (parts, ..) = Parts::new(own);
    Guard::new(parts, rules, Killer::default(), Arc::new(Asked::default()), roots)
}

fn pipe(path: PathBuf) -> PathBuf {
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).expect("a pipe");
    path
}

/// The kernel's files are pipes here, so that it is seen who opens them.
#[tokio::test]
async fn a_guard_that_begins_asks_to_be_told_of_stalls_and_of_the_limit_of_pods() {
    let dir = tempfile::tempdir().expect("temp dir");
    let guard = guard(dir.path());
    let limit = pipe(guard.parts.cgroups.limit_events().expect("held to a limit"));
    let mut both = OpenOptions::new();
    both.read(true).write(true).custom_flags(O_NONBLOCK);
    let mut stalls = both.open(pipe(dir.path().join("pressure/memory"))).expect("open");
    // Who opens a pipe to write waits for its reader: a thread of its own, which a test that fails need not wait for.
    let (tell, opened) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || tell.send(OpenOptions::new().write(true).open(limit)));
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    tokio::spawn(guard.run(stop));
    let limit = tokio::time::timeout(Duration::from_secs(60), opened).await;
    let limit = limit.expect("it asks to be told of the limit");
    limit.expect("the thread lives").expect("open");
    let mut trigger = [0; 5];
    stalls.read_exact(&mut trigger).expect("it asks to be told of stalls");
    assert_eq!(&trigger, b"some ");
}
