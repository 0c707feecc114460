//! CPUs that containers have to themselves, and NUMA nodes they are kept on.

use super::Reader;
use crate::config::KubeletConfiguration;
use crate::pinning::cpu::options;
use crate::pinning::cpu_set::CpuSet;
use crate::pinning::hint::{self, Policy};
use crate::pinning::memory::MEMORY;
use crate::pinning::memory::reserve::Reservation;
use crate::pinning::{CpuRules, Rules, TopologyRules, reserved_list};
use proto::api::quantity::Quantity;
use std::collections::BTreeMap;

/// Upstream does not let a machine have fewer NUMA nodes than this.
const NODES_MIN: usize = 8;
const CLOSEST: &str = "prefer-closest-numa-nodes";
const NODES_MAX: &str = "max-allowable-numa-nodes";

/// `reservedSystemCPUs`, none if they are not sound: that is told with the rest of the rules.
pub(super) fn reserved(written: &KubeletConfiguration) -> CpuSet {
    let text = written.reserved_system_cpus.as_deref().unwrap_or_default();
    reserved_list(text).unwrap_or_default()
}

pub(super) fn rules(reader: &mut Reader, written: &KubeletConfiguration, reserved_milli: i64) -> Rules {
    let default = Rules::default();
    let text = written.reserved_system_cpus.as_deref().unwrap_or_default();
    let reserved = reserved_list(text).unwrap_or_else(|why| {
        reader.wrong("reservedSystemCPUs", why);
        CpuSet::default()
    });
    let reconcile_every = reader.time(
        "cpuManagerReconcilePeriod",
        written.cpu_manager_reconcile_period.as_deref(),
        default.reconcile_every,
    );
    Rules {
        cpu: cpu(reader, written, reserved_milli),
        memory: memory(reader, written),
        reserved,
        reconcile_every,
        no_quota: written.pinning.no_quota,
        topology: topology(reader, written),
    }
}

fn cpu(reader: &mut Reader, written: &KubeletConfiguration, reserved_milli: i64) -> Option<CpuRules> {
    let none = BTreeMap::new();
    let given = written.cpu_manager_policy_options.as_ref().unwrap_or(&none);
    match written.cpu_manager_policy.as_deref().unwrap_or_default() {
        "" | "none" => {
            if let Some(option) = given.keys().next() {
                let why = format!("None policy: received unsupported options={option:?}");
                reader.wrong("cpuManagerPolicyOptions", why);
            }
            None
        }
        "static" => {
            let options = options::read(given, written.pinning.options).unwrap_or_else(|why| {
                reader.wrong("cpuManagerPolicyOptions", why);
                options::Options::default()
            });
            if options.align_by_socket && written.topology_manager_policy.as_deref() == Some("single-numa-node") {
                let why = "Topolgy manager single-numa-node policy is incompatible with CPUManager Align by socket policy option";
                reader.wrong("cpuManagerPolicyOptions", why);
            }
            if reserved_milli <= 0 {
                let why = "the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero";
                reader.wrong("cpuManagerPolicy", why);
            }
            Some(CpuRules {
                options,
                reserved_milli,
            })
        }
        other => {
            let why = format!("invalid policy {other:?}: must be one of none, static");
            reader.wrong("cpuManagerPolicy", why);
            None
        }
    }
}

/// What is kept of NUMA nodes, if the static memory policy rules. It is judged whether or not it does, as upstream's is.
fn memory(reader: &mut Reader, written: &KubeletConfiguration) -> Option<Vec<Reservation>> {
    let mut kept: BTreeMap<u32, BTreeMap<String, Quantity>> = BTreeMap::new();
    for item in written.reserved_memory.iter().flatten() {
        let Ok(node) = u32::try_from(item.numa_node) else {
            reader.wrong(
                "reservedMemory",
                format!("numaNode {} must not be negative", item.numa_node),
            );
            continue;
        };
        let limits = kept.entry(node).or_default();
        for (name, text) in &item.limits {
            match reservation(node, name, text) {
                Err(why) => reader.wrong("reservedMemory", why),
                Ok(amount) if limits.insert(name.clone(), amount).is_some() => {
                    let why = "invalid configuration: the reserved memory has a duplicate value";
                    reader.wrong(
                        "reservedMemory",
                        format!("{why} for NUMA node {node} and resource {name:?}"),
                    );
                }
                Ok(_) => {}
            }
        }
    }
    match written.memory_manager_policy.as_deref().unwrap_or_default() {
        "" | "None" => None,
        "Static" => {
            let kept = kept.into_iter();
            Some(kept.map(|(node, limits)| Reservation { node, limits }).collect())
        }
        other => {
            let why = format!("invalid policy {other:?}: must be one of None, Static");
            reader.wrong("memoryManagerPolicy", why);
            None
        }
    }
}

