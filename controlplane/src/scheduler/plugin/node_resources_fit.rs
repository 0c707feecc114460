//! NodeResourcesFit: requests must fit what is left; LeastAllocated scores what would remain.

use super::Rejection;
use crate::planted;
use crate::scheduler::cluster::NodeInfo;
use crate::scheduler::pod::PodInfo;
use std::borrow::Cow;

/// Weight of the score.
pub const WEIGHT: i64 = 1;

/// Refuses nodes that lack a requested resource; every lacking one is a reason.
pub fn filter(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if planted::is(planted::Fault::FitLeftOut) {
        return Ok(());
    }
    let mut reasons = Vec::new();
    let mut beyond = false;
    let pods = i64::try_from(node.pods.len()).unwrap_or(i64::MAX);
    if pods + 1 > node.max_pods {
        reasons.push(Cow::Borrowed("Too many pods"));
    }
    let (want, have, used) = (&pod.requests, &node.allocatable, &node.requested);
    let mut check = |want: i64, have: i64, used: i64, reason: &dyn Fn() -> Cow<'static, str>| {
        if want > 0 && want > have - used {
            reasons.push(reason());
            beyond |= want > have;
        }
    };
    check(want.cpu, have.cpu, used.cpu, &|| Cow::Borrowed("Insufficient cpu"));
    check(want.memory, have.memory, used.memory, &|| {
        Cow::Borrowed("Insufficient memory")
    });
    check(want.storage, have.storage, used.storage, &|| {
        Cow::Borrowed("Insufficient ephemeral-storage")
    });
    for (name, amount) in &want.scalar {
        let of = |amounts: &crate::scheduler::pod::Amounts| amounts.scalar.get(name).copied().unwrap_or(0);
        check(*amount, of(have), of(used), &|| {
            Cow::Owned(format!("Insufficient {name}"))
        });
    }
    if reasons.is_empty() {
        return Ok(());
    }
    Err(Rejection {
        plugin: "NodeResourcesFit",
        reasons,
        resolvable: !beyond,
    })
}

fn least_requested(requested: i64, allocatable: i64) -> i64 {
    if requested > allocatable {
        0
    } else {
        (allocatable - requested) * 100 / allocatable
    }
}

/// LeastAllocated over CPU and memory, each of weight 1, the pod included.
pub fn score(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let pairs = [
        (node.assumed.0 + pod.assumed.0, node.allocatable.cpu),
        (node.assumed.1 + pod.assumed.1, node.allocatable.memory),
    ];
    let known = pairs.iter().filter(|(_, allocatable)| *allocatable > 0);
    let (sum, weight) = known.fold((0, 0), |(sum, weight), (requested, have)| {
        (sum + least_requested(*requested, *have), weight + 1)
    });
    if weight == 0 { 0 } else { sum / weight }
}
