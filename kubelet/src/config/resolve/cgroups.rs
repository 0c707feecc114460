//! cgroups and reservations.

use super::{Reader, pinning};
use crate::cgroup::{CgroupDriver, CgroupNaming, OwnCgroups, ReservedCgroup, Whose};
use crate::config::file::DEFAULT_FACTOR;
use crate::config::{CgroupConfig, KubeletConfiguration, Reserved};
use proto::api::quantity::Quantity;
use std::collections::BTreeMap;
use std::time::Duration;

const ENFORCE: &str = "enforceNodeAllocatable";

/// What one field sets aside, where it has a word of it.
#[derive(Default)]
struct Amounts {
    cpu_milli: Option<i64>,
    memory: Option<i64>,
    ephemeral_storage: Option<i64>,
    pids: Option<i64>,
}

impl Amounts {
    fn read(reader: &mut Reader, field: &str, list: Option<&BTreeMap<String, String>>) -> Self {
        let mut read = Self::default();
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
                "cpu" => read.cpu_milli = Some(amount.milli_value()),
                "memory" => read.memory = Some(amount.value()),
                "ephemeral-storage" => read.ephemeral_storage = Some(amount.value()),
                "pid" => read.pids = Some(amount.value()),
                other => reader.wrong(
                    field,
                    format!("{other:?} is not one of cpu, memory, ephemeral-storage, pid"),
                ),
            }
        }
        read
    }
}

/// What both keep from pods.
fn total(both: [&Amounts; 2]) -> Reserved {
    let sum = |of: fn(&Amounts) -> Option<i64>| {
        both.iter()
            .filter_map(|amounts| of(amounts))
            .fold(0, i64::saturating_add)
    };
    Reserved {
        cpu_milli: sum(|of| of.cpu_milli),
        memory: sum(|of| of.memory),
        ephemeral_storage: sum(|of| of.ephemeral_storage),
        pids: sum(|of| of.pids),
    }
}

/// The cgroups of the node's own processes, as paths.
fn own(reader: &mut Reader, written: &KubeletConfiguration, naming: &CgroupNaming) -> OwnCgroups {
    let pods = naming.kubepods();
    let mut path = |field: &str, name: &Option<String>| {
        let name = name.as_deref().filter(|name| !name.is_empty())?;
        let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).collect();
        if parts.iter().any(|part| [".", ".."].contains(part)) {
            reader.wrong(field, "must not contain '.' or '..'");
        }
        let path = format!("/{}", parts.join("/"));
        let below = path.strip_prefix(&pods);
        if naming.per_qos && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            // They would come under the pods' limits, and be ended with pods.
            reader.wrong(
                field,
                format!("{path:?} must not be in {pods:?}, the cgroup of all pods"),
            );
        }
        Some(path)
    };
    let (system, kubelet) = (
        path("systemCgroups", &written.system_cgroups),
        path("kubeletCgroups", &written.kubelet_cgroups),
    );
    if system.as_deref() == Some("/") {
        reader.wrong("systemCgroups", "system container cannot be root (\"/\")");
    }
    let has_root = written.cgroup_root.as_ref().is_some_and(|root| !root.is_empty());
    if system.is_some() && !has_root {
        reader.wrong(
            "systemCgroups",
            "(--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not specified",
        );
    }
    OwnCgroups { system, kubelet }
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
    let system = Amounts::read(reader, "systemReserved", written.system_reserved.as_ref());
    let kube = Amounts::read(reader, "kubeReserved", written.kube_reserved.as_ref());
    let mut reserved = total([&system, &kube]);
    let named = pinning::reserved(written).len();
    if named > 0 {
        // Upstream has both reservations overwritten.
        reserved.cpu_milli = i64::try_from(named).unwrap_or(i64::MAX).saturating_mul(1000);
    }
    let per_qos = written.cgroups_per_qos.unwrap_or(true);
    let words = enforcement(reader, written, per_qos);
    let enforced = |whose: Whose, own: &Amounts| {
        let cgroup = match whose {
            Whose::System => &written.system_reserved_cgroup,
            Whose::Kube => &written.kube_reserved_cgroup,
        };
        words.iter().find(|word| is_of(word, whose)).map(|word| ReservedCgroup {
            whose,
            compressible: is_compressible(word),
            cgroup: cgroup.clone().unwrap_or_default(),
            cpu_milli: own.cpu_milli,
            memory: own.memory,
            pids: own.pids,
        })
    };
    let both = [enforced(Whose::System, &system), enforced(Whose::Kube, &kube)];
    let (memory_throttling, reserves_memory) = memory_qos(reader, written);
    let naming = CgroupNaming {
        driver,
        root: root.clone(),
        per_qos,
    };
    CgroupConfig {
        driver,
        root,
        per_qos,
        cpu_cfs_quota: written.cpu_cfs_quota.unwrap_or(true),
        cpu_cfs_period_us: i64::try_from(period.as_micros()).unwrap_or(100_000),
        pod_pids_limit: written.pod_pids_limit.unwrap_or(-1),
        enforce_pods: words.iter().any(|word| word == "pods") && per_qos,
        reserved,
        reserved_cgroups: both.into_iter().flatten().collect(),
        memory_throttling,
        reserves_memory,
        limited_swap: limited_swap(reader, written),
        qos_reserved_percent: qos_reserved(reader, written),
        own: own(reader, written, &naming),
    }
}

