//! NodeResourcesFit: requests must fit what is left; scores what is used, by one of three strategies.

use super::{Plugin, Rejection};
use crate::planted;
use crate::scheduler::cluster::{NodeInfo, Room, clamped};
use crate::scheduler::pod::{Amounts, PodInfo};
use crate::scheduler::profile::{FitArgs, Resource, Strategy};
use std::borrow::Cow;

impl FitArgs {
    fn ignores(&self, name: &str) -> bool {
        let group = name.split_once('/').map(|(group, _)| group);
        self.ignored.iter().any(|ignored| ignored == name)
            || group.is_some_and(|group| self.ignored_groups.iter().any(|ignored| ignored == group))
    }
}

/// Refuses nodes that lack a requested resource; every lacking one is a reason.
pub fn filter(args: &FitArgs, pod: &PodInfo, node: &NodeInfo, room: &Room) -> Result<(), Rejection> {
    if planted::is(planted::Fault::FitLeftOut) {
        return Ok(());
    }
    let mut reasons = Vec::new();
    let mut beyond = false;
    if room.pods + 1 > node.max_pods {
        reasons.push(Cow::Borrowed("Too many pods"));
    }
    let (want, have, used) = (&pod.requests, &node.allocatable, &room.requested);
    let mut check = |want: i64, have: i64, used: i128, reason: &dyn Fn() -> Cow<'static, str>| {
        if want > 0 && i128::from(want) > i128::from(have) - used {
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
    for (name, amount) in want.scalar.iter().filter(|(name, _)| !args.ignores(name)) {
        let have = have.scalar.get(name).copied().unwrap_or(0);
        let used = used.scalar.get(name).copied().unwrap_or(0);
        check(*amount, have, used, &|| Cow::Owned(format!("Insufficient {name}")));
    }
    if reasons.is_empty() {
        return Ok(());
    }
    Err(Rejection {
        plugin: Plugin::NodeResourcesFit,
        reasons,
        resolvable: !beyond,
    })
}

/// The amount of one resource.
pub fn requested<N: Copy + Default>(resource: &Resource, amounts: &Amounts<N>) -> N {
    match resource {
        Resource::Cpu => amounts.cpu,
        Resource::Memory => amounts.memory,
        Resource::Storage => amounts.storage,
        Resource::Scalar(name) => amounts.scalar.get(name).copied().unwrap_or_default(),
    }
}

/// What the node offers of one resource.
pub fn allocatable(resource: &Resource, node: &NodeInfo) -> i64 {
    requested(resource, &node.allocatable)
}

/// What would be requested with the pod; containers that request nothing count a default here.
fn used(resource: &Resource, pod: &PodInfo, room: &Room) -> i64 {
    let (taken, wanted) = match resource {
        Resource::Cpu => (room.assumed.0, pod.assumed.0),
        Resource::Memory => (room.assumed.1, pod.assumed.1),
        other => (requested(other, &room.requested), requested(other, &pod.requests)),
    };
    clamped(taken + i128::from(wanted))
}

/// The score at this utilisation in percent: straight lines between the points.
fn on_line(points: &[(i64, i64)], percent: i64) -> i64 {
    let Some(next) = points.iter().position(|(utilisation, _)| percent <= *utilisation) else {
        return points.last().map_or(0, |(_, score)| *score);
    };
    let (to, high) = points[next];
    match next.checked_sub(1).map(|before| points[before]) {
        None => high,
        Some((from, low)) => low + (high - low) * (percent - from) / (to - from),
    }
}

/// The score, 0 to 100: weighted over the resources.
pub fn score(args: &FitArgs, pod: &PodInfo, node: &NodeInfo) -> i64 {
    let (mut sum, mut weights) = (0, 0);
    for (resource, weight) in &args.resources {
        let have = allocatable(resource, node);
        let unwanted = matches!(resource, Resource::Scalar(_)) && requested(resource, &pod.requests) == 0;
        if have == 0 || unwanted {
            continue;
        }
        let used = used(resource, pod, &node.room);
        let score = match &args.strategy {
            Strategy::LeastAllocated => have.saturating_sub(used).max(0) * 100 / have,
            Strategy::MostAllocated => used.min(have) * 100 / have,
            Strategy::RequestedToCapacityRatio(points) if used > have => on_line(points, 100),
            Strategy::RequestedToCapacityRatio(points) => on_line(points, used * 100 / have),
        };
        if score > 0 || !matches!(args.strategy, Strategy::RequestedToCapacityRatio(_)) {
            sum += weight * score;
            weights += weight;
        }
    }
    match args.strategy {
        _ if weights == 0 => 0,
        Strategy::RequestedToCapacityRatio(_) => (sum as f64 / weights as f64).round() as i64,
        Strategy::LeastAllocated | Strategy::MostAllocated => sum / weights,
    }
}
