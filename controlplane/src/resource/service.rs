//! Services: defaults, validation, and the pure half of address allocation. Which addresses are taken is the caller's
//! knowledge. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::field::{at, default_text, default_to, int, invalid_each, list, list_mut, one_of, remove, set, text};
use super::metadata::validate_labels;
use super::name::{dns1123_label, port_name, port_number, qualified_name};
use super::{NameRule, PrepareContext, Strategy, isolate};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};

mod allocate;
mod carry;
mod families;
mod node_port;
mod range;
mod range_allocation;
mod rules;
mod status;

pub use allocate::{
    ALLOCATOR, AllocateError, CLUSTER_DNS, IP_FAMILY, MANAGED_BY, Pool, Reserved, address_object, allocate,
    held_addresses, held_ports,
};
pub use carry::pair_addresses;
pub use families::fill_families;
pub use node_port::{NodePorts, allocate_node_ports};
pub use range::{Range, Ranges, family};
pub use range_allocation::{range_allocation, taken_ports};
pub use rules::is_external;

/// The Service kind's strategy.
pub struct Service;

/// Where every node's kubelet listens: a balancer's address may be a node's.
const KUBELET_PORT: i64 = 10_250;
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
        carry::pair_addresses(object);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, subresource: &str) {
        isolate(new, old, subresource);
        if subresource.is_empty() {
            carry::keep_allocated(new, old);
            carry::pair_addresses(new);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        validate(object)
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if subresource == "status" {
            return FieldErrors::of_update(new, old, status::validate);
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

fn validate(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    rules::topology(&mut errors, object);
    let spec = at(object, &["spec"]);
    let kind = text(spec, &["type"]);
    one_of(&mut errors, "spec.type", kind, TYPES);
    let headless = text(spec, &["clusterIP"]) == "None";
    let ports = list(spec, &["ports"]);
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    validate_type(&mut errors, spec, kind, headless);
    validate_ports(&mut errors, ports, kind);
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
        "LoadBalancer" => {
            for (i, port) in list(spec, &["ports"]).iter().enumerate() {
                if int(port, &["port"]) == Some(KUBELET_PORT) {
                    let why = format!("may not expose port {KUBELET_PORT} externally since it is used by kubelet");
                    errors.push(FieldError::invalid(format!("spec.ports[{i}]"), KUBELET_PORT, why));
                }
            }
            if headless {
                let why = "may not be set to 'None' for LoadBalancer services";
                errors.push(FieldError::invalid("spec.clusterIPs[0]", "None", why));
            }
        }
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
