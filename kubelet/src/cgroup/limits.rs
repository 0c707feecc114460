//! The arithmetic of cgroup limits (kubelet contract §7). Pure.

use super::{CgroupSettings, NodeLimits, Values};
use crate::downward::{milli, value};
use crate::pinning::asking::has_exclusive_cpus;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use proto::api::qos::{QosClass, qos_class};
use proto::api::resources;

const SHARES_MIN: i64 = 2;
const SHARES_MAX: i64 = 262_144;
const QUOTA_MIN_US: i64 = 1000;
/// What QoS cgroups get for every huge page size: no limit of their own.
const HUGEPAGES_UNLIMITED: i64 = 1 << 62;

/// Limits of one pod's cgroup.
pub type PodLimits = Values;

/// CPU shares for this many millicores.
pub fn cpu_shares(milli: i64) -> i64 {
    if milli <= 0 {
        return SHARES_MIN;
    }
    (milli.saturating_mul(1024) / 1000).clamp(SHARES_MIN, SHARES_MAX)
}

/// CFS quota in microseconds for a limit in millicores; `None` without a limit.
pub fn cpu_quota(milli: i64, period_us: i64) -> Option<i64> {
    (milli > 0).then(|| (milli.saturating_mul(period_us) / 1000).max(QUOTA_MIN_US))
}

/// cgroup v2 weight for v1 shares.
pub fn cpu_weight(shares: i64) -> i64 {
    if shares >= SHARES_MAX {
        return 10_000;
    }
    1 + (shares.max(SHARES_MIN) - 2) * 9999 / 262_142
}

