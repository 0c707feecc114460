//! Errors as clients see them: one type, one mapping to `Status` (control-plane contract §3). Pure.

use crate::resource::field_error::{FieldErrors, cut};
use serde_json::{Map, Value, json};

/// Bytes of a message: more is cut away, for requests are as large as their senders make them and errors repeat them.
const MESSAGE_BYTES: usize = 64 << 10;
/// Bytes of all causes together; those that do not fit are left out.
const CAUSES_BYTES: usize = 64 << 10;
/// Bytes of a name that is repeated.
const NAME_BYTES: usize = 1 << 10;

/// One cause inside a `Status`'s details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Serialised as `reason`, such as `FieldValueRequired`.
    pub kind: String,
    /// Human-readable message.
    pub message: String,
    /// Field path, such as `spec.replicas`; empty for none.
    pub field: String,
}

/// An error reply: everything a `Status` of status `Failure` carries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason, such as `NotFound`; may be empty.
    pub reason: &'static str,
    /// Message for people.
    pub message: String,
    /// `details.name`, empty for none.
    pub name: String,
    /// `details.group`, empty for core or none.
    pub group: String,
    /// `details.kind`: the plural resource, but the Kind for 422; empty for none.
    pub kind: String,
    /// `details.uid`, empty for none.
    pub uid: String,
    /// Causes in order.
    pub causes: Vec<Cause>,
    /// Seconds after which a client may try again; mirrored in the `Retry-After` header.
    pub retry_after_seconds: Option<u32>,
    /// A fresh `metadata.continue`, for 410 replies to expired continue tokens.
    pub continue_token: Option<String>,
    /// Sent as `Warning` headers, as beside any other reply.
    pub warnings: Vec<String>,
    /// Whether another API server has what was chosen for the object: another choice may be free. Never sent.
    pub is_contended: bool,
}

impl ApiError {
    /// An error of the given code, reason and message, with no details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: cut(message.into(), MESSAGE_BYTES),
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: None,
            continue_token: None,
            warnings: Vec::new(),
            is_contended: false,
        }
    }

    /// Nothing is written at present: the store is being moved, or has been.
    pub fn read_only(why: &str) -> Self {
        let text = format!("the cluster is read-only: {why}");
        Self {
            retry_after_seconds: Some(5),
            ..Self::new(503, "ServiceUnavailable", text)
        }
    }

    /// The same error about the named object of a resource (`kind` is the plural resource).
    pub fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        self.group = group.to_owned();
        self.kind = kind.to_owned();
        self.name = shortened(name);
        self
    }

    /// 400 `BadRequest`.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401 `Unauthorized`.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 404 `NotFound` for one object; `resource` is the plural.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::new(
            404,
            "NotFound",
            format!("{} \"{name}\" not found", qualified(resource, group)),
        )
        .about(group, resource, name)
    }

    /// 404 for a path that nothing is served at, under a version that is served.
    pub fn no_route() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// 405 for a path that knows other methods.
    pub fn no_method() -> Self {
        let text = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", text)
    }

    /// 409 `AlreadyExists`.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} \"{name}\" already exists", qualified(resource, group)),
        )
        .about(group, resource, name)
    }

    /// 409 `Conflict`.
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let what = qualified(resource, group);
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {what} \"{name}\": {why}"),
        )
        .about(group, resource, name)
    }

    /// 403 `Forbidden` about one object (name may be empty).
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let what = qualified(resource, group);
        let message = if name.is_empty() {
            format!("{what} is forbidden: {why}")
        } else {
            format!("{what} \"{name}\" is forbidden: {why}")
        };
        Self::new(403, "Forbidden", message).about(group, resource, name)
    }

    /// 422 `Invalid` from field errors; `kind` is the Kind. Of very many errors the first ones are named.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: impl Into<FieldErrors>) -> Self {
        let errors = errors.into();
        let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        if errors.more() > 0 {
            texts.push(format!("and {} more errors", errors.more()));
        }
        let all = match texts.as_slice() {
            [only] => only.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        let (what, shown) = (qualified(kind, group), shortened(name));
        let error = Self::new(422, "Invalid", format!("{what} \"{shown}\" is invalid: {all}")).about(group, kind, name);
        let causes = errors.iter().map(|field| Cause {
            kind: field.kind.cause().to_owned(),
            message: field.body(),
            field: field.path.clone(),
        });
        error.with_causes(causes)
    }

    /// The same error with the first of the causes, as many as fit.
    pub fn with_causes(mut self, causes: impl Iterator<Item = Cause>) -> Self {
        let mut bytes = 0;
        let fit = causes.take_while(|cause| {
            bytes += cause.message.len() + cause.field.len();
            bytes <= CAUSES_BYTES
        });
        self.causes = fit.collect();
        self
    }

    /// 500 `InternalError`.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let text = cut(message.to_string(), MESSAGE_BYTES);
        let mut error = Self::new(500, "InternalError", format!("Internal error occurred: {text}"));
        error.causes = vec![Cause {
            kind: String::new(),
            message: text,
            field: String::new(),
        }];
        error
    }

    /// The `Status` object.
    pub fn to_status(&self) -> Value {
        let mut details = Map::new();
        for (key, text) in [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ] {
            if !text.is_empty() {
                details.insert(key.to_owned(), json!(text));
            }
        }
        if !self.causes.is_empty() {
            details.insert("causes".to_owned(), self.causes.iter().map(cause_value).collect());
        }
        if let Some(seconds) = self.retry_after_seconds {
            details.insert("retryAfterSeconds".to_owned(), json!(seconds));
        }
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".to_owned(), json!(token));
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if !details.is_empty() {
            status["details"] = Value::Object(details);
        }
        status
    }
}

fn cause_value(cause: &Cause) -> Value {
    let mut value = Map::new();
    for (key, text) in [
        ("reason", &cause.kind),
        ("message", &cause.message),
        ("field", &cause.field),
    ] {
        if !text.is_empty() {
            value.insert(key.to_owned(), json!(text));
        }
    }
    Value::Object(value)
}

fn qualified(what: &str, group: &str) -> String {
    if group.is_empty() {
        what.to_owned()
    } else {
        format!("{what}.{group}")
    }
}

/// A name as errors repeat it.
fn shortened(name: &str) -> String {
    cut(name.to_owned(), NAME_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::field_error::FieldError;

    #[test]
    fn not_found_names_resource_group_and_object() {
        let status = ApiError::not_found("apps", "deployments", "web").to_status();
        assert_eq!(status["message"], "deployments.apps \"web\" not found");
        assert_eq!(
            status["details"],
            json!({"name": "web", "group": "apps", "kind": "deployments"})
        );
        assert_eq!(status["code"], 404);
    }

    #[test]
    fn several_field_errors_are_listed_in_brackets_with_one_cause_each() {
        let errors = vec![
            FieldError::required("spec.selector", ""),
            FieldError::not_supported("spec.restartPolicy", "x", &["Always", "Never"]),
        ];
        let status = ApiError::invalid("apps", "Deployment", "web", errors).to_status();
        assert_eq!(
            status["message"],
            "Deployment.apps \"web\" is invalid: [spec.selector: Required value, spec.restartPolicy: \
             Unsupported value: \"x\": supported values: \"Always\", \"Never\"]"
        );
        assert_eq!(status["details"]["causes"][0]["reason"], "FieldValueRequired");
        assert_eq!(status["details"]["causes"][1]["field"], "spec.restartPolicy");
    }
}
