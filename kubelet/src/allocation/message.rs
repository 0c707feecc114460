//! What users are told of a resize: the texts of its events (kubelet contract §5). Pure.

use crate::pod_object;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use serde::Serialize;

/// One container's resources.
#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    resources: &'a ResourceRequirements,
}

/// The resources of a pod as events show them.
#[derive(Serialize)]
struct Summary<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<&'a ResourceRequirements>,
    #[serde(rename = "initContainers", skip_serializing_if = "Vec::is_empty")]
    inits: Vec<Entry<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<Entry<'a>>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

/// `what` is told with the resources in the pod's spec, the generation that wants them, and what stands in the way.
fn told(what: &str, pod: &Pod, generation: i64, error: &str) -> String {
    let none = ResourceRequirements::default();
    fn entries<'a>(containers: &'a [Container], none: &'a ResourceRequirements) -> Vec<Entry<'a>> {
        let entry = |container: &'a Container| Entry {
            name: &container.name,
            resources: container.resources.as_ref().unwrap_or(none),
        };
        containers.iter().map(entry).collect()
    }
    let summary = Summary {
        resources: pod_object::spec(pod).resources.as_ref(),
        inits: entries(pod_object::inits(pod), &none),
        containers: entries(pod_object::regulars(pod), &none),
        generation,
        error,
    };
    match serde_json::to_string(&summary) {
        Ok(text) => format!("{what}: {text}"),
        Err(_) => what.to_owned(),
    }
}

/// A resize was given its room.
pub fn started(pod: &Pod, generation: i64) -> String {
    told("Pod resize started", pod, generation, "")
}

/// A resize is done.
pub fn completed(pod: &Pod, generation: i64) -> String {
    told("Pod resize completed", pod, generation, "")
}

/// A resize does not get further.
pub fn failed(pod: &Pod, generation: i64, error: &str) -> String {
    told("Pod resize error", pod, generation, error)
}

/// A resize waits; `reason` is `Deferred` or `Infeasible`.
pub fn pending(pod: &Pod, generation: i64, reason: &str, message: &str) -> String {
    told(&format!("Pod resize {reason}"), pod, generation, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_shows_the_resources_that_are_wanted() {
        let pod: Pod = serde_json::from_str(
            r#"{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1"},"requests":{"cpu":"1"}}},{"name":"d"}]}}"#,
        )
        .expect("a pod");
        let shown = r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"1"},"requests":{"cpu":"1"}}},{"name":"d","resources":{}}],"generation":5"#;
        assert_eq!(started(&pod, 5), format!("Pod resize started: {shown}}}"));
        assert_eq!(completed(&pod, 5), format!("Pod resize completed: {shown}}}"));
        assert_eq!(
            failed(&pod, 5, "no"),
            format!("Pod resize error: {shown},\"error\":\"no\"}}")
        );
        assert_eq!(
            pending(&pod, 5, "Deferred", "full"),
            format!("Pod resize Deferred: {shown},\"error\":\"full\"}}")
        );
    }
}
