//! Which claims pods may use.

use super::*;
use serde_json::{Value, json};

fn pod(claims: Value, status: Value) -> Pod {
    let pod = json!({
        "metadata": {"namespace": "ns", "name": "p", "uid": "pod-1"},
        "spec": {"containers": [], "resourceClaims": claims},
        "status": status,
    });
    serde_json::from_value(pod).expect("a pod")
}

fn claim(status: Value, owner: &str) -> Claim {
    let claim = json!({
        "metadata": {"namespace": "ns", "name": "c", "uid": "claim-1",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true}]},
        "spec": {"devices": {}},
        "status": status,
    });
    serde_json::from_value(claim).expect("a claim")
}

#[test]
fn names_come_from_the_spec_or_from_what_was_made_for_it() {
    let template = || json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
    let made = |name: Value| json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}]});
    let extended = json!({"extendedResourceClaimStatus": {"resourceClaimName": "e", "requestMappings": []}});
    let named = json!([{"name": "gpu", "resourceClaimName": "c"}]);
    for (claims, status, expected) in [
        (json!([]), json!({}), Ok(vec![])),
        (named.clone(), json!({}), Ok(vec![("c", false)])),
        (template(), made(json!("p-gpu-x")), Ok(vec![("p-gpu-x", true)])),
        // Meant not to be made.
        (template(), made(Value::Null), Ok(vec![])),
        (template(), json!({}), Err("Pod ns/p: ResourceClaim not created yet")),
        (
            json!([{"name": "gpu"}]),
            json!({}),
            Err("Pod ns/p, spec.resourceClaim gpu: none of the supported fields are set"),
        ),
        (named, extended, Ok(vec![("c", false), ("e", false)])),
    ] {
        let found = references(&pod(claims.clone(), status.clone()));
        let found = found.map(|all| all.into_iter().map(|found| (found.name, found.own)).collect::<Vec<_>>());
        let expected = expected.map(|all| {
            all.into_iter()
                .map(|(name, own): (&str, bool)| (name.to_owned(), own))
                .collect()
        });
        assert_eq!(
            found.map_err(|error| error.to_string()),
            expected.map_err(ToOwned::to_owned),
            "{claims} {status}"
        );
    }
}

#[test]
fn a_claim_is_used_only_where_it_is_allocated_for_the_pod() {
    let reserved = || json!([{"resource": "pods", "name": "p", "uid": "pod-1"}]);
    let allocation = || {
        json!({"devices": {"results": [
        {"request": "r", "driver": "d", "pool": "p", "device": "0"},
        {"request": "s", "driver": "d", "pool": "p", "device": "1", "adminAccess": true},
        {"request": "t", "driver": "e", "pool": "q", "device": "0"}]}})
    };
    let good = json!({"reservedFor": reserved(), "allocation": allocation()});
    for (own, owner, status, expected) in [
        (true, "pod-1", good.clone(), ""),
        (false, "other", good.clone(), ""),
        (
            true,
            "other",
            good,
            "ResourceClaim ns/c was not created for Pod ns/p (Pod is not owner)",
        ),
        (
            false,
            "pod-1",
            json!({"allocation": allocation()}),
            "pod p (pod-1) is not allowed to use ResourceClaim c (claim-1)",
        ),
        (
            false,
            "pod-1",
            json!({"reservedFor": reserved()}),
            "ResourceClaim c: not allocated",
        ),
    ] {
        let reference = Reference { name: "c".into(), own };
        let judged = wanted(&pod(json!([]), json!({})), &reference, &claim(status, owner));
        match judged {
            Ok(wanted) => {
                assert_eq!(expected, "");
                let devices: Vec<_> = wanted
                    .drivers
                    .iter()
                    .map(|(driver, all)| (driver.as_str(), all.len()))
                    .collect();
                assert_eq!(devices, [("d", 2), ("e", 1)]);
            }
            Err(error) => assert_eq!(error.to_string(), expected),
        }
    }
}

#[test]
fn a_container_has_what_it_names_and_what_its_extended_resources_stand_for() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": "p", "uid": "pod-1"},
        "spec": {
            "resourceClaims": [{"name": "a", "resourceClaimName": "ca"}, {"name": "b", "resourceClaimName": "cb"}],
            "containers": [
                {"name": "one", "resources": {"claims": [{"name": "b", "request": "r"}, {"name": "a"}]}},
                {"name": "two", "resources": {"requests": {"v.com/gpu": "1", "v.com/none": "0"}}},
                {"name": "three"}],
        },
        "status": {"extendedResourceClaimStatus": {"resourceClaimName": "ce", "requestMappings": [
            {"containerName": "two", "resourceName": "v.com/gpu", "requestName": "container-1-request-0"},
            {"containerName": "two", "resourceName": "v.com/none", "requestName": "never"},
            {"containerName": "one", "resourceName": "v.com/gpu", "requestName": "not-asked-for"}]}},
    }))
    .expect("a pod");
    let used = |index: usize| of_container(&pod, &pod_object::regulars(&pod)[index]).expect("known");
    let expect = |all: &[(&str, &str)]| -> Vec<(String, String)> {
        all.iter()
            .map(|(name, request)| ((*name).to_owned(), (*request).to_owned()))
            .collect()
    };
    assert_eq!(used(0), expect(&[("ca", ""), ("cb", "r")]));
    assert_eq!(used(1), expect(&[("ce", "container-1-request-0")]));
    assert_eq!(used(2), expect(&[]));
    assert!(has_claims(&pod));
}
