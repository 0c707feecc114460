//! Endpoints. Pure.

use std::net::IpAddr;

use serde_json::Value;

use super::Strategy;
use super::field::{default_text, list, list_mut, text};
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
            for key in ["addresses", "notReadyAddresses"] {
                for (j, address) in list(subset, &[key]).iter().enumerate() {
                    let ip = text(address, &["ip"]);
                    if ip.parse::<IpAddr>().is_err() {
                        errors.push(FieldError::invalid(
                            format!("subsets[{i}].{key}[{j}].ip"),
                            ip,
                            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                        ));
                    }
                }
            }
        }
        errors
    }
}
