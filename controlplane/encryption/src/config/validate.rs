//! What is wrong with an EncryptionConfiguration, in upstream's words. Pure.

use super::{File, GroupResource, Key, Keys, Kms, Provider};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeSet;
use std::time::Duration;
use zeroize::Zeroizing;

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";
/// Resources that are in the store and behind no path of the API.
const NOT_SERVED: [&str; 3] = ["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"];
const AES_KEYS: &[usize] = &[16, 24, 32];
const SECRETBOX_KEYS: &[usize] = &[32];

/// Mistakes by the path of their field.
#[derive(Default)]
struct Mistakes(Vec<String>);

impl Mistakes {
    fn required(&mut self, path: &str, why: &str) {
        self.0.push(format!("{path}: Required value: {why}"));
    }

    fn invalid(&mut self, path: &str, value: &str, why: &str) {
        self.0.push(format!("{path}: Invalid value: {value:?}: {why}"));
    }

    fn invalid_list(&mut self, path: &str, values: &[String], why: &str) {
        let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
        let values = values.join(",");
        self.0.push(format!("{path}: Invalid value: [{values}]: {why}"));
    }
}

/// All of them.
pub(super) fn mistakes(file: &File) -> Vec<String> {
    let mut found = Mistakes::default();
    if (&*file.api_version, &*file.kind) != (API_VERSION, KIND) {
        let (kind, version) = (&file.kind, &file.api_version);
        found.0.push(format!(
            "no kind {kind:?} is registered for version {version:?}: kind must be {KIND}, apiVersion {API_VERSION}"
        ));
        return found.0;
    }
    if file.resources.is_empty() {
        found.required("resources", "at least one resources is required");
    }
    let mut plugins = BTreeSet::new();
    let mut before: Vec<GroupResource> = Vec::new();
    for (number, entry) in file.resources.iter().enumerate() {
        let path = format!("resources[{number}].resources");
        if entry.resources.is_empty() {
            found.required(&path, &format!("at least one {path} is required"));
        }
        overlaps(&mut found, &path, &entry.resources);
        let before_this = before.len();
        for (at, name) in entry.resources.iter().enumerate() {
            let path = format!("{path}[{at}]");
            resource(&mut found, &path, name);
            masked(&mut found, &path, name, &before[..before_this]);
            before.push(GroupResource::parse(name));
        }
        let path = format!("resources[{number}].providers");
        if entry.providers.is_empty() {
            found.required(&path, &format!("at least one {path} is required"));
        }
        for (at, one) in entry.providers.iter().enumerate() {
            provider(&mut found, &format!("{path}[{at}]"), one, &mut plugins);
        }
    }
    found.0
}

fn overlaps(found: &mut Mistakes, path: &str, names: &[String]) {
    let all: Vec<_> = names.iter().map(|name| GroupResource::parse(name)).collect();
    let pairs = || {
        let pairs = all.iter().enumerate();
        pairs.flat_map(|(at, one)| all[at + 1..].iter().map(move |other| (one, other)))
    };
    if pairs().any(|(one, other)| one == other) {
        found.invalid_list(path, names, "the same resource cannot be specified multiple times");
    }
    let is_all = |name: &GroupResource| name.group == "*" && name.resource == "*";
    let overlap = |(one, other): (&GroupResource, &GroupResource)| {
        one != other
            && (is_all(one)
                || is_all(other)
                || one.group == other.group && (one.resource == "*" || other.resource == "*"))
    };
    if pairs().any(overlap) {
        let why = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will \
                   be masked";
        found.invalid_list(path, names, why);
    }
}

fn resource(found: &mut Mistakes, path: &str, name: &str) {
    let parsed = GroupResource::parse(name);
    let why = if name.to_lowercase() != name {
        "resource name should not contain capital letters"
    } else if name == "*" {
        "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
    } else if NOT_SERVED.contains(&name) {
        "resources which do not have REST API/s cannot be encrypted"
    } else if parsed.group == "events.k8s.io" {
        "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"
    } else if parsed.group == "extensions" {
        "'extensions' group has been removed and cannot be used for encryption"
    } else if parsed.group == "*" && parsed.resource != "*" {
        "encrypting the same resource across groups is not supported"
    } else {
        return;
    };
    found.invalid(path, name, why);
}

