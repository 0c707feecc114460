//! What a configuration says of extenders. Pure: files are opened by whoever connects.

use super::{Extender, ManagedResource, Source, Tls};
use crate::config::components::duration;
use base64::Engine;
use proto::api::names::is_extended_resource;
use serde::Deserialize;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(5);
/// A cycle waits for an extender, and all pods for the cycle.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Keeps the sum of weighted scores far from overflow.
const WEIGHT_MAX: i64 = 1_000_000;
const EXTENDERS_MAX: usize = 16;

/// One entry of `extenders`, in the words of KubeSchedulerConfiguration or (`enableHttps`, `apiVersion`) of a Policy.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(in crate::scheduler) struct ExtenderWords {
    url_prefix: String,
    api_version: Option<String>,
    filter_verb: String,
    prioritize_verb: String,
    preempt_verb: String,
    bind_verb: String,
    weight: Option<i64>,
    #[serde(rename = "enableHTTPS", alias = "enableHttps")]
    enable_https: Option<bool>,
    tls_config: Option<TlsWords>,
    http_timeout: Option<TimeoutWords>,
    node_cache_capable: bool,
    managed_resources: Vec<ManagedWords>,
    ignorable: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TimeoutWords {
    /// Of a Policy.
    Nanoseconds(u64),
    Text(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct TlsWords {
    insecure: bool,
    server_name: Option<String>,
    cert_file: String,
    key_file: String,
    ca_file: String,
    cert_data: String,
    key_data: String,
    ca_data: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ManagedWords {
    name: String,
    #[serde(default)]
    ignored_by_scheduler: bool,
}

/// Reads all of them.
///
/// # Errors
/// The first mistake, with its field.
pub(in crate::scheduler) fn read(all: Vec<ExtenderWords>) -> Result<Vec<Extender>, String> {
    if all.len() > EXTENDERS_MAX {
        return Err(format!("extenders: at most {EXTENDERS_MAX} are supported"));
    }
    let mut extenders = Vec::new();
    for (index, words) in all.into_iter().enumerate() {
        let extender = words.resolve().map_err(|why| format!("extenders[{index}].{why}"))?;
        extenders.push(extender);
    }
    let binders = extenders.iter().filter(|extender| !extender.bind.is_empty()).count();
    if binders > 1 {
        return Err(format!("extenders: only one may implement bind, found {binders}"));
    }
    Ok(extenders)
}

impl ExtenderWords {
    fn resolve(self) -> Result<Extender, String> {
        let is_https = self.url_prefix.starts_with("https://");
        let url = self.url_prefix.parse::<http::Uri>().ok();
        let url = url.filter(|url| url.host().is_some() && (is_https || self.url_prefix.starts_with("http://")));
        if url.is_none() {
            return Err(format!(
                "urlPrefix: Invalid value: {:?}: must be a http or https URL",
                self.url_prefix
            ));
        }
        if self.api_version.is_some_and(|version| version != "v1") {
            return Err("apiVersion: only v1 is supported".to_owned());
        }
        for (field, verb) in [
            ("filterVerb", &self.filter_verb),
            ("prioritizeVerb", &self.prioritize_verb),
            ("preemptVerb", &self.preempt_verb),
            ("bindVerb", &self.bind_verb),
        ] {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~/".contains(c);
            if !verb.chars().all(is_plain) {
                return Err(format!("{field}: Invalid value: {verb:?}: must be a path"));
            }
        }
        let weight = self
            .weight
            .unwrap_or(if self.prioritize_verb.is_empty() { 0 } else { 1 });
        if !self.prioritize_verb.is_empty() && !(1..=WEIGHT_MAX).contains(&weight) {
            return Err(format!(
                "weight: Invalid value: {weight}: must have a positive weight applied to it, up to {WEIGHT_MAX}"
            ));
        }
        let tls = self.tls_config.unwrap_or_default().resolve()?;
        if self.enable_https.is_some_and(|enabled| enabled != is_https) {
            return Err("enableHTTPS: does not go with urlPrefix, whose scheme counts".to_owned());
        }
        if is_https && !tls.insecure && tls.authority.is_none() {
            return Err("tlsConfig.caFile: Required value: whom to trust, or tlsConfig.insecure: true".to_owned());
        }
        Ok(Extender {
            url_prefix: self.url_prefix.trim_end_matches('/').to_owned(),
            filter: self.filter_verb,
            prioritize: self.prioritize_verb,
            preempt: self.preempt_verb,
            bind: self.bind_verb,
            weight,
            timeout: timeout(self.http_timeout)?,
            knows_nodes: self.node_cache_capable,
            managed: managed(self.managed_resources)?,
            ignorable: self.ignorable,
            tls,
        })
    }
}

fn timeout(words: Option<TimeoutWords>) -> Result<Duration, String> {
    let given = match words {
        None => return Ok(TIMEOUT),
        Some(TimeoutWords::Nanoseconds(0)) => return Ok(TIMEOUT),
        Some(TimeoutWords::Nanoseconds(nanoseconds)) => Duration::from_nanos(nanoseconds),
        Some(TimeoutWords::Text(text)) => duration(&text).map_err(|why| format!("httpTimeout: {text:?} {why}"))?,
    };
    match given {
        Duration::ZERO => Ok(TIMEOUT),
        given if given <= TIMEOUT_MAX => Ok(given),
        _ => Err("httpTimeout: must be at most 10m".to_owned()),
    }
}

fn managed(words: Vec<ManagedWords>) -> Result<Vec<ManagedResource>, String> {
    let mut all: Vec<ManagedResource> = Vec::new();
    for (index, words) in words.into_iter().enumerate() {
        let at = format!("managedResources[{index}].name");
        if !is_extended_resource(&words.name) {
            return Err(format!(
                "{at}: Invalid value: {:?}: is an invalid extended resource name",
                words.name
            ));
        }
        if all.iter().any(|known| known.name == words.name) {
            return Err(format!(
                "{at}: duplicate extender managed resource name {:?}",
                words.name
            ));
        }
        all.push(ManagedResource {
            name: words.name,
            ignored: words.ignored_by_scheduler,
        });
    }
    Ok(all)
}

impl TlsWords {
    fn resolve(self) -> Result<Tls, String> {
        let source = |field: &str, file: String, data: String| match (file.is_empty(), data.is_empty()) {
            (true, true) => Ok(None),
            // Data go before the file, as upstream.
            (_, false) => {
                let bytes = base64::engine::general_purpose::STANDARD.decode(&data).ok();
                let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
                text.map(|text| Some(Source::Text(text)))
                    .ok_or_else(|| format!("tlsConfig.{field}: is no base64 of PEM text"))
            }
            (false, true) => Ok(Some(Source::File(file))),
        };
        let authority = source("caData", self.ca_file, self.ca_data)?;
        if self.insecure && authority.is_some() {
            return Err("tlsConfig.insecure: goes with neither caFile nor caData".to_owned());
        }
        let cert = source("certData", self.cert_file, self.cert_data)?;
        let key = source("keyData", self.key_file, self.key_data)?;
        let identity = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err("tlsConfig.certFile: a certificate and its key must be given together".to_owned()),
        };
        Ok(Tls {
            insecure: self.insecure,
            server_name: self.server_name,
            authority,
            identity,
        })
    }
}
