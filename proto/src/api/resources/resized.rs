//! What a pod holds of its node while it is resized: the most of what it wants, what it was given, and what it runs with
//! (KEP-1287, scheduler). Pure.

use super::{
    ContainerForm, ResourceList, SpecForm, StatusForm, add, allowed_at_pod_level, parse_list, pod_requests_by, raise,
};
use k8s_openapi::api::core::v1::ContainerStatus;

/// Whether the pod's node has refused its resize for good, so that the spec asks for what nobody will give.
pub fn is_resize_infeasible<T: StatusForm>(status: &T) -> bool {
    let mut conditions = status.conditions().iter();
    conditions.any(|condition| {
        condition.type_ == "PodResizePending"
            && condition.status == "True"
            && condition.reason.as_deref() == Some("Infeasible")
    })
}

/// What is to be reserved for a pod of this spec and status on its node, overhead included. `wanted` gives what a container's spec asks
/// for.
pub fn reserved_requests<S: SpecForm, T: StatusForm>(
    spec: &S,
    status: Option<&T>,
    wanted: impl Fn(&S::Container) -> ResourceList,
) -> ResourceList {
    let Some(status) = status else {
        return pod_requests_by(spec, wanted);
    };
    let infeasible = is_resize_infeasible(status);
    let told = |name: &str| {
        let mut all = status.containers().into_iter().flatten();
        all.find(|told| told.name == name)
    };
    let of = |container: &S::Container| match told(container.name()) {
        None => wanted(container),
        Some(told) => {
            let held = held_by(told);
            if infeasible && !held.is_empty() {
                return held;
            }
            let mut most = wanted(container);
            raise(&mut most, &held);
            most
        }
    };
    let mut total = pod_requests_by(spec, of);
    raise_by_pod(&mut total, spec, status, infeasible);
    total
}

/// What a container was given, or runs with.
fn held_by(status: &ContainerStatus) -> ResourceList {
    let mut held = parse_list(status.allocated_resources.as_ref());
    let running = status.resources.as_ref().and_then(|r| r.requests.as_ref());
    raise(&mut held, &parse_list(running));
    held
}

/// The same for what the pod as a whole requests, if it does.
fn raise_by_pod<S: SpecForm, T: StatusForm>(total: &mut ResourceList, spec: &S, status: &T, infeasible: bool) {
    if spec.resources().is_none() {
        return;
    }
    let mut held = parse_list(status.allocated_resources());
    let running = status.resources().and_then(|r| r.requests.as_ref());
    raise(&mut held, &parse_list(running));
    held.retain(|name, _| allowed_at_pod_level(name));
    let overhead = parse_list(spec.overhead());
    for name in held.keys().cloned().collect::<Vec<_>>() {
        let mut one = held.clone();
        one.retain(|other, _| *other == name);
        let mut extra = overhead.clone();
        extra.retain(|other, _| *other == name);
        add(&mut one, &extra);
        if infeasible {
            total.remove(&name);
        }
        raise(total, &one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Container, Pod};
    use serde_json::{Value, json};

    fn cpu(value: Value) -> String {
        let pod: Pod = serde_json::from_value(value).expect("a pod");
        let of = |c: &Container| parse_list(c.resources.as_ref().and_then(|r| r.requests.as_ref()));
        reserved_requests(&pod.spec.expect("one"), pod.status.as_ref(), of)["cpu"].to_string()
    }

    fn pod(spec: &str, allocated: &str, running: &str, reason: &str) -> Value {
        json!({
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": spec}}}]},
            "status": {
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
                "containerStatuses": [{
                    "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": running}},
                }],
            },
        })
    }

    #[test]
    fn the_most_of_spec_allocation_and_what_runs_is_reserved() {
        for (spec, allocated, running, reason, expected) in [
            ("1", "500m", "500m", "Deferred", "1"),
            ("500m", "1", "500m", "Deferred", "1"),
            ("500m", "500m", "1", "Deferred", "1"),
            ("4", "500m", "1", "Infeasible", "1"),
        ] {
            assert_eq!(
                cpu(pod(spec, allocated, running, reason)),
                expected,
                "{spec} {allocated} {running} {reason}"
            );
        }
    }

    #[test]
    fn what_has_no_status_yet_counts_by_its_spec() {
        let mut new = pod("1", "2", "2", "Infeasible");
        new["status"]["containerStatuses"] = json!([]);
        assert_eq!(cpu(new), "1");
    }

    #[test]
    fn the_pods_own_resources_are_resized_alike() {
        let mut pod = pod("100m", "100m", "100m", "Deferred");
        pod["spec"]["resources"] = json!({"requests": {"cpu": "1"}});
        pod["spec"]["overhead"] = json!({"cpu": "250m"});
        pod["status"]["allocatedResources"] = json!({"cpu": "2"});
        assert_eq!(cpu(pod.clone()), "2250m");
        pod["status"]["allocatedResources"] = json!({"cpu": "500m"});
        assert_eq!(cpu(pod.clone()), "1250m");
        pod["status"]["conditions"][0]["reason"] = json!("Infeasible");
        assert_eq!(cpu(pod), "750m");
    }
}