fn is_of(word: &str, whose: Whose) -> bool {
    word.strip_suffix("-compressible").unwrap_or(word) == whose.word()
}

fn is_compressible(word: &str) -> bool {
    word.ends_with("-compressible")
}

/// The words of `enforceNodeAllocatable`, and what they need of other fields.
fn enforcement(reader: &mut Reader, written: &KubeletConfiguration, per_qos: bool) -> Vec<String> {
    let words = written
        .enforce_node_allocatable
        .clone()
        .unwrap_or_else(|| vec!["pods".into()]);
    for word in &words {
        let is_known = ["pods", "none"].contains(&word.as_str())
            || [Whose::System, Whose::Kube].iter().any(|whose| is_of(word, *whose));
        if !is_known {
            let known =
                "none, pods, system-reserved, system-reserved-compressible, kube-reserved, kube-reserved-compressible";
            reader.wrong(ENFORCE, format!("{word:?} is not one of {known}"));
        }
    }
    if words.iter().any(|word| word == "none") && words.len() > 1 {
        reader.wrong(ENFORCE, "\"none\" must stand alone");
    }
    let enforces = words.iter().any(|word| word != "none");
    if enforces && !per_qos && written.enforce_node_allocatable.is_some() {
        reader.wrong(ENFORCE, "is not supported unless cgroupsPerQOS is true");
    }
    for (whose, cgroup, amounts) in [
        (Whose::System, &written.system_reserved_cgroup, &written.system_reserved),
        (Whose::Kube, &written.kube_reserved_cgroup, &written.kube_reserved),
    ] {
        reserved_cgroup(
            reader,
            &words,
            whose,
            cgroup.as_deref().unwrap_or_default(),
            amounts.as_ref(),
        );
        if !cgroup.as_deref().unwrap_or_default().is_empty() && !pinning::reserved(written).is_empty() {
            let why = format!("cannot be given together with {}", whose.field());
            reader.wrong("reservedSystemCPUs", why);
        }
    }
    words
}

/// What a reservation that is enforced on a cgroup needs.
fn reserved_cgroup(
    reader: &mut Reader,
    words: &[String],
    whose: Whose,
    cgroup: &str,
    amounts: Option<&BTreeMap<String, String>>,
) {
    let of: Vec<&String> = words.iter().filter(|word| is_of(word, whose)).collect();
    let Some(word) = of.first() else { return };
    if of.iter().any(|other| other != word) {
        let why = format!("{0:?} and \"{0}-compressible\" cannot be given together", whose.word());
        reader.wrong(ENFORCE, why);
    }
    if cgroup.is_empty() {
        reader.wrong(whose.field(), format!("must be given when {ENFORCE} contains {word:?}"));
    }
    if cgroup.split('/').any(|part| part == "..") {
        reader.wrong(whose.field(), "must not contain '..'");
    } else if cgroup.split('/').all(str::is_empty) && !cgroup.is_empty() {
        reader.wrong(whose.field(), "must not be the root of all cgroups");
    }
    if amounts.is_none_or(BTreeMap::is_empty) {
        reader.wrong(
            whose.amounts(),
            format!("must be given when {ENFORCE} contains {word:?}"),
        );
    }
}

/// What the gate `MemoryQoS` brings: the factor, if it is on, and whether memory is kept.
fn memory_qos(reader: &mut Reader, written: &KubeletConfiguration) -> (Option<f64>, bool) {
    let factor = written.memory_throttling_factor.unwrap_or(DEFAULT_FACTOR);
    if !(factor > 0.0 && factor <= 1.0) {
        let why = format!("{factor} must be greater than 0 and at most 1");
        reader.wrong("memoryThrottlingFactor", why);
    }
    let policy = "memoryReservationPolicy";
    let reserves = match written.memory_reservation_policy.as_deref().unwrap_or_default() {
        "" | "None" => false,
        "TieredReservation" if written.memory.qos => true,
        "TieredReservation" => {
            reader.wrong(policy, "\"TieredReservation\" needs feature gate MemoryQoS");
            false
        }
        other => {
            reader.wrong(policy, format!("{other:?} is not one of None, TieredReservation"));
            false
        }
    };
    (written.memory.qos.then_some(factor), reserves)
}

fn limited_swap(reader: &mut Reader, written: &KubeletConfiguration) -> bool {
    match written.memory_swap.swap_behavior.as_deref().unwrap_or_default() {
        "" | "NoSwap" => false,
        "LimitedSwap" => true,
        other => {
            let why = format!("{other:?} must be one of \"\", \"LimitedSwap\" or \"NoSwap\"");
            reader.wrong("memorySwap.swapBehavior", why);
            false
        }
    }
}

/// `qosReserved`: a percentage of memory.
fn qos_reserved(reader: &mut Reader, written: &KubeletConfiguration) -> Option<i64> {
    let field = "qosReserved";
    let list = written.qos_reserved.as_ref().filter(|list| !list.is_empty())?;
    if !written.memory.qos_reserved {
        reader.wrong(field, "needs feature gate QOSReserved");
    }
    let mut found = None;
    for (name, text) in list {
        let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
        match (name.as_str(), percent) {
            ("memory", Some(percent @ 0..=100)) => found = Some(percent),
            ("memory", _) => {
                let why = format!("memory: {text:?} is not a whole percentage between 0% and 100%");
                reader.wrong(field, why);
            }
            (other, _) => reader.wrong(field, format!("{other:?} is not supported: only memory is")),
        }
    }
    found
}

#[cfg(test)]
mod tests;
