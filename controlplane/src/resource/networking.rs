//! Endpoints. Pure.

use serde_json::{Value, json};

use super::Strategy;
use super::address;
use super::field::{at, default_text, int, invalid_each, list, list_mut, one_of, text};
use super::name::{dns1123_label, dns1123_subdomain, port_number, qualified_name};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The Endpoints kind's strategy.
pub(super) struct Endpoints;

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
