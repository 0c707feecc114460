//! What controllers ask of a pod, and how they make one from a template. Pure.

use super::owner::controller_reference;
use super::write::{self, Resource, Write, event};
use crate::held::Pod;
use k8s_openapi::api::core::v1::{Pod as NewPod, PodTemplateSpec};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use proto::api::condition;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// `status.phase`; empty when there is none yet.
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

/// Whether it has run to its end.
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether it runs or may come to run: neither terminal nor being deleted.
pub fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether no controller owns it.
pub fn is_uncontrolled(pod: &Pod) -> bool {
    !pod.owner_references().iter().any(|o| o.controller == Some(true))
}

/// `spec.nodeName`; empty when unassigned.
pub fn node_name(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|s| s.node_name.as_deref())
        .unwrap_or_default()
}

/// Whether its Ready condition is True.
pub fn is_ready(pod: &Pod) -> bool {
    condition::is_true(pod.status.as_ref().and_then(|s| s.conditions.as_ref()), "Ready")
}

/// When it became ready, if it is.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition::find(pod.status.as_ref().and_then(|s| s.conditions.as_ref()), "Ready")?;
    if ready.status == "True" {
        ready.last_transition_time.as_ref().map(|t| t.0)
    } else {
        None
    }
}

/// How long until a ready pod counts as available; zero when it does, `None` when it is not ready.
pub fn available_in(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    if !is_ready(pod) {
        return None;
    }
    if min_ready_seconds <= 0 {
        return Some(Duration::ZERO);
    }
    let since = ready_since(pod)?;
    let age = Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO);
    Some(Duration::from_secs(u64::from(min_ready_seconds.unsigned_abs())).saturating_sub(age))
}

/// When the next of the ready pods becomes available; `None` if all that are ready are.
pub fn next_available<'a>(
    pods: impl IntoIterator<Item = &'a Arc<Pod>>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    let waiting = pods
        .into_iter()
        .filter_map(|pod| available_in(pod, min_ready_seconds, now));
    waiting.filter(|wait| !wait.is_zero()).min()
}

/// Whether it is ready and has been so for long enough.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    available_in(pod, min_ready_seconds, now).is_some_and(|wait| wait.is_zero())
}

/// Its value of a label; empty when there is none.
pub fn label<'a>(pod: &'a Pod, key: &str) -> &'a str {
    let labels: Option<&'a BTreeMap<String, String>> = pod.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(key)).map_or("", String::as_str)
}

/// Creates a pod; its owner is told how it went.
pub fn create<K: kube::Resource>(pod: &NewPod, resource: &Resource, owner: &K) -> Write {
    Write::create(write::PODS, pod)
        .success(event(resource, owner, "Normal", "SuccessfulCreate", "Created pod: {}"))
        .failure(event(resource, owner, "Warning", "FailedCreate", "Error creating: {}"))
}

/// Deletes a pod; its owner is told how it went.
pub fn delete<K: kube::Resource>(pod: &Pod, resource: &Resource, owner: &K) -> Write {
    Write::delete(write::PODS, pod)
        .success(event(resource, owner, "Normal", "SuccessfulDelete", "Deleted pod: {}"))
        .failure(event(resource, owner, "Warning", "FailedDelete", "Error deleting: {}"))
}

/// A pod from a template, to be named by the server, controlled by `owner`.
pub fn from_template<K: kube::Resource>(template: &PodTemplateSpec, resource: &Resource, owner: &K) -> NewPod {
    let meta = template.metadata.clone().unwrap_or_default();
    NewPod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", owner.meta().name.clone().unwrap_or_default())),
            namespace: owner.meta().namespace.clone(),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![controller_reference(resource, owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}
