//! The arithmetic, by tables of the contract's.

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
