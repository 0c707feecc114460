//! What a kubelet is given in tests: a machine in a directory, mounts in memory.

use super::{Dependencies, Settings};
use crate::admission::description::Describer;
use crate::admission::placement::NodeView;
use crate::cgroup::{CgroupDriver, CgroupNaming, CgroupSettings, Cgroups};
use crate::downward::NodeAllocatable;
use crate::host::FakeMounter;
use crate::host::addresses::HostIps;
use crate::node_shutdown::logind::SystemBus;
use crate::pinning::Pinning;
use crate::pod::spec::NodeContext;
use crate::runtime::Runtime;
use client::Clock;
use std::path::Path;
use std::sync::Arc;

/// A kubelet of this node without an API server: its mounts are remembered only, and it makes no cgroups, for which `root` has
/// no hierarchies.
pub fn dependencies(
    root: &Path,
    mut context: NodeContext,
    runtime: Arc<dyn Runtime>,
    clock: Arc<dyn Clock>,
) -> Dependencies {
    context.cgroups.per_qos = false;
    let settings = CgroupSettings::with_defaults(context.cgroups.clone());
    let cgroups = Cgroups::open(root.join("cgroup"), crate::cgroup::systemd::SOCKET, settings);
    Dependencies {
        client: None,
        runtime,
        clock,
        mounter: Arc::new(FakeMounter::default()),
        seed: 1,
        cgroups: cgroups.expect("cgroups"),
        context,
        logind: Arc::new(SystemBus::new(root.join("no-bus"), root.join("logind.conf.d"))),
        described: Describer::new(NodeView {
            known: true,
            ..NodeView::default()
        }),
        pinning: Pinning::default(),
        settings: Settings::default(),
    }
}

/// A node `node-a` with 4 CPUs and 8 GiB.
pub fn context() -> NodeContext {
    NodeContext {
        node_name: "node-a".into(),
        host_ips: HostIps::fixed(vec!["192.0.2.10".parse().expect("an address")]),
        root_dir: "/var/lib/kubelet".into(),
        pod_logs_dir: "/var/log/pods".into(),
        cluster_domain: "cluster.local".into(),
        cluster_dns: vec!["10.96.0.10".into()],
        resolv_conf: Some("/etc/resolv.conf".into()),
        hosts_path: "/etc/hosts".into(),
        allocatable: NodeAllocatable {
            cpu_milli: 4000,
            memory: 8 << 30,
            ephemeral_storage: 100 << 30,
        },
        memory_capacity: 8 << 30,
        cgroups: CgroupNaming {
            driver: CgroupDriver::Cgroupfs,
            root: "/".into(),
            per_qos: true,
        },
        cgroup_v2: false,
        cpu_cfs_quota: true,
        cpu_cfs_period_us: 100_000,
        huge_page_sizes: vec![],
        seccomp_default: false,
        single_process_oom_kill: true,
        memory_qos: None,
        swap: Default::default(),
        master_service_namespace: "default".into(),
        stop_signals: true,
        selinux: false,
        thermal_paths: vec![],
    }
}
