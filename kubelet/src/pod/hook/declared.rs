//! Which lifecycle hooks a container has, and what it looks like when its pod is gone. Pure.

use crate::pod_object;
use crate::runtime::observed::ObservedContainer;
use k8s_openapi::api::core::v1::{Container, Lifecycle, LifecycleHandler, Pod};
use std::borrow::Cow;

/// The postStart hook of a container's spec.
pub fn post_start(container: &Container) -> Option<&LifecycleHandler> {
    container.lifecycle.as_ref()?.post_start.as_ref()
}

/// The preStop hook of a container's spec.
pub fn pre_stop(container: &Container) -> Option<&LifecycleHandler> {
    container.lifecycle.as_ref()?.pre_stop.as_ref()
}

/// The spec a running container was made from: its pod's, or for a pod that is gone what the annotations of the container
/// still tell of it (kubelet contract §6).
pub fn spec_of<'a>(pod: &'a Pod, observed: &ObservedContainer) -> Cow<'a, Container> {
    match pod_object::find(pod, &observed.name) {
        Some((_, container)) => container,
        None => Cow::Owned(restored(observed)),
    }
}

fn restored(observed: &ObservedContainer) -> Container {
    // What does not parse was not written by a kubelet, and is no hook.
    let pre_stop: Option<LifecycleHandler> = serde_json::from_str(&observed.pre_stop).ok();
    Container {
        name: observed.name.clone(),
        ports: serde_json::from_str(&observed.ports).ok(),
        lifecycle: pre_stop.map(|handler| Lifecycle {
            pre_stop: Some(handler),
            ..Lifecycle::default()
        }),
        ..Container::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{container, observed, pod};

    #[test]
    fn a_container_whose_pod_is_gone_keeps_its_hook() {
        let mut seen = observed("p").sandbox(true).running("c").build();
        let with = pod("p").with(container("c")).build();
        let without = pod("p").with(container("other")).build();
        let running = &mut seen.containers[0];
        running.pre_stop = r#"{"httpGet":{"port":"web","path":"/x"}}"#.into();
        running.ports = r#"[{"name":"web","containerPort":81}]"#.into();
        assert_eq!(pre_stop(&spec_of(&with, running)), None, "the pod's own spec decides");
        let restored = spec_of(&without, running);
        let get = pre_stop(&restored).and_then(|hook| hook.http_get.as_ref());
        assert_eq!(get.and_then(|get| get.path.as_deref()), Some("/x"));
        assert_eq!(restored.ports.as_ref().map(|ports| ports[0].container_port), Some(81));
        running.pre_stop = "nonsense".into();
        assert_eq!(pre_stop(&spec_of(&without, running)), None);
    }
}
