//! Which pods make room for a critical one that the node has too little for (kubelet contract §10, §14). Pure.
//!
//! As few Guaranteed pods as can be, then as few Burstable ones, then best effort ones: of each class, one after another, the pod that
//! comes nearest to what is still wanted, and of equal ones the one that asks for less.

use crate::pod_object;
use k8s_openapi::api::core::v1::Pod;
use proto::api::qos::{QosClass, qos_class};
use proto::api::quantity::Quantity;
use proto::api::resources::pod_requests;
use std::sync::Arc;

/// What a pod that goes for another is told.
pub const MESSAGE: &str = "Preempted in order to admit critical pod";

/// How much of a resource is missing: CPU in thousandths, everything else in units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The resource's name; `pods` is one.
    pub resource: String,
    /// How much.
    pub amount: i64,
}

/// A pod that may have to go.
#[derive(Clone, Debug)]
struct Victim {
    pod: Arc<Pod>,
    /// What it would free of each that is missing, in their order.
    frees: Vec<i64>,
    /// Memory and CPU it asks for: less is better to lose.
    weight: (i64, i64),
}

/// Whether a pod may take another's place.
fn may_preempt(preemptor: &Pod, pod: &Pod) -> bool {
    if pod_object::is_critical(preemptor) && !pod_object::is_critical(pod) {
        return true;
    }
    let priority = |pod: &Pod| pod_object::spec(pod).priority;
    matches!((priority(preemptor), priority(pod)), (Some(own), Some(other)) if own > other)
}

/// What a pod asks for of a resource; each takes one of the node's places for pods.
pub fn requested(pod: &Pod, resource: &str) -> i64 {
    if resource == "pods" {
        return 1;
    }
    let amount = pod_requests(pod_object::spec(pod))
        .get(resource)
        .copied()
        .unwrap_or(Quantity::ZERO);
    if resource == "cpu" {
        amount.milli_value()
    } else {
        amount.value()
    }
}

/// What is still missing once these have gone.
fn without<'a>(missing: &[i64], victims: impl IntoIterator<Item = &'a Victim>) -> Vec<i64> {
    let mut left = missing.to_vec();
    for victim in victims {
        for (left, frees) in left.iter_mut().zip(&victim.frees) {
            *left = left.saturating_sub(*frees).max(0);
        }
    }
    left
}

fn is_met(missing: &[i64]) -> bool {
    missing.iter().all(|amount| *amount <= 0)
}

/// How far from what is missing a pod leaves the node: each resource counts alike, whatever its unit.
#[expect(clippy::cast_precision_loss, reason = "a measure of distance")]
fn distance(missing: &[i64], victim: &Victim) -> f64 {
    let of = |(missing, frees): (&i64, &i64)| {
        let left = missing - frees;
        if *missing <= 0 || left <= 0 {
            return 0.0;
        }
        let part = left as f64 / *missing as f64;
        part * part
    };
    missing.iter().zip(&victim.frees).map(of).sum()
}

/// Of these pods, those whose going leaves nothing missing; all of them may not be enough.
fn nearest(mut pods: Vec<Victim>, mut missing: Vec<i64>) -> Option<Vec<Victim>> {
    let mut chosen = Vec::new();
    while !is_met(&missing) {
        let best = pods.iter().enumerate().min_by(|(_, a), (_, b)| {
            let by_distance = distance(&missing, a).total_cmp(&distance(&missing, b));
            by_distance.then_with(|| a.weight.cmp(&b.weight))
        });
        let victim = pods.remove(best?.0);
        missing = without(&missing, [&victim]);
        chosen.push(victim);
    }
    Some(chosen)
}

