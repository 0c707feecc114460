//! `autoscaling/v1` HorizontalPodAutoscalers, which are stored as v2: one target of CPU stands in a field of its own, annotations
//! carry whatever else v1 has no field for, in v1's own words for metrics. Pure.

use serde_json::{Map, Value, json};

use super::Converter;
use crate::resource::field::{at, text};

/// See the module.
pub(in crate::resource) struct AutoscalerV1;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

impl Converter for AutoscalerV1 {
    fn present(&self, object: &mut Value) {
        let mut notes = Map::new();
        let mut note = |key: &str, value: &Value| {
            notes.insert(key.to_owned(), Value::from(value.to_string()));
        };
        let metrics = taken(object, "spec", "metrics");
        let metrics = metrics.as_array().map_or(&[][..], Vec::as_slice);
        if let Some(percent) = metrics.iter().find(|metric| is_cpu(metric)).and_then(utilization) {
            object["spec"]["targetCPUUtilizationPercentage"] = percent;
        }
        let is_other = |metric: &&Value| !is_cpu(metric) || utilization(metric).is_none();
        let others: Vec<Value> = metrics
            .iter()
            .filter(is_other)
            .map(|metric| older(metric, &TARGET))
            .collect();
        if !others.is_empty() {
            note(METRICS, &Value::Array(others));
        }
        let behavior = taken(object, "spec", "behavior");
        if !behavior.is_null() {
            note(BEHAVIOR, &behavior);
        }
        let current = taken(object, "status", "currentMetrics");
        let current = current.as_array().map_or(&[][..], Vec::as_slice);
        let percents = current.iter().filter(|metric| is_cpu(metric));
        let mut percents = percents.map(|metric| at(metric, &["resource", "current", "averageUtilization"]));
        if let Some(percent) = percents.rfind(|percent| !percent.is_null()) {
            object["status"]["currentCPUUtilizationPercentage"] = percent.clone();
        }
        if !current.is_empty() {
            note(
                CURRENT_METRICS,
                &current.iter().map(|metric| older(metric, &CURRENT)).collect(),
            );
        }
        let conditions = taken(object, "status", "conditions");
        if conditions.as_array().is_some_and(|all| !all.is_empty()) {
            note(CONDITIONS, &conditions);
        }
        annotate(object, notes);
    }

    fn store(&self, object: &mut Value) {
        let noted = |key: &str| -> Option<Value> {
            let note = at(object, &["metadata", "annotations", key]).as_str()?;
            serde_json::from_str(note).ok()
        };
        let (metrics, current) = (noted(METRICS), noted(CURRENT_METRICS));
        let (behavior, conditions) = (noted(BEHAVIOR), noted(CONDITIONS));
        let percent = taken(object, "spec", "targetCPUUtilizationPercentage");
        let mut all: Vec<Value> = Vec::new();
        if !percent.is_null() {
            let target = json!({"type": "Utilization", "averageUtilization": percent});
            all.push(json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
        }
        let metrics = metrics.as_ref().and_then(Value::as_array).into_iter().flatten();
        all.extend(metrics.map(|metric| newer(metric, &TARGET)));
        if !all.is_empty() {
            object["spec"]["metrics"] = Value::Array(all);
        }
        if let Some(behavior) = behavior.filter(Value::is_object) {
            object["spec"]["behavior"] = behavior;
        }
        let percent = taken(object, "status", "currentCPUUtilizationPercentage");
        let current: Vec<Value> = match current.as_ref().and_then(Value::as_array) {
            Some(current) => current.iter().map(|metric| newer(metric, &CURRENT)).collect(),
            None if percent.is_null() => Vec::new(),
            None => vec![json!({"type": "Resource", "resource": {"name": "cpu",
                "current": {"averageUtilization": percent}}})],
        };
        if !current.is_empty() {
            object["status"]["currentMetrics"] = Value::Array(current);
        }
        if let Some(conditions) = conditions.filter(Value::is_array) {
            object["status"]["conditions"] = conditions;
        }
        annotate(object, Map::new());
    }
}

fn taken(object: &mut Value, part: &str, key: &str) -> Value {
    let part = object.get_mut(part).and_then(Value::as_object_mut);
    part.and_then(|part| part.remove(key)).unwrap_or_default()
}

/// Replaces whatever notes of the other version there are.
fn annotate(object: &mut Value, notes: Map<String, Value>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let mut all = match metadata.remove("annotations") {
        Some(Value::Object(all)) => all,
        _ => Map::new(),
    };
    for key in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR] {
        all.remove(key);
    }
    all.extend(notes);
    if !all.is_empty() {
        metadata.insert("annotations".to_owned(), Value::Object(all));
    }
}

