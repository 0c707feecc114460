//! EndpointSlices. Pure.

use serde_json::Value;

use super::Strategy;
use super::check::{address, endpoint_address, fully_qualified_domain, invalid, itself, supported, too_many, unique};
use super::field::{at, default_text, default_to, immutable, list, list_mut, one_of, text};
use super::metadata::validate_labels;
use super::name::{dns1123_label, dns1123_subdomain, label_value, qualified_name};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The EndpointSlice kind's strategy.
pub(super) struct EndpointSlice;

const ADDRESS_TYPES: &[&str] = &["FQDN", "IPv4", "IPv6"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const TOPOLOGY_MAX: usize = 16;
const HINTS_MAX: usize = 8;

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
        one_of(&mut errors, "addressType", kind, ADDRESS_TYPES);
        let endpoints = list(object, &["endpoints"]);
        if !too_many(&mut errors, "endpoints", endpoints.len(), ENDPOINTS_MAX) {
            for (i, endpoint) in endpoints.iter().enumerate() {
                check_endpoint(&mut errors, endpoint, kind, &format!("endpoints[{i}]"));
            }
        }
        check_ports(&mut errors, list(object, &["ports"]));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
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

fn check_endpoint(errors: &mut FieldErrors, endpoint: &Value, kind: &str, path: &str) {
    let base = format!("{path}.addresses");
    let addresses = list(endpoint, &["addresses"]);
    if addresses.is_empty() {
        errors.push(FieldError::required(base.clone(), "must contain at least 1 address"));
    }
    too_many(errors, &base, addresses.len(), ADDRESSES_MAX);
    for (j, address) in addresses.iter().enumerate() {
        check_address(errors, itself(address), kind, &format!("{base}[{j}]"));
    }
    let node = at(endpoint, &["nodeName"]);
    if let Some(node) = node.as_str() {
        invalid(errors, &format!("{path}.nodeName"), node, dns1123_subdomain(node));
    }
    let topology = at(endpoint, &["deprecatedTopology"]);
    let base = format!("{path}.deprecatedTopology");
    too_many(
        errors,
        &base,
        topology.as_object().map_or(0, serde_json::Map::len),
        TOPOLOGY_MAX,
    );
    validate_labels(topology, &base, errors);
    if let Some(hostname) = at(endpoint, &["hostname"]).as_str() {
        invalid(errors, &format!("{path}.hostname"), hostname, dns1123_label(hostname));
    }
    let hints = at(endpoint, &["hints"]);
    for (key, check) in [
        ("forZones", label_value as fn(&str) -> Vec<String>),
        ("forNodes", dns1123_subdomain),
    ] {
        check_hints(errors, list(hints, &[key]), &format!("{path}.hints.{key}"), check);
    }
}

fn check_address(errors: &mut FieldErrors, address_text: &str, kind: &str, path: &str) {
    match kind {
        "IPv4" | "IPv6" => match address(address_text) {
            Err(problem) => errors.push(FieldError::invalid(path, address_text, problem)),
            Ok(ip) => {
                if ip.is_ipv4() != (kind == "IPv4") {
                    errors.push(FieldError::invalid(
                        path,
                        address_text,
                        format!("must be an {kind} address"),
                    ));
                }
                endpoint_address(errors, path, ip, address_text);
            }
        },
        "FQDN" => fully_qualified_domain(errors, path, address_text),
        _ => {}
    }
}

fn check_hints(errors: &mut FieldErrors, hints: &[Value], path: &str, check: fn(&str) -> Vec<String>) {
    if too_many(errors, path, hints.len(), HINTS_MAX) {
        return;
    }
    unique(errors, hints, path, ".name", |hint| text(hint, &["name"]));
    for (i, hint) in hints.iter().enumerate() {
        let name = text(hint, &["name"]);
        invalid(errors, &format!("{path}[{i}].name"), name, check(name));
    }
}

fn check_ports(errors: &mut FieldErrors, ports: &[Value]) {
    if too_many(errors, "ports", ports.len(), PORTS_MAX) {
        return;
    }
    unique(errors, ports, "ports", ".name", |port| text(port, &["name"]));
    for (i, port) in ports.iter().enumerate() {
        let (path, name) = (format!("ports[{i}]"), text(port, &["name"]));
        if !name.is_empty() {
            invalid(errors, &format!("{path}.name"), name, dns1123_label(name));
        }
        supported(
            errors,
            &format!("{path}.protocol"),
            text(port, &["protocol"]),
            PROTOCOLS,
        );
        if let Some(protocol) = at(port, &["appProtocol"]).as_str() {
            invalid(
                errors,
                &format!("{path}.appProtocol"),
                protocol,
                qualified_name(protocol),
            );
        }
    }
}
