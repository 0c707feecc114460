//! Services: defaults, validation, and the pure half of address allocation. Which addresses are taken is the caller's
//! knowledge. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::field::{at, copy, default_text, default_to, int, invalid_each, list, list_mut, one_of, remove, set, text};
use super::metadata::validate_labels;
use super::name::{dns1123_label, port_name, port_number, qualified_name};
use super::{NameRule, PrepareContext, Strategy, isolate};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};

mod allocate;
mod rules;

pub use allocate::{AllocateError, Range, allocate, allocate_node_ports, held};

/// The Service kind's strategy.
pub struct Service;

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

impl Strategy for Service {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec") else { return };
        default_text(spec, "sessionAffinity", "None");
        default_text(spec, "type", "ClusterIP");
        match text(spec, &["sessionAffinity"]) {
            "None" => {
                remove(spec, "sessionAffinityConfig");
            }
            _ => {
                let seconds = &["sessionAffinityConfig", "clientIP", "timeoutSeconds"];
                if at(spec, seconds).is_null() {
                    set(spec, seconds, 10_800);
                }
            }
        }
        for port in list_mut(spec, &["ports"]).into_iter().flatten() {
            default_text(port, "protocol", "TCP");
            let number = at(port, &["port"]).clone();
            let target = at(port, &["targetPort"]);
            if target.is_null() || target == &json!(0) || target == &json!("") {
                set(port, &["targetPort"], number);
            }
        }
        let kind = text(spec, &["type"]).to_owned();
        let reachable = matches!(kind.as_str(), "NodePort" | "LoadBalancer");
        let external = reachable || !list(spec, &["externalIPs"]).is_empty();
        if external && kind != "ExternalName" {
            default_text(spec, "externalTrafficPolicy", "Cluster");
        }
        if kind != "ExternalName" {
            default_text(spec, "internalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            default_to(spec, "allocateLoadBalancerNodePorts", true);
        }
        for ingress in list_mut(object, &["status", "loadBalancer", "ingress"])
            .into_iter()
            .flatten()
        {
            if !text(ingress, &["ip"]).is_empty() {
                default_text(ingress, "ipMode", "VIP");
            }
        }
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        set(object, &["status"], json!({"loadBalancer": {}}));
        pair_addresses(object);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, subresource: &str) {
        isolate(new, old, subresource);
        if subresource.is_empty() {
            keep_allocated(new, old);
            pair_addresses(new);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        validate(object)
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if subresource == "status" {
            return FieldErrors::default();
        }
        let mut errors = FieldErrors::of_update(new, old, validate);
        rules::update(&mut errors, new, old);
        errors
    }

    fn selectable_fields(&self, object: &Value) -> BTreeMap<&'static str, String> {
        BTreeMap::from([
            ("spec.clusterIP", text(object, &["spec", "clusterIP"]).to_owned()),
            ("spec.type", text(object, &["spec", "type"]).to_owned()),
        ])
    }

    fn field_labels(&self) -> &'static [&'static str] {
        &["spec.clusterIP", "spec.type"]
    }

    fn name_rule(&self) -> NameRule {
        NameRule::ServiceLabel
    }
}

/// `clusterIP` and the first of `clusterIPs` are one thing.
fn pair_addresses(object: &mut Value) {
    let single = text(object, &["spec", "clusterIP"]).to_owned();
    let first = list(object, &["spec", "clusterIPs"]).first().and_then(Value::as_str);
    match (single.as_str(), first.map(str::to_owned)) {
        ("", Some(first)) => set(object, &["spec", "clusterIP"], first),
        (single, None) if !single.is_empty() => set(object, &["spec", "clusterIPs"], vec![single]),
        _ => {}
    }
}

