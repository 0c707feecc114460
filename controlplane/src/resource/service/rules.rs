//! What is wrong with where a Service's traffic comes from and goes, and with its addresses. Texts are upstream's. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::resource::address;
use crate::resource::field::{at, int, invalid_each, list, text};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};
use crate::resource::name::{port_number, qualified_name};
use crate::resource::node::is_cidr;

/// The annotation that was before `spec.loadBalancerSourceRanges`.
const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";

const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";

/// Whether a Service is reached from outside the cluster.
pub fn is_external(service: &Value) -> bool {
    match text(service, &["spec", "type"]) {
        "LoadBalancer" | "NodePort" => true,
        kind => kind == "ClusterIP" && !list(service, &["spec", "externalIPs"]).is_empty(),
    }
}

/// Whether a Service is balanced to local endpoints only, so that nodes must tell whether they have any.
pub(super) fn needs_health_check(service: &Value) -> bool {
    text(service, &["spec", "type"]) == "LoadBalancer" && text(service, &["spec", "externalTrafficPolicy"]) == "Local"
}

/// The annotation that asks for hints by zones, and the one before it: where both are, they say the same.
pub(super) fn topology(errors: &mut FieldErrors, service: &Value) {
    let said = |key: &str| at(service, &["metadata", "annotations", key]).as_str();
    if let (Some(mode), Some(hints)) = (said(TOPOLOGY_MODE), said(TOPOLOGY_HINTS))
        && mode != hints
    {
        let why = format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified");
        let path = format!("metadata.annotations[{TOPOLOGY_MODE}]");
        errors.push(FieldError::invalid(path, mode, why));
    }
}

/// Policies of where traffic goes.
pub(super) fn traffic(errors: &mut FieldErrors, service: &Value) {
    let spec = at(service, &["spec"]);
    let policy = text(spec, &["externalTrafficPolicy"]);
    if !policy.is_empty() {
        let (path, policies) = ("spec.externalTrafficPolicy", ["Cluster", "Local"]);
        if !is_external(service) {
            let why = "may only be set for externally-accessible services";
            errors.push(FieldError::invalid(path, policy, why));
        } else if !policies.contains(&policy) {
            errors.push(FieldError::not_supported(path, policy, &policies));
        }
    }
    let check = int(spec, &["healthCheckNodePort"]).unwrap_or(0);
    let path = "spec.healthCheckNodePort";
    if check != 0 && !needs_health_check(service) {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(FieldError::invalid(path, check, why));
    } else if check != 0 {
        invalid_each(errors, path, &json!(check), port_number(check));
    }
    let close = ["PreferClose", "PreferSameNode", "PreferSameZone"];
    if let Some(name) = at(spec, &["trafficDistribution"]).as_str()
        && !close.contains(&name)
    {
        errors.push(FieldError::not_supported("spec.trafficDistribution", name, &close));
    }
}

/// What only load balancers have.
pub(super) fn balanced(errors: &mut FieldErrors, service: &Value) {
    let spec = at(service, &["spec"]);
    let is_balanced = text(spec, &["type"]) == "LoadBalancer";
    let mut cidr = |path: &str, value: &str| {
        if !is_cidr(value.trim()) {
            let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(FieldError::invalid(path, value.trim(), why));
        }
    };
    let ranges = list(spec, &["loadBalancerSourceRanges"]);
    let annotation = at(service, &["metadata", "annotations", RANGES]).as_str();
    let annotated = format!("metadata.annotations[{RANGES}]");
    // The path is upstream's.
    let path = "spec.LoadBalancerSourceRanges";
    for (i, range) in ranges.iter().enumerate() {
        cidr(&format!("{path}[{i}]"), range.as_str().unwrap_or(""));
    }
    let is_annotated = ranges.is_empty() && annotation.is_some();
    for range in annotation
        .filter(|text| is_annotated && !text.trim().is_empty())
        .into_iter()
        .flat_map(|text| text.split(','))
    {
        cidr(&annotated, range);
    }
    if !is_balanced && (is_annotated || !ranges.is_empty()) {
        let path = if is_annotated { annotated.as_str() } else { path };
        errors.push(FieldError::forbidden(path, ONLY_BALANCED));
    }
    for key in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        let value = at(spec, &[key]);
        if !value.is_null() && !is_balanced {
            errors.push(FieldError::forbidden(format!("spec.{key}"), ONLY_BALANCED));
        }
    }
    if let Some(class) = at(spec, &["loadBalancerClass"]).as_str().filter(|_| is_balanced) {
        invalid_each(errors, "spec.loadBalancerClass", &json!(class), qualified_name(class));
    }
}

