//! `/pods` and `/runningpods/`.

use super::answer::{self, Answer};
use crate::pod::view::{PodSnapshot, PodView};
use crate::runtime::observed::ContainerState;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use std::sync::Arc;

fn list(pods: impl Iterator<Item = serde_json::Value>) -> Answer {
    let items: Vec<_> = pods.collect();
    answer::json(json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items }).to_string())
}

fn bare(pod: &Pod) -> serde_json::Value {
    let mut value = serde_json::to_value(pod).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        // Items of a list carry no type of their own.
        object.remove("kind");
        object.remove("apiVersion");
    }
    value
}

/// Every pod of this node with its live status.
pub(super) fn pods(view: &PodView) -> Answer {
    list(view.list().iter().map(|snapshot| {
        let mut pod = bare(&snapshot.pod);
        pod["status"] = serde_json::to_value(&*snapshot.status).unwrap_or_default();
        pod
    }))
}

/// What runs, as the runtime sees it: names and images only.
pub(super) fn running_pods(view: &PodView) -> Answer {
    let running = |snapshot: &Arc<PodSnapshot>| {
        let containers: Vec<Container> = snapshot
            .observed
            .containers
            .iter()
            .filter(|c| c.state == ContainerState::Running)
            .map(|c| Container {
                name: c.name.clone(),
                image: Some(c.image.clone()),
                ..Container::default()
            })
            .collect();
        let meta = &snapshot.pod.metadata;
        (!containers.is_empty()).then(|| Pod {
            metadata: ObjectMeta {
                name: meta.name.clone(),
                namespace: meta.namespace.clone(),
                uid: meta.uid.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec {
                containers,
                ..PodSpec::default()
            }),
            ..Pod::default()
        })
    };
    list(view.list().iter().filter_map(running).map(|pod| bare(&pod)))
}