fn reservation(node: u32, name: &str, text: &str) -> Result<Quantity, String> {
    if name != MEMORY && !name.starts_with("hugepages-") {
        return Err(format!(
            "invalid configuration: the limit type {name:?} for NUMA node {node} is not supported, only [memory hugepages-<HugePageSize>] is accepted"
        ));
    }
    match Quantity::parse(text) {
        Err(_) => Err(format!("{name} of NUMA node {node}: {text:?} is not a quantity")),
        Ok(amount) if amount.is_negative() => Err(format!("{name} of NUMA node {node}: {text:?} must not be negative")),
        Ok(amount) if amount.is_zero() => Err(format!(
            "invalid configuration: reserved memory may not be zero for NUMA node {node} and resource {name:?}"
        )),
        Ok(amount) => Ok(amount),
    }
}

/// What is sound and has no effect.
pub(in crate::config) fn warnings(written: &KubeletConfiguration) -> Vec<String> {
    let rules = written.memory_manager_policy.as_deref() == Some("Static");
    let is_idle = !rules && written.reserved_memory.as_ref().is_some_and(|items| !items.is_empty());
    let text = "reservedMemory has no effect unless memoryManagerPolicy is Static";
    is_idle.then(|| text.to_owned()).into_iter().collect()
}

fn topology(reader: &mut Reader, written: &KubeletConfiguration) -> TopologyRules {
    let mut rules = TopologyRules::default();
    let policy = written
        .topology_manager_policy
        .as_deref()
        .filter(|text| !text.is_empty());
    match Policy::named(policy.unwrap_or("none")) {
        Some(policy) => rules.policy = policy,
        None => {
            let known = "none, best-effort, restricted, single-numa-node";
            let why = format!(
                "invalid policy {:?}: must be one of {known}",
                policy.unwrap_or_default()
            );
            reader.wrong("topologyManagerPolicy", why);
        }
    }
    match written.topology_manager_scope.as_deref().unwrap_or_default() {
        "" | "container" => {}
        "pod" => rules.by_pod = true,
        other => reader.wrong(
            "topologyManagerScope",
            format!("invalid scope {other:?}: must be one of container, pod"),
        ),
    }
    for (name, value) in written.topology_manager_policy_options.iter().flatten() {
        if let Err(why) = topology_option(&mut rules, name, value) {
            reader.wrong("topologyManagerPolicyOptions", why);
        }
    }
    rules
}

fn topology_option(rules: &mut TopologyRules, name: &str, value: &str) -> Result<(), String> {
    match name {
        CLOSEST => match options::truth(value) {
            Some(closest) => rules.closest = closest,
            None => {
                return Err(format!(
                    "bad value for option {name:?}: strconv.ParseBool: parsing {value:?}: invalid syntax"
                ));
            }
        },
        NODES_MAX => match value.parse() {
            Ok(nodes) if nodes > hint::NODES_MAX => {
                let most = hint::NODES_MAX;
                return Err(format!(
                    "{name:?} is {nodes}: containers are aligned on no more than {most} NUMA nodes"
                ));
            }
            Ok(nodes) if nodes >= NODES_MIN => rules.nodes_max = Some(nodes),
            Ok(_) => {
                return Err(format!(
                    "the minimum value of {name:?} should not be less than {NODES_MIN}"
                ));
            }
            Err(_) => {
                return Err(format!(
                    "unable to convert policy option to integer {name:?}: strconv.Atoi: parsing {value:?}: invalid syntax"
                ));
            }
        },
        _ => return Err(format!("unknown Topology Manager Policy option: {name:?}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
