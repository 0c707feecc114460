//! Objects as users write them.

use super::{CONFIG, WORKER};
use serde_json::{Value, json};

/// What a deployment's pods are like.
pub struct Shape {
    pub image: &'static str,
    pub replicas: i32,
    pub cpu_milli: i64,
    pub init: bool,
    pub sidecar: bool,
    pub probes: bool,
    /// Mounts the configuration and its Secret.
    pub volumes: bool,
    /// Leaves a node that is lost after twenty seconds.
    pub hurried: bool,
    /// Surge and unavailability.
    pub bounds: (&'static str, &'static str),
}

pub fn deployment(name: &str, shape: &Shape) -> Value {
    let cpu = format!("{}m", shape.cpu_milli);
    let mut container = json!({"name": "main", "image": shape.image,
        "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}}});
    if shape.probes {
        let probe = json!({"exec": {"command": ["ready"]}, "periodSeconds": 2});
        container["readinessProbe"] = probe.clone();
        container["startupProbe"] = probe;
        container["livenessProbe"] = json!({"exec": {"command": ["alive"]}, "periodSeconds": 5});
    }
    let mut spec = json!({"terminationGracePeriodSeconds": 5});
    let mut before = Vec::new();
    if shape.sidecar {
        before.push(json!({"name": "sidecar", "image": "server:v1", "restartPolicy": "Always"}));
    }
    if shape.init {
        before.push(json!({"name": "init", "image": WORKER, "resources": {"requests": {"cpu": "300m"}}}));
    }
    if shape.volumes {
        container["volumeMounts"] =
            json!([{"name": "config", "mountPath": "/config"}, {"name": "secret", "mountPath": "/secret"}]);
        spec["volumes"] = json!([{"name": "config", "configMap": {"name": CONFIG}}, {"name": "secret", "secret": {"secretName": CONFIG}}]);
    }
    if shape.hurried {
        let toleration = |key: &str| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 20});
        spec["tolerations"] = json!([toleration("not-ready"), toleration("unreachable")]);
    }
    spec["initContainers"] = before.into();
    spec["containers"] = json!([container]);
    let bound = |text: &str| text.parse::<i32>().map_or(json!(text), |count| json!(count));
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": shape.replicas, "selector": {"matchLabels": {"app": name}},
            "strategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": bound(shape.bounds.0), "maxUnavailable": bound(shape.bounds.1)}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    })
}

pub fn pod(name: &str, image: &str, policy: &str, cpu: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"restartPolicy": policy, "terminationGracePeriodSeconds": 3,
            "containers": [{"name": "main", "image": image, "resources": {"requests": {"cpu": cpu}}}]},
    })
}

pub fn service(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}})
}

pub fn config_map(number: u32) -> Value {
    json!({"metadata": {"name": CONFIG}, "data": {"number": number.to_string()}})
}

pub fn secret(number: u32) -> Value {
    json!({"metadata": {"name": CONFIG}, "stringData": {"number": number.to_string()}})
}
