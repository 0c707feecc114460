//! Addresses in objects: what is one, and what may stand for a peer. Texts are upstream's. Pure.

use std::net::IpAddr;

use serde_json::Value;

use crate::resource::field_error::{FieldError, FieldErrors};

/// An IP address; `None` where it is none.
pub(super) fn ip(errors: &mut FieldErrors, value: &Value, path: &str) -> Option<IpAddr> {
    let address = value.as_str().and_then(|text| text.parse().ok());
    if address.is_none() {
        let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(FieldError::invalid_value(path, value, why));
    }
    address
}

/// An IP address another machine can have: not one that means any, this one, or a neighbour only.
pub(super) fn peer(errors: &mut FieldErrors, value: &Value, path: &str) {
    let Some(address) = ip(errors, value, path) else { return };
    let address = address.to_canonical();
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    let why = if address.is_unspecified() {
        format!("may not be unspecified ({})", value.as_str().unwrap_or(""))
    } else if address.is_loopback() {
        "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()
    } else if link_local {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()
    } else if link_local_multicast {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()
    } else {
        return;
    };
    errors.push(FieldError::invalid_value(path, value, why));
}
