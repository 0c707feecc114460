//! Registry logins: from pull secrets (`kubernetes.io/dockerconfigjson`, `kubernetes.io/dockercfg`) and from the node's own
//! files of the same forms. Pure.

use super::reference::registry_and_repository;
use base64::Engine;
use client::ordered::Arrange;
use k8s_openapi::api::core::v1::Secret;
use proto::cri as pb;
use serde::Deserialize;
use sha2::Digest;
use std::collections::BTreeMap;

/// Which of the two forms a text has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `config.json`: logins below `auths`.
    ConfigJson,
    /// `.dockercfg`: logins alone.
    Dockercfg,
}

/// Logins that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The text is not JSON of the form it should have.
    #[error("malformed: {0}")]
    Malformed(String),
    /// An `auth` field that is not base64 of `username:password`.
    #[error("auths[{0:?}].auth: must be formatted as base64(username:password)")]
    Auth(String),
    /// A secret without logins.
    #[error("has neither .dockerconfigjson nor .dockercfg")]
    Empty,
}

/// Where a login comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The node: every pod may use what was pulled with it.
    Node,
    /// A pull secret of the pod.
    Secret {
        /// Its UID.
        uid: String,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A plugin that was shown a token of the pod's service account.
    ServiceAccount {
        /// Its UID.
        uid: String,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// A login that fits an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Credential {
    /// What the runtime is given.
    pub auth: pb::AuthConfig,
    /// Where it comes from.
    pub origin: Origin,
}

impl Credential {
    /// The hash pulled-records keep of it: of the login as upstream writes it in JSON, so that records are worth the same
    /// to both.
    pub fn hash(&self) -> String {
        let fields = [
            ("username", &self.auth.username),
            ("password", &self.auth.password),
            ("identitytoken", &self.auth.identity_token),
            ("registrytoken", &self.auth.registry_token),
        ];
        let told = fields.iter().filter(|(_, value)| !value.is_empty());
        let text: Vec<String> = told
            .map(|(name, value)| format!("\"{name}\":{}", go_string(value)))
            .collect();
        hex::encode(sha2::Sha256::digest(format!("{{{}}}", text.join(","))))
    }
}

/// A JSON string as Go writes it.
fn go_string(text: &str) -> String {
    let mut quoted = serde_json::Value::from(text).to_string();
    for (raw, escaped) in [
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u{2028}", "\\u2028"),
        ("\u{2029}", "\\u2029"),
    ] {
        quoted = quoted.replace(raw, escaped);
    }
    quoted
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    auth: String,
    #[serde(default, rename = "identitytoken")]
    identity_token: String,
    #[serde(default, rename = "registrytoken")]
    registry_token: String,
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

/// Logins in the order they are tried. `Debug` shows no password.
#[derive(Clone, Default)]
pub struct Keyring {
    logins: Vec<(String, Credential)>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.logins.iter().map(|(key, _)| key)).finish()
    }
}

impl Keyring {
    /// Adds a secret's logins, all of them or none.
    pub fn add_secret(&mut self, secret: &Secret) -> Result<(), CredentialsError> {
        let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key));
        let (form, bytes) = match (data(".dockerconfigjson"), data(".dockercfg")) {
            (Some(bytes), _) => (Form::ConfigJson, bytes),
            (None, Some(bytes)) => (Form::Dockercfg, bytes),
            (None, None) => return Err(CredentialsError::Empty),
        };
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let origin = Origin::Secret {
            uid: text(&secret.metadata.uid),
            namespace: text(&secret.metadata.namespace),
            name: text(&secret.metadata.name),
        };
        self.add(form, &bytes.0, &origin)
    }

    /// Adds the logins of a text, all of them or none; those of one text are tried the most specific first.
    pub fn add(&mut self, form: Form, text: &[u8], origin: &Origin) -> Result<(), CredentialsError> {
        let malformed = |error: serde_json::Error| CredentialsError::Malformed(without_content(&error));
        let entries = match form {
            Form::ConfigJson => serde_json::from_slice::<DockerConfig>(text).map_err(malformed)?.auths,
            Form::Dockercfg => serde_json::from_slice(text).map_err(malformed)?,
        };
        let mut logins = Vec::new();
        for (key, entry) in entries {
            let auth = auth(&key, entry)?;
            let origin = origin.clone();
            logins.push((key, Credential { auth, origin }));
        }
        self.add_logins(logins);
        Ok(())
    }

    /// Adds logins by registry (perhaps with a path), to be tried after those that are there, the most specific first.
    pub fn add_logins(&mut self, logins: impl IntoIterator<Item = (String, Credential)>) {
        let logins = logins.into_iter().map(|(key, login)| (normalized(&key), login));
        let mut logins: Vec<_> = logins.collect();
        logins.arrange_by(|(a, _), (b, _)| b.cmp(a));
        self.logins.extend(logins);
    }

    /// The logins that fit an image, in the order they are to be tried.
    pub fn matching(&self, image: &str) -> Vec<Credential> {
        let (host, repository) = registry_and_repository(image);
        let fitting = self.logins.iter().filter(|(key, _)| fits(key, &host, &repository));
        fitting.map(|(_, credential)| credential.clone()).collect()
    }
}

