//! ServiceAccount: every pod runs as one, and finds its token where upstream's clients look for it. Pure.

use super::{Attributes, array_at, object_at};
use crate::apiserver::status::ApiError;
use serde_json::{Map, Value, json};

/// What token volumes are named, before five random characters.
pub(super) const VOLUME_PREFIX: &str = "kube-api-access-";
/// Where containers find the token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Seconds the kubelet asks tokens for; recognised by TokenRequest (contract §6).
const TOKEN_SECONDS: i64 = 3607;
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Whether the pod mirrors a static pod.
pub(super) fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"].get(MIRROR_ANNOTATION).is_some()
}

/// Mirror pods may not reach for the cluster's secrets.
pub(super) fn check_mirror(attributes: &Attributes<'_>, pod: &Value) -> Result<(), ApiError> {
    let name = pod["spec"]["serviceAccountName"].as_str().unwrap_or_default();
    if !name.is_empty() {
        return Err(attributes.forbid("a mirror pod may not reference service accounts"));
    }
    let volumes = pod["spec"]["volumes"].as_array();
    let mut sources = volumes.into_iter().flatten().filter_map(Value::as_object);
    let token = |volume: &Map<String, Value>| {
        let parts = volume
            .get("projected")
            .and_then(|projected| projected["sources"].as_array());
        parts
            .into_iter()
            .flatten()
            .any(|source| source.get("serviceAccountToken").is_some())
    };
    if sources.any(|volume| volume.contains_key("secret") || token(volume)) {
        return Err(attributes.forbid("a mirror pod may not reference secrets or service account tokens"));
    }
    Ok(())
}

/// Gives the pod the account `default` if it names none; returns the name.
pub(super) fn set_name(pod: &mut Value) -> String {
    let spec = object_at(pod, "spec");
    let given = |field: &str| spec.get(field).and_then(Value::as_str).filter(|name| !name.is_empty());
    let name = given("serviceAccountName").or_else(|| given("serviceAccount"));
    let name = name.unwrap_or("default").to_owned();
    for field in ["serviceAccountName", "serviceAccount"] {
        spec.insert(field.to_owned(), json!(name));
    }
    name
}

/// Adds the account's pull secrets and, unless it is declined, the token volume under the name `volume`.
pub(super) fn admit(pod: &mut Value, account: &Value, volume: &str) {
    let spec = object_at(pod, "spec");
    let own_secrets = spec.get("imagePullSecrets").and_then(Value::as_array);
    if own_secrets.is_none_or(Vec::is_empty)
        && let Some(secrets) = account["imagePullSecrets"].as_array()
        && !secrets.is_empty()
    {
        spec.insert("imagePullSecrets".to_owned(), json!(secrets));
    }
    let declined = |value: Option<&Value>| value.and_then(Value::as_bool).map(|automount| !automount);
    let pods_word = declined(spec.get("automountServiceAccountToken"));
    let accounts_word = declined(account.get("automountServiceAccountToken"));
    if !pods_word.or(accounts_word).unwrap_or(false) {
        mount_token(spec, volume);
    }
}

fn mount_token(spec: &mut Map<String, Value>, volume: &str) {
    let volumes = spec.get("volumes").and_then(Value::as_array).into_iter().flatten();
    let mut names = volumes.filter_map(|volume| volume["name"].as_str());
    let existing = names.find(|name| name.starts_with(VOLUME_PREFIX)).map(str::to_owned);
    let name = existing.clone().unwrap_or_else(|| volume.to_owned());
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) {
                continue;
            }
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
            mounted = true;
        }
    }
    if mounted && existing.is_none() {
        array_at(spec, "volumes").push(token_volume(&name));
    }
}

fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace",
            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}})
}
