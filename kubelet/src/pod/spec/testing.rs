//! A pod and a node for the translation's tests.

use super::{NodeContext, ResolvConf};
use crate::cgroup::{CgroupDriver, CgroupNaming};
use crate::downward::NodeAllocatable;
use crate::host::addresses::HostIps;
use k8s_openapi::api::core::v1::Pod;

/// Pod `shop/web` (UID `u-1`) with this spec; a container `main` is added when the text gives none.
pub(crate) fn pod(spec: &str) -> Pod {
    let mut spec: serde_json::Value = serde_json::from_str(spec).expect("test spec is JSON");
    if spec.get("containers").is_none() {
        spec["containers"] = serde_json::json!([{"name": "main", "image": "busybox"}]);
    }
    serde_json::from_value(serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1",
            "labels": {"app": "web"}, "annotations": {"note": "kept"}},
        "spec": spec,
    }))
    .expect("test pod decodes")
}

/// What the node's `resolvConf` says.
pub(crate) fn resolver() -> ResolvConf {
    ResolvConf::parse("nameserver 192.0.2.1\nsearch example.org\noptions timeout:1\n")
}

/// A node `node-a` with 4 CPUs and 8 GiB.
pub(crate) fn context() -> NodeContext {
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
        seccomp_default: false,
        single_process_oom_kill: true,
        master_service_namespace: "default".into(),
        thermal_paths: vec![],
    }
}
