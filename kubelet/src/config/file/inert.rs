//! Fields that have no effect here yet, each with what it waits for. Their values are checked all the same, so that a file that
//! this kubelet takes is one upstream's takes too. Nothing that hardens a node is among them: that is obeyed, or refused at
//! start. Pure.

use super::super::duration;
use Shape::{Any, Bool, Bools, Int, OneOf, Text, Time};
use Waits::{ApiMachinery, Moot, Network, Nowhere, Observability, PodLife, Storage};
use serde_json::{Map, Value};

const MAX: i64 = i32::MAX as i64;

/// What a field's value must be.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Bool,
    /// A whole number in a range.
    Int(i64, i64),
    Text,
    OneOf(&'static [&'static str]),
    /// A duration.
    Time,
    /// Truth by name.
    Bools,
    /// An object or a list, looked into no further.
    Any,
}

/// What a field waits for before it has an effect: the topic of the work that builds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// Clients, API objects, feature gates.
    ApiMachinery,
    /// Services, DNS, host rules.
    Network,
    /// Traces and logs of the node.
    Observability,
    /// What happens to a pod and its containers.
    PodLife,
    /// Volumes that are not the kubelet's own.
    Storage,
    /// Nothing: it asks for what only upstream's program can have, such as profiles of Go's runtime. Warned about like all others.
    Nowhere,
    /// Nothing: whatever its value, a kubelet does the same, for this reason. It needs no warning.
    Moot(&'static str),
}

/// A field, what it must be, upstream's default, which needs no warning, and what it waits for.
struct Field(&'static str, Shape, &'static str, Waits);

const FIELDS: &[Field] = &[
    Field(
        "configMapAndSecretChangeDetectionStrategy",
        OneOf(&["Get", "Cache", "Watch"]),
        "\"Watch\"",
        PodLife,
    ),
    Field(
        "contentType",
        Text,
        "\"application/vnd.kubernetes.protobuf\"",
        Moot("objects say the same in either format; ours travel as JSON"),
    ),
    Field("enableContentionProfiling", Bool, "false", Nowhere),
    Field("enableControllerAttachDetach", Bool, "true", Storage),
    Field("featureGates", Bools, "", ApiMachinery),
    Field(
        "hairpinMode",
        OneOf(&["promiscuous-bridge", "hairpin-veth", "none"]),
        "\"promiscuous-bridge\"",
        Moot("upstream only checks it: bridges are the network plugins'"),
    ),
    Field(
        "iptablesDropBit",
        Int(0, 31),
        "15",
        Moot("upstream only checks it: its kubelet marks no packets"),
    ),
    Field(
        "iptablesMasqueradeBit",
        Int(0, 31),
        "14",
        Moot("upstream only checks it: its kubelet marks no packets"),
    ),
    Field(
        "kernelMemcgNotification",
        Bool,
        "false",
        Moot(
            "memory is looked at the oftener the less is left, and when the kernel tells of stalls, whatever this says",
        ),
    ),
    Field("kubeAPIBurst", Int(0, MAX), "100", ApiMachinery),
    Field("kubeAPIQPS", Int(0, MAX), "50", ApiMachinery),
    Field("makeIPTablesUtilChains", Bool, "true", Network),
    Field("runOnce", Bool, "false", Nowhere),
    Field("showHiddenMetricsForVersion", Text, "", Nowhere),
    Field("tracing", Any, "", Observability),
    Field(
        "volumePluginDir",
        Text,
        "\"/usr/libexec/kubernetes/kubelet-plugins/volume/exec/\"",
        Storage,
    ),
    Field("volumeStatsAggPeriod", Time, "\"1m\"", Storage),
];

/// Whether the field is one of these.
pub(super) fn is_inert(name: &str) -> bool {
    FIELDS.iter().any(|field| field.0 == name)
}

/// What is wrong with a field's value.
pub(super) fn mistake(name: &str, value: &Value) -> Option<String> {
    let field = FIELDS.iter().find(|field| field.0 == name)?;
    // Nothing written is upstream's default.
    if value.is_null() || value.as_str() == Some("") {
        return None;
    }
    check(field.1, value).err().map(|why| format!("{name}: {why}"))
}

/// Whether a value asks for something this kubelet does not do: neither nothing nor upstream's default.
pub(super) fn asks_for_more(name: &str, value: &Value) -> bool {
    let field = FIELDS.iter().find(|field| field.0 == name);
    if field.is_none_or(|field| matches!(field.3, Moot(_))) {
        return false;
    }
    let empty = match value {
        Value::Null => true,
        Value::String(text) => text.is_empty() || duration::parse(text).is_ok_and(|time| time.is_zero()),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    let default = field.map_or("", |field| field.2);
    let default: Option<Value> = serde_json::from_str(default).ok();
    let same = default.is_some_and(|default| default == *value || same_time(&default, value));
    !empty && !same
}

/// `1m` and `60s` say the same.
fn same_time(a: &Value, b: &Value) -> bool {
    let time = |value: &Value| value.as_str().and_then(|text| duration::parse(text).ok());
    time(a).is_some() && time(a) == time(b)
}

fn check(shape: Shape, value: &Value) -> Result<(), String> {
    match shape {
        Any if value.is_object() || value.is_array() => Ok(()),
        Any => Err(format!("{value} is not an object or a list")),
        Bool => value
            .as_bool()
            .map(drop)
            .ok_or_else(|| format!("{value} is not true or false")),
        Int(min, max) => match value.as_i64() {
            Some(number) if (min..=max).contains(&number) => Ok(()),
            Some(number) => Err(format!("{number} must be between {min} and {max}, inclusive")),
            None => Err(format!("{value} is not a whole number")),
        },
        Text => text(value).map(drop),
        OneOf(words) => match text(value)? {
            word if words.contains(&word) => Ok(()),
            word => Err(format!("{word:?} is not one of {}", words.join(", "))),
        },
        Time => duration::parse(text(value)?).map(drop),
        Bools => named(value, |_, item| check(Bool, item)),
    }
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("{value} is not text"))
}

fn named(value: &Value, check: impl Fn(&str, &Value) -> Result<(), String>) -> Result<(), String> {
    let fields = value.as_object().ok_or_else(|| format!("{value} is not an object"))?;
    let mut fields = fields.iter();
    fields.try_for_each(|(name, item)| check(name, item).map_err(|why| format!("{name}: {why}")))
}

/// Rules between fields without effect.
pub(super) fn mistakes_between(tree: &Map<String, Value>) -> Vec<String> {
    let mut mistakes = Vec::new();
    if tree.get("runOnce") == Some(&Value::Bool(true)) {
        mistakes.push("runOnce: unsupported, must be false".to_owned());
    }
    mistakes
}

#[cfg(test)]
mod tests;