/// What was allocated stays when an update leaves it out (unless the type no longer has it).
fn keep_allocated(new: &mut Value, old: &Value) {
    let has_address = |object: &Value| text(object, &["spec", "type"]) != "ExternalName";
    if has_address(new) && has_address(old) {
        let sent = !text(new, &["spec", "clusterIP"]).is_empty() || !list(new, &["spec", "clusterIPs"]).is_empty();
        if !sent {
            copy(new, old, &["spec", "clusterIP"]);
            copy(new, old, &["spec", "clusterIPs"]);
        }
        for key in ["ipFamilies", "ipFamilyPolicy"] {
            if at(new, &["spec", key]).is_null() {
                copy(new, old, &["spec", key]);
            }
        }
    } else if !has_address(new)
        && let Some(spec) = new.get_mut("spec")
    {
        let same = text(spec, &["clusterIP"]) == text(old, &["spec", "clusterIP"]);
        if same {
            remove(spec, "clusterIP");
            remove(spec, "clusterIPs");
        }
        for key in ["ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            remove(spec, key);
        }
    }
    let has_node_ports = |object: &Value| matches!(text(object, &["spec", "type"]), "NodePort" | "LoadBalancer");
    if has_node_ports(new) && has_node_ports(old) {
        let before = list(old, &["spec", "ports"]).to_vec();
        for port in list_mut(new, &["spec", "ports"]).into_iter().flatten() {
            let same = before.iter().find(|old| {
                at(old, &["port"]) == at(port, &["port"]) && text(old, &["protocol"]) == text(port, &["protocol"])
            });
            if int(port, &["nodePort"]).unwrap_or(0) == 0
                && let Some(same) = same
            {
                copy(port, same, &["nodePort"]);
            }
        }
    }
    if !has_node_ports(new) && has_node_ports(old) {
        let before: Vec<Value> = list(old, &["spec", "ports"])
            .iter()
            .map(|port| at(port, &["nodePort"]).clone())
            .collect();
        for port in list_mut(new, &["spec", "ports"]).into_iter().flatten() {
            if before.contains(at(port, &["nodePort"])) {
                remove(port, "nodePort");
            }
        }
    }
    drop_what_the_type_had(new, old);
}

/// What another type had goes with it, unless the sender changed it.
fn drop_what_the_type_had(new: &mut Value, old: &Value) {
    let is_balanced = |object: &Value| text(object, &["spec", "type"]) == "LoadBalancer";
    let no_longer_balanced = is_balanced(old) && !is_balanced(new);
    let no_longer_external = rules::is_external(old) && !rules::is_external(new);
    let Some(spec) = new.get_mut("spec") else { return };
    for (key, goes) in [
        ("externalTrafficPolicy", no_longer_external),
        ("allocateLoadBalancerNodePorts", no_longer_balanced),
        ("healthCheckNodePort", no_longer_balanced),
        ("loadBalancerClass", no_longer_balanced),
    ] {
        if goes && at(spec, &[key]) == at(old, &["spec", key]) {
            remove(spec, key);
        }
    }
}

fn validate(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let spec = at(object, &["spec"]);
    let kind = text(spec, &["type"]);
    one_of(&mut errors, "spec.type", kind, TYPES);
    let headless = text(spec, &["clusterIP"]) == "None";
    let ports = list(spec, &["ports"]);
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    validate_ports(&mut errors, ports, kind);
    validate_type(&mut errors, spec, kind, headless);
    rules::addresses(&mut errors, spec);
    rules::traffic(&mut errors, object);
    rules::balanced(&mut errors, object);
    validate_labels(at(spec, &["selector"]), "spec.selector", &mut errors);
    one_of(
        &mut errors,
        "spec.sessionAffinity",
        text(spec, &["sessionAffinity"]),
        &["ClientIP", "None"],
    );
    if let Some(seconds) = int(spec, &["sessionAffinityConfig", "clientIP", "timeoutSeconds"])
        && !(1..=86_400).contains(&seconds)
    {
        errors.push(FieldError::invalid(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            seconds,
            "must be greater than 0 and less than 86400",
        ));
    }
    for (key, supported) in [
        ("internalTrafficPolicy", &["Cluster", "Local"][..]),
        (
            "ipFamilyPolicy",
            &["PreferDualStack", "RequireDualStack", "SingleStack"],
        ),
    ] {
        let value = text(spec, &[key]);
        if !value.is_empty() {
            one_of(&mut errors, &format!("spec.{key}"), value, supported);
        }
    }
    errors
}

