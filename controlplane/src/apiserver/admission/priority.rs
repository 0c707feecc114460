//! Priority: a pod's class becomes a number. Pure.

use super::{Attributes, Operation};
use crate::apiserver::status::ApiError;
use serde_json::{Value, json};
use std::sync::Arc;

const PREEMPT: &str = "PreemptLowerPriority";

/// Whether the class that a pod names, if it names one, is among these.
pub(super) fn knows(classes: &[Arc<Value>], pod: &Value) -> bool {
    let name = pod["spec"]["priorityClassName"].as_str().unwrap_or_default();
    name.is_empty() || classes.iter().any(|class| class["metadata"]["name"] == name)
}

/// Resolves the pod's class on creation, and keeps what was resolved on updates.
pub(super) fn admit_pod(
    attributes: &Attributes<'_>,
    pod: &mut Value,
    old: Option<&Value>,
    classes: &[Arc<Value>],
) -> Result<(), ApiError> {
    let spec = super::object_at(pod, "spec");
    if attributes.operation == Operation::Update {
        for field in ["priority", "preemptionPolicy"] {
            let kept = old.and_then(|old| old.pointer(&format!("/spec/{field}")));
            if let (None, Some(kept)) = (spec.get(field), kept) {
                spec.insert(field.to_owned(), kept.clone());
            }
        }
        return Ok(());
    }
    if attributes.operation != Operation::Create {
        return Ok(());
    }
    let name = spec
        .get("priorityClassName")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let class = if name.is_empty() {
        // Of several defaults (a race of their creators) the lowest counts, as upstream.
        let defaults = classes.iter().filter(|class| class["globalDefault"] == true);
        defaults.min_by_key(|class| class["value"].as_i64().unwrap_or_default())
    } else {
        let found = classes.iter().find(|class| class["metadata"]["name"] == name);
        Some(found.ok_or_else(|| attributes.forbid(&format!("no PriorityClass with name {name} was found")))?)
    };
    let value = class.map_or(0, |class| class["value"].as_i64().unwrap_or_default());
    let policy = class
        .and_then(|class| class["preemptionPolicy"].as_str())
        .unwrap_or(PREEMPT);
    let class_name = class.map(|class| class["metadata"]["name"].clone());
    if let Some(given) = spec.get("priority").and_then(Value::as_i64)
        && given != value
    {
        return Err(attributes.forbid(&format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {value} from the given PriorityClass name"
        )));
    }
    if let Some(given) = spec.get("preemptionPolicy").and_then(Value::as_str)
        && given != policy
    {
        return Err(attributes.forbid(&format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        )));
    }
    if let Some(class_name) = class_name {
        spec.insert("priorityClassName".to_owned(), class_name);
    }
    spec.insert("priority".to_owned(), json!(value));
    spec.insert("preemptionPolicy".to_owned(), json!(policy));
    Ok(())
}

/// Refuses a second default class.
pub(super) fn admit_class(attributes: &Attributes<'_>, class: &Value, classes: &[Arc<Value>]) -> Result<(), ApiError> {
    if class["globalDefault"] != true {
        return Ok(());
    }
    let other = classes
        .iter()
        .find(|other| other["globalDefault"] == true && other["metadata"]["name"] != attributes.name);
    match other.and_then(|other| other["metadata"]["name"].as_str()) {
        Some(name) => Err(attributes.forbid(&format!(
            "PriorityClass {name} is already marked as default. Only one default can exist"
        ))),
        None => Ok(()),
    }
}
