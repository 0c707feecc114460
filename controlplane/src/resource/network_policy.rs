//! Network policies. Pure.

use serde_json::{Value, json};

use super::Strategy;
use super::check::{Range, invalid, itself, supported};
use super::field::{at, default_text, default_to, int, list, list_mut, set, text};
use super::name::{port_name, port_number};
use super::selector;
use crate::resource::field_error::{FieldError, FieldErrors};

/// The NetworkPolicy kind's strategy.
pub(super) struct NetworkPolicy;

const TYPES: &[&str] = &["Ingress", "Egress"];

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
        let spec = at(object, &["spec"]);
        selector::validate(&mut errors, at(spec, &["podSelector"]), "spec.podSelector");
        for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
            for (i, rule) in list(spec, &[direction]).iter().enumerate() {
                let base = format!("spec.{direction}[{i}]");
                for (j, port) in list(rule, &["ports"]).iter().enumerate() {
                    check_port(&mut errors, port, &format!("{base}.ports[{j}]"));
                }
                for (j, peer) in list(rule, &[peers]).iter().enumerate() {
                    check_peer(&mut errors, peer, &format!("{base}.{peers}[{j}]"));
                }
            }
        }
        let types = list(spec, &["policyTypes"]);
        if types.len() > TYPES.len() {
            errors.push(FieldError::invalid_value(
                "spec.policyTypes",
                at(spec, &["policyTypes"]),
                "may not specify more than two policyTypes",
            ));
            return errors;
        }
        for (i, kind) in types.iter().enumerate() {
            supported(&mut errors, &format!("spec.policyTypes[{i}]"), itself(kind), TYPES);
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        FieldErrors::of_update(new, old, |object| self.validate(object))
    }

    fn has_generation(&self) -> bool {
        true
    }
}

fn check_port(errors: &mut FieldErrors, port: &Value, path: &str) {
    let protocol = text(port, &["protocol"]);
    supported(errors, &format!("{path}.protocol"), protocol, &["TCP", "UDP", "SCTP"]);
    let (number, last) = (at(port, &["port"]), int(port, &["endPort"]));
    let field = format!("{path}.port");
    let end = format!("{path}.endPort");
    let refuse_last = |errors: &mut FieldErrors, why: &str| {
        if let Some(last) = last {
            errors.push(FieldError::invalid(end.as_str(), last, why));
        }
    };
    match number {
        Value::Null => refuse_last(errors, "may not be specified when `port` is not specified"),
        Value::String(name) => {
            refuse_last(errors, "may not be specified when `port` is non-numeric");
            invalid(errors, &field, name, port_name(name));
        }
        number => {
            let number = number.as_i64().unwrap_or(0);
            let told = |errors: &mut FieldErrors, field: &str, value: i64| {
                let problems = port_number(value).into_iter();
                errors.extend(problems.map(|problem| FieldError::invalid(field, value, problem)));
            };
            told(errors, &field, number);
            if let Some(last) = last {
                if last < number {
                    refuse_last(errors, "must be greater than or equal to `port`");
                }
                told(errors, &end, last);
            }
        }
    }
}

fn check_peer(errors: &mut FieldErrors, peer: &Value, path: &str) {
    let mut given = 0;
    for key in ["podSelector", "namespaceSelector"] {
        let selector = at(peer, &[key]);
        if !selector.is_null() {
            given += 1;
            selector::validate(errors, selector, &format!("{path}.{key}"));
        }
    }
    let block = at(peer, &["ipBlock"]);
    if !block.is_null() {
        check_block(errors, block, &format!("{path}.ipBlock"));
        if given > 0 {
            errors.push(FieldError::forbidden(
                path,
                "may not specify both ipBlock and another peer",
            ));
        }
    } else if given == 0 {
        errors.push(FieldError::required(path, "must specify a peer"));
    }
}

fn check_block(errors: &mut FieldErrors, block: &Value, path: &str) {
    let cidr = text(block, &["cidr"]);
    let field = format!("{path}.cidr");
    if cidr.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    let whole = match Range::parse(cidr) {
        Ok(whole) => whole,
        Err(problem) => {
            errors.push(FieldError::invalid(field, cidr, problem));
            return;
        }
    };
    for (i, except) in list(block, &["except"]).iter().enumerate() {
        let problem = match Range::parse(itself(except)) {
            Ok(part) if whole.strictly_contains(&part) => continue,
            Ok(_) => "must be a strict subset of `cidr`".to_owned(),
            Err(problem) => problem,
        };
        errors.push(FieldError::invalid(
            format!("{path}.except[{i}]"),
            itself(except),
            problem,
        ));
    }
}
