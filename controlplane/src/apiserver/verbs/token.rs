//! Continue tokens, in upstream's format (control-plane contract §2.6). Pure.

use crate::apiserver::status::ApiError;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// Where a list goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The revision all pages are of; -1 for the newest one (an inconsistent continuation).
    pub(super) revision: i64,
    /// First key of the next page, relative to the list's prefix.
    pub(super) start: String,
}

impl Token {
    /// The token for what follows `last`.
    pub(super) fn after(last: &str, revision: i64) -> Self {
        Self {
            revision,
            start: format!("{last}\0"),
        }
    }

    pub(super) fn encode(&self) -> String {
        let document = json!({"v": "meta.k8s.io/v1", "rv": self.revision, "start": self.start});
        URL_SAFE_NO_PAD.encode(document.to_string())
    }

    pub(super) fn decode(text: &str) -> Result<Self, ApiError> {
        let invalid = |why: &str| ApiError::bad_request(format!("invalid continue token: {why}"));
        let bytes = URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|_| invalid("illegal base64 data"))?;
        let document: Value = serde_json::from_slice(&bytes).map_err(|error| invalid(&error.to_string()))?;
        if document["v"] != "meta.k8s.io/v1" {
            return Err(invalid(
                "continue key is not valid: server does not recognize this encoded version",
            ));
        }
        let revision = document["rv"].as_i64().unwrap_or(0);
        if revision == 0 {
            return Err(invalid(
                "continue key is not valid: incorrect encoded start resourceVersion",
            ));
        }
        let start = document["start"].as_str().unwrap_or("");
        // Cleaning the path must not lead out of the collection.
        let leads_out = start.split('/').any(|element| element == "..") || start.starts_with('/');
        if start.is_empty() || leads_out {
            return Err(ApiError::bad_request(format!("continue key is not valid: {start}")));
        }
        Ok(Self {
            revision,
            start: start.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_upstreams_form() {
        let token = Token::after("default/web-1", 42);
        let text = token.encode();
        let document = URL_SAFE_NO_PAD.decode(&text).unwrap();
        let value: Value = serde_json::from_slice(&document).unwrap();
        assert_eq!(
            value,
            json!({"v": "meta.k8s.io/v1", "rv": 42, "start": "default/web-1\u{0}"})
        );
        assert_eq!(Token::decode(&text).unwrap(), token);
    }

    #[test]
    fn broken_tokens_are_refused() {
        let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        for text in [
            "!!".to_owned(),
            URL_SAFE_NO_PAD.encode("x"),
            encode(json!({"v": "v2", "rv": 1, "start": "a"})),
            encode(json!({"v": "meta.k8s.io/v1", "start": "a"})),
            encode(json!({"v": "meta.k8s.io/v1", "rv": 1, "start": "../secrets/"})),
            encode(json!({"v": "meta.k8s.io/v1", "rv": 1})),
        ] {
            assert_eq!(Token::decode(&text).unwrap_err().code, 400, "{text}");
        }
    }
}
