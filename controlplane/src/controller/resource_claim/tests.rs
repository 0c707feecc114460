//! Tables of what pods need of their claims, and of what is let go of.

use super::claims::{self, Next};
use super::pods;
use super::*;
use crate::controller::write::{PatchKind, Verb, Write};
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A pod that claims `gpu` by the template `t`.
fn pod(extra: Value) -> Pod {
    let mut value = json!({"metadata": {"name": "p", "namespace": "a", "uid": "pu"},
        "spec": {"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}});
    json_patch::merge(&mut value, &extra);
    serde_json::from_value(value).unwrap()
}

fn claim(name: &str, extra: Value) -> Arc<ResourceClaim> {
    let mut value = json!({"metadata": {"name": name, "namespace": "a", "uid": format!("u-{name}"), "annotations": {POD_CLAIM: "gpu"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pu", "controller": true}]}, "spec": {}});
    json_patch::merge(&mut value, &extra);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn template() -> Arc<ResourceClaimTemplate> {
    let template = json!({"metadata": {"name": "t", "namespace": "a"}, "spec": {"metadata": {"labels": {"k": "v"}, "annotations": {"x": "y"}},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}}});
    Arc::new(serde_json::from_value(template).unwrap())
}

fn plan(pod: &Pod, all: &[Arc<ResourceClaim>], has_template: bool) -> (Vec<Write>, Vec<String>) {
    let own = all
        .iter()
        .filter(|claim| owner(claim).is_some_and(|owner| owner.uid == "pu"));
    let known = pods::Known {
        own: own.cloned().collect(),
        claim: &|name| {
            all.iter()
                .find(|claim| claim.metadata.name.as_deref() == Some(name))
                .cloned()
        },
        template: &|name| (has_template && name == "t").then(template),
    };
    let plan = pods::plan(pod, &known, true);
    (
        plan.writes,
        plan.events.into_iter().map(|event| event.message).collect(),
    )
}

#[test]
fn a_claim_is_made_of_its_template() {
    let (writes, events) = plan(&pod(json!({})), &[], true);
    let [write] = &writes[..] else { panic!("{writes:?}") };
    let Verb::Create(body) = &write.verb else {
        panic!("{write:?}")
    };
    let metadata = &body["metadata"];
    assert_eq!(metadata["generateName"], "p-gpu-");
    assert_eq!(metadata["annotations"], json!({"x": "y", POD_CLAIM: "gpu"}));
    assert_eq!(metadata["labels"], json!({"k": "v"}));
    let reference = &metadata["ownerReferences"][0];
    assert_eq!(
        (&reference["uid"], &reference["controller"]),
        (&json!("pu"), &json!(true))
    );
    assert_eq!(body["spec"]["devices"]["requests"][0]["name"], "r");
    assert!(events.is_empty());
    let (writes, events) = plan(&pod(json!({})), &[], false);
    assert!(writes.is_empty());
    assert_eq!(
        events,
        ["PodResourceClaim gpu: resource claim template \"t\": resourceclaimtemplate.resource.k8s.io \"t\" not found"]
    );
}

#[test]
fn names_begin_with_both_names() {
    let long = "x".repeat(100);
    for (pod, claim, expected) in [
        ("p", "gpu", "p-gpu-".to_owned()),
        (&*"p".repeat(53), "gpu", format!("{}-gpu-", "p".repeat(53))),
        (&long, "gpu", format!("{}-g-", "x".repeat(54))),
        (&long, &long, format!("{}-{}-", "x".repeat(28), "x".repeat(28))),
    ] {
        let base = pods::base(pod, claim);
        assert_eq!(base, expected);
        assert!(base.len() <= 58);
    }
}

#[test]
fn what_is_made_is_recorded_once() {
    let made = claim("p-gpu-abcde", json!({}));
    let (writes, _) = plan(&pod(json!({})), std::slice::from_ref(&made), true);
    let [write] = &writes[..] else { panic!("{writes:?}") };
    let Verb::Patch(PatchKind::Apply("ResourceClaimController"), "status", body) = &write.verb else {
        panic!("{write:?}")
    };
    let statuses = json!([{"name": "gpu", "resourceClaimName": "p-gpu-abcde"}]);
    assert_eq!(
        (&body["status"]["resourceClaimStatuses"], &body["metadata"]["uid"]),
        (&statuses, &json!("pu"))
    );
    let recorded = json!({"status": {"resourceClaimStatuses": statuses}});
    let (writes, events) = plan(&pod(recorded.clone()), &[made], true);
    assert!(writes.is_empty() && events.is_empty());
    // One that went by mistake is made again.
    let (writes, _) = plan(&pod(recorded.clone()), &[], true);
    assert!(matches!(writes[0].verb, Verb::Create(_)));
    // One of that name that is somebody else's is nobody's here.
    let other = claim("p-gpu-abcde", json!({"metadata": {"ownerReferences": null}}));
    let (writes, events) = plan(&pod(recorded), &[other], true);
    assert!(writes.is_empty());
    assert_eq!(
        events,
        ["PodResourceClaim gpu: ResourceClaim a/p-gpu-abcde was not created for Pod a/p (Pod is not owner)"]
    );
}

#[test]
fn pods_that_need_nothing_get_nothing() {
    for extra in [
        json!({"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "own", "resourceClaimTemplateName": null}]}}),
        json!({"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}),
        json!({"status": {"phase": "Succeeded"}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    ] {
        assert_eq!(plan(&pod(extra.clone()), &[], true), (vec![], vec![]), "{extra}");
    }
}

#[test]
fn a_pod_that_somebody_placed_is_added_to_what_it_uses() {
    let placed = json!({"spec": {"nodeName": "n"}, "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}});
    let allocated = json!({"status": {"allocation": {}}});
    let other = json!([{"resource": "pods", "name": "q", "uid": "qu"}]);
    for (extra, expected) in [
        (json!({}), None),
        (allocated.clone(), Some(1)),
        (json!({"status": {"allocation": {}, "reservedFor": other}}), Some(2)),
        (
            json!({"status": {"allocation": {}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "pu"}]}}),
            None,
        ),
        (
            json!({"status": {"allocation": {}, "reservedFor": vec![other[0].clone(); RESERVED_MAX]}}),
            None,
        ),
    ] {
        let (writes, _) = plan(&pod(placed.clone()), &[claim("c", extra)], true);
        let found = writes.first().map(|write| match &write.verb {
            Verb::ReplaceSub("status", body) => body["status"]["reservedFor"].as_array().unwrap().len(),
            other => panic!("{other:?}"),
        });
        assert_eq!(found, expected);
    }
    let mut waiting = placed;
    waiting["spec"]["nodeName"] = Value::Null;
    assert_eq!(plan(&pod(waiting), &[claim("c", allocated)], true).0, []);
}

#[test]
fn nothing_is_reserved_for_a_pod_that_names_anothers_claim() {
    let foreign = json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "qu", "controller": true}]},
        "status": {"allocation": {}}});
    let ownerless = json!({"metadata": {"ownerReferences": null}, "status": {"allocation": {}}});
    let shared = claim("shared", ownerless.clone());
    let mut placed = json!({"spec": {"nodeName": "n"},
        "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}});
    for theirs in [foreign, ownerless] {
        let (writes, events) = plan(&pod(placed.clone()), &[claim("c", theirs.clone())], true);
        assert_eq!(writes, []);
        let told = "PodResourceClaim gpu: ResourceClaim a/c was not created for Pod a/p (Pod is not owner)";
        assert_eq!(events, [told]);
        // Nor anything else that the pod uses, whichever stands first.
        placed["spec"]["resourceClaims"] = json!([{"name": "s", "resourceClaimName": "shared"},
            {"name": "gpu", "resourceClaimTemplateName": "t"}]);
        let (writes, _) = plan(&pod(placed.clone()), &[claim("c", theirs), Arc::clone(&shared)], true);
        assert_eq!(writes, []);
    }
}

/// The next step for a claim, where these are the pods there are.
fn next(claim: &ResourceClaim, pods: &[Pod], gone: &[&str], is_freed: bool) -> Option<Next> {
    let gone: BTreeSet<String> = gone.iter().map(|uid| (*uid).to_owned()).collect();
    let known = claims::Known {
        pod: &|name| {
            pods.iter()
                .find(|pod| pod.metadata.name.as_deref() == Some(name))
                .cloned()
                .map(Arc::new)
        },
        gone: &gone,
        is_freed,
    };
    claims::next(claim, &known)
}

fn used(extra: Value) -> Arc<ResourceClaim> {
    let mut value = json!({"metadata": {"finalizers": [FINALIZER], "ownerReferences": null},
        "status": {"allocation": {}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "pu"}]}});
    json_patch::merge(&mut value, &extra);
    claim("c", value)
}

#[test]
fn reservations_end_with_their_pods() {
    let other_uid = json!({"metadata": {"uid": "new"}});
    for (pods, gone, is_kept) in [
        (vec![pod(json!({}))], &[][..], true),
        (vec![pod(json!({"status": {"phase": "Running"}}))], &[], true),
        (vec![pod(json!({"status": {"phase": "Failed"}}))], &[], false),
        (vec![pod(other_uid)], &[], false),
        // Nobody knows it yet, or it is known to be gone.
        (vec![], &[], true),
        (vec![], &["pu"], false),
    ] {
        let found = next(&used(json!({})), &pods, gone, false);
        let Some(found) = found else {
            assert!(is_kept);
            continue;
        };
        let Next::Free(write) = found else { panic!("{found:?}") };
        let Verb::ReplaceSub("status", body) = write.verb else {
            panic!()
        };
        assert!(!is_kept && body["status"]["reservedFor"].is_null() && body["status"]["allocation"].is_null());
    }
    let foreign =
        json!({"status": {"reservedFor": [{"apiGroup": "zoo.example", "resource": "herds", "name": "h", "uid": "h"}]}});
    assert_eq!(
        next(&used(foreign), &[], &[], false),
        None,
        "what is no pod is not judged"
    );
    let both = json!({"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "pu"}, {"resource": "pods", "name": "q", "uid": "qu"}]}});
    let found = next(&used(both), &[pod(json!({}))], &["qu"], false);
    let Some(Next::Write(write)) = found else {
        panic!("{found:?}")
    };
    let Verb::ReplaceSub("status", body) = write.verb else {
        panic!()
    };
    assert_eq!(body["status"]["reservedFor"][0]["uid"], "pu");
    assert!(body["status"]["allocation"].is_object(), "one uses it yet");
}

#[test]
fn the_finalizer_goes_with_what_was_allocated() {
    let free = json!({"status": {"allocation": null, "reservedFor": null}});
    assert_eq!(
        next(&used(free.clone()), &[], &[], false),
        None,
        "it may be about to be allocated"
    );
    let ending = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"allocation": null, "reservedFor": null}});
    for (extra, is_freed) in [(free, true), (ending, false)] {
        let found = next(&used(extra), &[], &[], is_freed);
        let Some(Next::Write(write)) = found else {
            panic!("{found:?}")
        };
        let Verb::Replace(body) = write.verb else { panic!() };
        assert!(body["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty));
    }
    let unused = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"reservedFor": null}});
    assert!(
        matches!(next(&used(unused), &[], &[], false), Some(Next::Free(_))),
        "first the allocation"
    );
    assert_eq!(
        next(&used(json!({"status": {"reservedFor": null}})), &[], &[], false),
        None,
        "it stays allocated"
    );
}

#[test]
fn a_claim_of_a_pod_that_is_over_goes() {
    let own = claim("c", json!({}));
    for (pods, goes) in [
        (vec![pod(json!({}))], false),
        (vec![pod(json!({"status": {"phase": "Succeeded"}}))], true),
        (vec![pod(json!({"metadata": {"uid": "new"}}))], true),
        // The garbage collector's, if it is gone indeed.
        (vec![], false),
    ] {
        let found = next(&own, &pods, &[], false);
        assert_eq!(found.is_some(), goes);
        if let Some(next) = found {
            assert!(matches!(next.into_write().verb, Verb::Delete { uid, .. } if uid == "u-c"));
        }
    }
    let shared = claim("c", json!({"metadata": {"ownerReferences": null}}));
    assert_eq!(next(&shared, &[], &[], false), None);
}
