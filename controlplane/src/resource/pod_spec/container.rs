//! What is wrong with containers of every kind: names, images, ports, resources, mounts. Pure.

use std::collections::{BTreeMap, BTreeSet};

use proto::api::quantity::Quantity;
use serde_json::Value;

use super::rule::{descending, required_label, user_or_group};
use super::volume::ByName;
use super::{environment, handler, resize_policy, resources};
use crate::resource::field::{at, flag, int, invalid_each, list, one_of, text};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};
use crate::resource::name::{port_name, port_number};

/// Which list a container stands in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Init,
    Main,
    Ephemeral,
}

pub(super) fn validate_all(errors: &mut FieldErrors, spec: &Value, path: &str, volumes: &ByName<'_>) {
    if list(spec, &["containers"]).is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let claims = resources::claims(errors, spec, path);
    let grace = int(spec, &["terminationGracePeriodSeconds"]);
    let mut names = BTreeSet::new();
    let mut targets = BTreeSet::new();
    let mut host_ports = BTreeSet::new();
    let host_network = flag(spec, &["hostNetwork"]);
    for (key, role) in [
        ("initContainers", Role::Init),
        ("containers", Role::Main),
        ("ephemeralContainers", Role::Ephemeral),
    ] {
        if role == Role::Ephemeral {
            targets.clone_from(&names);
        }
        for (i, container) in list(spec, &[key]).iter().enumerate() {
            let base = format!("{path}.{key}[{i}]");
            let name = text(container, &["name"]);
            if !name.is_empty() && !names.insert(name) {
                errors.push(duplicate(format!("{base}.name"), name));
            }
            validate(errors, container, &base, role, volumes);
            environment::validate(errors, container, &base, volumes);
            resources::used_claims(errors, container, &base, &claims);
            handler::sleeps(
                errors,
                at(container, &["lifecycle"]),
                &format!("{base}.lifecycle"),
                grace,
            );
            proc_mount(
                errors,
                container,
                &base,
                at(spec, &["hostUsers"]) != &Value::Bool(false),
            );
            match role {
                Role::Ephemeral => ephemeral(errors, container, &base, &targets),
                Role::Init | Role::Main => resize_policy::validate(errors, container, &base, role, spec),
            }
            let signal = text(container, &["lifecycle", "stopSignal"]);
            handler::stop_signal(errors, signal, text(spec, &["os", "name"]), &base);
            ports(errors, container, &base, host_network, role, &mut host_ports);
        }
    }
}

pub(super) fn duplicate(path: String, value: &str) -> FieldError {
    FieldError::new(path, FieldErrorKind::Duplicate, Value::from(value), "")
}