/// Families and addresses, and that they agree.
pub(super) fn addresses(errors: &mut FieldErrors, spec: &Value) {
    for (i, address) in list(spec, &["externalIPs"]).iter().enumerate() {
        address::peer(errors, address, &format!("spec.externalIPs[{i}]"));
    }
    if text(spec, &["type"]) == "ExternalName" {
        return;
    }
    let mut seen = BTreeSet::new();
    let families = list(spec, &["ipFamilies"]);
    for (i, family) in families.iter().enumerate() {
        let (path, name) = (format!("spec.ipFamilies[{i}]"), family.as_str().unwrap_or(""));
        if !["IPv4", "IPv6"].contains(&name) {
            errors.push(FieldError::not_supported(path.as_str(), name, &["IPv4", "IPv6"]));
        }
        if !seen.insert(name) {
            errors.push(FieldError::new(path, FieldErrorKind::Duplicate, json!(name), ""));
        }
    }
    cluster_addresses(errors, spec, families);
}

fn cluster_addresses(errors: &mut FieldErrors, spec: &Value, families: &[Value]) {
    let (path, all) = ("spec.clusterIPs", at(spec, &["clusterIPs"]));
    let (addresses, single) = (list(spec, &["clusterIPs"]), text(spec, &["clusterIP"]));
    let mut whole = |why: &str| errors.push(FieldError::invalid_value(path, all, why));
    let first = addresses.first().and_then(Value::as_str);
    if first.is_some() && single.is_empty() {
        whole("must be empty when `clusterIP` is not specified");
    } else if first.is_some_and(|first| first != single) {
        whole("first value must match `clusterIP`");
    }
    let headless = first == Some("None");
    if headless && addresses.len() > 1 {
        whole("'None' must be the first and only value");
    }
    if addresses.len() > 2 {
        whole("may only hold up to 2 values");
    }
    let mut parsed: Vec<IpAddr> = Vec::new();
    for (i, address) in addresses.iter().enumerate().skip(usize::from(headless)) {
        parsed.extend(address::ip(errors, address, &format!("{path}[{i}]")));
    }
    if headless || parsed.len() != addresses.len() {
        return;
    }
    if let [one, other] = parsed.as_slice()
        && one.is_ipv4() == other.is_ipv4()
    {
        let why = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid_value(path, all, why));
    }
    for (i, (address, family)) in parsed.iter().zip(families).enumerate() {
        let is_other = match family.as_str() {
            Some("IPv4") => address.is_ipv6(),
            Some("IPv6") => address.is_ipv4(),
            _ => false,
        };
        if is_other {
            let family = family.as_str().unwrap_or("");
            let why = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            errors.push(FieldError::invalid_value(format!("{path}[{i}]"), &addresses[i], why));
        }
    }
}

/// What an update may not change: addresses and families that were given, the class, the port of health checks.
pub(super) fn update(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let kind = |object: &Value| text(object, &["spec", "type"]).to_owned();
    if kind(new) != "ExternalName" && kind(old) != "ExternalName" {
        let headless = |object| list(object, &["spec", "clusterIPs"]) == [json!("None")];
        if !(headless(new) && headless(old)) {
            given(errors, new, old, "clusterIPs", "clusterIP");
        }
        if !headless(new) && !headless(old) {
            given(errors, new, old, "ipFamilies", "ipFamily");
        }
    }
    let class = &["spec", "loadBalancerClass"];
    if kind(new) == "LoadBalancer" && kind(old) == "LoadBalancer" && at(new, class) != at(old, class) {
        let why = "may not change once set";
        errors.push(FieldError::invalid_value("spec.loadBalancerClass", at(new, class), why));
    }
    let port = &["spec", "healthCheckNodePort"];
    if needs_health_check(new) && needs_health_check(old) && int(new, port) != int(old, port) {
        errors.push(FieldError::forbidden("spec.healthCheckNodePort", "field is immutable"));
    }
}

/// The first of a list stays, a second may come, and go with a policy that says so.
fn given(errors: &mut FieldErrors, new: &Value, old: &Value, key: &str, what: &str) {
    let all = at(new, &["spec", key]);
    let (after, before) = (list(new, &["spec", key]), list(old, &["spec", key]));
    let path = |i: usize| format!("spec.{key}[{i}]");
    if after.len() == before.len() {
        for i in (0..before.len()).filter(|i| after[*i] != before[*i]) {
            // Upstream names the first of the families whichever differs.
            let i = if key == "ipFamilies" { 0 } else { i };
            errors.push(FieldError::invalid_value(path(i), all, "may not change once set"));
        }
        return;
    }
    if after.is_empty() {
        let why = format!("primary {what} can not be unset");
        errors.push(FieldError::invalid_value(path(0), all, why));
    } else if before.first().is_some_and(|first| *first != after[0]) {
        errors.push(FieldError::invalid_value(path(0), all, "may not change once set"));
    }
    let policy = at(new, &["spec", "ipFamilyPolicy"]);
    if after.len() == 1 && before.len() > 1 && policy != &json!("SingleStack") {
        let why = format!("must be set to 'SingleStack' when releasing the secondary {what}");
        errors.push(FieldError::invalid_value("spec.ipFamilyPolicy", policy, why));
    }
}
