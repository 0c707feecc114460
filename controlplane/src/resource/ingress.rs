//! Ingresses and their classes. Pure.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::check::{address, host, invalid, itself, required, segment, supported, too_long};
use super::field::{at, default_text, immutable, int, list, set, text};
use super::name::{dns1123_label, dns1123_subdomain, port_name, port_number};
use super::{PrepareContext, Strategy, reset_status};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The Ingress kind's strategy.
pub(super) struct Ingress;

/// The IngressClass kind's strategy.
pub(super) struct IngressClass;

/// The way a class was named before there was a field for it.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const PATH_TYPES: &[&str] = &["Exact", "ImplementationSpecific", "Prefix"];
const CONTROLLER_BYTES: usize = 250;
const NO_ADDRESS: &str = "must be a DNS name, not an IP address";

impl Strategy for Ingress {
    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        reset_status(object);
        set(object, &["status"], json!({"loadBalancer": {}}));
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = check_spec(object);
        let class = at(object, &["spec", "ingressClassName"]).as_str();
        let annotation = at(object, &["metadata", "annotations", CLASS_ANNOTATION]).as_str();
        if let (Some(class), Some(annotation)) = (class, annotation)
            && class != annotation
        {
            errors.push(FieldError::invalid(
                format!("annotations.{CLASS_ANNOTATION}"),
                annotation,
                "must match `ingressClassName` when both are specified",
            ));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if subresource.is_empty() {
            FieldErrors::of_update(new, old, check_spec)
        } else {
            FieldErrors::of_update(new, old, check_status)
        }
    }

    fn has_generation(&self) -> bool {
        true
    }
}

fn check_spec(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let spec = at(object, &["spec"]);
    let backend = at(spec, &["defaultBackend"]);
    if !backend.is_null() {
        check_backend(&mut errors, backend, "spec.defaultBackend");
    } else if list(spec, &["rules"]).is_empty() {
        errors.push(FieldError::invalid_value(
            "spec",
            at(spec, &["rules"]),
            "either `defaultBackend` or `rules` must be specified",
        ));
    }
    for (i, rule) in list(spec, &["rules"]).iter().enumerate() {
        check_rule(&mut errors, rule, &format!("spec.rules[{i}]"));
    }
    for (i, tls) in list(spec, &["tls"]).iter().enumerate() {
        for (j, name) in list(tls, &["hosts"]).iter().map(itself).enumerate() {
            invalid(&mut errors, &format!("spec.tls[{i}].hosts[{j}]"), name, host(name));
        }
        let secret = text(tls, &["secretName"]);
        if !secret.is_empty() {
            let field = format!("spec.tls[{i}].secretName");
            invalid(&mut errors, &field, secret, dns1123_subdomain(secret));
        }
    }
    if let Some(class) = at(spec, &["ingressClassName"]).as_str() {
        invalid(&mut errors, "spec.ingressClassName", class, dns1123_subdomain(class));
    }
    errors
}

fn check_status(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    for (i, point) in list(object, &["status", "loadBalancer", "ingress"]).iter().enumerate() {
        let path = format!("status.loadBalancer.ingress[{i}]");
        let ip = text(point, &["ip"]);
        if !ip.is_empty()
            && let Err(problem) = address(ip)
        {
            errors.push(FieldError::invalid(format!("{path}.ip"), ip, problem));
        }
        let name = text(point, &["hostname"]);
        if !name.is_empty() {
            let field = format!("{path}.hostname");
            invalid(&mut errors, &field, name, dns1123_subdomain(name));
            no_address(&mut errors, &field, name);
        }
    }
    errors
}

fn no_address(errors: &mut FieldErrors, path: &str, name: &str) {
    if name.parse::<IpAddr>().is_ok() {
        errors.push(FieldError::invalid(path, name, NO_ADDRESS));
    }
}

fn check_rule(errors: &mut FieldErrors, rule: &Value, path: &str) {
    let name = text(rule, &["host"]);
    if !name.is_empty() {
        let field = format!("{path}.host");
        no_address(errors, &field, name);
        invalid(errors, &field, name, host(name));
    }
    let http = at(rule, &["http"]);
    if http.is_null() {
        return;
    }
    let base = format!("{path}.http.paths");
    let paths = list(http, &["paths"]);
    if paths.is_empty() {
        errors.push(FieldError::required(base.clone(), ""));
    }
    for (i, item) in paths.iter().enumerate() {
        check_path(errors, item, &format!("{base}[{i}]"));
    }
}