fn validate_type(errors: &mut FieldErrors, spec: &Value, kind: &str, headless: bool) {
    match kind {
        "ExternalName" => {
            let name = text(spec, &["externalName"]);
            let name = name.strip_suffix('.').unwrap_or(name);
            if name.is_empty() {
                errors.push(FieldError::required("spec.externalName", ""));
            } else {
                let problems = super::name::dns1123_subdomain(name);
                invalid_each(errors, "spec.externalName", &json!(name), problems);
            }
            if !list(spec, &["clusterIPs"]).is_empty() || !text(spec, &["clusterIP"]).is_empty() {
                let why = "may not be set for ExternalName services";
                errors.push(FieldError::forbidden("spec.clusterIPs", why));
            }
            for key in ["ipFamilies", "ipFamilyPolicy"] {
                let value = at(spec, &[key]);
                if !value.is_null() && value != &json!([]) {
                    let why = "may not be set for ExternalName services";
                    errors.push(FieldError::forbidden(format!("spec.{key}"), why));
                }
            }
        }
        "LoadBalancer" if headless => errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            "None",
            "may not be set to 'None' for LoadBalancer services",
        )),
        "NodePort" if headless => errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            "None",
            "may not be set to 'None' for NodePort services",
        )),
        _ => {}
    }
}

fn validate_ports(errors: &mut FieldErrors, ports: &[Value], kind: &str) {
    let mut names = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    let mut node_ports = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{i}]");
        let name = text(port, &["name"]);
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(FieldError::required(format!("{path}.name"), ""));
            }
        } else {
            invalid_each(errors, &format!("{path}.name"), &json!(name), dns1123_label(name));
            if !names.insert(name) {
                errors.push(FieldError::new(
                    format!("{path}.name"),
                    FieldErrorKind::Duplicate,
                    json!(name),
                    "",
                ));
            }
        }
        let number = int(port, &["port"]).unwrap_or(0);
        invalid_each(errors, &format!("{path}.port"), &json!(number), port_number(number));
        let protocol = text(port, &["protocol"]);
        one_of(errors, &format!("{path}.protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        let target = at(port, &["targetPort"]);
        let problems = match (target.as_i64(), target.as_str()) {
            (Some(number), _) => port_number(number),
            (_, Some(name)) => port_name(name),
            _ => Vec::new(),
        };
        invalid_each(errors, &format!("{path}.targetPort"), target, problems);
        if let Some(application) = at(port, &["appProtocol"]).as_str() {
            let problems = qualified_name(application);
            invalid_each(errors, &format!("{path}.appProtocol"), &json!(application), problems);
        }
        let node_port = int(port, &["nodePort"]).unwrap_or(0);
        if node_port != 0 && kind == "ClusterIP" {
            errors.push(FieldError::forbidden(
                format!("{path}.nodePort"),
                format!("may not be used when `type` is '{kind}'"),
            ));
        }
        if node_port != 0 && !node_ports.insert((node_port, protocol)) {
            errors.push(FieldError::new(
                format!("{path}.nodePort"),
                FieldErrorKind::Duplicate,
                json!(node_port),
                "",
            ));
        }
        if !numbers.insert((number, protocol)) {
            errors.push(FieldError::new(
                path,
                FieldErrorKind::Duplicate,
                json!({"port": number, "protocol": protocol}),
                "",
            ));
        }
    }
}

#[cfg(test)]
mod tests;
