//! RuntimeClass: a pod's class adds what it costs and where it can run (KEP-688, KEP-585). Pure.

use super::Attributes;
use crate::apiserver::status::ApiError;
use crate::resource::field::{at, entries, list};
use proto::api::quantity::Quantity;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
const WITHOUT_CLASS: &str = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";

/// How many tolerations that differ are compared with each other.
const COMPARED_MAX: usize = 256;

/// The class a new pod names.
pub(super) fn named(pod: &Value) -> Option<&str> {
    at(pod, &["spec", "runtimeClassName"]).as_str()
}

/// The refusal of a pod whose class is not there.
pub(super) fn unknown(attributes: &Attributes<'_>, name: &str) -> ApiError {
    attributes.forbid(&format!("pod rejected: RuntimeClass \"{name}\" not found"))
}

/// Gives a new pod its class's overhead, node selector and tolerations.
pub(super) fn admit(attributes: &Attributes<'_>, pod: &mut Value, class: &Value) -> Result<(), ApiError> {
    let overhead = at(class, &["overhead"]);
    if !overhead.is_null() {
        let given = at(pod, &["spec", "overhead"]);
        if !given.is_null() && amounts(given) != amounts(at(overhead, &["podFixed"])) {
            return Err(attributes.forbid(MISMATCH));
        }
        super::object_at(pod, "spec").insert("overhead".to_owned(), at(overhead, &["podFixed"]).clone());
    }
    select_nodes(attributes, pod, class)?;
    tolerate(pod, list(class, &["scheduling", "tolerations"]));
    Ok(())
}

/// Refuses a new pod whose overhead is not its class's.
pub(super) fn check(attributes: &Attributes<'_>, pod: &Value, class: Option<&Value>) -> Result<(), ApiError> {
    let given = at(pod, &["spec", "overhead"]);
    match class.map(|class| at(class, &["overhead"])).filter(|of| !of.is_null()) {
        Some(overhead) if amounts(at(overhead, &["podFixed"])) != amounts(given) => Err(attributes.forbid(MISMATCH)),
        None if !given.is_null() => Err(attributes.forbid(WITHOUT_CLASS)),
        _ => Ok(()),
    }
}

/// The amounts of a resource list, however they are written.
fn amounts(resources: &Value) -> BTreeMap<&str, Option<Quantity>> {
    let parse = |value: &Value| value.as_str().and_then(|text| Quantity::parse(text).ok());
    entries(resources, &[])
        .map(|(name, value)| (name.as_str(), parse(value)))
        .collect()
}

fn select_nodes(attributes: &Attributes<'_>, pod: &mut Value, class: &Value) -> Result<(), ApiError> {
    let wanted: Vec<(String, Value)> = entries(class, &["scheduling", "nodeSelector"])
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let spec = super::object_at(pod, "spec");
    let selector = spec.entry("nodeSelector").or_insert_with(|| json!({}));
    if selector.is_null() {
        *selector = json!({});
    }
    for (key, value) in wanted {
        let own = &selector[&key];
        if !own.is_null() && *own != value {
            let (text, own) = (value.as_str().unwrap_or_default(), own.as_str().unwrap_or_default());
            return Err(attributes.forbid(&format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {text}; pod.spec.nodeSelector[{key}] = {own}"
            )));
        }
        selector[&key] = value;
    }
    Ok(())
}

/// Appends the class's tolerations but those that the pod's own make superfluous.
fn tolerate(pod: &mut Value, wanted: &[Value]) {
    if wanted.is_empty() {
        return;
    }
    let spec = super::object_at(pod, "spec");
    let own = super::array_at(spec, "tolerations");
    let mut seen = BTreeSet::new();
    let mut all: Vec<Value> = own.drain(..).chain(wanted.iter().cloned()).collect();
    all.retain(|toleration| seen.insert(toleration.to_string()));
    if all.len() > COMPARED_MAX {
        // What is superfluous does no harm; comparing each with each would take long.
        *own = all;
        return;
    }
    let mut index = 0;
    while index < all.len() {
        let is_covered = all
            .iter()
            .enumerate()
            .any(|(other, toleration)| other != index && covers(toleration, &all[index]));
        if is_covered {
            all.remove(index);
        } else {
            index += 1;
        }
    }
    *own = all;
}

/// Whether everything the second tolerates the first does, for as long.
fn covers(wide: &Value, narrow: &Value) -> bool {
    fn text<'t>(toleration: &'t Value, key: &str) -> &'t str {
        toleration[key].as_str().unwrap_or_default()
    }
    let key = text(wide, "key");
    let seconds = |toleration: &Value| toleration["tolerationSeconds"].as_i64();
    if !key.is_empty() && key != text(narrow, "key") {
        return false;
    }
    let effect = text(wide, "effect");
    if !effect.is_empty() && effect != text(narrow, "effect") {
        return false;
    }
    match (seconds(wide), seconds(narrow)) {
        (None, _) => {}
        (Some(_), None) => return false,
        (Some(wide), Some(narrow)) if wide < narrow => return false,
        _ => {}
    }
    match text(wide, "operator") {
        "" | "Equal" => {
            matches!(text(narrow, "operator"), "" | "Equal") && text(wide, "value") == text(narrow, "value")
        }
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_of_a_class_are_added_where_they_add_something() {
        let merged = |own: Value, wanted: Value| {
            let mut pod = json!({"spec": {"tolerations": own}});
            tolerate(&mut pod, wanted.as_array().unwrap());
            pod["spec"]["tolerations"].clone()
        };
        let one = json!({"key": "a", "operator": "Exists"});
        let two = json!({"key": "b", "value": "x", "effect": "NoSchedule"});
        assert_eq!(merged(json!([one]), json!([two])), json!([one, two]));
        assert_eq!(merged(json!([one]), json!([one])), json!([one]), "once is enough");
        let narrow = json!({"key": "a", "value": "x", "effect": "NoSchedule"});
        assert_eq!(merged(json!([one]), json!([narrow])), json!([one]));
        assert_eq!(merged(json!([narrow]), json!([one])), json!([one]));
        let short = json!({"key": "a", "operator": "Exists", "tolerationSeconds": 5});
        assert_eq!(merged(json!([short]), json!([one])), json!([one]));
        let all = json!({"operator": "Exists"});
        assert_eq!(merged(json!([one, two]), json!([all])), json!([all]));
    }

    /// Comparing each with each would take hours.
    #[test]
    fn of_many_tolerations_equal_ones_stand_once_and_the_others_stay() {
        let class = json!({"key": "class", "operator": "Exists"});
        let merged = |own: Vec<Value>| {
            let mut pod = json!({"spec": {"tolerations": own}});
            tolerate(&mut pod, std::slice::from_ref(&class));
            pod["spec"]["tolerations"].as_array().unwrap().clone()
        };
        let one = json!({"key": "a", "operator": "Exists"});
        assert_eq!(merged(vec![one.clone(); 2 * COMPARED_MAX]), [one, class.clone()]);
        let different = |i: usize| json!({"key": format!("a{i}"), "operator": "Exists"});
        let many: Vec<Value> = (0..100_000).map(different).collect();
        let told = merged(many.clone());
        assert_eq!((told.len(), told.last()), (many.len() + 1, Some(&class)));
    }
}
