//! DenyServiceExternalIPs: nobody draws other people's traffic to a Service by claiming their addresses (CVE-2020-8554). Off
//! unless a flag asks for it, as upstream. Pure.

use super::Attributes;
use crate::apiserver::status::ApiError;
use crate::resource::field::list;
use serde_json::Value;

/// Refuses external IPs that the Service does not have already; those of an upgraded cluster stay until they are removed.
pub(super) fn check(attributes: &Attributes<'_>, service: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    let path = &["spec", "externalIPs"];
    let held = old.map_or(&[][..], |old| list(old, path));
    match list(service, path).iter().all(|address| held.contains(address)) {
        true => Ok(()),
        false => Err(attributes.forbid("Use of external IPs is denied by admission control")),
    }
}
