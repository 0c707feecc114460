//! In place of the crate of this name: what kube needs of it.
//!
//! kube reads the token and the expiry from what a kubeconfig's `gcp` auth provider command prints, by `token-key` and
//! `expiry-key`, and uses a language of paths with a grammar and an engine of regular expressions for it: 0.7 MB of code in every
//! binary that has a client. Such keys are names behind one another (`{.credential.access_token}`), which is what this knows.
//! Whatever else a path says is refused, never guessed. Pure.

use serde_json::Value;

/// A path that is more than names behind one another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no path of field names, which are all that is known here")]
pub struct Unknown(String);

/// What a path leads to.
pub trait JsonPath {
    /// The value the path leads to; none if there is none.
    ///
    /// # Errors
    /// The path has more than field names.
    fn query(&self, path: &str) -> Result<Vec<&Self>, Unknown>;
}

impl JsonPath for Value {
    fn query(&self, path: &str) -> Result<Vec<&Self>, Unknown> {
        let unknown = || Unknown(path.to_owned());
        let names = path.strip_prefix("$.").ok_or_else(unknown)?;
        let is_name = |name: &str| {
            let mut letters = name.chars();
            !name.is_empty() && letters.all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '-'))
        };
        if !names.split('.').all(is_name) {
            return Err(unknown());
        }
        let found = names
            .split('.')
            .try_fold(self, |value, name| value.as_object()?.get(name));
        Ok(found.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_lead_to_their_value_and_anything_else_is_refused() {
        let tree = json!({"credential": {"access_token": "t", "token-expiry": "e"}, "list": [{"a": 1}]});
        for (path, found) in [
            ("$.credential.access_token", Some(json!("t"))),
            ("$.credential.token-expiry", Some(json!("e"))),
            ("$.credential.none", None),
            ("$.credential.access_token.more", None),
            ("$.list.a", None),
        ] {
            assert_eq!(tree.query(path), Ok(found.iter().collect()), "{path}");
        }
        for path in [
            "$",
            "$.",
            "credential",
            "$.a..b",
            "$.list[0].a",
            "$.*",
            "$..a",
            "$.list[?(@.a==1)]",
            "$.a b",
        ] {
            assert_eq!(tree.query(path), Err(Unknown(path.to_owned())), "{path}");
        }
    }
}
