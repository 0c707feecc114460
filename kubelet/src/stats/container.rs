//! A pod's running containers, as the kernel has them, or else as the runtime tells. Pure.

use super::numbers::Numbers;
use super::sampler::{Group, PodLook};
use crate::runtime::ContainerUsage;
use crate::runtime::observed::ObservedContainer;
use jiff::Timestamp;

/// A running container of which something is known.
#[derive(Clone, Copy, Debug)]
pub struct Running<'a> {
    /// Who it is.
    pub observed: &'a ObservedContainer,
    /// Its cgroup, where that was found.
    pub group: Option<&'a Group>,
    /// What the runtime tells of it.
    pub usage: Option<&'a ContainerUsage>,
}

/// The pod's, in the order they are observed in. `told` is in the order of pods.
pub fn running<'a>(pod: &'a PodLook, told: &'a Option<Vec<ContainerUsage>>) -> Vec<Running<'a>> {
    let uid = &pod.snapshot.observed.uid;
    let told = told.as_deref().unwrap_or_default();
    let own = &told[told.partition_point(|usage| usage.pod.as_ref() < Some(uid))..];
    let own = &own[..own.partition_point(|usage| usage.pod.as_ref() == Some(uid))];
    let all = PodLook::running(&pod.snapshot).map(|(place, observed)| Running {
        observed,
        group: pod
            .containers
            .iter()
            .find(|(of, _)| *of == place)
            .map(|(_, group)| group),
        usage: own.iter().find(|usage| usage.name == observed.name),
    });
    all.filter(|container| container.group.is_some() || container.usage.is_some())
        .collect()
}

impl Running<'_> {
    /// When its numbers were measured, in a look of that time.
    pub fn at(&self, look: Timestamp) -> Timestamp {
        match (self.group, self.usage) {
            (None, Some(usage)) => Timestamp::from_nanosecond(i128::from(usage.at_nanos)).unwrap_or(look),
            _ => look,
        }
    }

    /// Its numbers, and its CPU time as a rate.
    pub fn numbers(&self) -> (Numbers, Option<u64>) {
        if let Some(group) = self.group {
            return (group.numbers.clone(), group.rate);
        }
        let mut numbers = Numbers::default();
        let Some(usage) = self.usage else {
            return (numbers, None);
        };
        numbers.cpu.total_nanos = usage.cpu_nanos;
        numbers.memory.usage = usage.memory;
        numbers.memory.working_set = usage.working_set;
        numbers.memory.swap = usage.swap;
        numbers.memory.rss_told = usage.rss;
        numbers.limits.swap = usage
            .swap
            .zip(usage.swap_left)
            .map(|(used, left)| used.saturating_add(left));
        (numbers, usage.cpu_rate)
    }
}

/// Of a pod without a cgroup of its own: its containers together, each number only if all have it.
pub fn sum(running: &[Running<'_>]) -> (Numbers, Option<u64>) {
    let all: Vec<(Numbers, Option<u64>)> = running.iter().map(Running::numbers).collect();
    let mut sum = Numbers::default();
    if all.is_empty() {
        return (sum, None);
    }
    let of = |number: fn(&Numbers) -> Option<u64>| {
        let mut numbers = all.iter().map(|(numbers, _)| number(numbers));
        numbers.try_fold(0u64, |sum, number| Some(sum.saturating_add(number?)))
    };
    sum.cpu.total_nanos = of(|numbers| numbers.cpu.total_nanos);
    sum.memory.usage = of(|numbers| numbers.memory.usage);
    sum.memory.working_set = of(|numbers| numbers.memory.working_set);
    sum.memory.swap = of(|numbers| numbers.memory.swap);
    sum.memory.rss_told = of(|numbers| numbers.memory.rss());
    let rate = all
        .iter()
        .try_fold(0u64, |sum, (_, rate)| Some(sum.saturating_add((*rate)?)));
    (sum, rate)
}
