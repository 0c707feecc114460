//! What becomes of fields that a body's type does not have, or that stand twice: `fieldValidation` (control-plane contract §2.2). Pure.

use crate::apiserver::request::{Query, RequestInfo};
use crate::apiserver::status::ApiError;
use crate::resource::field_error::FieldError;
use crate::schema::Decoded;
use serde_json::Value;

/// What becomes of such fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::apiserver) enum Validation {
    Ignore,
    Warn,
    Strict,
}

impl Validation {
    /// What the request asks for.
    ///
    /// # Errors
    /// 422 for a value there is not.
    pub(in crate::apiserver) fn read(query: &Query, info: &RequestInfo) -> Result<Self, ApiError> {
        match query.text("fieldValidation") {
            "" | "Warn" => Ok(Self::Warn),
            "Ignore" => Ok(Self::Ignore),
            "Strict" => Ok(Self::Strict),
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                let error = FieldError::not_supported("fieldValidation", other, &supported);
                let options = match info.verb.as_str() {
                    "update" => "UpdateOptions",
                    "patch" => "PatchOptions",
                    _ => "CreateOptions",
                };
                Err(ApiError::invalid("meta.k8s.io", options, "", vec![error]))
            }
        }
    }

    /// The body that was read as `kind`; what is only to be said of it is added to the warnings.
    ///
    /// # Errors
    /// 400 for such fields under strict validation.
    pub(in crate::apiserver) fn judge(
        self,
        decoded: Decoded,
        (kind, version): (&str, &str),
        warnings: &mut Vec<String>,
    ) -> Result<Value, ApiError> {
        match self {
            Self::Ignore => {}
            Self::Warn => warnings.extend(decoded.problems.iter().map(ToString::to_string)),
            Self::Strict => {
                if let Some(text) = decoded.strict_error() {
                    let text = format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {text}");
                    return Err(ApiError::bad_request(text));
                }
            }
        }
        Ok(decoded.value)
    }
}
