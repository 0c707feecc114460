//! Revisions in requests: reading one, and refusing one that has not come yet (control-plane contract §2.6). Pure.

use crate::apiserver::status::{ApiError, Cause};
use crate::store::Revision;

/// A resourceVersion parameter; `None` if it is empty.
pub(super) fn parse_revision(text: &str) -> Result<Option<Revision>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    let reason = format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
    text.parse()
        .map(Some)
        .map_err(|_| ApiError::bad_request(format!("resourceVersion: Invalid value: \"{text}\": {reason}")))
}

pub(super) fn too_large(wanted: Revision, current: Revision) -> ApiError {
    let text = format!("Timeout: Too large resource version: {wanted}, current: {current}");
    let mut error = ApiError::new(504, "Timeout", text);
    error.causes.push(Cause {
        kind: "ResourceVersionTooLarge".to_owned(),
        message: "Too large resource version".to_owned(),
        field: String::new(),
    });
    error.retry_after_seconds = Some(1);
    error
}
