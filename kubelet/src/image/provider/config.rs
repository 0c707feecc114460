//! `CredentialProviderConfig`: which plugins there are, and what they are asked about (`--image-credential-provider-config`).
//!
//! Reads a file, or the files of a directory in the order of their names. Everything but reading is pure; every mistake is told
//! at once, in upstream's words.

use super::pattern::Pattern;
use crate::config::duration;
use client::ordered::{Arrange, CollectOrdered};
use proto::api::names::qualified_name_error;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

const GROUP: &str = "kubelet.config.k8s.io";
const KIND: &str = "CredentialProviderConfig";
/// The version that has `tokenAttributes`, of configuration and plugins alike.
const WITH_TOKENS: &str = "v1";
const VERSIONS: [&str; 3] = ["v1", "v1alpha1", "v1beta1"];
/// Versions of requests and answers.
const PLUGIN_VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
];
/// What is larger is no configuration.
const BYTES_MAX: u64 = 1024 * 1024;
/// More files or plugins than anybody writes.
const FILES_MAX: usize = 1000;
const GATE: &str = "KubeletServiceAccountTokenForCredentialProviders";

/// Why there are no plugins.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Only the directory of the plugins was given.
    #[error("credential provider config path is empty")]
    NoPath,
    /// There is nothing, or nothing that can be read.
    #[error("unable to access path {path:?}: {why}")]
    Access {
        /// File or directory.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// A directory without a file that ends as it should.
    #[error("no configuration files found in directory {0:?}")]
    Empty(PathBuf),
    /// More than is read.
    #[error("directory {0:?} has more than {FILES_MAX} configuration files")]
    TooMany(PathBuf),
    /// A file that cannot be read.
    #[error("unable to read file {path:?}: {why}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// A file that is no such configuration.
    #[error("error decoding config {path:?}: {why}")]
    Decode {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Two plugins of one name.
    #[error("duplicate provider name {0:?} found in configuration file(s)")]
    Duplicate(String),
    /// Values that cannot be.
    #[error("failed to validate credential provider config: {}", aggregate(.0))]
    Invalid(Vec<String>),
}

fn aggregate(mistakes: &[String]) -> String {
    match mistakes {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// The plugins, in the order their logins are tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The plugins.
    pub providers: Vec<Provider>,
    /// The hash of the files, as metrics show it.
    pub hash: String,
}

/// One plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct Provider {
    /// The name of its binary.
    pub name: String,
    /// The images it is asked about.
    pub images: Vec<Pattern>,
    /// How long an answer is used that does not say so itself.
    pub cache: Duration,
    /// The version of requests and answers.
    pub api_version: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// What is added to the kubelet's environment.
    pub env: Vec<(String, String)>,
    /// Which token it gets of a pod's service account, if it gets any.
    pub token: Option<TokenAttributes>,
}

/// Which token a plugin gets, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenAttributes {
    /// Whom the token is for.
    pub audience: String,
    /// The plugin's answers belong to one token, not to the service account.
    pub for_one_token: bool,
    /// Without a service account the plugin is not asked.
    pub required: bool,
    /// Annotations without which the plugin is not asked.
    pub required_keys: Vec<String>,
    /// Annotations it gets if they are there.
    pub optional_keys: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    #[expect(dead_code, reason = "judged before the rest is read")]
    api_version: String,
    #[expect(dead_code, reason = "likewise")]
    kind: String,
    #[serde(default)]
    providers: Vec<WrittenProvider>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WrittenProvider {
    pub(super) name: String,
    pub(super) match_images: Vec<String>,
    pub(super) default_cache_duration: Option<String>,
    pub(super) api_version: String,
    pub(super) args: Option<Vec<String>>,
    pub(super) env: Option<Vec<WrittenVariable>>,
    pub(super) token_attributes: Option<WrittenToken>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenVariable {
    pub(super) name: String,
    #[serde(default)]
    pub(super) value: String,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WrittenToken {
    pub(super) service_account_token_audience: String,
    pub(super) cache_type: String,
    pub(super) require_service_account: Option<bool>,
    pub(super) required_service_account_annotation_keys: Option<Vec<String>>,
    pub(super) optional_service_account_annotation_keys: Option<Vec<String>>,
}

/// Reads a file, or the `*.json`, `*.yaml` and `*.yml` of a directory. `tokens` is the gate of `tokenAttributes`.
///
/// # Errors
/// What cannot be read, is no such configuration, or has values that cannot be.
pub fn read(path: &Path, tokens: bool) -> Result<Config, ConfigError> {
    if path.as_os_str().is_empty() {
        return Err(ConfigError::NoPath);
    }
    let mut hasher = Sha256::new();
    let mut written = Vec::new();
    let mut names = BTreeSet::new();
    for file in files(path)? {
        let text = text(&file).map_err(|why| ConfigError::Read {
            path: file.clone(),
            why,
        })?;
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text.as_bytes());
        let more = decode(&text).map_err(|why| ConfigError::Decode { path: file, why })?;
        if let Some(twice) = more.iter().find(|provider| !names.insert(provider.name.clone())) {
            return Err(ConfigError::Duplicate(twice.name.clone()));
        }
        written.extend(more);
    }
    Ok(Config {
        providers: validate(written, tokens).map_err(ConfigError::Invalid)?,
        hash: format!("sha256:{}", hex::encode(hasher.finalize())),
    })
}

fn files(path: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let failed = |why| ConfigError::Access {
        path: path.to_owned(),
        why,
    };
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let file = entry.path();
        let ending = file.extension().and_then(|ending| ending.to_str());
        let is_directory = entry.file_type().map_err(failed)?.is_dir();
        if !is_directory && matches!(ending, Some("json" | "yaml" | "yml")) {
            files.push(file);
        }
        if files.len() > FILES_MAX {
            return Err(ConfigError::TooMany(path.to_owned()));
        }
    }
    if files.is_empty() {
        return Err(ConfigError::Empty(path.to_owned()));
    }
    files.arrange();
    Ok(files)
}

fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Reads one file's text strictly.
pub(super) fn decode(text: &str) -> Result<Vec<WrittenProvider>, String> {
    let tree: Value = serde_saphyr::from_str(text).map_err(|error| format!("invalid YAML: {error}"))?;
    let word = |field: &str| tree.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (word("apiVersion"), word("kind"));
    if api_version.is_empty() || kind.is_empty() {
        let which = if kind.is_empty() { "Kind" } else { "apiVersion" };
        return Err(format!("Object '{which}' is missing"));
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if kind != KIND || group != GROUP || !VERSIONS.contains(&version) {
        return Err(format!("no kind {kind:?} is registered for version {api_version:?}"));
    }
    let has_tokens = version == WITH_TOKENS;
    let written: Written = serde_json::from_value(tree).map_err(|error| format!("strict decoding error: {error}"))?;
    if written.providers.len() > FILES_MAX {
        return Err(format!("more than {FILES_MAX} providers"));
    }
    let early = written
        .providers
        .iter()
        .position(|provider| provider.token_attributes.is_some());
    match early.filter(|_| !has_tokens) {
        Some(at) => Err(format!(
            "strict decoding error: unknown field \"providers[{at}].tokenAttributes\""
        )),
        None => Ok(written.providers),
    }
}

/// Mistakes as upstream lists them.
#[derive(Default)]
struct Mistakes(Vec<String>);

impl Mistakes {
    fn required(&mut self, field: &str, why: &str) {
        let colon = if why.is_empty() { "" } else { ": " };
        self.0.push(format!("providers{field}: Required value{colon}{why}"));
    }

    fn invalid(&mut self, field: &str, value: &str, why: &str) {
        self.0.push(format!("providers{field}: Invalid value: {value}: {why}"));
    }

    fn forbidden(&mut self, field: &str, why: &str) {
        self.0.push(format!("providers{field}: Forbidden: {why}"));
    }

    fn unsupported(&mut self, field: &str, value: &str, known: &[&str]) {
        let known: Vec<String> = known.iter().map(|word| format!("{word:?}")).collect();
        let known = known.join(", ");
        self.0.push(format!(
            "providers{field}: Unsupported value: {value:?}: supported values: {known}"
        ));
    }
}

/// What was written, if all of it can be.
pub(super) fn validate(written: Vec<WrittenProvider>, tokens: bool) -> Result<Vec<Provider>, Vec<String>> {
    let mut mistakes = Mistakes::default();
    if written.is_empty() {
        mistakes.required("", "at least 1 item in plugins is required");
    }
    let providers = written
        .into_iter()
        .map(|provider| one(&mut mistakes, provider, tokens))
        .collect();
    if mistakes.0.is_empty() {
        Ok(providers)
    } else {
        Err(mistakes.0)
    }
}

fn one(mistakes: &mut Mistakes, written: WrittenProvider, tokens: bool) -> Provider {
    let name = format!("{:?}", written.name);
    let mut name_is = |wrong: bool, why: &str| {
        if wrong {
            mistakes.invalid(".name", &name, &format!("provider name cannot {why}"));
        }
    };
    name_is(written.name.contains('/'), "contain '/'");
    name_is(written.name.contains(' '), "contain spaces");
    name_is(written.name == ".", "be '.'");
    name_is(written.name == "..", "be '..'");
    name_is(written.name.contains('\0'), "contain NUL");
    if written.name.is_empty() {
        mistakes.required(".name", "");
    }
    if written.api_version.is_empty() {
        mistakes.required(".apiVersion", "");
    } else if !PLUGIN_VERSIONS.contains(&written.api_version.as_str()) {
        mistakes.unsupported(".apiVersion", &written.api_version, &PLUGIN_VERSIONS);
    }
    if written.match_images.is_empty() {
        mistakes.required(".matchImages", "at least 1 item in matchImages is required");
    }
    let mut images = Vec::new();
    for image in &written.match_images {
        match Pattern::parse(image) {
            Ok(pattern) => images.push(pattern),
            Err(why) => mistakes.invalid(
                ".matchImages",
                &format!("{image:?}"),
                &format!("match image is invalid: {why}"),
            ),
        }
    }
    Provider {
        images,
        cache: cache(mistakes, written.default_cache_duration.as_deref()),
        token: written
            .token_attributes
            .map(|token| attributes(mistakes, token, tokens, &written.api_version)),
        name: written.name,
        api_version: written.api_version,
        args: written.args.unwrap_or_default(),
        env: variables(mistakes, written.env.unwrap_or_default()),
    }
}

fn cache(mistakes: &mut Mistakes, text: Option<&str>) -> Duration {
    const FIELD: &str = ".defaultCacheDuration";
    let Some(text) = text else {
        mistakes.required(FIELD, "");
        return Duration::ZERO;
    };
    match (duration::parse(text), text.strip_prefix('-').map(duration::parse)) {
        (Ok(cache), _) => return cache,
        (Err(_), Some(Ok(_))) => mistakes.invalid(FIELD, text, "must be greater than or equal to 0"),
        (Err(why), _) => mistakes.invalid(FIELD, &format!("{text:?}"), &why),
    }
    Duration::ZERO
}

fn variables(mistakes: &mut Mistakes, written: Vec<WrittenVariable>) -> Vec<(String, String)> {
    for variable in &written {
        let name = &variable.name;
        if name.is_empty() || name.contains(['=', '\0']) || variable.value.contains('\0') {
            mistakes.invalid(".env.name", &format!("{name:?}"), "is no variable of an environment");
        }
    }
    written
        .into_iter()
        .map(|variable| (variable.name, variable.value))
        .collect()
}

fn attributes(mistakes: &mut Mistakes, written: WrittenToken, gate: bool, api_version: &str) -> TokenAttributes {
    const FIELD: &str = ".tokenAttributes";
    const CACHES: [&str; 2] = ["ServiceAccount", "Token"];
    if !gate {
        let why = format!("tokenAttributes is not supported when {GATE} feature gate is disabled");
        mistakes.forbidden(FIELD, &why);
    }
    if written.service_account_token_audience.is_empty() {
        mistakes.required(".tokenAttributes.serviceAccountTokenAudience", "");
    }
    if written.require_service_account.is_none() {
        mistakes.required(".tokenAttributes.requireServiceAccount", "");
    }
    if api_version != PLUGIN_VERSIONS[0] {
        let why = format!(
            "tokenAttributes is only supported for {} API version",
            PLUGIN_VERSIONS[0]
        );
        mistakes.forbidden(FIELD, &why);
    }
    let required_keys = written.required_service_account_annotation_keys.unwrap_or_default();
    let optional_keys = written.optional_service_account_annotation_keys.unwrap_or_default();
    if written.require_service_account == Some(false) && !required_keys.is_empty() {
        mistakes.forbidden(
            ".tokenAttributes.requiredServiceAccountAnnotationKeys",
            "requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set",
        );
    }
    keys(
        mistakes,
        ".tokenAttributes.requiredServiceAccountAnnotationKeys",
        &required_keys,
    );
    keys(
        mistakes,
        ".tokenAttributes.optionalServiceAccountAnnotationKeys",
        &optional_keys,
    );
    let required: BTreeSet<&String> = required_keys.iter().collect_ordered();
    let optional: BTreeSet<&String> = optional_keys.iter().collect_ordered();
    let both: Vec<&&String> = required.intersection(&optional).collect();
    if !both.is_empty() {
        mistakes.invalid(
            FIELD,
            &format!("{both:?}"),
            "annotation keys cannot be both required and optional",
        );
    }
    match written.cache_type.as_str() {
        "" => mistakes.required(
            ".tokenAttributes.cacheType",
            &format!(
                "cacheType is required to be set when tokenAttributes is specified. Supported values are: {}",
                CACHES.join(", ")
            ),
        ),
        known if CACHES.contains(&known) => {}
        other => mistakes.unsupported(".tokenAttributes.cacheType", other, &CACHES),
    }
    TokenAttributes {
        audience: written.service_account_token_audience,
        for_one_token: written.cache_type == "Token",
        required: written.require_service_account.unwrap_or(true),
        required_keys,
        optional_keys,
    }
}

/// Annotations may have capitals; else they are qualified names.
fn keys(mistakes: &mut Mistakes, field: &str, keys: &[String]) {
    let mut seen = BTreeSet::new();
    for key in keys {
        if let Some(why) = qualified_name_error(&key.to_lowercase()) {
            mistakes.invalid(field, &format!("{key:?}"), &why);
        }
        if !seen.insert(key) {
            mistakes.0.push(format!("providers{field}: Duplicate value: {key:?}"));
        }
    }
}

#[cfg(test)]
mod tests;
