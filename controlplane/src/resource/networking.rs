//! Endpoints, EndpointSlices, Ingresses and network policies. Pure.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::address;
use super::field::{at, default_text, default_to, immutable, int, invalid_each, list, list_mut, one_of, set, text};
use super::name::{dns1123_label, dns1123_subdomain, port_number, qualified_name};
use super::selector;
use super::{PrepareContext, Strategy, reset_status};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};

/// The Endpoints kind's strategy.
pub(super) struct Endpoints;

/// The EndpointSlice kind's strategy.
pub(super) struct EndpointSlice;

/// The NetworkPolicy kind's strategy.
pub(super) struct NetworkPolicy;

/// The Ingress kind's strategy.
pub(super) struct Ingress;

/// The IngressClass kind's strategy.
pub(super) struct IngressClass;

impl Strategy for Endpoints {
    fn default(&self, object: &mut Value) {
        for subset in list_mut(object, &["subsets"]).into_iter().flatten() {
            for port in list_mut(subset, &["ports"]).into_iter().flatten() {
                default_text(port, "protocol", "TCP");
            }
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        for (i, subset) in list(object, &["subsets"]).iter().enumerate() {
            endpoint_subset(&mut errors, subset, &format!("subsets[{i}]"));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        FieldErrors::of_update(new, old, |object| self.validate(object))
    }
}

/// Addresses other machines can have, and ports that are told apart where there are several.
fn endpoint_subset(errors: &mut FieldErrors, subset: &Value, path: &str) {
    let keys = ["addresses", "notReadyAddresses"];
    if keys.iter().all(|key| list(subset, &[key]).is_empty()) {
        let why = "must specify `addresses` or `notReadyAddresses`";
        errors.push(FieldError::required(path, why));
    }
    for key in keys {
        for (i, item) in list(subset, &[key]).iter().enumerate() {
            let base = format!("{path}.{key}[{i}]");
            address::peer(errors, at(item, &["ip"]), &format!("{base}.ip"));
            let hostname = text(item, &["hostname"]);
            if !hostname.is_empty() {
                let problems = dns1123_label(hostname);
                invalid_each(errors, &format!("{base}.hostname"), &json!(hostname), problems);
            }
            if let Some(node) = at(item, &["nodeName"]).as_str() {
                let problems = dns1123_subdomain(node);
                invalid_each(errors, &format!("{base}.nodeName"), &json!(node), problems);
            }
        }
    }
    let ports = list(subset, &["ports"]);
    for (i, port) in ports.iter().enumerate() {
        let base = format!("{path}.ports[{i}]");
        let name = text(port, &["name"]);
        if !name.is_empty() {
            invalid_each(errors, &format!("{base}.name"), &json!(name), dns1123_label(name));
        } else if ports.len() > 1 {
            errors.push(FieldError::required(format!("{base}.name"), ""));
        }
        let number = int(port, &["port"]).unwrap_or(0);
        invalid_each(errors, &format!("{base}.port"), &json!(number), port_number(number));
        let protocol = text(port, &["protocol"]);
        one_of(errors, &format!("{base}.protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        if let Some(application) = at(port, &["appProtocol"]).as_str() {
            let problems = qualified_name(application);
            invalid_each(errors, &format!("{base}.appProtocol"), &json!(application), problems);
        }
    }
}

impl Strategy for EndpointSlice {
    fn default(&self, object: &mut Value) {
        for port in list_mut(object, &["ports"]).into_iter().flatten() {
            default_to(port, "name", "");
            default_text(port, "protocol", "TCP");
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let kind = text(object, &["addressType"]);
        one_of(&mut errors, "addressType", kind, &["FQDN", "IPv4", "IPv6"]);
        let endpoints = list(object, &["endpoints"]);
        if endpoints.len() > 1000 {
            errors.push(FieldError::new(
                "endpoints",
                FieldErrorKind::TooMany,
                json!(endpoints.len()),
                "must have at most 1000 items",
            ));
        }
        for (i, endpoint) in endpoints.iter().enumerate() {
            let path = format!("endpoints[{i}].addresses");
            let addresses = list(endpoint, &["addresses"]);
            if addresses.is_empty() {
                errors.push(FieldError::required(path.clone(), "must contain at least 1 address"));
            } else if addresses.len() > 100 {
                errors.push(FieldError::new(
                    path.clone(),
                    FieldErrorKind::TooMany,
                    json!(addresses.len()),
                    "must have at most 100 items",
                ));
            }
            for (j, address) in addresses.iter().enumerate() {
                let parsed = address.as_str().and_then(|ip| ip.parse::<IpAddr>().ok());
                let fits = match kind {
                    "IPv4" => parsed.is_some_and(|ip| ip.is_ipv4()),
                    "IPv6" => parsed.is_some_and(|ip| ip.is_ipv6()),
                    _ => true,
                };
                if !fits {
                    errors.push(FieldError::invalid(
                        format!("{path}[{j}]"),
                        address.clone(),
                        format!("must be an {kind} address"),
                    ));
                }
            }
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = self.validate(new);
        immutable(&mut errors, new, old, &["addressType"]);
        errors
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn bumps_generation(&self, new: &Value, old: &Value) -> bool {
        ["endpoints", "ports", "addressType"]
            .iter()
            .any(|key| new.get(key) != old.get(key))
            || at(new, &["metadata", "labels"]) != at(old, &["metadata", "labels"])
    }
}

impl Strategy for NetworkPolicy {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec") else { return };
        default_to(spec, "podSelector", json!({}));
        for key in ["ingress", "egress"] {
            for rule in list_mut(spec, &[key]).into_iter().flatten() {
                for port in list_mut(rule, &["ports"]).into_iter().flatten() {
                    default_text(port, "protocol", "TCP");
                }
            }
        }
        if list(spec, &["policyTypes"]).is_empty() {
            let mut types = vec!["Ingress"];
            if !list(spec, &["egress"]).is_empty() {
                types.push("Egress");
            }
            set(spec, &["policyTypes"], types);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        selector::validate(&mut errors, at(object, &["spec", "podSelector"]), "spec.podSelector");
        for (i, kind) in list(object, &["spec", "policyTypes"]).iter().enumerate() {
            one_of(
                &mut errors,
                &format!("spec.policyTypes[{i}]"),
                kind.as_str().unwrap_or(""),
                &["Egress", "Ingress"],
            );
        }
        errors
    }

    fn has_generation(&self) -> bool {
        true
    }
}

impl Strategy for Ingress {
    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        reset_status(object);
        set(object, &["status"], json!({"loadBalancer": {}}));
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let spec = at(object, &["spec"]);
        if list(spec, &["rules"]).is_empty() && at(spec, &["defaultBackend"]).is_null() {
            errors.push(FieldError::invalid(
                "spec",
                spec.clone(),
                "either `defaultBackend` or `rules` must be specified",
            ));
        }
        for (i, rule) in list(spec, &["rules"]).iter().enumerate() {
            for (j, path) in list(rule, &["http", "paths"]).iter().enumerate() {
                let base = format!("spec.rules[{i}].http.paths[{j}]");
                let kind = text(path, &["pathType"]);
                if kind.is_empty() {
                    errors.push(FieldError::required(
                        format!("{base}.pathType"),
                        "pathType must be specified",
                    ));
                } else {
                    one_of(
                        &mut errors,
                        &format!("{base}.pathType"),
                        kind,
                        &["Exact", "ImplementationSpecific", "Prefix"],
                    );
                }
                let value = text(path, &["path"]);
                if matches!(kind, "Exact" | "Prefix") && !value.starts_with('/') {
                    errors.push(FieldError::invalid(
                        format!("{base}.path"),
                        value,
                        "must be an absolute path",
                    ));
                }
            }
        }
        errors
    }

    fn has_generation(&self) -> bool {
        true
    }
}

impl Strategy for IngressClass {
    fn default(&self, object: &mut Value) {
        if let Some(parameters) = object.get_mut("spec").and_then(|spec| spec.get_mut("parameters")) {
            default_text(parameters, "scope", "Cluster");
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = FieldErrors::default();
        immutable(&mut errors, new, old, &["spec", "controller"]);
        errors
    }

    fn has_generation(&self) -> bool {
        true
    }
}
