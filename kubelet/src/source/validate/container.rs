//! The mistakes of one container.

use super::Mistakes;
use crate::pod_object;
use k8s_openapi::api::core::v1::{Container, PodSpec, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use proto::api::names;
use proto::api::quantity::Quantity;
use proto::api::signal;
use std::collections::BTreeSet;

/// Checks a container of a pod with these volumes.
pub(super) fn check(
    mistakes: &mut Mistakes,
    path: &str,
    container: &Container,
    spec: &PodSpec,
    volumes: &BTreeSet<&str>,
) {
    mistakes.name(&format!("{path}.name"), &container.name, names::dns1123_label_error);
    let image = container.image.as_deref().unwrap_or_default();
    if image.is_empty() {
        mistakes.required(&format!("{path}.image"));
    } else if image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        mistakes.invalid(&format!("{path}.image"), image, why);
    }
    mistakes.one_of(
        &format!("{path}.imagePullPolicy"),
        container.image_pull_policy.as_deref(),
        &["Always", "IfNotPresent", "Never"],
    );
    mistakes.one_of(
        &format!("{path}.terminationMessagePolicy"),
        container.termination_message_policy.as_deref(),
        &["File", "FallbackToLogsOnError"],
    );
    ports(mistakes, path, container, spec.host_network == Some(true));
    mounts(mistakes, path, container, volumes);
    resources(mistakes, path, container);
    for (at, variable) in container.env.iter().flatten().enumerate() {
        if variable.name.is_empty() {
            mistakes.required(&format!("{path}.env[{at}].name"));
        } else if variable.name.contains('=') {
            mistakes.invalid(
                &format!("{path}.env[{at}].name"),
                &variable.name,
                "must not contain '='",
            );
        }
    }
    if let Some(given) = pod_object::stop_signal(container) {
        let path = format!("{path}.lifecycle.stopSignal");
        let os = spec.os.as_ref().map_or("", |os| os.name.as_str());
        match signal::of_os(os) {
            Some(signals) => mistakes.one_of(&path, Some(given), signals),
            None => mistakes.forbidden(&path, signal::NEEDS_OS),
        }
    }
    for (field, probe) in [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ] {
        if let Some(probe) = probe {
            check_probe(mistakes, &format!("{path}.{field}"), probe);
        }
    }
}

fn ports(mistakes: &mut Mistakes, path: &str, container: &Container, host_network: bool) {
    let mut seen = BTreeSet::new();
    for (at, port) in container.ports.iter().flatten().enumerate() {
        let path = format!("{path}.ports[{at}]");
        let valid = |port: i32| (1..=65535).contains(&port);
        let why = "must be between 1 and 65535, inclusive";
        if !valid(port.container_port) {
            mistakes.invalid(&format!("{path}.containerPort"), port.container_port, why);
        }
        let host_port = port.host_port.unwrap_or(0);
        if host_port != 0 && !valid(host_port) {
            mistakes.invalid(&format!("{path}.hostPort"), host_port, why);
        }
        if host_network && host_port != port.container_port {
            let why = "must match `containerPort` when `hostNetwork` is true";
            mistakes.invalid(&format!("{path}.hostPort"), host_port, why);
        }
        mistakes.one_of(
            &format!("{path}.protocol"),
            port.protocol.as_deref(),
            &["SCTP", "TCP", "UDP"],
        );
        if let Some(name) = &port.name
            && !seen.insert(name)
        {
            mistakes.duplicate(&format!("{path}.name"), name);
        }
    }
}

fn mounts(mistakes: &mut Mistakes, path: &str, container: &Container, volumes: &BTreeSet<&str>) {
    let mut seen = BTreeSet::new();
    for (at, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let path = format!("{path}.volumeMounts[{at}]");
        if !volumes.contains(mount.name.as_str()) {
            mistakes.0.push(format!("{path}.name: Not found: {:?}", mount.name));
        }
        if mount.mount_path.is_empty() {
            mistakes.required(&format!("{path}.mountPath"));
        } else if !seen.insert(mount.mount_path.as_str()) {
            mistakes.invalid(&format!("{path}.mountPath"), &mount.mount_path, "must be unique");
        }
        for (field, text) in [("subPath", &mount.sub_path), ("subPathExpr", &mount.sub_path_expr)] {
            let text = text.as_deref().unwrap_or_default();
            if text.starts_with('/') {
                mistakes.invalid(&format!("{path}.{field}"), text, "must be a relative path");
            } else if text.split('/').any(|part| part == "..") {
                mistakes.invalid(&format!("{path}.{field}"), text, "must not contain '..'");
            }
        }
    }
}

fn resources(mistakes: &mut Mistakes, path: &str, container: &Container) {
    let Some(resources) = &container.resources else { return };
    let mut limits = std::collections::BTreeMap::new();
    let lists = [("limits", &resources.limits), ("requests", &resources.requests)];
    for (field, name, text) in lists
        .iter()
        .flat_map(|(field, list)| list.iter().flatten().map(move |(name, text)| (*field, name, text)))
    {
        let path = format!("{path}.resources.{field}[{name}]");
        let Ok(amount) = Quantity::parse(&text.0) else {
            mistakes.invalid(&path, &text.0, "not a quantity");
            continue;
        };
        if amount.is_negative() {
            mistakes.invalid(&path, &text.0, "must be greater than or equal to 0");
        }
        if field == "limits" {
            limits.insert(name.as_str(), amount);
        } else if limits.get(name.as_str()).is_some_and(|limit| amount > *limit) {
            let why = format!("must be less than or equal to {name} limit");
            mistakes.invalid(&path, &text.0, why);
        }
    }
}

fn check_probe(mistakes: &mut Mistakes, path: &str, probe: &Probe) {
    let handlers = [
        probe.exec.is_some(),
        probe.http_get.is_some(),
        probe.tcp_socket.is_some(),
        probe.grpc.is_some(),
    ];
    match handlers.iter().filter(|given| **given).count() {
        1 => {}
        0 => mistakes
            .0
            .push(format!("{path}: Required value: must specify a handler type")),
        _ => mistakes.forbidden(path, "may not specify more than 1 handler type"),
    }
    for (field, value) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        if let Some(value) = value.filter(|value| *value < 0) {
            mistakes.invalid(&format!("{path}.{field}"), value, "must be greater than or equal to 0");
        }
    }
    let ports = [
        probe.http_get.as_ref().map(|http| &http.port),
        probe.tcp_socket.as_ref().map(|tcp| &tcp.port),
    ];
    for port in ports.into_iter().flatten() {
        if let IntOrString::Int(number) = port
            && !(1..=65535).contains(number)
        {
            mistakes.invalid(
                &format!("{path}.port"),
                number,
                "must be between 1 and 65535, inclusive",
            );
        }
    }
}
