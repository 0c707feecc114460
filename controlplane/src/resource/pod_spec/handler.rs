//! What is wrong with probes and lifecycle hooks. Pure.

use proto::api::signal;
use serde_json::Value;

use crate::resource::field::{at, int, invalid_each, list, non_negative, one_of, text};
use crate::resource::field_error::{FieldError, FieldErrors};
use crate::resource::name::{port_name, port_number};

pub(super) fn probe(errors: &mut FieldErrors, probe: &Value, path: &str, kind: &str) {
    handler(errors, probe, path, &["exec", "httpGet", "tcpSocket", "grpc"]);
    for key in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        non_negative(errors, probe, path, key);
    }
    let success = int(probe, &["successThreshold"]).unwrap_or(1);
    if kind != "readinessProbe" && success != 1 {
        errors.push(FieldError::invalid(
            format!("{path}.successThreshold"),
            success,
            "must be 1",
        ));
    }
    if let Some(grace) = int(probe, &["terminationGracePeriodSeconds"]) {
        let field = format!("{path}.terminationGracePeriodSeconds");
        if kind == "readinessProbe" {
            errors.push(FieldError::invalid(field, grace, "must not be set for readinessProbes"));
        } else if grace <= 0 {
            errors.push(FieldError::invalid(field, grace, "must be greater than 0"));
        }
    }
}

pub(super) fn lifecycle(errors: &mut FieldErrors, hooks: &Value, path: &str) {
    for key in ["postStart", "preStop"] {
        let hook = at(hooks, &[key]);
        if !hook.is_null() {
            handler(
                errors,
                hook,
                &format!("{path}.{key}"),
                &["exec", "httpGet", "tcpSocket", "sleep"],
            );
        }
    }
}

/// A stop signal is one that the pod's operating system has.
pub(super) fn stop_signal(errors: &mut FieldErrors, given: &str, os: &str, container: &str) {
    if given.is_empty() {
        return;
    }
    let path = format!("{container}.lifecycle.stopSignal");
    match signal::of_os(os) {
        Some(signals) => one_of(errors, &path, given, signals),
        None => errors.push(FieldError::forbidden(path, signal::NEEDS_OS)),
    }
}

/// Exactly one of the handlers named, and that one right.
fn handler(errors: &mut FieldErrors, value: &Value, path: &str, kinds: &[&str]) {
    let mut found = 0;
    for kind in kinds {
        let action = at(value, &[kind]);
        if action.is_null() {
            continue;
        }
        let field = format!("{path}.{kind}");
        found += 1;
        if found > 1 {
            errors.push(FieldError::forbidden(field, "may not specify more than 1 handler type"));
            continue;
        }
        match *kind {
            "exec" => {
                if list(action, &["command"]).is_empty() {
                    errors.push(FieldError::required(format!("{field}.command"), ""));
                }
            }
            "httpGet" => {
                port(errors, action, &field);
                if text(action, &["path"]).is_empty() {
                    errors.push(FieldError::required(format!("{field}.path"), ""));
                }
                one_of(
                    errors,
                    &format!("{field}.scheme"),
                    text(action, &["scheme"]),
                    &["HTTP", "HTTPS"],
                );
            }
            "tcpSocket" | "grpc" => port(errors, action, &field),
            _ => non_negative(errors, action, &field, "seconds"),
        }
    }
    if found == 0 {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

/// A port number, or the name of a container's port.
fn port(errors: &mut FieldErrors, action: &Value, path: &str) {
    let value = at(action, &["port"]);
    let problems = match (value.as_i64(), value.as_str()) {
        (Some(number), _) => port_number(number),
        (_, Some(name)) => port_name(name),
        _ => port_number(0),
    };
    invalid_each(errors, &format!("{path}.port"), value, problems);
}
