//! Revisions in requests: reading one, and refusing one that has not come yet (control-plane contract §2.6). What is to be said of a
//! state that may be of before.

use super::{Answer, Call};
use crate::apiserver::Body;
use crate::apiserver::status::{ApiError, Cause};
use crate::store::Revision;
use std::time::Duration;

/// How long a store that does not answer is taken for one that has only been asked elsewhere.
const SILENCE: Duration = Duration::from_secs(1);

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

impl Call<'_> {
    /// Answers a request that writes nothing.
    pub(super) async fn read_out(&mut self, body: Body) -> Result<Answer, ApiError> {
        let answer = self.dispatch(body).await;
        self.warnings.extend(self.of_before());
        answer
    }

    /// What is to be known of a state that was asked for whatever its age, while the store does not answer.
    fn of_before(&self) -> Option<String> {
        let is_read = matches!(self.info.verb.as_str(), "get" | "list");
        let is_any = is_read && !self.query.text("resourceVersion").is_empty();
        let silence = self.window.silence().filter(|silence| is_any && *silence >= SILENCE)?;
        Some(format!(
            "the store has not answered for {} s: this is what it held at revision {}, which may have changed since",
            silence.as_secs(),
            self.window.cached().revision
        ))
    }
}
