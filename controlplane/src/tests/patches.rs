//! Patches of every kind (control-plane contract §2.5): what a client takes for the difference of two objects makes the one of the other,
//! a merge done twice is done once, and merges of different fields commute.
//!
//! The differences are made here as clients make them, by the schema table alone.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::objects::{Parts, distinct, make, split};
use super::smallest::holds;
use super::{config, kinds, same, settled};
use crate::patch::{json_patch, merge_patch, strategic_patch};
use crate::resource::Kind;
use crate::schema::{Merge, Schema, Shape};

type Object = Map<String, Value>;

/// The merge patch that makes `new` of `old` (RFC 7396); neither has nulls.
fn merge_difference(old: &Object, new: &Object) -> Object {
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    let mut patch: Object = gone.map(|key| (key.clone(), Value::Null)).collect();
    for (key, value) in new {
        let change = match (old.get(key), value) {
            (Some(known), value) if known == value => continue,
            (Some(Value::Object(old)), Value::Object(new)) => Value::Object(merge_difference(old, new)),
            _ => value.clone(),
        };
        patch.insert(key.clone(), change);
    }
    patch
}

/// The strategic merge patch that makes `new` of `old`, with the directives `kubectl` sends.
fn strategic_difference(schema: &Schema, shape: &Shape, old: &Object, new: &Object) -> Object {
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    let mut patch: Object = gone.map(|key| (key.clone(), Value::Null)).collect();
    for (key, value) in new {
        if old.get(key) == Some(value) {
            continue;
        }
        let field = match shape {
            Shape::Object(id) => schema.get(*id).field(key),
            _ => None,
        };
        let (shape, merge) = match (field, shape) {
            (Some(field), _) => (&field.shape, field.merge.as_deref()),
            (None, Shape::Map(values)) => (&**values, None),
            _ => (&Shape::Any, None),
        };
        match (old.get(key), value) {
            (Some(Value::Object(old)), Value::Object(new)) if !merge.is_some_and(|merge| merge.patch_replace) => {
                let mut change = strategic_difference(schema, shape, old, new);
                if merge.is_some_and(|merge| merge.retain_keys) {
                    change.insert("$retainKeys".to_owned(), json!(new.keys().collect::<Vec<_>>()));
                }
                patch.insert(key.clone(), Value::Object(change));
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                let items = match shape {
                    Shape::List(items) => items,
                    _ => &Shape::Any,
                };
                match merge.filter(|merge| merge.patch_merge) {
                    None => drop(patch.insert(key.clone(), value.clone())),
                    Some(merge) if merge.patch_merge_key.is_empty() => scalars(&mut patch, key, old, new),
                    Some(merge) => members(schema, items, merge, &mut patch, key, (old, new)),
                }
            }
            _ => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    patch
}

fn scalars(patch: &mut Object, key: &str, old: &[Value], new: &[Value]) {
    let only = |one: &[Value], other: &[Value]| -> Vec<Value> {
        one.iter().filter(|value| !other.contains(value)).cloned().collect()
    };
    let (added, removed) = (only(new, old), only(old, new));
    if !added.is_empty() {
        patch.insert(key.to_owned(), json!(added));
    }
    if !removed.is_empty() {
        patch.insert(format!("$deleteFromPrimitiveList/{key}"), json!(removed));
    }
    patch.insert(format!("$setElementOrder/{key}"), json!(new));
}

fn members(
    schema: &Schema,
    items: &Shape,
    merge: &Merge,
    patch: &mut Object,
    key: &str,
    (old, new): (&[Value], &[Value]),
) {
    let known_by = merge.patch_merge_key.as_str();
    let find = |list: &[Value], id: &Value| list.iter().find(|item| item[known_by] == *id).cloned();
    let mut changes: Vec<Value> = Vec::new();
    for item in new {
        let change = match find(old, &item[known_by]) {
            Some(known) if known == *item => continue,
            Some(Value::Object(known)) => {
                let new = item.as_object().expect("an object");
                let mut change = strategic_difference(schema, items, &known, new);
                if merge.retain_keys {
                    change.insert("$retainKeys".to_owned(), json!(new.keys().collect::<Vec<_>>()));
                }
                change.insert(known_by.to_owned(), item[known_by].clone());
                Value::Object(change)
            }
            _ => item.clone(),
        };
        changes.push(change);
    }
    for item in old.iter().filter(|item| find(new, &item[known_by]).is_none()) {
        changes.push(json!({"$patch": "delete", known_by: item[known_by]}));
    }
    if !changes.is_empty() {
        patch.insert(key.to_owned(), json!(changes));
    }
    let order: Vec<Value> = new.iter().map(|item| json!({known_by: item[known_by]})).collect();
    patch.insert(format!("$setElementOrder/{key}"), json!(order));
}

/// Whether every list that merges has members that can be told apart, as whatever the server keeps has.
fn is_told_apart(kind: &Kind, tree: &Value) -> bool {
    // A patch that names each list's members by what they are says so itself.
    match strategic_patch(kind, tree, &json!({})) {
        Ok(same) => {
            same == *tree
                && strategic_patch(kind, &json!({}), tree).is_ok_and(|made| settled(made) == settled(tree.clone()))
        }
        Err(_) => false,
    }
}

/// Built-in kinds: custom resources know no strategic merge (415).
fn takes_strategic(kind: &Kind) -> bool {
    kind.structural.is_none()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_difference_makes_the_new_of_the_old(seed in any::<u64>()) {
        for kind in kinds(seed) {
            let (schema, id) = kind.schema();
            let shape = Shape::Object(id.expect("a type"));
            let trees = [distinct(&kind, seed), distinct(&kind, seed.wrapping_add(1))];
            holds(&format!("{kind:?}: old, new"), trees, |[old, new]| {
                let (Some(from), Some(to)) = (old.as_object(), new.as_object()) else { return Ok(()) };
                let applied = |name: &str, patch: Value, result: Result<Value, crate::patch::PatchError>| match result {
                    Ok(made) => same(&format!("{name} {patch}"), &made, new),
                    Err(error) => Err(format!("{name} {patch}: {error}")),
                };
                let patch = Value::Object(merge_difference(from, to));
                let result = merge_patch(&kind, old, &patch);
                applied("merge patch", patch, result)?;
                let patch = serde_json::to_value(json_patch::diff(old, new)).map_err(|error| error.to_string())?;
                let result = json_patch(&kind, old, &patch);
                applied("JSON patch", patch, result)?;
                if !takes_strategic(&kind) || ![old, new].into_iter().all(|tree| is_told_apart(&kind, tree)) {
                    return Ok(());
                }
                let patch = Value::Object(strategic_difference(schema, &shape, from, to));
                let result = strategic_patch(&kind, old, &patch);
                applied("strategic merge patch", patch, result)
            });
        }
    }

    #[test]
    fn a_merge_done_twice_is_done_once(seed in any::<u64>()) {
        for kind in kinds(seed) {
            let trees = [make(&kind, seed), distinct(&kind, seed.wrapping_add(1))];
            holds(&format!("{kind:?}: object, patch"), trees, |[object, patch]| {
                for engine in [merge_patch, strategic_patch] {
                    let Ok(once) = engine(&kind, object, patch) else { continue };
                    let twice = engine(&kind, &once, patch).map_err(|error| error.to_string())?;
                    same("twice", &twice, &once)?;
                }
                Ok(())
            });
        }
    }

    #[test]
    fn merges_of_different_fields_commute(seed in any::<u64>()) {
        for kind in kinds(seed).iter().filter(|kind| takes_strategic(kind)) {
            let trees = [distinct(kind, seed), distinct(kind, seed.wrapping_add(1))];
            holds(&format!("{kind:?} (seed {seed}): object, patches together"), trees, |[object, whole]| {
                if whole["metadata"]["name"].is_null() || ![object, whole].into_iter().all(|tree| is_told_apart(kind, tree)) {
                    return Ok(());
                }
                let [one, two] = split(kind, whole, seed, Parts::Merged);
                let merged = |object: &Value, patch: &Value| strategic_patch(kind, object, patch).map_err(|error| error.to_string());
                let (ab, ba) = (merged(&merged(object, &one)?, &two)?, merged(&merged(object, &two)?, &one)?);
                same(&format!("\n  one {one}\n  two {two}"), &settled(ab), &settled(ba))
            });
        }
    }
}
