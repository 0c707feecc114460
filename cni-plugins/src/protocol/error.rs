//! The error a runtime receives: a code, a sentence, and optional details (contract §1.4).

use std::fmt;

use serde_json::json;

/// Incompatible CNI version.
pub const INCOMPATIBLE_VERSION: u32 = 1;
/// Unknown container: the caller need not delete it.
pub const UNKNOWN_CONTAINER: u32 = 3;
/// A necessary environment variable is missing or wrong.
pub const BAD_ENVIRONMENT: u32 = 4;
/// Input or output failed.
pub const IO: u32 = 5;
/// The configuration could not be decoded.
pub const DECODING: u32 = 6;
/// The network configuration is invalid.
pub const INVALID_CONFIG: u32 = 7;
/// The network namespace is invalid.
pub const INVALID_NETNS: u32 = 8;
/// Try again later: a passing condition.
pub const TRY_AGAIN: u32 = 11;
/// STATUS: the plugin cannot serve ADD.
pub const UNAVAILABLE: u32 = 50;
/// Everything else.
pub const INTERNAL: u32 = 999;

/// An error as it goes to the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Code of contract §1.4.
    pub code: u32,
    /// What failed.
    pub msg: String,
    /// More about it; usually empty, as upstream's specs compare the message alone.
    pub details: String,
}

impl Error {
    /// An error with a code and no details.
    pub fn new(code: u32, msg: impl Into<String>) -> Self {
        Self {
            code,
            msg: msg.into(),
            details: String::new(),
        }
    }

    /// Adds details.
    pub fn with_details(self, details: impl Into<String>) -> Self {
        Self {
            details: details.into(),
            ..self
        }
    }

    /// Code 999: an ordinary failure, described by its text.
    pub fn internal(msg: impl Into<String>) -> Self {
        Self::new(INTERNAL, msg)
    }

    /// The same code, with a prefix before the text, as Go's `%v` wrapping gives.
    pub fn context(self, prefix: impl fmt::Display) -> Self {
        Self {
            msg: format!("{prefix}: {}", self.msg),
            ..self
        }
    }

    /// The JSON printed on standard output.
    pub fn render(&self) -> String {
        let mut value = json!({"code": self.code, "msg": self.msg});
        if !self.details.is_empty() {
            value["details"] = json!(self.details);
        }
        super::json::render(&value)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.msg)?;
        if self.details.is_empty() {
            Ok(())
        } else {
            write!(formatter, "; {}", self.details)
        }
    }
}

impl std::error::Error for Error {}

/// Turns any module's error into code 999, with the text of the whole chain.
pub fn internal(error: &(dyn std::error::Error + 'static)) -> Error {
    Error::internal(chain(error))
}

/// The texts of an error and its sources, joined by `: `.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = describe(error);
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&describe(inner));
        source = inner.source();
    }
    text
}

/// The text of one error; kernel errors as Go prints them ("no such file or directory").
fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(io) = error.downcast_ref::<std::io::Error>() {
        return netlink::errno::text(io);
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_left_out_when_empty() {
        assert_eq!(
            Error::new(7, "x").render(),
            "{\n    \"code\": 7,\n    \"msg\": \"x\"\n}\n"
        );
        let full = Error::new(4, "x").with_details("y");
        assert!(full.render().contains("\"details\": \"y\""));
        assert_eq!(full.to_string(), "x; y");
    }
}