fn is_cpu(metric: &Value) -> bool {
    text(metric, &["type"]) == "Resource" && text(metric, &["resource", "name"]) == "cpu"
}

fn utilization(metric: &Value) -> Option<Value> {
    let percent = at(metric, &["resource", "target", "averageUtilization"]);
    (!percent.is_null()).then(|| percent.clone())
}

/// What differs between what a metric should be and what it is.
struct Words {
    /// Where v2 has the values.
    values: &'static str,
    /// v1's beginning of a value's name.
    prefix: &'static str,
    /// Whether v2 says which of the values counts.
    has_type: bool,
}

const TARGET: Words = Words {
    values: "target",
    prefix: "target",
    has_type: true,
};
const CURRENT: Words = Words {
    values: "current",
    prefix: "current",
    has_type: false,
};

/// v2's name of a value and v1's, for a source.
fn value_names(source: &str, words: &Words) -> Vec<(&'static str, String)> {
    let prefix = words.prefix;
    match source {
        "object" => vec![
            ("value", format!("{prefix}Value")),
            ("averageValue", "averageValue".to_owned()),
        ],
        "external" => vec![
            ("value", format!("{prefix}Value")),
            ("averageValue", format!("{prefix}AverageValue")),
        ],
        "pods" => vec![("averageValue", format!("{prefix}AverageValue"))],
        _ => vec![
            ("averageUtilization", format!("{prefix}AverageUtilization")),
            ("averageValue", format!("{prefix}AverageValue")),
        ],
    }
}

/// v2's path of a name and v1's, for a source.
fn plain_names(source: &str) -> &'static [(&'static [&'static str], &'static str)] {
    match source {
        "object" => &[
            (&["describedObject"], "target"),
            (&["metric", "name"], "metricName"),
            (&["metric", "selector"], "selector"),
        ],
        "pods" => &[
            (&["metric", "name"], "metricName"),
            (&["metric", "selector"], "selector"),
        ],
        "external" => &[
            (&["metric", "name"], "metricName"),
            (&["metric", "selector"], "metricSelector"),
        ],
        _ => &[(&["name"], "name"), (&["container"], "container")],
    }
}

const SOURCES: [&str; 5] = ["object", "pods", "resource", "containerResource", "external"];

/// A metric of v2 in v1's words.
fn older(metric: &Value, words: &Words) -> Value {
    let mut out = json!({"type": text(metric, &["type"])});
    for source in SOURCES {
        let from = at(metric, &[source]);
        if from.is_null() {
            continue;
        }
        let mut to = Map::new();
        let mut put = |name: &str, value: &Value| {
            if !value.is_null() {
                to.insert(name.to_owned(), value.clone());
            }
        };
        for (path, name) in plain_names(source) {
            put(name, at(from, path));
        }
        for (newer, older) in value_names(source, words) {
            put(&older, at(from, &[words.values, newer]));
        }
        out[source] = Value::Object(to);
    }
    out
}

/// A metric of v1 in v2's words.
fn newer(metric: &Value, words: &Words) -> Value {
    let mut out = json!({"type": text(metric, &["type"])});
    for source in SOURCES {
        let from = at(metric, &[source]);
        if from.is_null() {
            continue;
        }
        let mut to = json!({});
        for (path, name) in plain_names(source) {
            let value = at(from, &[name]);
            if !value.is_null() {
                crate::resource::field::set(&mut to, path, value.clone());
            }
        }
        let mut values = Map::new();
        for (newer, older) in value_names(source, words) {
            let value = at(from, &[&older]);
            if !value.is_null() {
                values.insert(newer.to_owned(), value.clone());
            }
        }
        if words.has_type {
            let kind = match source {
                _ if values.contains_key("averageUtilization") => "Utilization",
                "object" if values.contains_key("averageValue") => "AverageValue",
                _ if values.contains_key("value") => "Value",
                _ => "AverageValue",
            };
            values.insert("type".to_owned(), json!(kind));
        }
        to[words.values] = Value::Object(values);
        out[source] = to;
    }
    out
}
