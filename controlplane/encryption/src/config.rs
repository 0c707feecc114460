//! EncryptionConfiguration (apiserver.config.k8s.io/v1): what is written, and what is wrong with it. Pure.
//!
//! Owns the file's form and its rules; texts are upstream's, and all mistakes are told at once. What upstream drops without a word, an
//! unknown field, is refused. Never opens a file.

mod validate;

use crate::cipher::{Algorithm, Secret};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;
use zeroize::Zeroizing;

/// How long a call to a key management plugin may take, unless the file says.
const KMS_TIMEOUT: &str = "3s";

/// A resource of a group, or all of them by `*`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupResource {
    /// Empty for the core group; `*` for all.
    pub group: String,
    /// Plural name; `*` for all.
    pub resource: String,
}

impl GroupResource {
    /// Of `resource.group`; what follows the first dot is the group.
    pub fn parse(text: &str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Self {
            group: group.to_owned(),
            resource: resource.to_owned(),
        }
    }
}

/// As the file writes it.
impl std::fmt::Display for GroupResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.resource)?;
        if !self.group.is_empty() || self.resource == "*" {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// A key by its name.
#[derive(Clone)]
pub struct NamedKey {
    /// Stands before what is encrypted with it.
    pub name: String,
    /// Of a length its cipher has.
    pub secret: Secret,
}

/// A key management plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KmsPlugin {
    /// Stands before what is encrypted through it.
    pub name: String,
    /// Its socket.
    pub socket: PathBuf,
    /// How long a call may take.
    pub timeout: Duration,
}

/// A way to write values, and to read them.
#[derive(Clone)]
pub enum ProviderConfig {
    /// In clear.
    Identity,
    /// With the first key; any of them reads.
    Keys(Algorithm, Vec<NamedKey>),
    /// With keys that a plugin keeps.
    Kms(KmsPlugin),
}

/// Resources, and how their values are written (by the first) and read.
#[derive(Clone)]
pub struct Entry {
    /// What it is for.
    pub resources: Vec<GroupResource>,
    /// In the order they are tried.
    pub providers: Vec<ProviderConfig>,
}

/// The file's text with its mistakes gone.
///
/// # Errors
/// All mistakes, each with the path of its field.
pub fn parse(text: &str) -> Result<Vec<Entry>, String> {
    if text.trim().is_empty() {
        return Err("the file is empty".to_owned());
    }
    let file: File = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let mistakes = validate::mistakes(&file);
    match &mistakes[..] {
        [] => {}
        [one] => return Err(one.clone()),
        _ => return Err(format!("[{}]", mistakes.join(", "))),
    }
    file.resources.iter().map(Resources::checked).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    resources: Vec<Resources>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resources {
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    providers: Vec<Provider>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Provider {
    aesgcm: Option<Keys>,
    aescbc: Option<Keys>,
    secretbox: Option<Keys>,
    identity: Option<Identity>,
    kms: Option<Kms>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default)]
    keys: Vec<Key>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    #[serde(default)]
    name: String,
    #[serde(default)]
    secret: Zeroizing<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Kms {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    name: String,
    #[serde(default)]
    cachesize: Option<i32>,
    #[serde(default)]
    endpoint: String,
    #[serde(default)]
    timeout: Option<String>,
}

impl Kms {
    /// Upstream's default is the older one.
    fn api_version(&self) -> &str {
        self.api_version.as_deref().unwrap_or("v1")
    }

    /// The timeout; `None` if it cannot be read.
    fn timeout(&self) -> Option<Duration> {
        duration(self.timeout.as_deref().unwrap_or(KMS_TIMEOUT))
    }

    /// The path of the socket; `None` if the endpoint is none.
    fn socket(&self) -> Option<PathBuf> {
        let path = self.endpoint.strip_prefix("unix://")?;
        path.starts_with('/').then(|| PathBuf::from(path))
    }
}

impl Keys {
    fn checked(&self) -> Result<Vec<NamedKey>, String> {
        let keys = self.keys.iter().map(|key| {
            let secret = STANDARD.decode(key.secret.as_bytes());
            Ok(NamedKey {
                name: key.name.clone(),
                secret: Secret::new(secret.map_err(|error| error.to_string())?),
            })
        });
        keys.collect()
    }
}

impl Resources {
    /// What has been validated, taken apart.
    fn checked(&self) -> Result<Entry, String> {
        let providers = self.providers.iter().map(Provider::checked);
        Ok(Entry {
            resources: self.resources.iter().map(|name| GroupResource::parse(name)).collect(),
            providers: providers.collect::<Result<_, _>>()?,
        })
    }
}

impl Provider {
    fn checked(&self) -> Result<ProviderConfig, String> {
        let keys = [
            (Algorithm::AesGcm, &self.aesgcm),
            (Algorithm::AesCbc, &self.aescbc),
            (Algorithm::Secretbox, &self.secretbox),
        ];
        for (algorithm, keys) in keys {
            if let Some(keys) = keys {
                return Ok(ProviderConfig::Keys(algorithm, keys.checked()?));
            }
        }
        let Some(kms) = &self.kms else {
            return Ok(ProviderConfig::Identity);
        };
        let plugin = kms.socket().zip(kms.timeout()).map(|(socket, timeout)| KmsPlugin {
            name: kms.name.clone(),
            socket,
            timeout,
        });
        plugin.map(ProviderConfig::Kms).ok_or_else(|| kms.name.clone())
    }
}

/// Of Go's text, such as `1m30s` or `500ms`; `None` for what is none, or negative.
fn duration(text: &str) -> Option<Duration> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | 'µ');
    let parsed: SignedDuration = text.parse().ok().filter(|_| text.chars().all(is_plain))?;
    Duration::try_from(parsed).ok()
}

#[cfg(test)]
mod tests;
