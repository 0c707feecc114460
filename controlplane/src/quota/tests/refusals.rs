//! What a write is charged, and the texts of refusals.

use super::*;
use crate::quota::{Demand, Item};

fn demand(new: Value, old: Option<Value>) -> Demand {
    let read = |object: Value| Item::read(&Evaluator::Pods, &object).unwrap();
    Demand {
        evaluator: Evaluator::Pods,
        new: read(new),
        old: old.map(read),
        now: now(),
    }
}

fn asking(resources: Value) -> Value {
    json!({"metadata": {}, "spec": {"containers": [container(resources)]}})
}

fn charged(quota: &mut Quota, demand: &Demand) -> Result<String, String> {
    let added = demand.on(quota)?;
    quota.charge(&added)?;
    Ok(text(&added))
}

#[test]
fn a_quota_is_charged_up_to_its_bound() {
    let mut quota = quota(json!({}), json!({"hard": {"pods": "2"}, "used": {"pods": "0"}}));
    let pod = demand(asking(json!({})), None);
    assert_eq!(charged(&mut quota, &pod).unwrap(), "pods=1");
    assert_eq!(charged(&mut quota, &pod).unwrap(), "pods=1");
    let refused = charged(&mut quota, &pod).unwrap_err();
    assert_eq!(
        refused,
        "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
    );
    assert_eq!(text(&quota.used), "pods=2");
    quota.give_back(&pod.on(&quota).unwrap());
    assert_eq!(text(&quota.used), "pods=1");
}

#[test]
fn only_what_is_exceeded_is_told() {
    let mut quota = quota(
        json!({}),
        json!({"hard": {"pods": "5", "requests.cpu": "1", "requests.memory": "1Gi"},
            "used": {"pods": "1", "requests.cpu": "800m", "requests.memory": "1Gi"}}),
    );
    let pod = demand(asking(json!({"requests": {"cpu": "300m", "memory": "512Mi"}})), None);
    let refused = charged(&mut quota, &pod).unwrap_err();
    assert_eq!(
        refused,
        "exceeded quota: q, requested: requests.cpu=300m,requests.memory=512Mi, used: \
         requests.cpu=800m,requests.memory=1Gi, limited: requests.cpu=1,requests.memory=1Gi"
    );
}

#[test]
fn every_container_says_what_is_bounded() {
    let bounded = quota(
        json!({}),
        json!({"hard": {"limits.cpu": "2", "requests.memory": "1Gi", "requests.ephemeral-storage": "1Gi"},
            "used": {"limits.cpu": "0", "requests.memory": "0", "requests.ephemeral-storage": "0"}}),
    );
    let mut pod = asking(json!({"limits": {"cpu": "1"}}));
    pod["spec"]["initContainers"] = json!([{"name": "a"}]);
    assert_eq!(
        demand(pod.clone(), None).on(&bounded).unwrap_err(),
        "failed quota: q: must specify limits.cpu for: a; requests.memory for: a,c"
    );
    pod["spec"]["resources"] = json!({"limits": {"cpu": "1"}});
    assert_eq!(text(&demand(pod, None).on(&bounded).unwrap()), "limits.cpu=1");
}

#[test]
fn what_has_not_been_counted_refuses() {
    let half = quota(
        json!({}),
        json!({"hard": {"pods": "2", "requests.cpu": "1"}, "used": {"pods": "0"}}),
    );
    let pod = demand(asking(json!({"requests": {"cpu": "1"}})), None);
    assert_eq!(
        pod.on(&half).unwrap_err(),
        "status unknown for quota: q, resources: pods,requests.cpu"
    );
    let new = quota(json!({"hard": {"pods": "2", "secrets": "1"}}), json!({}));
    assert!(new.awaits_status(&Evaluator::Pods) && !new.awaits_status(&Evaluator::Services));
    assert_eq!(
        pod.on(&new).unwrap_err(),
        "status unknown for quota: q, resources: pods"
    );
    let other = quota(json!({"hard": {"pods": "2"}, "scopes": ["Terminating"]}), json!({}));
    assert_eq!(text(&pod.on(&other).unwrap()), "");
    let services = quota(json!({"hard": {"services": "2"}}), json!({}));
    assert_eq!(text(&pod.on(&services).unwrap()), "");
}

#[test]
fn a_change_is_charged_what_it_adds() {
    let mut quota = quota(
        json!({}),
        json!({"hard": {"pods": "1", "requests.cpu": "1"}, "used": {"pods": "1", "requests.cpu": "600m"}}),
    );
    let asks = |cpu: &str| asking(json!({"requests": {"cpu": cpu}}));
    let more = demand(asks("900m"), Some(asks("600m")));
    assert_eq!(charged(&mut quota, &more).unwrap(), "requests.cpu=300m");
    let less = demand(asks("100m"), Some(asks("900m")));
    assert_eq!(charged(&mut quota, &less).unwrap(), "");
    let much = demand(asks("1100m"), Some(asks("900m")));
    assert_eq!(
        charged(&mut quota, &much).unwrap_err(),
        "exceeded quota: q, requested: requests.cpu=200m, used: requests.cpu=900m, limited: requests.cpu=1"
    );
}

#[test]
fn a_negative_amount_is_refused() {
    let quota = quota(
        json!({}),
        json!({"hard": {"requests.cpu": "1"}, "used": {"requests.cpu": "0"}}),
    );
    let pod = demand(asking(json!({"requests": {"cpu": "-1"}})), None);
    assert_eq!(
        pod.on(&quota).unwrap_err(),
        "quota usage is negative for resource(s): cpu,requests.cpu"
    );
}
