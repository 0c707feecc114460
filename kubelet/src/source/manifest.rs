//! From a manifest's bytes to static pods. Pure.

use super::merge::Origin;
use super::{MANIFEST_BYTES_MAX, defaults, validate};
use crate::pod_object::annotation;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus, Toleration};
use serde_json::Value;

const FNV128_OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const FNV128_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
/// The namespace of a static pod that names none.
const NAMESPACE: &str = "default";

/// Why a manifest gives no pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// More than is read.
    #[error("the manifest has more than {MANIFEST_BYTES_MAX} bytes")]
    TooLarge,
    /// No UTF-8.
    #[error("couldn't parse as pod: the manifest is not UTF-8 text")]
    NotText,
    /// Nothing in it.
    #[error("couldn't parse as pod: the manifest is empty")]
    Empty,
    /// Neither YAML nor JSON.
    #[error("couldn't parse as pod: {0}")]
    Syntax(String),
    /// Another kind of object.
    #[error("couldn't parse as pod: apiVersion {api_version:?} kind {kind:?} is not a v1 Pod")]
    Kind {
        /// What it says.
        api_version: String,
        /// What it says.
        kind: String,
    },
    /// A field of a wrong type.
    #[error("couldn't parse as pod: {0}")]
    Shape(String),
    /// It asks for what only a pod of the API server can have.
    #[error("invalid pod: static pods may not reference {0}")]
    Reference(&'static str),
    /// Invalid fields.
    #[error("invalid pod: {}", .0.join(", "))]
    Invalid(Vec<String>),
}

/// Where a manifest was read, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// File or URL.
    pub origin: Origin,
    /// The file's path or the URL.
    pub source: &'a str,
    /// This node's name.
    pub node: &'a str,
    /// The time.
    pub now: Timestamp,
}

/// The pods of a manifest: one of a file, a Pod or a PodList of a URL.
pub fn pods(bytes: &[u8], place: Place<'_>) -> Result<Vec<Pod>, ManifestError> {
    let mut tree = tree(bytes)?;
    let text = |field: &str| tree.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    match (text("apiVersion").as_str(), text("kind").as_str()) {
        ("v1", "Pod") => Ok(vec![pod(tree, place)?]),
        ("v1", "PodList") if place.origin == Origin::Http => match tree.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items.into_iter().map(|item| pod(item, place)).collect(),
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(_) => Err(ManifestError::Shape("items is not a list".to_owned())),
        },
        (api_version, kind) => Err(ManifestError::Kind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        }),
    }
}

fn tree(bytes: &[u8]) -> Result<Value, ManifestError> {
    if bytes.len() > MANIFEST_BYTES_MAX {
        return Err(ManifestError::TooLarge);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| ManifestError::NotText)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let document = first_document(text).ok_or(ManifestError::Empty)?;
    // JSON is nearly YAML, but its own reader is quicker and has no limits of nesting by indentation.
    if document.trim_start().starts_with('{')
        && let Ok(tree) = serde_json::from_str(document)
    {
        return Ok(tree);
    }
    let tree: Value = serde_saphyr::from_str(document).map_err(|error| {
        let text = error.to_string();
        ManifestError::Syntax(text.lines().next().unwrap_or_default().to_owned())
    })?;
    if tree.is_object() {
        Ok(tree)
    } else {
        Err(ManifestError::Syntax("the manifest does not hold an object".to_owned()))
    }
}

/// The first document with anything in it: a manifest is one pod, whatever follows.
fn first_document(text: &str) -> Option<&str> {
    let mut begin = 0;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let marker = line.strip_prefix("---").is_some_and(|rest| rest.trim().is_empty());
        if marker {
            if has_content(&text[begin..at]) {
                return Some(&text[begin..at]);
            }
            begin = at + line.len();
        }
        at += line.len();
    }
    has_content(&text[begin..]).then(|| &text[begin..])
}

fn has_content(document: &str) -> bool {
    document
        .lines()
        .map(str::trim)
        .any(|line| !line.is_empty() && !line.starts_with('#'))
}

/// One static pod: identity, defaults, then validation.
fn pod(tree: Value, place: Place<'_>) -> Result<Pod, ManifestError> {
    let hash = hash(&tree, place);
    let mut pod: Pod = serde_json::from_value(tree).map_err(|error| ManifestError::Shape(error.to_string()))?;
    if let Some(kind) = validate::api_reference(&pod) {
        return Err(ManifestError::Reference(kind));
    }
    identify(&mut pod, hash, place);
    defaults::apply(&mut pod);
    let mistakes = validate::pod(&pod);
    if mistakes.is_empty() {
        Ok(pod)
    } else {
        Err(ManifestError::Invalid(mistakes))
    }
}

/// The UID of a manifest without one: the same for the same content, place and node, whatever its comments and layout.
fn hash(tree: &Value, place: Place<'_>) -> String {
    let salt = match place.origin {
        Origin::Http => format!("url:{}", place.source),
        Origin::File | Origin::Api => format!("host:{}file:{}", place.node, place.source),
    };
    // Object keys are sorted in this text.
    let text = tree.to_string();
    let hash = text.bytes().chain(salt.bytes()).fold(FNV128_OFFSET, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(FNV128_PRIME)
    });
    format!("{hash:032x}")
}

fn identify(pod: &mut Pod, hash: String, place: Place<'_>) {
    let meta = &mut pod.metadata;
    let uid = meta.uid.take().filter(|uid| !uid.is_empty()).unwrap_or(hash);
    let name = meta.name.take().unwrap_or_default();
    meta.name = Some(if name.is_empty() {
        name
    } else {
        format!("{name}-{}", place.node.to_lowercase())
    });
    meta.namespace = meta
        .namespace
        .take()
        .filter(|namespace| !namespace.is_empty())
        .or_else(|| Some(NAMESPACE.to_owned()));
    // A file is nobody's object: none of what an API server gives an object.
    meta.resource_version = None;
    meta.deletion_timestamp = None;
    meta.deletion_grace_period_seconds = None;
    let annotations = meta.annotations.get_or_insert_default();
    annotations.remove(annotation::MIRROR);
    annotations.insert(annotation::HASH.to_owned(), uid.clone());
    annotations.insert(annotation::SOURCE.to_owned(), place.origin.as_str().to_owned());
    annotations.insert(annotation::SEEN.to_owned(), place.now.to_string());
    meta.uid = Some(uid);
    pod.status = Some(PodStatus {
        phase: Some("Pending".to_owned()),
        ..PodStatus::default()
    });
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(place.node.to_owned());
    if place.origin == Origin::File {
        tolerate_everything(spec.tolerations.get_or_insert_default());
    }
}

/// Nothing that happens to the node ends a pod of its own files.
fn tolerate_everything(tolerations: &mut Vec<Toleration>) {
    let all = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    if !tolerations.contains(&all) {
        tolerations.push(all);
    }
}

#[cfg(test)]
mod tests;
