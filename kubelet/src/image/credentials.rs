//! Registry credentials from pull secrets (`kubernetes.io/dockerconfigjson` and `kubernetes.io/dockercfg`). Pure.

use super::reference::registry_and_repository;
use base64::Engine;
use k8s_openapi::api::core::v1::Secret;
use proto::cri as pb;
use serde::Deserialize;
use std::collections::BTreeMap;

/// One login.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct Login {
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

#[derive(Default, Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Login>,
}

/// The logins of a pod's pull secrets, in the order of the secrets.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    logins: Vec<(String, Login)>,
}

impl Keyring {
    /// Adds a secret's logins; what cannot be read is left out.
    pub fn add(&mut self, secret: &Secret) {
        let data = |key: &str| {
            secret
                .data
                .as_ref()
                .and_then(|data| data.get(key))
                .map(|bytes| bytes.0.as_slice())
        };
        let auths = match (data(".dockerconfigjson"), data(".dockercfg")) {
            (Some(bytes), _) => serde_json::from_slice::<DockerConfig>(bytes).unwrap_or_default().auths,
            (None, Some(bytes)) => serde_json::from_slice(bytes).unwrap_or_default(),
            (None, None) => BTreeMap::new(),
        };
        self.logins.extend(auths);
    }

    /// The logins that fit an image's registry, the most specific first.
    pub fn matching(&self, image: &str) -> Vec<pb::AuthConfig> {
        let (host, repository) = registry_and_repository(image);
        let full = format!("{host}/{repository}");
        let mut fitting: Vec<(usize, &Login)> = self
            .logins
            .iter()
            .filter_map(|(key, login)| fits(key, &host, &full).map(|length| (length, login)))
            .collect();
        fitting.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
        fitting.into_iter().map(|(_, login)| auth(login)).collect()
    }
}

/// How specifically a login's key fits the image, if it does.
fn fits(key: &str, host: &str, full: &str) -> Option<usize> {
    let key = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"))
        .unwrap_or(key);
    let key = key.trim_end_matches('/');
    let key = key
        .strip_suffix("/v1")
        .or_else(|| key.strip_suffix("/v2"))
        .unwrap_or(key);
    let key = if key == "docker.io" { "index.docker.io" } else { key };
    let (pattern, path) = key.split_once('/').map_or((key, ""), |(pattern, path)| (pattern, path));
    if !host_fits(pattern, host) {
        return None;
    }
    let below = full.strip_prefix(host).unwrap_or_default().trim_start_matches('/');
    let path_fits = path.is_empty() || below == path || below.starts_with(&format!("{path}/"));
    path_fits.then_some(key.len())
}

/// Whether a host fits a pattern whose labels may be `*`.
fn host_fits(pattern: &str, host: &str) -> bool {
    let (pattern, host): (Vec<&str>, Vec<&str>) = (pattern.split('.').collect(), host.split('.').collect());
    pattern.len() == host.len()
        && pattern
            .iter()
            .zip(host)
            .all(|(pattern, label)| *pattern == "*" || *pattern == label)
}

fn auth(login: &Login) -> pb::AuthConfig {
    let (mut username, mut password) = (login.username.clone(), login.password.clone());
    if username.is_empty() && !login.auth.is_empty() {
        let decoded = base64::engine::general_purpose::STANDARD
            .decode(&login.auth)
            .unwrap_or_default();
        if let Some((user, secret)) = String::from_utf8_lossy(&decoded).split_once(':') {
            (username, password) = (user.to_owned(), secret.to_owned());
        }
    }
    pb::AuthConfig {
        username,
        password,
        identity_token: login.identity_token.clone(),
        registry_token: login.registry_token.clone(),
        ..pb::AuthConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    fn keyring(json: &str) -> Keyring {
        let data = [(".dockerconfigjson".to_owned(), ByteString(json.as_bytes().to_vec()))];
        let mut keyring = Keyring::default();
        keyring.add(&Secret {
            data: Some(data.into_iter().collect()),
            ..Secret::default()
        });
        keyring
    }

    #[test]
    fn logins_fit_by_registry_and_path() {
        let keyring = keyring(
            r#"{"auths":{"https://index.docker.io/v1/":{"auth":"dTpw"},"ghcr.io":{"username":"g","password":"1"},
                "ghcr.io/team":{"username":"t","password":"2"},"*.example.com":{"username":"w","password":"3"}}}"#,
        );
        let users = |image| {
            keyring
                .matching(image)
                .into_iter()
                .map(|auth| auth.username)
                .collect::<Vec<_>>()
        };
        assert_eq!(users("nginx"), ["u"]);
        assert_eq!(users("ghcr.io/team/app"), ["t", "g"]);
        assert_eq!(users("ghcr.io/teams/app"), ["g"]);
        assert_eq!(users("r.example.com/a"), ["w"]);
        assert!(users("quay.io/a").is_empty());
    }
}
