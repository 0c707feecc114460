//! NodeResourcesBalancedAllocation: prefers nodes whose CPU and memory use stay in step with this pod on them.
//!
//! The 1.36 formula compares the balance with and without the pod: 50 + (50 + f(with) - f(without)) / 2.

use crate::scheduler::cluster::NodeInfo;
use crate::scheduler::pod::{Amounts, PodInfo};

/// Weight of the score.
pub const WEIGHT: i64 = 1;

/// Best-effort pods change no balance.
pub fn scores(pod: &PodInfo) -> bool {
    pod.requests.cpu != 0 || pod.requests.memory != 0
}

fn balance(cpu: i64, memory: i64, allocatable: &Amounts) -> i64 {
    let fraction = |used: i64, have: i64| (have > 0).then(|| (used as f64 / have as f64).min(1.0));
    let deviation = match (fraction(cpu, allocatable.cpu), fraction(memory, allocatable.memory)) {
        (Some(cpu), Some(memory)) => ((cpu - memory) / 2.0).abs(),
        _ => 0.0,
    };
    // Truncation is upstream's.
    ((1.0 - deviation) * 100.0) as i64
}

/// The score, 50 to 100.
pub fn score(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let used = &node.requested;
    let with = balance(
        used.cpu + pod.requests.cpu,
        used.memory + pod.requests.memory,
        &node.allocatable,
    );
    let without = balance(used.cpu, used.memory, &node.allocatable);
    50 + (50 + with - without) / 2
}