/// Who goes for `preemptor`, so that the node has what is `missing`; of `pods`, those that run.
///
/// # Errors
/// All who may go are not enough; upstream's words.
pub fn victims(preemptor: &Pod, pods: &[Arc<Pod>], missing: &[Missing]) -> Result<Vec<Arc<Pod>>, String> {
    let amounts: Vec<i64> = missing.iter().map(|missing| missing.amount).collect();
    let may_go = pods.iter().filter(|pod| may_preempt(preemptor, pod));
    let (mut guaranteed, mut burstable, mut best_effort) = (Vec::new(), Vec::new(), Vec::new());
    for pod in may_go {
        let victim = Victim {
            frees: missing
                .iter()
                .map(|missing| requested(pod, &missing.resource))
                .collect(),
            weight: (requested(pod, "memory"), requested(pod, "cpu")),
            pod: pod.clone(),
        };
        match qos_class(pod_object::spec(pod)) {
            QosClass::Guaranteed => guaranteed.push(victim),
            QosClass::Burstable => burstable.push(victim),
            QosClass::BestEffort => best_effort.push(victim),
        }
    }
    let all = best_effort.iter().chain(&burstable).chain(&guaranteed);
    let impossible = without(&amounts, all);
    let not_enough = |left: &[i64]| {
        let told = missing.iter().zip(left).filter(|(_, left)| **left > 0);
        let told: String = told
            .map(|(missing, left)| format!("(res: {}, q: {left}), ", missing.resource))
            .collect();
        format!(
            "preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [{told}]"
        )
    };
    if !is_met(&impossible) {
        return Err(not_enough(&impossible));
    }
    let of_guaranteed = without(&amounts, best_effort.iter().chain(&burstable));
    let guaranteed = nearest(guaranteed, of_guaranteed.clone()).ok_or_else(|| not_enough(&of_guaranteed))?;
    let of_burstable = without(&amounts, best_effort.iter().chain(&guaranteed));
    let burstable = nearest(burstable, of_burstable.clone()).ok_or_else(|| not_enough(&of_burstable))?;
    let of_best_effort = without(&amounts, burstable.iter().chain(&guaranteed));
    let best_effort = nearest(best_effort, of_best_effort.clone()).ok_or_else(|| not_enough(&of_best_effort))?;
    let chosen = best_effort.into_iter().chain(burstable).chain(guaranteed);
    Ok(chosen.map(|victim| victim.pod).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::spec::testing::pod;
    use proptest::prelude::*;

    fn one(uid: &str, priority: i32, requests: &str, limits: &str) -> Arc<Pod> {
        let mut pod = pod(&format!(
            r#"{{"priority":{priority},"containers":[{{"name":"c","resources":{{"requests":{requests},"limits":{limits}}}}}]}}"#
        ));
        pod.metadata.uid = Some(uid.to_owned());
        Arc::new(pod)
    }

    fn burstable(uid: &str, cpu: &str) -> Arc<Pod> {
        one(uid, 0, &format!(r#"{{"cpu":"{cpu}","memory":"1Mi"}}"#), "{}")
    }

    fn guaranteed(uid: &str, cpu: &str) -> Arc<Pod> {
        let amounts = format!(r#"{{"cpu":"{cpu}","memory":"1Mi"}}"#);
        one(uid, 0, &amounts, &amounts)
    }

    fn missing(list: &[(&str, i64)]) -> Vec<Missing> {
        let one = |(resource, amount): &(&str, i64)| Missing {
            resource: (*resource).to_owned(),
            amount: *amount,
        };
        list.iter().map(one).collect()
    }

    fn chosen(pods: &[Arc<Pod>], wanted: &[(&str, i64)]) -> Result<Vec<String>, String> {
        let critical = one("critical", 2_000_000_000, "{}", "{}");
        let found = victims(&critical, pods, &missing(wanted))?;
        Ok(found.iter().filter_map(|pod| pod.metadata.uid.clone()).collect())
    }

    #[test]
    fn the_cheapest_set_goes() {
        let best_effort = one("e", 0, "{}", "{}");
        let (small, large) = (burstable("small", "100m"), burstable("large", "500m"));
        let safe = guaranteed("safe", "500m");
        let pods = [best_effort, small, large, safe];
        for (wanted, expected) in [
            (&[("cpu", 400)][..], &["large"][..]),
            (&[("cpu", 50)], &["small"]),
            (&[("cpu", 550)], &["large", "small"]),
            (&[("cpu", 1000)], &["large", "safe"]),
            (&[("pods", 1)], &["e"]),
            (&[("pods", 2), ("cpu", 50)], &["e", "small"]),
            (&[("cpu", 601)], &["large", "safe"]),
        ] {
            assert_eq!(
                chosen(&pods, wanted),
                Ok(expected.iter().map(ToString::to_string).collect()),
                "{wanted:?}"
            );
        }
    }

    #[test]
    fn nobody_goes_in_vain_and_what_is_missing_is_told() {
        let pods = [
            burstable("b", "100m"),
            one("vip", 2_000_000_000, r#"{"cpu":"4"}"#, "{}"),
        ];
        assert_eq!(
            chosen(&pods, &[("cpu", 250), ("memory", 10)]),
            Err("preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 150), ]".to_owned())
        );
    }

    #[test]
    fn a_more_critical_pod_takes_a_less_critical_ones_place() {
        let node_critical = one("node", 2_000_001_000, "{}", "{}");
        let cluster_critical = one("cluster", 2_000_000_000, r#"{"cpu":"1"}"#, "{}");
        let wanted = missing(&[("cpu", 500)]);
        assert!(victims(&node_critical, std::slice::from_ref(&cluster_critical), &wanted).is_ok());
        assert!(victims(&cluster_critical, std::slice::from_ref(&cluster_critical), &wanted).is_err());
    }

    proptest! {
        /// What goes is enough, may go, and without any one of it something would be missing.
        #[test]
        fn what_goes_is_enough(cpus in proptest::collection::vec((0i64..6, 0u8..4), 0..10), wanted in 1i64..12) {
            let pods: Vec<Arc<Pod>> = cpus.iter().enumerate().map(|(number, (cpu, kind))| {
                let uid = format!("p{number}");
                match kind {
                    0 => one(&uid, 0, "{}", "{}"),
                    1 => burstable(&uid, &cpu.to_string()),
                    2 => guaranteed(&uid, &cpu.to_string()),
                    _ => one(&uid, 2_000_000_000, &format!(r#"{{"cpu":"{cpu}"}}"#), "{}"),
                }
            }).collect();
            let critical = one("critical", 2_000_000_000, "{}", "{}");
            let may: i64 = pods.iter().filter(|pod| !pod_object::is_critical(pod)).map(|pod| requested(pod, "cpu")).sum();
            let found = victims(&critical, &pods, &missing(&[("cpu", wanted * 1000)]));
            prop_assert_eq!(found.is_ok(), may >= wanted * 1000);
            if let Ok(found) = found {
                let freed: i64 = found.iter().map(|pod| requested(pod, "cpu")).sum();
                prop_assert!(freed >= wanted * 1000);
                prop_assert!(found.iter().all(|pod| freed - requested(pod, "cpu") < wanted * 1000), "everybody is needed");
                prop_assert!(found.iter().all(|pod| !pod_object::is_critical(pod)));
                let safe = |pod: &Arc<Pod>| qos_class(pod_object::spec(pod)) == QosClass::Guaranteed;
                let others: i64 = pods.iter().filter(|pod| !pod_object::is_critical(pod) && !safe(pod)).map(|pod| requested(pod, "cpu")).sum();
                prop_assert!(others < wanted * 1000 || !found.iter().any(safe), "nobody guaranteed goes where others are enough");
            }
        }
    }
}
