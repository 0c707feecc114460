//! Addresses in objects: what is one, and what may stand for a peer. Texts are upstream's. Pure.

use std::net::IpAddr;

use serde_json::Value;

use super::check;
use crate::resource::field_error::{FieldError, FieldErrors};

/// An IP address; `None` where it is none.
pub(super) fn ip(errors: &mut FieldErrors, value: &Value, path: &str) -> Option<IpAddr> {
    check::address(value.as_str().unwrap_or_default())
        .map_err(|why| errors.push(FieldError::invalid_value(path, value, why)))
        .ok()
}

/// An IP address another machine can have: not one that means any, this one, or a neighbour only.
pub(super) fn peer(errors: &mut FieldErrors, value: &Value, path: &str) {
    if let Some(address) = ip(errors, value, path) {
        check::endpoint_address(errors, path, address, value.as_str().unwrap_or_default());
    }
}
