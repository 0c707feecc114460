//! Pods in the order of their turns. Pure.

use crate::id::{FullName, PodUid};
use crate::pod_object;
use client::ordered::{Arrange, CollectOrdered};
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The names that static pods have.
pub(super) fn names_of_statics(pods: &BTreeMap<PodUid, Arc<Pod>>) -> BTreeSet<FullName> {
    let statics = pods.values().filter(|pod| pod_object::is_static(pod));
    statics.map(|pod| pod_object::full_name(pod)).collect_ordered()
}

/// Pods in the order they are admitted: what the runtime has keeps its place before anything new is judged, then those that
/// were created first.
pub(super) fn in_order<'a>(pods: &'a BTreeMap<PodUid, Arc<Pod>>, known: &BTreeSet<PodUid>) -> Vec<&'a Arc<Pod>> {
    let mut pods: Vec<_> = pods.iter().collect();
    pods.arrange_by_key(|(uid, pod)| {
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let name = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        (!known.contains(*uid), created, name)
    });
    pods.into_iter().map(|(_, pod)| pod).collect()
}
