//! The kinds of metrics.k8s.io: what nodes and pods use (staging `k8s.io/metrics`, v1beta1). Pure.
//!
//! They are no built-in kinds of the registry: who serves them publishes them, and where nobody does, the group is free.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::{ClusterResourceScope, ListableResource, NamespaceResourceScope, Resource};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::Kind;
use super::build::Row;
use crate::schema::SchemaTable;

/// The API group.
pub(crate) const GROUP: &str = "metrics.k8s.io";
/// The version of it that is served.
pub(crate) const VERSION: &str = "v1beta1";
const API_VERSION: &str = "metrics.k8s.io/v1beta1";
const VERBS: &[&str] = &["get", "list"];

/// Readers of this process put it into a request's extensions who want items without labels: objects may have megabytes of these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unlabelled;

struct NodeMetrics;
struct PodMetrics;
struct ContainerMetrics;

impl Resource for NodeMetrics {
    const API_VERSION: &'static str = API_VERSION;
    const GROUP: &'static str = GROUP;
    const KIND: &'static str = "NodeMetrics";
    const VERSION: &'static str = VERSION;
    const URL_PATH_SEGMENT: &'static str = "nodes";
    type Scope = ClusterResourceScope;
}

impl ListableResource for NodeMetrics {
    const LIST_KIND: &'static str = "NodeMetricsList";
}

impl Resource for PodMetrics {
    const API_VERSION: &'static str = API_VERSION;
    const GROUP: &'static str = GROUP;
    const KIND: &'static str = "PodMetrics";
    const VERSION: &'static str = VERSION;
    const URL_PATH_SEGMENT: &'static str = "pods";
    type Scope = NamespaceResourceScope;
}

impl ListableResource for PodMetrics {
    const LIST_KIND: &'static str = "PodMetricsList";
}

fn described(mut schema: Schema, text: &str) -> Schema {
    schema.ensure_object().insert("description".to_owned(), text.into());
    schema
}

fn string(text: &str) -> Schema {
    json_schema!({"type": "string", "description": text})
}

/// Amounts by the name of their resource.
fn usage(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "additionalProperties": generator.subschema_for::<Quantity>(),
        "description": "CPU in cores over the window, memory in bytes as the last sample has it (the working set)."})
}

/// A published type with what every object has, and when its samples were taken.
fn sampled(generator: &mut SchemaGenerator, what: &str, (field, own): (&str, Schema)) -> Schema {
    let metadata = described(generator.subschema_for::<ObjectMeta>(), "Standard object's metadata.");
    let timestamp = described(generator.subschema_for::<Time>(), "When the window ended.");
    let window = string("How long the samples are apart, as Go writes durations.");
    let mut schema = json_schema!({
        "description": what,
        "type": "object",
        "properties": {
            "apiVersion": string("APIVersion defines the versioned schema of this representation of an object."),
            "kind": string("Kind is a string value representing the REST resource this object represents."),
            "metadata": metadata,
            "timestamp": timestamp,
            "window": window,
        },
        "required": ["timestamp", "window", field],
    });
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert(field.to_owned(), own.to_value());
    }
    schema
}

impl JsonSchema for ContainerMetrics {
    fn schema_name() -> Cow<'static, str> {
        "io.k8s.metrics.pkg.apis.metrics.v1beta1.ContainerMetrics".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "What one container of a pod uses.",
            "type": "object",
            "properties": {
                "name": string("Name of the container, as the pod's spec has it."),
                "usage": usage(generator),
            },
            "required": ["name", "usage"],
        })
    }
}

impl JsonSchema for NodeMetrics {
    fn schema_name() -> Cow<'static, str> {
        "io.k8s.metrics.pkg.apis.metrics.v1beta1.NodeMetrics".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let usage = usage(generator);
        sampled(generator, "What a node uses.", ("usage", usage))
    }
}

impl JsonSchema for PodMetrics {
    fn schema_name() -> Cow<'static, str> {
        "io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<ContainerMetrics>();
        let containers =
            json_schema!({"type": "array", "items": items, "description": "What each of its containers uses."});
        sampled(
            generator,
            "What the containers of a pod use.",
            ("containers", containers),
        )
    }
}

static ROWS: &[Row] = &[
    Row::cluster::<NodeMetrics>("").verbs(VERBS).stored_at(""),
    Row::namespaced::<PodMetrics>("").verbs(VERBS).stored_at(""),
];

/// The kinds: of nodes and of pods.
pub(crate) fn kinds() -> Vec<Arc<Kind>> {
    let types = Arc::new(SchemaTable::of(ROWS.iter().map(Row::published)));
    ROWS.iter().map(|row| Arc::new(row.kind(&types, &[]))).collect()
}