/// What is wrong with a JSON text, and where, without a word of it: it holds passwords.
fn without_content(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        serde_json::error::Category::Data => "not of the expected form",
        _ => "not JSON",
    };
    format!("{what} at line {} column {}", error.line(), error.column())
}

fn auth(key: &str, entry: Entry) -> Result<pb::AuthConfig, CredentialsError> {
    let (mut username, mut password) = (entry.username, entry.password);
    if !entry.auth.is_empty() {
        let engine = base64::engine::general_purpose::STANDARD_NO_PAD;
        let decoded = engine.decode(entry.auth.trim_end_matches('='));
        let decoded = decoded.ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let parts = decoded.as_deref().and_then(|text| text.split_once(':'));
        let (user, secret) = parts.ok_or_else(|| CredentialsError::Auth(key.to_owned()))?;
        (username, password) = (user.to_owned(), secret.trim_end_matches('\0').to_owned());
    }
    Ok(pb::AuthConfig {
        username,
        password,
        identity_token: entry.identity_token,
        registry_token: entry.registry_token,
        ..pb::AuthConfig::default()
    })
}

/// A login's key without scheme and API version: a registry, perhaps with a path.
fn normalized(key: &str) -> String {
    let key = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"))
        .unwrap_or(key);
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    let path = ["v1", "v2"]
        .iter()
        .find_map(|version| {
            path.strip_prefix(version)
                .filter(|rest| rest.is_empty() || rest.starts_with('/'))
        })
        .unwrap_or(path);
    let host = if host == "docker.io" { "index.docker.io" } else { host };
    match path.trim_matches('/') {
        "" => host.to_owned(),
        path => format!("{host}/{path}"),
    }
}

