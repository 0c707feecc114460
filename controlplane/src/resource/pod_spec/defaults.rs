//! Defaults of pod specs. [`template`] is what every pod spec gets, [`pod`] what only a Pod itself gets on top. Pure.

use proto::api::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::resource::field::{at, default_text, default_to, entries, flag, list_mut, object_mut, set, text};

const MODE: i64 = 0o644;

/// Defaults of a pod template: `path` leads to the `PodTemplateSpec`.
pub(crate) fn template_at(object: &mut Value, path: &[&str]) {
    let mut value = object;
    for key in path {
        match value.get_mut(*key) {
            Some(inner) => value = inner,
            None => return,
        }
    }
    if let Some(spec) = value.get_mut("spec") {
        template(spec);
    }
}

/// Defaults of any pod spec.
pub(crate) fn template(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    default_text(spec, "dnsPolicy", "ClusterFirst");
    default_text(spec, "restartPolicy", "Always");
    default_text(spec, "schedulerName", "default-scheduler");
    default_to(spec, "securityContext", json!({}));
    default_to(spec, "terminationGracePeriodSeconds", 30);
    mirror_service_account(spec);
    for kind in ["initContainers", "containers", "ephemeralContainers"] {
        for item in list_mut(spec, &[kind]).into_iter().flatten() {
            container(item);
        }
    }
    for item in list_mut(spec, &["volumes"]).into_iter().flatten() {
        volume(item);
    }
    if let Some(overhead) = spec.get_mut("overhead") {
        round_quantities(overhead);
    }
    if let Some(resources) = spec.get_mut("resources") {
        round_resources(resources);
    }
}

/// Defaults of a Pod's own spec, after [`template`].
pub(crate) fn pod(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    default_to(spec, "enableServiceLinks", true);
    for kind in ["initContainers", "containers"] {
        for item in list_mut(spec, &[kind]).into_iter().flatten() {
            requests_from_limits(item);
        }
    }
    pod_level_requests(spec);
    if flag(spec, &["hostNetwork"]) {
        for kind in ["initContainers", "containers"] {
            for item in list_mut(spec, &[kind]).into_iter().flatten() {
                for port in list_mut(item, &["ports"]).into_iter().flatten() {
                    let number = at(port, &["containerPort"]).clone();
                    if at(port, &["hostPort"]).as_i64().unwrap_or(0) == 0 && !number.is_null() {
                        set(port, &["hostPort"], number);
                    }
                }
            }
        }
    }
}

/// `serviceAccount` is the old name of `serviceAccountName`; both are always there or neither.
fn mirror_service_account(spec: &mut Value) {
    let name = match text(spec, &["serviceAccountName"]) {
        "" => text(spec, &["serviceAccount"]),
        name => name,
    }
    .to_owned();
    if !name.is_empty() {
        set(spec, &["serviceAccountName"], name.as_str());
        set(spec, &["serviceAccount"], name);
    }
}

/// Pull policy of an image without one: `Always` for the tag `latest`, given or implied.
fn pull_policy(image: &str) -> &'static str {
    if image.is_empty() {
        return "IfNotPresent";
    }
    let (reference, digest) = match image.split_once('@') {
        Some((reference, digest)) => (reference, Some(digest)),
        None => (image, None),
    };
    let last = reference.rsplit('/').next().unwrap_or(reference);
    match (last.split_once(':'), digest) {
        (Some((_, "latest")), _) | (None, None) => "Always",
        _ => "IfNotPresent",
    }
}

fn container(container: &mut Value) {
    let policy = pull_policy(text(container, &["image"]));
    default_text(container, "imagePullPolicy", policy);
    default_text(container, "terminationMessagePath", "/dev/termination-log");
    default_text(container, "terminationMessagePolicy", "File");
    default_to(container, "resources", json!({}));
    for port in list_mut(container, &["ports"]).into_iter().flatten() {
        default_text(port, "protocol", "TCP");
    }
    for variable in list_mut(container, &["env"]).into_iter().flatten() {
        field_ref(variable.get_mut("valueFrom"));
        if let Some(file) = variable.pointer_mut("/valueFrom/fileKeyRef") {
            default_to(file, "optional", false);
        }
    }
    if let Some(resources) = container.get_mut("resources") {
        round_resources(resources);
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(value) = container.get_mut(key) {
            probe(value);
        }
    }
    for key in ["postStart", "preStop"] {
        if let Some(hook) = container.get_mut("lifecycle").and_then(|hooks| hooks.get_mut(key)) {
            http_get(hook);
        }
    }
}

fn probe(probe: &mut Value) {
    for (key, default) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        if at(probe, &[key]).as_i64().unwrap_or(0) == 0 {
            set(probe, &[key], default);
        }
    }
    http_get(probe);
    if let Some(grpc) = probe.get_mut("grpc") {
        default_to(grpc, "service", "");
    }
}

fn http_get(handler: &mut Value) {
    if let Some(get) = handler.get_mut("httpGet") {
        default_text(get, "path", "/");
        default_text(get, "scheme", "HTTP");
    }
}

fn field_ref(holder: Option<&mut Value>) {
    if let Some(reference) = holder.and_then(|holder| holder.get_mut("fieldRef")) {
        default_text(reference, "apiVersion", "v1");
    }
}