/// `2Mi` (the API's page size) as the kernel's cgroup files spell it, `2MB`; `None` if it is no size.
pub fn hugepage_cgroup_name(size: &str) -> Option<String> {
    let bytes = proto::api::quantity::Quantity::parse(size).ok()?.value();
    let units = [(1i64 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")];
    units
        .iter()
        .find(|(unit, _)| bytes >= *unit)
        .map(|(unit, name)| format!("{}{name}", bytes / unit))
}

/// What a pod requests of the CPU, overhead included, in millicores.
pub fn cpu_request_milli(spec: &PodSpec) -> i64 {
    resources::pod_requests(spec).get("cpu").map_or(0, |q| q.milli_value())
}

/// The limits of a pod's cgroup.
pub fn pod_limits(pod: &Pod, settings: &CgroupSettings) -> PodLimits {
    let spec = pod.spec.clone().unwrap_or_default();
    let class = qos_class(&spec);
    let limits = resources::pod_limits(&spec);
    let enforced = |name: &str| class != QosClass::BestEffort && resources::every_container_limits(&spec, name);
    let mut out = Values {
        cpu_shares: Some(match class {
            QosClass::BestEffort => SHARES_MIN,
            _ => cpu_shares(cpu_request_milli(&spec)),
        }),
        pids: (settings.pod_pids_limit > 0).then_some(settings.pod_pids_limit),
        ..Values::default()
    };
    let period = settings.cpu_cfs_period_us;
    let lifted = settings.exclusive_cpus && has_exclusive_cpus(&spec);
    if settings.cpu_cfs_quota && !lifted && enforced("cpu") {
        let quota = limits.get("cpu").and_then(|q| cpu_quota(q.milli_value(), period));
        out.cpu_quota = quota.map(|quota| (quota, period));
    }
    if enforced("memory") {
        out.memory = limits.get("memory").map(|q| q.value()).filter(|bytes| *bytes > 0);
    }
    for (name, amount) in &limits {
        if let Some(size) = name.strip_prefix("hugepages-").and_then(hugepage_cgroup_name) {
            out.hugepages.insert(size, amount.value());
        }
    }
    out
}

/// The limits of a QoS class's cgroup whose pods request this much CPU.
pub fn qos(request_milli: i64) -> Values {
    Values {
        cpu_shares: Some(cpu_shares(request_milli)),
        hugepages: [
            ("2MB".to_owned(), HUGEPAGES_UNLIMITED),
            ("1GB".to_owned(), HUGEPAGES_UNLIMITED),
        ]
        .into(),
        ..Values::default()
    }
}

/// The limits of the cgroup of all pods.
pub fn node(limits: &NodeLimits) -> Values {
    Values {
        cpu_shares: Some(cpu_shares(limits.cpu_milli)),
        memory: Some(limits.memory),
        pids: limits.pids,
        ..Values::default()
    }
}

/// A resource list's CPU in millicores and memory in bytes.
pub fn cpu_and_memory(
    list: Option<&std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
) -> (i64, i64) {
    let get = |name: &str| list.and_then(|l| l.get(name));
    (get("cpu").map_or(0, milli), get("memory").map_or(0, value))
}

#[cfg(test)]
mod tests {
    use super::super::{CgroupDriver, CgroupNaming};
    use super::*;
    use crate::pod::spec::testing::pod;

    fn settings() -> CgroupSettings {
        CgroupSettings::with_defaults(CgroupNaming {
            driver: CgroupDriver::Cgroupfs,
            root: "/".into(),
            per_qos: true,
        })
    }

    #[test]
    fn shares_quota_weight() {
        for (milli, shares, quota) in [
            (0, 2, None),
            (1, 2, Some(1000)),
            (10, 10, Some(1000)),
            (100, 102, Some(10_000)),
            (1000, 1024, Some(100_000)),
            (1_000_000, 262_144, Some(100_000_000)),
        ] {
            assert_eq!(cpu_shares(milli), shares, "{milli}");
            assert_eq!(cpu_quota(milli, 100_000), quota, "{milli}");
        }
        for (shares, weight) in [(2, 1), (1024, 39), (262_144, 10_000), (0, 1)] {
            assert_eq!(cpu_weight(shares), weight, "{shares}");
        }
    }

    #[test]
    fn pods() {
        let full = r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"500m","memory":"64Mi"},"requests":{"cpu":"500m","memory":"64Mi"}}}]}"#;
        let limits = pod_limits(&pod(full), &settings());
        assert_eq!(
            (limits.cpu_shares, limits.cpu_quota, limits.memory),
            (Some(512), Some((50_000, 100_000)), Some(64 << 20))
        );
        let partly = r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"500m"}}},{"name":"d"}]}"#;
        let limits = pod_limits(&pod(partly), &settings());
        assert_eq!((limits.cpu_quota, limits.memory), (None, None));
        let limits = pod_limits(&pod("{}"), &settings());
        assert_eq!(
            (limits.cpu_shares, limits.cpu_quota, limits.memory, limits.pids),
            (Some(2), None, None, None)
        );
    }

    #[test]
    fn settings_switch_quota_and_pids() {
        let full = r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1","memory":"1Gi"}}}]}"#;
        let mut settings = settings();
        settings.cpu_cfs_quota = false;
        settings.pod_pids_limit = 100;
        let limits = pod_limits(&pod(full), &settings);
        assert_eq!((limits.cpu_quota, limits.pids), (None, Some(100)));
    }

    #[test]
    fn who_has_cpus_alone_has_no_quota() {
        let quota = |exclusive_cpus, cpu: &str| {
            let amounts = format!(r#"{{"cpu":"{cpu}","memory":"1Gi"}}"#);
            let spec =
                format!(r#"{{"containers":[{{"name":"c","resources":{{"limits":{amounts},"requests":{amounts}}}}}]}}"#);
            let settings = CgroupSettings {
                exclusive_cpus,
                ..settings()
            };
            pod_limits(&pod(&spec), &settings).cpu_quota
        };
        assert_eq!(quota(false, "2"), Some((200_000, 100_000)));
        assert_eq!(quota(true, "2"), None);
        assert_eq!(quota(true, "1500m"), Some((150_000, 100_000)));
    }

    #[test]
    fn page_sizes() {
        for (size, name) in [
            ("2Mi", Some("2MB")),
            ("1Gi", Some("1GB")),
            ("64Ki", Some("64KB")),
            ("x", None),
        ] {
            assert_eq!(hugepage_cgroup_name(size).as_deref(), name, "{size}");
        }
    }
}
