//! What plugins are asked and answer: `CredentialProviderRequest` and `CredentialProviderResponse`. Pure. Errors hold no word of an
//! answer: it has passwords.

use crate::config::duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// More logins than any answer has.
const LOGINS_MAX: usize = 1000;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    kind: &'static str,
    api_version: &'a str,
    image: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    service_account_token: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    service_account_annotations: &'a BTreeMap<String, String>,
}

/// A request as a plugin reads it.
pub(super) fn request(api_version: &str, image: &str, token: &str, annotations: &BTreeMap<String, String>) -> Vec<u8> {
    let request = Request {
        kind: "CredentialProviderRequest",
        api_version,
        image,
        service_account_token: token,
        service_account_annotations: annotations,
    };
    // Strings in a flat object always serialize.
    serde_json::to_vec(&request).unwrap_or_default()
}

/// Which other images an answer is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// None: this repository only.
    Image,
    /// Those of the same registry.
    Registry,
    /// All the plugin is asked about.
    Global,
}

/// What a plugin answered.
#[derive(Clone)]
pub(super) struct Answer {
    /// What it is good for.
    pub(super) scope: Scope,
    /// How long; without it as long as the configuration says.
    pub(super) cache: Option<Duration>,
    /// User names and passwords by registry, perhaps with a path and `*`.
    pub(super) logins: BTreeMap<String, Login>,
}

/// A user name and a password.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Login {
    pub(super) username: String,
    pub(super) password: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(default)]
    cache_key_type: String,
    #[serde(default)]
    cache_duration: Option<String>,
    #[serde(default)]
    auth: Option<BTreeMap<String, Login>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Kind {
    kind: String,
    api_version: String,
}

/// Why an answer is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnswerError {
    /// It is not even an object of some kind.
    #[error("error reading GVK from response: it is no JSON object")]
    NoObject,
    /// Another version than the plugin was asked in.
    #[error(
        "apiVersion from credential plugin response did not match expected apiVersion:{expected}, actual apiVersion:{actual}"
    )]
    Version {
        /// What it was asked in.
        expected: String,
        /// What it answered in.
        actual: String,
    },
    /// Anything else.
    #[error("error decoding credential provider plugin response from stdout")]
    Malformed,
    /// A scope nobody knows.
    #[error("credential provider plugin did not return a valid cacheKeyType: {0:?}")]
    Scope(String),
    /// A hundred registries are not that many.
    #[error("credential provider plugin returned more than {LOGINS_MAX} logins")]
    TooMany,
}

/// Reads an answer strictly.
pub(super) fn read(bytes: &[u8], api_version: &str) -> Result<Answer, AnswerError> {
    let kind: Kind = serde_json::from_slice(bytes).map_err(|_| AnswerError::NoObject)?;
    if kind.api_version != api_version {
        return Err(AnswerError::Version {
            expected: api_version.to_owned(),
            actual: kind.api_version,
        });
    }
    if kind.kind != "CredentialProviderResponse" {
        return Err(AnswerError::Malformed);
    }
    let written: Written = serde_json::from_slice(bytes).map_err(|_| AnswerError::Malformed)?;
    let scope = match written.cache_key_type.as_str() {
        "Image" => Scope::Image,
        "Registry" => Scope::Registry,
        "Global" => Scope::Global,
        other => return Err(AnswerError::Scope(other.chars().take(64).collect())),
    };
    // One that is over before it began is as none.
    let time = |text: &str| match text.strip_prefix('-') {
        Some(past) => duration::parse(past).map(|_| Duration::ZERO),
        None => duration::parse(text),
    };
    let cache = written.cache_duration.as_deref().map(time);
    let logins = written.auth.unwrap_or_default();
    if logins.len() > LOGINS_MAX {
        return Err(AnswerError::TooMany);
    }
    Ok(Answer {
        scope,
        cache: cache.transpose().map_err(|_| AnswerError::Malformed)?,
        logins,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

    fn answered(fields: &str) -> Result<Answer, AnswerError> {
        let text = format!(r#"{{"kind":"CredentialProviderResponse","apiVersion":"{V1}",{fields}}}"#);
        read(text.as_bytes(), V1)
    }

    #[test]
    fn requests_are_upstreams() {
        let annotations = [("a".to_owned(), "b".to_owned())].into();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        assert_eq!(
            text(request(V1, "r.io/a", "", &BTreeMap::new())),
            format!(r#"{{"kind":"CredentialProviderRequest","apiVersion":"{V1}","image":"r.io/a"}}"#)
        );
        assert!(
            text(request(V1, "r.io/a", "t", &annotations))
                .ends_with(r#""image":"r.io/a","serviceAccountToken":"t","serviceAccountAnnotations":{"a":"b"}}"#)
        );
    }

    #[test]
    fn answers_are_read_strictly() {
        let auth = r#""auth":{"r.io":{"username":"u","password":"p"}}"#;
        for (fields, scope, cache) in [
            (format!(r#""cacheKeyType":"Image",{auth}"#), Scope::Image, None),
            (
                format!(r#""cacheKeyType":"Registry","cacheDuration":"6h",{auth}"#),
                Scope::Registry,
                Some(Duration::from_secs(6 * 3600)),
            ),
            (
                format!(r#""cacheKeyType":"Global","cacheDuration":"0s",{auth}"#),
                Scope::Global,
                Some(Duration::ZERO),
            ),
            (
                format!(r#""cacheKeyType":"Global","cacheDuration":"-1h",{auth}"#),
                Scope::Global,
                Some(Duration::ZERO),
            ),
            (
                format!(r#""cacheKeyType":"Image","cacheDuration":null,{auth}"#),
                Scope::Image,
                None,
            ),
        ] {
            let answer = answered(&fields).expect("an answer");
            assert_eq!(
                (answer.scope, answer.cache, answer.logins["r.io"].username.as_str()),
                (scope, cache, "u")
            );
        }
        let none = answered(r#""cacheKeyType":"Image","auth":null"#).expect("an answer");
        assert!(none.logins.is_empty());
        for (fields, why) in [
            (r#""cacheKeyType":"Some""#, AnswerError::Scope("Some".into())),
            (r#""auth":{}"#, AnswerError::Scope(String::new())),
            (r#""cacheKeyType":"Image","more":1"#, AnswerError::Malformed),
            (
                r#""cacheKeyType":"Image","cacheDuration":"1000000000h""#,
                AnswerError::Malformed,
            ),
            (
                r#""cacheKeyType":"Image","auth":{"r":{"token":"x"}}"#,
                AnswerError::Malformed,
            ),
            (
                r#""cacheKeyType":"Image","auth":{"r":"secret"}"#,
                AnswerError::Malformed,
            ),
        ] {
            assert_eq!(answered(fields).err(), Some(why), "{fields}");
        }
        assert_eq!(read(b"secret", V1).err(), Some(AnswerError::NoObject));
        let other = read(br#"{"kind":"CredentialProviderResponse","apiVersion":"v2"}"#, V1).err();
        let told = other.map(|error| error.to_string()).unwrap_or_default();
        assert!(told.ends_with("actual apiVersion:v2"), "{told}");
        let kind = format!(r#"{{"kind":"Secret","apiVersion":"{V1}"}}"#);
        assert_eq!(read(kind.as_bytes(), V1).err(), Some(AnswerError::Malformed));
    }
}