fn validate(errors: &mut FieldErrors, container: &Value, base: &str, role: Role, volumes: &ByName<'_>) {
    let value = |key: &str| text(container, &[key]);
    required_label(errors, &format!("{base}.name"), value("name"));
    let image = value("image");
    if image.is_empty() {
        errors.push(FieldError::required(format!("{base}.image"), ""));
    } else if image.trim() != image {
        errors.push(FieldError::invalid(
            format!("{base}.image"),
            image,
            "must not have leading or trailing whitespace",
        ));
    }
    one_of(
        errors,
        &format!("{base}.imagePullPolicy"),
        value("imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
    );
    one_of(
        errors,
        &format!("{base}.terminationMessagePolicy"),
        value("terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
    );
    let sidecar = value("restartPolicy") == "Always";
    let policy = at(container, &["restartPolicy"]);
    if role == Role::Ephemeral && !policy.is_null() {
        errors.push(FieldError::forbidden(
            format!("{base}.restartPolicy"),
            "cannot be set for an Ephemeral Container",
        ));
    } else if !policy.is_null() {
        one_of(
            errors,
            &format!("{base}.restartPolicy"),
            value("restartPolicy"),
            &["Always", "Never", "OnFailure"],
        );
    }
    resources::container(errors, at(container, &["resources"]), &format!("{base}.resources"));
    mounts(errors, container, base, volumes);
    security(
        errors,
        at(container, &["securityContext"]),
        &format!("{base}.securityContext"),
    );
    handlers(errors, container, base, role, sidecar);
}

fn handlers(errors: &mut FieldErrors, container: &Value, base: &str, role: Role, sidecar: bool) {
    for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        let value = at(container, &[key]);
        if value.is_null() {
            continue;
        }
        let path = format!("{base}.{key}");
        match role {
            Role::Ephemeral => errors.push(FieldError::forbidden(path, "cannot be set for an Ephemeral Container")),
            Role::Init if !sidecar => errors.push(FieldError::forbidden(
                path,
                "may not be set for init containers without restartPolicy=Always",
            )),
            _ if key == "lifecycle" => handler::lifecycle(errors, value, &path),
            _ => handler::probe(errors, value, &path, key),
        }
    }
}

/// What only ephemeral containers are held to: they target another (`targets` are the names of those that are not ephemeral) container of the pod, and are no part of its work.
fn ephemeral(errors: &mut FieldErrors, container: &Value, base: &str, targets: &BTreeSet<&str>) {
    const UNSET: &str = "cannot be set for an Ephemeral Container";
    let target = text(container, &["targetContainerName"]);
    if !target.is_empty() && !targets.contains(target) {
        errors.push(FieldError::new(
            format!("{base}.targetContainerName"),
            FieldErrorKind::NotFound,
            Value::from(target),
            "",
        ));
    }
    for key in ["ports", "resources", "resizePolicy", "restartPolicyRules"] {
        let value = at(container, &[key]);
        let set = value.as_object().map_or(!value.is_null(), |map| !map.is_empty());
        if set {
            errors.push(FieldError::forbidden(format!("{base}.{key}"), UNSET));
        }
    }
    for (i, mount) in list(container, &["volumeMounts"]).iter().enumerate() {
        for key in ["subPath", "subPathExpr"] {
            if !text(mount, &[key]).is_empty() {
                errors.push(FieldError::forbidden(format!("{base}.volumeMounts[{i}].{key}"), UNSET));
            }
        }
    }
}

fn ports(
    errors: &mut FieldErrors,
    container: &Value,
    base: &str,
    host_network: bool,
    role: Role,
    host_ports: &mut BTreeSet<(i64, String, String)>,
) {
    let mut names = BTreeSet::new();
    for (i, port) in list(container, &["ports"]).iter().enumerate() {
        let path = format!("{base}.ports[{i}]");
        let name = text(port, &["name"]);
        if !name.is_empty() {
            let problems = port_name(name);
            let good = problems.is_empty();
            invalid_each(errors, &format!("{path}.name"), &Value::from(name), problems);
            if good && !names.insert(name) {
                errors.push(duplicate(format!("{path}.name"), name));
            }
        }
        let number = int(port, &["containerPort"]).unwrap_or(0);
        if number == 0 {
            errors.push(FieldError::required(format!("{path}.containerPort"), ""));
        } else {
            let value = Value::from(number);
            invalid_each(errors, &format!("{path}.containerPort"), &value, port_number(number));
        }
        let protocol = text(port, &["protocol"]);
        one_of(errors, &format!("{path}.protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        let host_port = int(port, &["hostPort"]).unwrap_or(0);
        if host_port == 0 {
            continue;
        }
        let (field, value) = (format!("{path}.hostPort"), Value::from(host_port));
        invalid_each(errors, &field, &value, port_number(host_port));
        if host_network && host_port != number {
            errors.push(FieldError::invalid(
                field.as_str(),
                host_port,
                "must match `containerPort` when `hostNetwork` is true",
            ));
        }
        let key = (host_port, protocol.to_owned(), text(port, &["hostIP"]).to_owned());
        if role == Role::Main && !host_ports.insert(key) {
            let shown = format!("{protocol}/{}/{host_port}", text(port, &["hostIP"]));
            errors.push(duplicate(field, &shown));
        }
    }
}

/// A quantity that is not negative.
pub(super) fn quantity(errors: &mut FieldErrors, value: &Value, path: &str) {
    let parsed = value.as_str().map(Quantity::parse);
    if matches!(parsed, Some(Ok(quantity)) if quantity.is_negative()) {
        errors.push(FieldError::invalid(
            path,
            value.clone(),
            "must be greater than or equal to 0",
        ));
    }
}

fn mounts(errors: &mut FieldErrors, container: &Value, base: &str, volumes: &ByName<'_>) {
    let mut paths = BTreeMap::new();
    for (i, mount) in list(container, &["volumeMounts"]).iter().enumerate() {
        let path = format!("{base}.volumeMounts[{i}]");
        let name = text(mount, &["name"]);
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if !volumes.contains_key(name) {
            errors.push(FieldError::new(
                format!("{path}.name"),
                FieldErrorKind::NotFound,
                Value::from(name),
                "",
            ));
        }
        let target = text(mount, &["mountPath"]);
        if target.is_empty() {
            errors.push(FieldError::required(format!("{path}.mountPath"), ""));
        } else if paths.insert(target, i).is_some() {
            errors.push(FieldError::invalid(
                format!("{path}.mountPath"),
                target,
                "must be unique",
            ));
        }
        let privileged = flag(container, &["securityContext", "privileged"]);
        propagation(errors, mount, &path, privileged);
        for key in ["subPath", "subPathExpr"] {
            descending(errors, text(mount, &[key]), &format!("{path}.{key}"));
        }
        let sub_path = text(mount, &["subPath"]);
        if !sub_path.is_empty() && !text(mount, &["subPathExpr"]).is_empty() {
            errors.push(FieldError::invalid(
                format!("{path}.subPathExpr"),
                at(mount, &["subPathExpr"]).clone(),
                "subPathExpr and subPath are mutually exclusive",
            ));
        }
    }
}

/// How mounts travel between node and container, and whether those below are read only as well.
fn propagation(errors: &mut FieldErrors, mount: &Value, path: &str, privileged: bool) {
    let mode = text(mount, &["mountPropagation"]);
    if !mode.is_empty() {
        let field = format!("{path}.mountPropagation");
        one_of(errors, &field, mode, &["Bidirectional", "HostToContainer", "None"]);
        if mode == "Bidirectional" && !privileged {
            let why = "Bidirectional mount propagation is available only to privileged containers";
            errors.push(FieldError::forbidden(field, why));
        }
    }
    let recursive = text(mount, &["recursiveReadOnly"]);
    let field = format!("{path}.recursiveReadOnly");
    match recursive {
        "" | "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !flag(mount, &["readOnly"]) {
                let why = "may only be specified when readOnly is true";
                errors.push(FieldError::forbidden(field.as_str(), why));
            }
            if !matches!(mode, "" | "None") {
                let why = "may only be specified when mountPropagation is None or not specified";
                errors.push(FieldError::forbidden(field, why));
            }
        }
        other => one_of(errors, &field, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

/// `/proc` without masks is for pods whose root is not the node's.
fn proc_mount(errors: &mut FieldErrors, container: &Value, base: &str, host_users: bool) {
    let mode = text(container, &["securityContext", "procMount"]);
    if mode.is_empty() {
        return;
    }
    let field = format!("{base}.securityContext.procMount");
    one_of(errors, &field, mode, &["Default", "Unmasked"]);
    if host_users && mode == "Unmasked" {
        let why = "`hostUsers` must be false to use `Unmasked`";
        errors.push(FieldError::invalid(field, mode, why));
    }
}

fn security(errors: &mut FieldErrors, context: &Value, path: &str) {
    for key in ["runAsUser", "runAsGroup"] {
        user_or_group(errors, at(context, &[key]), &format!("{path}.{key}"));
    }
    seccomp(
        errors,
        at(context, &["seccompProfile"]),
        &format!("{path}.seccompProfile"),
    );
    app_armor(
        errors,
        at(context, &["appArmorProfile"]),
        &format!("{path}.appArmorProfile"),
    );
    let escalation = at(context, &["allowPrivilegeEscalation"]) == &Value::Bool(false);
    if escalation && flag(context, &["privileged"]) {
        errors.push(FieldError::invalid(
            path,
            context.clone(),
            "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
        ));
    }
    let adds = list(context, &["capabilities", "add"]);
    if escalation && adds.iter().any(|capability| capability == "CAP_SYS_ADMIN") {
        errors.push(FieldError::invalid(
            path,
            context.clone(),
            "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
        ));
    }
}

/// A seccomp profile.
pub(super) fn seccomp(errors: &mut FieldErrors, profile: &Value, path: &str) {
    if profile.is_null() {
        return;
    }
    let kind = text(profile, &["type"]);
    profile_type(errors, kind, path, "type is required when seccompProfile is set");
    let field = format!("{path}.localhostProfile");
    match at(profile, &["localhostProfile"]).as_str() {
        None if kind == "Localhost" => {
            let why = "must be set when seccomp type is Localhost";
            errors.push(FieldError::required(field, why));
        }
        Some(file) if kind == "Localhost" => descending(errors, file, &field),
        Some(_) => {
            let why = "can only be set when seccomp type is Localhost";
            errors.push(FieldError::invalid_value(field, profile, why));
        }
        None => {}
    }
}

/// An AppArmor profile.
pub(super) fn app_armor(errors: &mut FieldErrors, profile: &Value, path: &str) {
    if profile.is_null() {
        return;
    }
    let kind = text(profile, &["type"]);
    profile_type(errors, kind, path, "type is required when appArmorProfile is set");
    let field = format!("{path}.localhostProfile");
    let required = "must be set when AppArmor type is Localhost";
    match at(profile, &["localhostProfile"]).as_str() {
        None if kind == "Localhost" => errors.push(FieldError::required(field, required)),
        Some(name) if kind == "Localhost" => {
            if name.trim() != name {
                let why = "must not be padded with whitespace";
                errors.push(FieldError::invalid(field.as_str(), name, why));
            } else if name.is_empty() {
                errors.push(FieldError::required(field.as_str(), required));
            }
            // A path the system takes.
            if name.len() > 4095 {
                let why = "may not be more than 4095 bytes";
                errors.push(FieldError::new(field, FieldErrorKind::TooLong, Value::Null, why));
            }
        }
        Some(name) if ["RuntimeDefault", "Unconfined"].contains(&kind) => {
            let why = "can only be set when AppArmor type is Localhost";
            errors.push(FieldError::invalid(field, name, why));
        }
        _ => {}
    }
}

fn profile_type(errors: &mut FieldErrors, kind: &str, path: &str, required: &str) {
    let (field, kinds) = (format!("{path}.type"), ["Localhost", "RuntimeDefault", "Unconfined"]);
    if kind.is_empty() {
        errors.push(FieldError::required(field, required));
    } else if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported(field, kind, &kinds));
    }
}