/// An earlier entry takes all of the group, or everything: what comes later would never be asked.
fn masked(found: &mut Mistakes, path: &str, name: &str, before: &[GroupResource]) {
    let name = GroupResource::parse(name);
    let takes_it =
        |earlier: &&GroupResource| earlier.resource == "*" && (earlier.group == name.group || earlier.group == "*");
    if let Some(by) = before.iter().find(takes_it) {
        let (name, by) = (name.to_string(), by.to_string());
        found
            .0
            .push(format!("{path}: resource {name:?} is masked by earlier rule {by:?}"));
    }
}

fn provider(found: &mut Mistakes, path: &str, given: &Provider, plugins: &mut BTreeSet<String>) {
    let lists = [
        ("aesgcm", &given.aesgcm, AES_KEYS),
        ("aescbc", &given.aescbc, AES_KEYS),
        ("secretbox", &given.secretbox, SECRETBOX_KEYS),
    ];
    let others = usize::from(given.kms.is_some()) + usize::from(given.identity.is_some());
    match lists.iter().filter(|(_, keys, _)| keys.is_some()).count() + others {
        0 => {
            let why =
                "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity";
            found.invalid(path, "", why);
        }
        1 => {}
        _ => {
            let why = "more than one provider specified in a single element, should split into different list elements";
            found.invalid(path, "", why);
        }
    }
    for (name, list, lengths) in lists {
        if let Some(list) = list {
            keys(found, &format!("{path}.{name}.keys"), list, lengths);
        }
    }
    if let Some(plugin) = &given.kms {
        kms(found, &format!("{path}.kms"), plugin, plugins);
    }
}

fn keys(found: &mut Mistakes, path: &str, given: &Keys, lengths: &[usize]) {
    if given.keys.is_empty() {
        found.required(path, "at least one keys is required");
    }
    for (at, one) in given.keys.iter().enumerate() {
        key(found, &format!("{path}[{at}]"), one, lengths);
    }
}

fn key(found: &mut Mistakes, path: &str, given: &Key, lengths: &[usize]) {
    if given.name.is_empty() {
        found.required(&format!("{path}.name"), "name is a mandatory field for a key");
    }
    let path = format!("{path}.secret");
    if given.secret.is_empty() {
        found.required(&path, "secret is a mandatory field for a key");
        return;
    }
    match STANDARD.decode(given.secret.as_bytes()).map(Zeroizing::new) {
        Err(_) => found.invalid(&path, "REDACTED", "secrets must be base64 encoded"),
        Ok(secret) if lengths.contains(&secret.len()) => {}
        Ok(secret) => {
            let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
            let why = format!(
                "secret is not of the expected length, got {}, expected one of [{}]",
                secret.len(),
                lengths.join(" ")
            );
            found.invalid(&path, "REDACTED", &why);
        }
    }
}

fn kms(found: &mut Mistakes, path: &str, given: &Kms, plugins: &mut BTreeSet<String>) {
    let named = format!("{path}.name");
    if given.name.is_empty() {
        found.required(&named, "name is a mandatory field for a provider");
    }
    if given.name.contains(':') {
        let why = format!("invalid KMS provider name {}, must not contain ':'", given.name);
        found.invalid(&named, &given.name, &why);
    }
    if !plugins.insert(given.name.clone()) {
        let why = format!("duplicate KMS provider name {}, names must be unique", given.name);
        found.invalid(&named, &given.name, &why);
    }
    if given.timeout().is_none_or(|timeout| timeout == Duration::ZERO) {
        let text = given.timeout.as_deref().unwrap_or_default();
        found.invalid(&format!("{path}.timeout"), text, "timeout should be a positive value");
    }
    let endpoint = format!("{path}.endpoint");
    let scheme = given.endpoint.split_once("://").map_or("", |(scheme, _)| scheme);
    if given.endpoint.is_empty() {
        found.invalid(&endpoint, "", "endpoint is a mandatory field for a kms");
    } else if scheme != "unix" {
        let why = format!("unsupported scheme {scheme:?} for KMS provider, only unix is supported");
        found.invalid(&endpoint, &given.endpoint, &why);
    } else if given.socket().is_none() {
        found.invalid(&endpoint, &given.endpoint, "must be of the form unix:///path");
    }
    match given.api_version() {
        "v2" => {
            if let Some(size) = given.cachesize {
                let path = format!("{path}.cachesize");
                found.invalid(&path, &size.to_string(), "cachesize is not supported in v2");
            }
        }
        "v1" => {
            // Upstream has it behind a feature gate that is off.
            let why = "KMSv1 is deprecated and is not supported. Use KMSv2 instead";
            found.invalid(&format!("{path}.apiVersion"), "v1", why);
        }
        other => {
            let why = "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported";
            found.invalid(&format!("{path}.apiVersion"), other, why);
        }
    }
}
