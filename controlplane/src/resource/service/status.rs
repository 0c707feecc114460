//! What is wrong with what a balancer says of a Service. Texts are upstream's. Pure.

use std::net::IpAddr;

use serde_json::Value;

use crate::resource::check::{address, invalid};
use crate::resource::field::{at, list, text};
use crate::resource::field_error::{FieldError, FieldErrors};
use crate::resource::name::dns1123_subdomain;

const INGRESS: &str = "status.loadBalancer.ingress";
const MODES: &[&str] = &["Proxy", "VIP"];

/// Addresses and names that traffic can come to, of a Service that is balanced.
pub(super) fn validate(service: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let points = list(service, &["status", "loadBalancer", "ingress"]);
    if !points.is_empty() && text(service, &["spec", "type"]) != "LoadBalancer" {
        let why = "may only be used when `spec.type` is 'LoadBalancer'";
        errors.push(FieldError::forbidden(INGRESS, why));
        return errors;
    }
    for (i, point) in points.iter().enumerate() {
        check_point(&mut errors, point, &format!("{INGRESS}[{i}]"));
    }
    errors
}

fn check_point(errors: &mut FieldErrors, point: &Value, path: &str) {
    let (ip, mode) = (text(point, &["ip"]), at(point, &["ipMode"]).as_str());
    if !ip.is_empty()
        && let Err(problem) = address(ip)
    {
        errors.push(FieldError::invalid(format!("{path}.ip"), ip, problem));
    }
    let field = format!("{path}.ipMode");
    match mode {
        None if ip.is_empty() => {}
        None => errors.push(FieldError::required(field, "must be specified when `ip` is set")),
        Some(_) if ip.is_empty() => {
            let why = "may not be specified when `ip` is not set";
            errors.push(FieldError::forbidden(field, why));
        }
        Some(mode) if !MODES.contains(&mode) => errors.push(FieldError::not_supported(field, mode, MODES)),
        Some(_) => {}
    }
    let name = text(point, &["hostname"]);
    if !name.is_empty() {
        let field = format!("{path}.hostname");
        invalid(errors, &field, name, dns1123_subdomain(name));
        if name.parse::<IpAddr>().is_ok() {
            let why = "must be a DNS name, not an IP address";
            errors.push(FieldError::invalid(field, name, why));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_balancer_says_is_judged_as_upstream_judges_it() {
        let told = |kind: &str, ingress: Value| {
            let object = json!({"spec": {"type": kind}, "status": {"loadBalancer": {"ingress": ingress}}});
            let errors = validate(&object);
            errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let at = "status.loadBalancer.ingress[0]";
        for (ingress, expected) in [
            (json!([]), String::new()),
            (
                json!([{"ip": "192.0.2.1", "ipMode": "VIP"}, {"hostname": "lb.example"}]),
                String::new(),
            ),
            // Ports in use, told beside the addresses that are served.
            (
                json!([{"ports": [{"port": 80, "protocol": "TCP", "error": "InUse"}]}]),
                String::new(),
            ),
            (
                json!([{"ip": "192.0.2.1"}]),
                format!("{at}.ipMode: Required value: must be specified when `ip` is set"),
            ),
            (
                json!([{"hostname": "lb.example", "ipMode": "VIP"}]),
                format!("{at}.ipMode: Forbidden: may not be specified when `ip` is not set"),
            ),
            (
                json!([{"ip": "192.0.2.1", "ipMode": "Odd"}]),
                format!("{at}.ipMode: Unsupported value: \"Odd\": supported values: \"Proxy\", \"VIP\""),
            ),
            (
                json!([{"ip": "localhost", "ipMode": "VIP"}]),
                format!(
                    "{at}.ip: Invalid value: \"localhost\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
                ),
            ),
            (
                json!([{"hostname": "192.0.2.1"}]),
                format!("{at}.hostname: Invalid value: \"192.0.2.1\": must be a DNS name, not an IP address"),
            ),
        ] {
            assert_eq!(told("LoadBalancer", ingress.clone()), expected, "{ingress}");
        }
        assert!(told("LoadBalancer", json!([{"hostname": "Not_A_Name"}])).contains("RFC 1123 subdomain"));
        let plain = told("ClusterIP", json!([{"ip": "192.0.2.1", "ipMode": "VIP"}]));
        assert_eq!(
            plain,
            "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"
        );
        assert_eq!(told("ClusterIP", json!([])), "");
    }
}
