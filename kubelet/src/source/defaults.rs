//! What a manifest leaves out. Pods of the API server come with these defaults; pods of files get them here. Pure.

use crate::image::reference;
use k8s_openapi::api::core::v1::{Container, Lifecycle, Pod, PodSecurityContext, PodSpec, Probe, Volume};

const FILE_MODE: i32 = 0o644;

/// Fills in upstream's defaults.
pub(super) fn apply(pod: &mut Pod) {
    let spec = pod.spec.get_or_insert_default();
    text(&mut spec.dns_policy, "ClusterFirst");
    text(&mut spec.restart_policy, "Always");
    text(&mut spec.scheduler_name, "default-scheduler");
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.enable_service_links.get_or_insert(true);
    spec.security_context.get_or_insert_with(PodSecurityContext::default);
    let host_network = spec.host_network == Some(true);
    let inits = spec.init_containers.iter_mut().flatten();
    for item in inits.chain(&mut spec.containers) {
        container(item, host_network);
    }
    volumes(spec);
}

fn text(field: &mut Option<String>, default: &str) {
    if field.as_deref().unwrap_or_default().is_empty() {
        *field = Some(default.to_owned());
    }
}

fn pull_policy(image: Option<&str>) -> &'static str {
    if reference::is_latest(image.unwrap_or_default()) {
        "Always"
    } else {
        "IfNotPresent"
    }
}

fn container(container: &mut Container, host_network: bool) {
    let policy = pull_policy(container.image.as_deref());
    text(&mut container.image_pull_policy, policy);
    text(&mut container.termination_message_path, "/dev/termination-log");
    text(&mut container.termination_message_policy, "File");
    for port in container.ports.iter_mut().flatten() {
        text(&mut port.protocol, "TCP");
        if host_network && port.host_port.unwrap_or(0) == 0 {
            port.host_port = Some(port.container_port);
        }
    }
    for variable in container.env.iter_mut().flatten() {
        let field = variable.value_from.as_mut().and_then(|from| from.field_ref.as_mut());
        if let Some(field) = field {
            text(&mut field.api_version, "v1");
        }
    }
    let probes = [
        &mut container.liveness_probe,
        &mut container.readiness_probe,
        &mut container.startup_probe,
    ];
    probes.into_iter().flatten().for_each(probe);
    if let Some(lifecycle) = &mut container.lifecycle {
        hooks(lifecycle);
    }
    if let Some(resources) = &mut container.resources
        && let Some(limits) = &resources.limits
    {
        let requests = resources.requests.get_or_insert_default();
        for (name, limit) in limits {
            requests.entry(name.clone()).or_insert_with(|| limit.clone());
        }
    }
}

fn probe(probe: &mut Probe) {
    for (field, default) in [
        (&mut probe.timeout_seconds, 1),
        (&mut probe.period_seconds, 10),
        (&mut probe.success_threshold, 1),
        (&mut probe.failure_threshold, 3),
    ] {
        if field.unwrap_or(0) == 0 {
            *field = Some(default);
        }
    }
    if let Some(http) = &mut probe.http_get {
        text(&mut http.path, "/");
        text(&mut http.scheme, "HTTP");
    }
}

fn hooks(lifecycle: &mut Lifecycle) {
    let handlers = [&mut lifecycle.post_start, &mut lifecycle.pre_stop];
    for http in handlers
        .into_iter()
        .flatten()
        .filter_map(|handler| handler.http_get.as_mut())
    {
        text(&mut http.path, "/");
        text(&mut http.scheme, "HTTP");
    }
}

fn volumes(spec: &mut PodSpec) {
    for volume in spec.volumes.iter_mut().flatten() {
        if let Some(path) = &mut volume.host_path {
            path.type_.get_or_insert_default();
        }
        if let Some(image) = &mut volume.image {
            text(&mut image.pull_policy, pull_policy(image.reference.as_deref()));
        }
        if let Some(downward) = &mut volume.downward_api {
            downward.default_mode.get_or_insert(FILE_MODE);
        }
        if let Some(projected) = &mut volume.projected {
            projected.default_mode.get_or_insert(FILE_MODE);
        }
        let bare = Volume {
            name: volume.name.clone(),
            ..Volume::default()
        };
        if *volume == bare {
            volume.empty_dir.get_or_insert_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_left_out_is_filled_in_and_what_is_given_stays() {
        let mut pod: Pod = serde_json::from_value(json!({"spec": {"hostNetwork": true, "restartPolicy": "Never",
            "volumes": [{"name": "scratch"}, {"name": "host", "hostPath": {"path": "/x"}}],
            "containers": [{"name": "c", "image": "img:1", "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 3},
                "resources": {"limits": {"cpu": "1", "memory": "1Mi"}, "requests": {"cpu": "100m"}}}]}}))
        .expect("a pod");
        apply(&mut pod);
        let shown = serde_json::to_value(&pod).expect("a tree");
        let container = &shown["spec"]["containers"][0];
        assert_eq!(container["imagePullPolicy"], "IfNotPresent");
        assert_eq!(
            container["ports"][0],
            json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"})
        );
        assert_eq!(
            container["resources"]["requests"],
            json!({"cpu": "100m", "memory": "1Mi"})
        );
        assert_eq!(container["livenessProbe"]["periodSeconds"], 3);
        assert_eq!(container["livenessProbe"]["failureThreshold"], 3);
        assert_eq!(
            container["livenessProbe"]["httpGet"],
            json!({"path": "/", "port": 80, "scheme": "HTTP"})
        );
        assert_eq!(shown["spec"]["restartPolicy"], "Never");
        assert_eq!(shown["spec"]["volumes"][0], json!({"name": "scratch", "emptyDir": {}}));
        assert_eq!(
            shown["spec"]["volumes"][1]["hostPath"],
            json!({"path": "/x", "type": ""})
        );
    }
}
