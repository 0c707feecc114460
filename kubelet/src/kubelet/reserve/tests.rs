use crate::cgroup::{CgroupDriver, CgroupNaming, CgroupSettings, Cgroups, NodeLimits};
use crate::kubelet::Kubelet;
use crate::kubelet::testing::Bench;
use crate::parts::Dependencies;
use crate::parts::testing::{context, dependencies};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The trees of version 1, with more in use by pods than they are to have.
fn mount(root: &Path) {
    for tree in ["cpu", "memory", "pids"] {
        fs::create_dir_all(root.join(tree)).expect("a tree");
    }
    fs::create_dir(root.join("memory/kubepods")).expect("made");
    use_memory(root, 2000);
}

fn use_memory(root: &Path, bytes: u64) {
    let pods = root.join("memory/kubepods");
    fs::write(pods.join("memory.usage_in_bytes"), format!("{bytes}\n")).expect("written");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_held_yet_is_told_and_tried_again() {
    let (bench, root) = (Bench::new(), tempfile::tempdir().expect("temp dir"));
    let tree = root.path().join("cgroup");
    mount(&tree);
    let naming = CgroupNaming {
        driver: CgroupDriver::Cgroupfs,
        root: "/".into(),
        per_qos: true,
    };
    let settings = CgroupSettings {
        node_limits: Some(NodeLimits {
            enforced: true,
            memory: 1000,
            cpu_milli: 1000,
            ..NodeLimits::default()
        }),
        ..CgroupSettings::with_defaults(naming)
    };
    let cgroups = Cgroups::open(&tree, "/nonexistent", settings).expect("opens");
    let mut node = context();
    node.root_dir = root.path().join("kubelet");
    node.pod_logs_dir = root.path().join("logs");
    let runtime = Arc::new(bench.runtime.clone());
    let kubelet = Kubelet::new(Dependencies {
        client: Some(bench.api.client()),
        cgroups,
        ..dependencies(root.path(), node, runtime, bench.clock.clone())
    });
    let stop = CancellationToken::new();
    let running = tokio::spawn(kubelet.run(stop.clone()));
    let told = |bench: &Bench, reason: &str, message: &str| {
        let mut events = bench.api.events().into_iter();
        events.any(|(of, text)| of == reason && text == message)
    };
    let why = "Failed to update Node Allocatable Limits [\"kubepods\"]: 2000 bytes of memory are in use in /kubepods, more than \
               the new limit 1000";
    let failed = |bench: &Bench| told(bench, "FailedNodeAllocatableEnforcement", why);
    bench.until("failed", failed).await;
    assert!(!tree.join("memory/kubepods/memory.limit_in_bytes").exists());
    use_memory(&tree, 500);
    let message = "Updated Node Allocatable limit across pods";
    let held = |bench: &Bench| told(bench, "NodeAllocatableEnforced", message);
    bench.until("held", held).await;
    let limit = fs::read_to_string(tree.join("memory/kubepods/memory.limit_in_bytes"));
    assert_eq!(limit.expect("written"), "1000");
    stop.cancel();
    running.await.expect("no panic").expect("ends");
}