/// Whether a normalized key is for an image's registry and, if it has a path, for what is below it.
fn fits(key: &str, host: &str, repository: &str) -> bool {
    let (pattern, path) = key.split_once('/').unwrap_or((key, ""));
    let below = repository.strip_prefix(path);
    host_fits(pattern, host) && below.is_some_and(|rest| path.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

/// Whether a host fits a pattern whose labels may hold `*`.
fn host_fits(pattern: &str, host: &str) -> bool {
    let (pattern, host): (Vec<&str>, Vec<&str>) = (pattern.split('.').collect(), host.split('.').collect());
    pattern.len() == host.len()
        && pattern
            .iter()
            .zip(host)
            .all(|(pattern, label)| label_fits(pattern, label))
}

/// Whether a label fits a pattern that may hold `*`. Patterns are users': each part is looked for once.
pub(super) fn label_fits(pattern: &str, label: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == label;
    };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let between = label.strip_prefix(start).and_then(|label| label.strip_suffix(end));
    let parts = middle.split('*').filter(|part| !part.is_empty());
    let left = between.map(|label| {
        parts.into_iter().try_fold(label, |label, part| {
            label.find(part).map(|at| &label[at + part.len()..])
        })
    });
    left.flatten().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn secret(key: &str, json: &str) -> Secret {
        Secret {
            data: Some([(key.to_owned(), ByteString(json.as_bytes().to_vec()))].into()),
            metadata: ObjectMeta {
                name: Some("pull".into()),
                namespace: Some("ns".into()),
                uid: Some("u-1".into()),
                ..ObjectMeta::default()
            },
            ..Secret::default()
        }
    }

    fn users(keyring: &Keyring, image: &str) -> Vec<String> {
        let matching = keyring.matching(image).into_iter();
        matching.map(|credential| credential.auth.username).collect()
    }

    #[test]
    fn logins_fit_by_registry_and_path() {
        let mut keyring = Keyring::default();
        let text = r#"{"auths":{"https://index.docker.io/v1/":{"auth":"dTpw"},"ghcr.io":{"username":"g","password":"1"},
            "ghcr.io/team":{"username":"t","password":"2"},"*.example.com":{"username":"w","password":"3"},
            "http://localhost:5000/v2/":{"username":"l"},"us-*.pkg.dev":{"username":"p"}}}"#;
        keyring.add_secret(&secret(".dockerconfigjson", text)).expect("read");
        for (image, expected) in [
            ("nginx", &["u"] as &[&str]),
            ("docker.io/me/app:1", &["u"]),
            ("ghcr.io/team/app", &["t", "g"]),
            ("ghcr.io/team", &["t", "g"]),
            ("ghcr.io/teams/app", &["g"]),
            ("r.example.com/a", &["w"]),
            ("a.b.example.com/a", &[]),
            ("localhost:5000/a", &["l"]),
            ("localhost:5001/a", &[]),
            ("us-west1.pkg.dev/a", &["p"]),
            ("quay.io/a", &[]),
        ] {
            assert_eq!(users(&keyring, image), expected, "{image}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_costs_no_time() {
        for (pattern, label, fits) in [
            ("*", "", true),
            ("a*", "a", true),
            ("a*a", "a", false),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*a*b*", "xaxbx", true),
            ("*a*b*", "xbxax", false),
        ] {
            assert_eq!(label_fits(pattern, label), fits, "{pattern} {label}");
        }
        let pattern = format!("{}b", "*a".repeat(1000));
        assert!(!label_fits(&pattern, &"a".repeat(1999)));
    }

    #[test]
    fn secrets_come_before_the_node_and_the_old_form_is_read() {
        let mut keyring = Keyring::default();
        let old = secret(".dockercfg", r#"{"r.io":{"username":"s","password":"1","email":"e"}}"#);
        keyring.add_secret(&old).expect("read");
        let node = r#"{"auths":{"r.io":{"username":"n"}},"credHelpers":{}}"#;
        keyring
            .add(Form::ConfigJson, node.as_bytes(), &Origin::Node)
            .expect("read");
        assert_eq!(users(&keyring, "r.io/a"), ["s", "n"]);
        let origins: Vec<_> = keyring.matching("r.io/a").into_iter().map(|c| c.origin).collect();
        assert!(matches!(&origins[0], Origin::Secret { uid, name, .. } if uid == "u-1" && name == "pull"));
        assert_eq!(origins[1], Origin::Node);
        assert!(!format!("{keyring:?}").contains("\"1\""), "{keyring:?}");
    }

    #[test]
    fn what_cannot_be_read_is_named_without_its_content() {
        for (key, text, expected) in [
            (".dockerconfigjson", "{secret", "malformed: not JSON at line 1 column 2"),
            (
                ".dockercfg",
                r#"{"r.io":"secret"}"#,
                "malformed: not of the expected form at line 1 column 16",
            ),
            (
                ".dockerconfigjson",
                r#"{"auths":{"r.io":{"auth":"c2VjcmV0"}}}"#,
                "auths[\"r.io\"].auth: must be formatted as base64(username:password)",
            ),
            ("token", "x", "has neither .dockerconfigjson nor .dockercfg"),
        ] {
            let mut keyring = Keyring::default();
            let error = keyring.add_secret(&secret(key, text)).expect_err("unreadable");
            assert_eq!(error.to_string(), expected);
            assert!(keyring.logins.is_empty());
        }
    }

    #[test]
    fn a_hash_is_of_the_login_as_go_writes_it() {
        let credential = |username: &str, password: &str| Credential {
            auth: pb::AuthConfig {
                username: username.into(),
                password: password.into(),
                ..pb::AuthConfig::default()
            },
            origin: Origin::Node,
        };
        let expected = hex::encode(sha2::Sha256::digest(
            br#"{"username":"u","password":"a\u003cb\u0026\"c"}"#,
        ));
        assert_eq!(credential("u", "a<b&\"c").hash(), expected);
        assert_ne!(credential("u", "other").hash(), expected);
    }
}