fn volume(volume: &mut Value) {
    let has_source = volume
        .as_object()
        .is_some_and(|map| map.keys().any(|key| key != "name"));
    if !has_source {
        set(volume, &["emptyDir"], json!({}));
        return;
    }
    for key in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(key) {
            default_to(source, "defaultMode", MODE);
            downward_items(source);
        }
    }
    for source in list_mut(volume, &["projected", "sources"]).into_iter().flatten() {
        if let Some(token) = source.get_mut("serviceAccountToken") {
            default_to(token, "expirationSeconds", 3600);
        }
        if let Some(downward) = source.get_mut("downwardAPI") {
            downward_items(downward);
        }
    }
    if let Some(source) = volume.get_mut("hostPath") {
        default_to(source, "type", "");
    }
    if let Some(source) = volume.get_mut("image") {
        let policy = pull_policy(text(source, &["reference"]));
        default_text(source, "pullPolicy", policy);
    }
    if let Some(claim) = volume
        .get_mut("ephemeral")
        .and_then(|source| source.get_mut("volumeClaimTemplate"))
        && let Some(spec) = claim.get_mut("spec")
    {
        default_text(spec, "volumeMode", "Filesystem");
    }
}

fn downward_items(source: &mut Value) {
    for item in list_mut(source, &["items"]).into_iter().flatten() {
        field_ref(Some(item));
    }
}

fn round_resources(resources: &mut Value) {
    for key in ["limits", "requests"] {
        if let Some(list) = resources.get_mut(key) {
            round_quantities(list);
        }
    }
}

/// Amounts finer than a thousandth round up to one.
fn round_quantities(list: &mut Value) {
    for (_, value) in list.as_object_mut().into_iter().flatten() {
        let Some(quantity) = value.as_str().and_then(|text| Quantity::parse(text).ok()) else {
            continue;
        };
        let rounded = Quantity::from_milli(quantity.milli_value());
        if rounded > quantity {
            *value = Value::from(rounded.to_string());
        }
    }
}

fn requests_from_limits(container: &mut Value) {
    let limits: Map<String, Value> = entries(container, &["resources", "limits"])
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if limits.is_empty() {
        return;
    }
    if let Some(requests) = object_mut(container, &["resources", "requests"]) {
        for (key, value) in limits {
            requests.entry(key).or_insert(value);
        }
    }
}

/// A pod-level limit without a request gets the containers' sum as its request, or the limit if no container asks for any.
fn pod_level_requests(spec: &mut Value) {
    let limits: Vec<(String, Value)> = entries(spec, &["resources", "limits"])
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    for (name, limit) in limits {
        if !at(spec, &["resources", "requests", &name]).is_null() {
            continue;
        }
        let total = spec
            .get("containers")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|container| Quantity::parse(text(container, &["resources", "requests", &name])).ok())
            .reduce(Quantity::plus);
        let request = total.map_or(limit, |total| Value::from(total.to_string()));
        set(spec, &["resources", "requests", &name], request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policy_follows_the_tag() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.29", "IfNotPresent"),
            ("localhost:5000/nginx", "Always"),
            ("localhost:5000/nginx:1", "IfNotPresent"),
            ("nginx@sha256:abc", "IfNotPresent"),
            ("nginx:latest@sha256:abc", "Always"),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn a_template_gets_its_defaults_once() {
        let mut spec = json!({
            "serviceAccount": "robot",
            "containers": [{"name": "c", "image": "nginx", "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 7},
                "resources": {"limits": {"cpu": "100u"}}}],
            "volumes": [{"name": "e"}, {"name": "s", "secret": {"secretName": "x"}},
                {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
        });
        template(&mut spec);
        assert_eq!(
            spec,
            json!({
                "serviceAccount": "robot", "serviceAccountName": "robot",
                "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
                "securityContext": {}, "terminationGracePeriodSeconds": 30,
                "containers": [{"name": "c", "image": "nginx", "imagePullPolicy": "Always",
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    "livenessProbe": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "periodSeconds": 7,
                        "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3},
                    "resources": {"limits": {"cpu": "1m"}}}],
                "volumes": [{"name": "e", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}},
                    {"name": "p", "projected": {"defaultMode": 420,
                        "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}}],
            })
        );
        let once = spec.clone();
        template(&mut spec);
        assert_eq!(spec, once);
    }

    #[test]
    fn a_pod_copies_limits_and_host_ports() {
        let mut spec = json!({"hostNetwork": true, "resources": {"limits": {"memory": "1Gi", "cpu": "2"}},
            "containers": [{"name": "c", "ports": [{"containerPort": 80}],
            "resources": {"limits": {"cpu": "1", "memory": "64Mi"}, "requests": {"cpu": "500m"}}}]});
        pod(&mut spec);
        assert_eq!(spec["containers"][0]["ports"][0]["hostPort"], 80);
        assert_eq!(
            spec["containers"][0]["resources"]["requests"],
            json!({"cpu": "500m", "memory": "64Mi"})
        );
        assert_eq!(spec["resources"]["requests"], json!({"cpu": "500m", "memory": "64Mi"}));
        assert_eq!(spec["enableServiceLinks"], true);
    }
}
