//! What a ResourceClaim uses: its place, and the devices it asks for, of each class (upstream's `resource_claims.go`). Pure.

use super::{Measured, Usage, one};
use k8s_openapi::api::core::v1::ScopedResourceSelectorRequirement;
use k8s_openapi::api::resource::v1::{DeviceRequest, ResourceClaim};
use k8s_openapi::jiff::Timestamp;
use proto::api::quantity::{Format, Quantity};
use std::collections::BTreeMap;

const RECORDS: &str = "count/resourceclaims.resource.k8s.io";
/// What follows the name of a class.
const OF_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// Devices that one allocation has at most: so many may be all that fit.
const ALL: i64 = 32;

pub(super) fn measures(name: &str) -> bool {
    name == RECORDS || name.strip_suffix(OF_CLASS).is_some_and(|class| !class.is_empty())
}

fn devices(mode: Option<&str>, count: Option<i64>) -> i64 {
    if mode == Some("All") { ALL } else { count.unwrap_or(1) }
}

/// Devices by class; of alternatives the one that takes most of a class.
fn asked(request: &DeviceRequest) -> BTreeMap<&str, i64> {
    let mut most: BTreeMap<&str, i64> = BTreeMap::new();
    if let Some(exactly) = &request.exactly {
        let count = devices(exactly.allocation_mode.as_deref(), exactly.count);
        most.insert(&exactly.device_class_name, count);
    }
    for alternative in request.first_available.iter().flatten() {
        let count = devices(alternative.allocation_mode.as_deref(), alternative.count);
        let known = most.entry(&alternative.device_class_name).or_default();
        *known = count.max(*known);
    }
    most
}

impl Measured for ResourceClaim {
    fn usage(&self, _now: Timestamp) -> Usage {
        let mut usage = Usage::from([(RECORDS.to_owned(), one())]);
        let requests = self.spec.devices.as_ref().and_then(|devices| devices.requests.as_ref());
        for (class, count) in requests.into_iter().flatten().flat_map(asked) {
            let count = Quantity::from_units(count, Format::DecimalSi);
            let sum = usage.entry(format!("{class}{OF_CLASS}")).or_insert(Quantity::ZERO);
            *sum = sum.plus(count);
        }
        usage
    }

    fn is_in(&self, _scope: &ScopedResourceSelectorRequirement) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn usage(requests: &Value) -> Vec<String> {
        let claim = json!({"metadata": {}, "spec": {"devices": {"requests": requests}}});
        let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
        let usage = claim.usage(Timestamp::UNIX_EPOCH);
        usage.iter().map(|(name, amount)| format!("{name}={amount}")).collect()
    }

    fn exactly(extra: Value) -> Value {
        let mut exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount"});
        json_patch::merge(&mut exactly, &extra);
        json!({"name": "r", "exactly": exactly})
    }

    #[test]
    fn devices_count_by_class() {
        let class = |class: &str, count: i64| format!("{class}.deviceclass.resource.k8s.io/devices={count}");
        let whole = "count/resourceclaims.resource.k8s.io=1".to_owned();
        let alternatives = json!({"name": "r", "firstAvailable": [
            {"name": "a", "deviceClassName": "gpu", "count": 4}, {"name": "b", "deviceClassName": "gpu", "count": 2},
            {"name": "c", "deviceClassName": "nic", "allocationMode": "All"}]});
        for (requests, expected) in [
            (json!([]), vec![]),
            (json!([exactly(json!({}))]), vec![class("gpu", 1)]),
            (
                json!([exactly(json!({"count": 3})), exactly(json!({"count": 2}))]),
                vec![class("gpu", 5)],
            ),
            (
                json!([exactly(json!({"allocationMode": "All"}))]),
                vec![class("gpu", 32)],
            ),
            (
                json!([alternatives, exactly(json!({}))]),
                vec![class("gpu", 5), class("nic", 32)],
            ),
        ] {
            let expected: Vec<String> = [whole.clone()].into_iter().chain(expected).collect();
            assert_eq!(usage(&requests), expected, "{requests}");
        }
    }

    #[test]
    fn names_are_those_of_claims() {
        for (name, expected) in [
            ("count/resourceclaims.resource.k8s.io", true),
            ("gpu.example.com.deviceclass.resource.k8s.io/devices", true),
            (".deviceclass.resource.k8s.io/devices", false),
            ("gpu.deviceclass.resource.k8s.io/other", false),
            ("count/resourceclaimtemplates.resource.k8s.io", false),
        ] {
            assert_eq!(measures(name), expected, "{name}");
        }
    }
}
