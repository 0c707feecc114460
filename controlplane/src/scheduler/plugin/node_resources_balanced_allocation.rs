//! NodeResourcesBalancedAllocation: prefers nodes whose use of resources stays in step with this pod on them.
//!
//! The 1.36 formula compares the balance with and without the pod: 50 + (50 + f(with) - f(without)) / 2.

use super::node_resources_fit::{allocatable, requested};
use crate::scheduler::cluster::{NodeInfo, clamped};
use crate::scheduler::pod::PodInfo;
use crate::scheduler::profile::Resource;

/// Pods that request none of the resources change no balance.
pub fn scores(resources: &[Resource], pod: &PodInfo) -> bool {
    resources.iter().any(|resource| requested(resource, &pod.requests) != 0)
}

/// 100 less the deviation of the used fractions: half the difference of two, the standard deviation of more.
fn balance(used: impl Iterator<Item = (i64, i64)>) -> i64 {
    let mut fractions = used
        .filter(|(_, have)| *have > 0)
        .map(|(used, have)| (used as f64 / have as f64).min(1.0));
    // Asked of every node: the usual two resources take no memory.
    let deviation = match [fractions.next(), fractions.next(), fractions.next()] {
        [Some(one), Some(other), None] => ((one - other) / 2.0).abs(),
        [_, None, _] => 0.0,
        first => {
            let many: Vec<f64> = first.into_iter().flatten().chain(fractions).collect();
            let count = many.len() as f64;
            let mean = many.iter().sum::<f64>() / count;
            (many.iter().map(|f| (f - mean) * (f - mean)).sum::<f64>() / count).sqrt()
        }
    };
    // Truncation is upstream's.
    ((1.0 - deviation) * 100.0) as i64
}

/// The score, 50 to 100.
pub fn score(resources: &[Resource], pod: &PodInfo, node: &NodeInfo) -> i64 {
    // A resource of its own name counts only for pods that want it.
    let counted = |resource: &&Resource| match resource {
        Resource::Scalar(_) => requested(resource, &pod.requests) != 0,
        Resource::Cpu | Resource::Memory | Resource::Storage => true,
    };
    let use_with = |share: i64| {
        let each = resources.iter().filter(counted);
        balance(each.map(move |resource| {
            let wanted = share * requested(resource, &pod.requests);
            let used = requested(resource, &node.room.requested) + i128::from(wanted);
            (clamped(used), allocatable(resource, node))
        }))
    };
    50 + (50 + use_with(1) - use_with(0)) / 2
}