fn check_path(errors: &mut FieldErrors, item: &Value, base: &str) {
    let Some(kind) = at(item, &["pathType"]).as_str() else {
        let field = format!("{base}.pathType");
        errors.push(FieldError::required(field, "pathType must be specified"));
        return;
    };
    supported(errors, &format!("{base}.pathType"), kind, PATH_TYPES);
    let path = text(item, &["path"]);
    let mut refuse = |why: String| errors.push(FieldError::invalid(format!("{base}.path"), path, why));
    let is_literal = matches!(kind, "Exact" | "Prefix");
    if !path.starts_with('/') && (is_literal || (kind == "ImplementationSpecific" && !path.is_empty())) {
        refuse("must be an absolute path".to_owned());
    }
    if is_literal {
        for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
            if path.contains(sequence) {
                refuse(format!("must not contain '{sequence}'"));
            }
        }
        for suffix in ["/..", "/."] {
            if path.ends_with(suffix) {
                refuse(format!("cannot end with '{suffix}'"));
            }
        }
    }
    check_backend(errors, at(item, &["backend"]), &format!("{base}.backend"));
}

fn check_backend(errors: &mut FieldErrors, backend: &Value, path: &str) {
    let (resource, service) = (at(backend, &["resource"]), at(backend, &["service"]));
    match (resource.is_null(), service.is_null()) {
        (true, true) => errors.push(FieldError::invalid(path, "", "resource or service backend is required")),
        (false, false) => {
            errors.push(FieldError::invalid(
                path,
                "",
                "cannot set both resource and service backends",
            ));
        }
        (false, true) => check_reference(errors, resource, &format!("{path}.resource")),
        (true, false) => {
            let name = text(service, &["name"]);
            required(errors, &format!("{path}.service.name"), name, dns1123_label);
            check_service_port(errors, at(service, &["port"]), path);
        }
    }
}

fn check_service_port(errors: &mut FieldErrors, port: &Value, path: &str) {
    let (name, number) = (text(port, &["name"]), int(port, &["number"]).unwrap_or(0));
    match (name, number) {
        ("", 0) => errors.push(FieldError::required(path, "port name or number is required")),
        ("", number) => {
            let field = format!("{path}.service.port.number");
            let problems = port_number(number).into_iter();
            errors.extend(problems.map(|problem| FieldError::invalid(field.as_str(), number, problem)));
        }
        (name, 0) => invalid(errors, &format!("{path}.service.port.name"), name, port_name(name)),
        _ => errors.push(FieldError::invalid(path, "", "cannot set both port name & port number")),
    }
}

/// What another object is named by.
fn check_reference(errors: &mut FieldErrors, reference: &Value, path: &str) {
    if let Some(group) = at(reference, &["apiGroup"]).as_str() {
        invalid(errors, &format!("{path}.apiGroup"), group, dns1123_subdomain(group));
    }
    for key in ["kind", "name"] {
        required(errors, &format!("{path}.{key}"), text(reference, &[key]), segment);
    }
}

impl Strategy for IngressClass {
    fn default(&self, object: &mut Value) {
        if let Some(parameters) = object.get_mut("spec").and_then(|spec| spec.get_mut("parameters")) {
            default_text(parameters, "scope", "Cluster");
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        check_controller(&mut errors, text(object, &["spec", "controller"]));
        let parameters = at(object, &["spec", "parameters"]);
        if !parameters.is_null() {
            check_reference(&mut errors, parameters, "spec.parameters");
            check_scope(&mut errors, parameters);
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
        immutable(&mut errors, new, old, &["spec", "controller"]);
        errors
    }

    fn has_generation(&self) -> bool {
        true
    }
}

fn check_controller(errors: &mut FieldErrors, controller: &str) {
    const FIELD: &str = "spec.controller";
    if controller.is_empty() {
        errors.push(FieldError::required(FIELD, ""));
        return;
    }
    too_long(errors, FIELD, controller.len(), CONTROLLER_BYTES);
    match controller.split_once('/') {
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            invalid(errors, FIELD, domain, dns1123_subdomain(domain));
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
            if !path.bytes().all(fits) {
                let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                errors.push(FieldError::invalid(FIELD, path, why));
            }
        }
        _ => errors.push(FieldError::invalid(
            FIELD,
            controller,
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        )),
    }
}

fn check_scope(errors: &mut FieldErrors, parameters: &Value) {
    const FIELD: &str = "spec.parameters.namespace";
    let namespace = at(parameters, &["namespace"]).as_str();
    let scope = text(parameters, &["scope"]);
    supported(errors, "spec.parameters.scope", scope, &["Cluster", "Namespace"]);
    match (scope, namespace) {
        ("Namespace", None) => {
            errors.push(FieldError::required(FIELD, "`parameters.scope` is set to 'Namespace'"));
        }
        ("Namespace", Some(namespace)) => invalid(errors, FIELD, namespace, dns1123_label(namespace)),
        ("Cluster", Some(_)) => errors.push(FieldError::forbidden(FIELD, "`parameters.scope` is set to 'Cluster'")),
        _ => {}
    }
}
