//! Fields of a pod's spec that the scheduler or the kubelet does not obey yet. `applies` sees the spec.

use super::{Row, part};
use crate::resource::field::{list, text};
use serde_json::Value;

/// Volume sources a node of ours mounts.
const VOLUMES: &[&str] = &[
    "configMap",
    "downwardAPI",
    "emptyDir",
    "hostPath",
    "image",
    "projected",
    "secret",
];
/// Volume sources the scheduler cannot judge yet.
const CLAIMS: &[&str] = &["ephemeral", "persistentVolumeClaim"];
/// Projections a node of ours mounts.
const PROJECTIONS: &[&str] = &["configMap", "downwardAPI", "secret", "serviceAccountToken"];

const PENDING: &str = "the scheduler cannot judge it yet and leaves the pod pending";
const NOT_MOUNTED: &str = "a node of ours does not mount it, and the pod waits for it";

const fn field(name: &'static str, applies: fn(&Value) -> bool, effect: &'static str) -> Row {
    part("pods", name, applies, effect)
}

/// The rows, by path.
pub(super) const ROWS: &[Row] = &[
    field(
        "resourceClaims",
        |spec| !list(spec, &["resourceClaims"]).is_empty(),
        PENDING,
    ),
    field(
        "volumes of type ephemeral or persistentVolumeClaim",
        |spec| source(spec, |name| CLAIMS.contains(&name)),
        PENDING,
    ),
    field(
        "volumes of other types than configMap, downwardAPI, emptyDir, hostPath, image, projected and secret",
        |spec| source(spec, |name| !CLAIMS.contains(&name) && !VOLUMES.contains(&name)),
        NOT_MOUNTED,
    ),
    field(
        "volumes.projected.sources clusterTrustBundle and podCertificate",
        |spec| {
            let sources = list(spec, &["volumes"])
                .iter()
                .flat_map(|volume| list(volume, &["projected", "sources"]));
            members(sources).any(|name| !PROJECTIONS.contains(&name))
        },
        NOT_MOUNTED,
    ),
    field(
        "containers.lifecycle.stopSignal",
        |spec| containers(spec).any(|container| !text(container, &["lifecycle", "stopSignal"]).is_empty()),
        "the image's own stop signal is sent, except by nodes whose gate ContainerStopSignals is on",
    ),
];

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["containers", "initContainers"]
        .into_iter()
        .flat_map(|key| list(spec, &[key]).iter())
}

/// Names of all members of the objects.
fn members<'v>(objects: impl Iterator<Item = &'v Value>) -> impl Iterator<Item = &'v str> {
    objects
        .filter_map(Value::as_object)
        .flat_map(|object| object.keys().map(String::as_str))
}

fn source(spec: &Value, is_it: impl Fn(&str) -> bool) -> bool {
    members(list(spec, &["volumes"]).iter()).any(|name| name != "name" && is_it(name))
}
