//! cgroups and reservations.

use super::{Reader, pinning};
use crate::cgroup::CgroupDriver;
use crate::config::{CgroupConfig, KubeletConfiguration, Reserved};
use proto::api::quantity::Quantity;
use std::collections::BTreeMap;
use std::time::Duration;

fn reserved(reader: &mut Reader, field: &str, list: Option<&BTreeMap<String, String>>, total: &mut Reserved) {
    for (name, text) in list.into_iter().flatten() {
        let Ok(amount) = Quantity::parse(text) else {
            reader.wrong(field, format!("{name}: {text:?} is not a quantity"));
            continue;
        };
        if amount.is_negative() {
            reader.wrong(field, format!("{name}: {text:?} must not be negative"));
            continue;
        }
        match name.as_str() {
            "cpu" => total.cpu_milli += amount.milli_value(),
            "memory" => total.memory += amount.value(),
            "ephemeral-storage" => total.ephemeral_storage += amount.value(),
            "pid" => total.pids += amount.value(),
            other => reader.wrong(
                field,
                format!("{other:?} is not one of cpu, memory, ephemeral-storage, pid"),
            ),
        }
    }
}

pub(super) fn cgroups(reader: &mut Reader, written: &KubeletConfiguration) -> CgroupConfig {
    let driver = match written.cgroup_driver.as_deref().unwrap_or("") {
        "" | "cgroupfs" => CgroupDriver::Cgroupfs,
        "systemd" => CgroupDriver::Systemd,
        other => {
            reader.wrong("cgroupDriver", format!("{other:?} is not one of cgroupfs, systemd"));
            CgroupDriver::Cgroupfs
        }
    };
    let root = written
        .cgroup_root
        .clone()
        .filter(|r| !r.is_empty())
        .unwrap_or_else(|| "/".into());
    if root.split('/').any(|part| part == "..") {
        reader.wrong("cgroupRoot", "must not contain '..'");
    }
    let period = reader.time(
        "cpuCFSQuotaPeriod",
        written.cpu_cfs_quota_period.as_deref(),
        Duration::from_millis(100),
    );
    if !(Duration::from_millis(1)..=Duration::from_secs(1)).contains(&period) {
        reader.wrong("cpuCFSQuotaPeriod", "must be between 1ms and 1s, inclusive");
    }
    let mut total = Reserved::default();
    reserved(reader, "systemReserved", written.system_reserved.as_ref(), &mut total);
    reserved(reader, "kubeReserved", written.kube_reserved.as_ref(), &mut total);
    let named = pinning::reserved(written).len();
    if named > 0 {
        // Upstream has both reservations overwritten.
        total.cpu_milli = i64::try_from(named).unwrap_or(i64::MAX).saturating_mul(1000);
    }
    let per_qos = written.cgroups_per_qos.unwrap_or(true);
    let enforce = written
        .enforce_node_allocatable
        .clone()
        .unwrap_or_else(|| vec!["pods".into()]);
    for word in &enforce {
        match word.as_str() {
            "pods" | "none" => {}
            "system-reserved" | "kube-reserved" | "system-reserved-compressible" | "kube-reserved-compressible" => {
                reader.wrong(
                    "enforceNodeAllocatable",
                    format!("{word:?} is not supported by this kubelet yet"),
                );
            }
            other => reader.wrong(
                "enforceNodeAllocatable",
                format!("{other:?} is not one of none, pods, system-reserved, kube-reserved"),
            ),
        }
    }
    let enforce_pods = enforce.iter().any(|word| word == "pods");
    if enforce.iter().any(|word| word == "none") && enforce.len() > 1 {
        reader.wrong("enforceNodeAllocatable", "\"none\" must stand alone");
    }
    if enforce_pods && !per_qos && written.enforce_node_allocatable.is_some() {
        reader.wrong(
            "enforceNodeAllocatable",
            "is not supported unless cgroupsPerQOS is true",
        );
    }
    CgroupConfig {
        driver,
        root,
        per_qos,
        cpu_cfs_quota: written.cpu_cfs_quota.unwrap_or(true),
        cpu_cfs_period_us: i64::try_from(period.as_micros()).unwrap_or(100_000),
        pod_pids_limit: written.pod_pids_limit.unwrap_or(-1),
        enforce_pods: enforce_pods && per_qos,
        reserved: total,
    }
}
