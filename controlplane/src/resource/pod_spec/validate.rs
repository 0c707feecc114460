//! What is wrong with a pod spec: the fields of the spec itself; containers, volumes, probes and placement have files of
//! their own. Texts are upstream's. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use super::rule::{MAX_INT32, user_or_group};
use super::{annotation, container, placement, resources, volume};
use crate::resource::field::{at, entries, flag, int, invalid_each, list, non_negative, one_of, text};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};
use crate::resource::metadata::{validate_annotations, validate_labels};
use crate::resource::name::{dns1123_label, dns1123_subdomain, qualified_name};

/// Restart policies of a pod.
const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// Everything wrong with a `PodTemplateSpec` at `path` (such as `spec.template`).
pub(crate) fn template(template: &Value, path: &str) -> FieldErrors {
    let mut errors = FieldErrors::default();
    validate_labels(
        at(template, &["metadata", "labels"]),
        &format!("{path}.labels"),
        &mut errors,
    );
    validate_annotations(
        at(template, &["metadata", "annotations"]),
        &format!("{path}.annotations"),
        &mut errors,
    );
    let inner = at(template, &["spec"]);
    let annotations = at(template, &["metadata", "annotations"]);
    annotation::validate(&mut errors, annotations, inner, &format!("{path}.annotations"));
    errors.append(spec(inner, &format!("{path}.spec")));
    if !list(template, &["spec", "ephemeralContainers"]).is_empty() {
        errors.push(FieldError::forbidden(
            format!("{path}.spec.ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        ));
    }
    errors
}

/// Everything wrong with a pod's annotations and spec.
pub(crate) fn pod(pod: &Value) -> FieldErrors {
    let mut errors = pod_annotations(pod);
    errors.append(spec(at(pod, &["spec"]), "spec"));
    errors
}

/// Everything wrong with a pod's annotations, some of which are about its spec.
pub(crate) fn pod_annotations(pod: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let (annotations, inner) = (at(pod, &["metadata", "annotations"]), at(pod, &["spec"]));
    annotation::validate(&mut errors, annotations, inner, "metadata.annotations");
    errors
}

/// Everything wrong with a pod spec at `path` (such as `spec`).
pub(crate) fn spec(spec: &Value, path: &str) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let volumes = volume::validate_all(&mut errors, spec, path);
    container::validate_all(&mut errors, spec, path, &volumes);
    resources::pod(&mut errors, spec, path);
    policies(&mut errors, spec, path);
    names(&mut errors, spec, path);
    security(&mut errors, spec, path);
    dns(&mut errors, spec, path);
    placement::validate(&mut errors, spec, path);
    gates(&mut errors, spec, path);
    errors
}

/// Everything wrong with requests and limits at `path`.
pub(crate) fn resources(errors: &mut FieldErrors, resources: &Value, path: &str) {
    resources::container(errors, resources, path);
}

/// Everything wrong with tolerations at `path`.
pub(crate) fn tolerations(errors: &mut FieldErrors, tolerations: &[Value], path: &str) {
    placement::tolerations(errors, tolerations, path);
}

/// Everything wrong with a node selector.
pub(crate) fn node_selector(errors: &mut FieldErrors, selector: &Value, path: &str) {
    placement::node_selector(errors, selector, path);
}

fn policies(errors: &mut FieldErrors, spec: &Value, path: &str) {
    let value = |key: &str| text(spec, &[key]);
    one_of(
        errors,
        &format!("{path}.restartPolicy"),
        value("restartPolicy"),
        RESTART_POLICIES,
    );
    one_of(errors, &format!("{path}.dnsPolicy"), value("dnsPolicy"), DNS_POLICIES);
    if let Some(seconds) = int(spec, &["activeDeadlineSeconds"])
        && !(1..=MAX_INT32).contains(&seconds)
    {
        errors.push(FieldError::invalid(
            format!("{path}.activeDeadlineSeconds"),
            seconds,
            format!("must be between 1 and {MAX_INT32}, inclusive"),
        ));
    }
    non_negative(errors, spec, path, "terminationGracePeriodSeconds");
    if !value("preemptionPolicy").is_empty() {
        one_of(
            errors,
            &format!("{path}.preemptionPolicy"),
            value("preemptionPolicy"),
            &["PreemptLowerPriority", "Never"],
        );
    }
    let os = at(spec, &["os"]);
    if !os.is_null() {
        one_of(
            errors,
            &format!("{path}.os.name"),
            text(os, &["name"]),
            &["linux", "windows"],
        );
    }
}

fn names(errors: &mut FieldErrors, spec: &Value, path: &str) {
    type Rule = fn(&str) -> Vec<String>;
    for (key, rule) in [
        ("serviceAccountName", dns1123_subdomain as Rule),
        ("nodeName", dns1123_subdomain),
        ("priorityClassName", dns1123_subdomain),
        ("runtimeClassName", dns1123_subdomain),
        ("hostname", dns1123_label),
        ("hostnameOverride", dns1123_subdomain),
        ("subdomain", dns1123_label),
        ("schedulerName", qualified_name),
    ] {
        let value = text(spec, &[key]);
        if !value.is_empty() {
            invalid_each(errors, &format!("{path}.{key}"), at(spec, &[key]), rule(value));
        }
    }
    for (i, secret) in list(spec, &["imagePullSecrets"]).iter().enumerate() {
        if text(secret, &["name"]).is_empty() {
            errors.push(FieldError::required(format!("{path}.imagePullSecrets[{i}].name"), ""));
        }
    }
    for (i, alias) in list(spec, &["hostAliases"]).iter().enumerate() {
        let ip = at(alias, &["ip"]);
        if ip.as_str().and_then(|ip| ip.parse::<std::net::IpAddr>().ok()).is_none() {
            errors.push(FieldError::invalid(
                format!("{path}.hostAliases[{i}].ip"),
                ip.clone(),
                "must be a valid IP address",
            ));
        }
        for (j, name) in list(alias, &["hostnames"]).iter().enumerate() {
            let problems = dns1123_subdomain(name.as_str().unwrap_or(""));
            invalid_each(
                errors,
                &format!("{path}.hostAliases[{i}].hostnames[{j}]"),
                name,
                problems,
            );
        }
    }
}

fn security(errors: &mut FieldErrors, spec: &Value, path: &str) {
    let context = at(spec, &["securityContext"]);
    let base = format!("{path}.securityContext");
    for key in ["runAsUser", "runAsGroup", "fsGroup"] {
        user_or_group(errors, at(context, &[key]), &format!("{base}.{key}"));
    }
    for (i, group) in list(context, &["supplementalGroups"]).iter().enumerate() {
        user_or_group(errors, group, &format!("{base}.supplementalGroups[{i}]"));
    }
    let mut sysctls = BTreeSet::new();
    for (i, sysctl) in list(context, &["sysctls"]).iter().enumerate() {
        let name = text(sysctl, &["name"]);
        let field = format!("{base}.sysctls[{i}].name");
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if !is_sysctl(name) {
            errors.push(FieldError::invalid(
                field,
                name,
                "must have at most 253 characters and match regex \
                 ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            ));
        } else if !sysctls.insert(name) {
            errors.push(FieldError::new(field, FieldErrorKind::Duplicate, Value::from(name), ""));
        }
    }
    let policy = text(context, &["fsGroupChangePolicy"]);
    if !policy.is_empty() {
        one_of(
            errors,
            &format!("{base}.fsGroupChangePolicy"),
            policy,
            &["Always", "OnRootMismatch"],
        );
    }
    let groups = text(context, &["supplementalGroupsPolicy"]);
    if !groups.is_empty() {
        let field = format!("{base}.supplementalGroupsPolicy");
        one_of(errors, &field, groups, &["Merge", "Strict"]);
    }
    container::seccomp(
        errors,
        at(context, &["seccompProfile"]),
        &format!("{base}.seccompProfile"),
    );
    container::app_armor(
        errors,
        at(context, &["appArmorProfile"]),
        &format!("{base}.appArmorProfile"),
    );
    host_users(errors, spec, path);
    if flag(spec, &["shareProcessNamespace"]) && flag(spec, &["hostPID"]) {
        errors.push(FieldError::invalid(
            format!("{path}.shareProcessNamespace"),
            true,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        ));
    }
}

/// A pod with users of its own shares no other namespace with the node, and has none of its devices.
fn host_users(errors: &mut FieldErrors, spec: &Value, path: &str) {
    if at(spec, &["hostUsers"]) != &Value::Bool(false) {
        return;
    }
    let why = "when `hostUsers` is false";
    // The last two are shown as upstream shows them.
    for (key, shown) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if flag(spec, &[key]) {
            errors.push(FieldError::forbidden(format!("{path}.{shown}"), why));
        }
    }
    for key in ["initContainers", "containers", "ephemeralContainers"] {
        for (i, container) in list(spec, &[key]).iter().enumerate() {
            if !list(container, &["volumeDevices"]).is_empty() {
                let field = format!("{path}.{key}[{i}].volumeDevices");
                errors.push(FieldError::forbidden(field, why));
            }
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    name.len() <= 253
        && name.split(['.', '/']).all(|part| {
            let bytes = part.as_bytes();
            let ends = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
            ends(bytes.first())
                && ends(bytes.last())
                && bytes
                    .iter()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(b))
        })
}

fn dns(errors: &mut FieldErrors, spec: &Value, path: &str) {
    let config = at(spec, &["dnsConfig"]);
    let base = format!("{path}.dnsConfig");
    let servers = list(config, &["nameservers"]);
    let has_policy_none = text(spec, &["dnsPolicy"]) == "None";
    if has_policy_none && config.is_null() {
        let why = "must provide `dnsConfig` when `dnsPolicy` is None";
        errors.push(FieldError::required(base.as_str(), why));
        return;
    }
    if has_policy_none && servers.is_empty() {
        errors.push(FieldError::required(
            format!("{base}.nameservers"),
            "must provide at least one DNS nameserver when `dnsPolicy` is None",
        ));
    }
    if servers.len() > 3 {
        errors.push(FieldError::invalid(
            format!("{base}.nameservers"),
            Value::from(servers.to_vec()),
            "must not have more than 3 nameservers",
        ));
    }
    for (i, server) in servers.iter().enumerate() {
        if server
            .as_str()
            .and_then(|ip| ip.parse::<std::net::IpAddr>().ok())
            .is_none()
        {
            errors.push(FieldError::invalid(
                format!("{base}.nameservers[{i}]"),
                server.clone(),
                "must be a valid IP address",
            ));
        }
    }
    let searches = list(config, &["searches"]);
    if searches.len() > 32 {
        errors.push(FieldError::invalid(
            format!("{base}.searches"),
            Value::from(searches.to_vec()),
            "must not have more than 32 search paths",
        ));
    }
    let characters: usize = searches
        .iter()
        .filter_map(Value::as_str)
        .map(|path| path.len() + 1)
        .sum();
    if characters > 2048 {
        errors.push(FieldError::invalid(
            format!("{base}.searches"),
            Value::from(searches.to_vec()),
            "must not have more than 2048 characters (including spaces) in the search list",
        ));
    }
    for (i, option) in list(config, &["options"]).iter().enumerate() {
        if text(option, &["name"]).is_empty() {
            errors.push(FieldError::required(
                format!("{base}.options[{i}]"),
                "must not be empty",
            ));
        }
    }
}

fn gates(errors: &mut FieldErrors, spec: &Value, path: &str) {
    for (i, gate) in list(spec, &["readinessGates"]).iter().enumerate() {
        let kind = at(gate, &["conditionType"]);
        let problems = qualified_name(kind.as_str().unwrap_or(""));
        invalid_each(
            errors,
            &format!("{path}.readinessGates[{i}].conditionType"),
            kind,
            problems,
        );
    }
    let mut seen = BTreeSet::new();
    for (i, gate) in list(spec, &["schedulingGates"]).iter().enumerate() {
        let name = at(gate, &["name"]);
        let field = format!("{path}.schedulingGates[{i}]");
        invalid_each(errors, &field, name, qualified_name(name.as_str().unwrap_or("")));
        if !seen.insert(text(gate, &["name"])) {
            errors.push(FieldError::new(field, FieldErrorKind::Duplicate, name.clone(), ""));
        }
    }
    for (key, value) in entries(spec, &["overhead"]) {
        container::quantity(errors, value, &format!("{path}.overhead[{key}]"));
    }
}
