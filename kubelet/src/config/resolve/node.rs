//! The node object and how it is kept.

use super::Reader;
use crate::config::{Flags, KubeletConfiguration, NodeConfig};
use k8s_openapi::api::core::v1::Taint;
use proto::api::names;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// On a node that an external cloud provider has not completed yet.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Labels under kubernetes.io and k8s.io a kubelet may give its own node.
const OWN_LABELS: &[&str] = &[
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

fn node_labels(reader: &mut Reader, flags: &Flags) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for (key, value) in flags.pairs("node-labels").into_iter().flatten() {
        let value = value.as_str().unwrap_or_default().to_owned();
        let wrong = names::qualified_name_error(key).or_else(|| names::label_value_error(&value));
        if let Some(why) = wrong {
            reader.wrong("--node-labels", format!("{key:?}={value:?}: {why}"));
        }
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let within = |parent: &str| domain == parent || domain.ends_with(&format!(".{parent}"));
        let reserved = within("kubernetes.io") || within("k8s.io");
        let allowed =
            OWN_LABELS.contains(&key.as_str()) || within("kubelet.kubernetes.io") || within("node.kubernetes.io");
        if reserved && !allowed {
            reader.wrong("--node-labels", format!("unknown 'kubernetes.io' or 'k8s.io' label {key:?}: labels of these domains must be among {}, or begin with kubelet.kubernetes.io or node.kubernetes.io", OWN_LABELS.join(", ")));
        }
        labels.insert(key.clone(), value);
    }
    labels
}

/// The taints of a new node. An external cloud provider takes its own away once it has completed the node.
fn taints(written: &KubeletConfiguration, flags: &Flags) -> Vec<Taint> {
    let mut taints = written.register_with_taints.clone().unwrap_or_default();
    if is_external(flags) {
        taints.push(Taint {
            key: UNINITIALIZED.to_owned(),
            value: Some("true".to_owned()),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        });
    }
    taints
}

fn is_external(flags: &Flags) -> bool {
    flags.text("cloud-provider") == Some("external")
}

/// The addresses of `--node-ip`, and whether the node's own one of IPv6 is preferred: that is asked for by one that is no machine's.
fn addresses(reader: &mut Reader, flags: &Flags) -> (Vec<IpAddr>, bool) {
    let mut ips: Vec<IpAddr> = Vec::new();
    for text in flags
        .text("node-ip")
        .unwrap_or_default()
        .split(',')
        .filter(|t| !t.is_empty())
    {
        match text.trim().parse() {
            Ok(ip) => ips.push(ip),
            Err(_) => reader.wrong("--node-ip", format!("{text:?} is not an IP address")),
        }
    }
    let families = ips.iter().filter(|ip| ip.is_ipv6()).count();
    match ips.as_slice() {
        [one] if one.is_unspecified() => return (Vec::new(), one.is_ipv6()),
        [] | [_] => {}
        [_, _] if families == 1 && !ips.iter().any(IpAddr::is_unspecified) => {}
        _ => {
            let why = "must contain either a single IP or a dual-stack pair of IPs";
            reader.wrong("--node-ip", why);
        }
    }
    (ips, false)
}

pub(super) fn node(reader: &mut Reader, written: &KubeletConfiguration, flags: &Flags) -> NodeConfig {
    let (ips, prefers_v6) = addresses(reader, flags);
    let name = flags
        .text("hostname-override")
        .map(str::trim)
        .filter(|n| !n.is_empty())
        .map(str::to_lowercase);
    if let Some(why) = name.as_deref().and_then(names::dns1123_subdomain_error) {
        reader.wrong("--hostname-override", why);
    }
    let status_update = reader.time(
        "nodeStatusUpdateFrequency",
        written.node_status_update_frequency.as_deref(),
        Duration::from_secs(10),
    );
    let report_default = match written.node_status_update_frequency {
        Some(_) => status_update,
        None => Duration::from_secs(300),
    };
    let lease = reader.range(
        "nodeLeaseDurationSeconds",
        written.node_lease_duration_seconds.filter(|s| *s != 0),
        40,
        1,
        i64::from(i32::MAX),
    );
    NodeConfig {
        name,
        ips,
        prefers_v6,
        external_cloud: is_external(flags),
        labels: node_labels(reader, flags),
        taints: taints(written, flags),
        register: written.register_node.unwrap_or(true),
        provider_id: written.provider_id.clone().filter(|id| !id.is_empty()),
        max_pods: reader.range("maxPods", written.max_pods, 110, 0, i64::from(i32::MAX)),
        pods_per_core: reader.range("podsPerCore", written.pods_per_core, 0, 0, i64::from(i32::MAX)),
        pod_cidr: written.pod_cidr.clone().filter(|c| !c.is_empty()),
        status_update,
        status_report: reader.time(
            "nodeStatusReportFrequency",
            written.node_status_report_frequency.as_deref(),
            report_default,
        ),
        lease_seconds: i32::try_from(lease).unwrap_or(40),
        max_images: reader.range(
            "nodeStatusMaxImages",
            written.node_status_max_images,
            50,
            -1,
            i64::from(i32::MAX),
        ),
    }
}
