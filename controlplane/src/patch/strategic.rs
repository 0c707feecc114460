//! Strategic merge patch: lists merge by key, and directives (`$patch`, `$retainKeys`, `$deleteFromPrimitiveList`,
//! `$setElementOrder`) steer the merge. Pure.
//!
//! The rules are control-plane contract §2.5. The schema table says how each list merges; values of unknown fields and of
//! free JSON merge as plain JSON (objects merge, lists replace).

use serde_json::{Map, Value};

use super::PatchError;
use super::step_budget::StepBudget;
use crate::resource::Kind;
use crate::schema::{Field, Merge, Schema, Shape, TypeId};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

type Object = Map<String, Value>;

pub(super) fn apply(kind: &Kind, original: &Value, patch: &Value) -> Result<Value, PatchError> {
    let (Some(original), Some(patch)) = (original.as_object(), patch.as_object()) else {
        return Err(invalid_document());
    };
    let (schema, id) = kind.schema();
    let id = id.ok_or_else(|| PatchError::new(500, format!("no schema for {}", kind.definition)))?;
    let merger = Merger {
        schema,
        budget: StepBudget::new(),
    };
    let mut tree = original.clone();
    merger.object(&mut tree, patch, Place::Typed(id), false)?;
    Ok(Value::Object(tree))
}

fn invalid_document() -> PatchError {
    PatchError::new(400, "Invalid JSON document")
}

fn bad_directive(value: &Value) -> PatchError {
    PatchError::new(400, format!("Unknown patch type found: {value}"))
}

fn bad_format(what: &str) -> PatchError {
    PatchError::new(400, format!("Invalid patch format of {what}"))
}

fn no_merge_key(item: &Value, key: &str) -> PatchError {
    PatchError::new(500, format!("map: {item} does not contain declared merge key: {key}"))
}

/// What is known about the object at hand.
#[derive(Clone, Copy)]
enum Place<'s> {
    Typed(TypeId),
    /// A map whose values have this shape.
    Map(&'s Shape),
    Free,
}

struct Merger<'s> {
    schema: &'s Schema,
    budget: StepBudget,
}

/// How one member of an object is to be merged.
#[derive(Clone, Copy)]
struct Member<'s> {
    shape: &'s Shape,
    merge: Option<&'s Merge>,
}

impl<'s> Merger<'s> {
    fn member(&self, place: Place<'s>, key: &str) -> Member<'s> {
        const FREE: Member<'static> = Member {
            shape: &Shape::Any,
            merge: None,
        };
        match place {
            Place::Typed(id) => self.schema.get(id).field(key).map_or(FREE, |field: &Field| Member {
                shape: &field.shape,
                merge: field.merge.as_deref(),
            }),
            Place::Map(shape) => Member { shape, merge: None },
            Place::Free => FREE,
        }
    }

    /// Merges `patch` into `tree`. `retains` says whether the field holding the object honours `$retainKeys`.
    fn object(&self, tree: &mut Object, patch: &Object, place: Place<'s>, retains: bool) -> Result<(), PatchError> {
        if let Some(directive) = patch.get(DIRECTIVE) {
            match directive.as_str() {
                Some("replace") => {
                    *tree = patch.clone();
                    tree.remove(DIRECTIVE);
                    return Ok(());
                }
                Some("delete") => {
                    tree.clear();
                    return Ok(());
                }
                _ => return Err(bad_directive(directive)),
            }
        }
        self.retain_keys(tree, patch, retains)?;
        for (key, value) in patch {
            if key == RETAIN_KEYS || key.starts_with(ELEMENT_ORDER) {
                continue;
            }
            if let Some(field) = key.strip_prefix(DELETE_FROM) {
                self.delete_values(tree, field, value)?;
                continue;
            }
            let order = patch.get(&format!("{ELEMENT_ORDER}{key}"));
            self.field(tree, key, value, order, self.member(place, key))?;
        }
        self.order_untouched(tree, patch, place)
    }

    fn retain_keys(&self, tree: &mut Object, patch: &Object, retains: bool) -> Result<(), PatchError> {
        let Some(directive) = patch.get(RETAIN_KEYS) else {
            return Ok(());
        };
        let keys: Vec<&str> = directive
            .as_array()
            .and_then(|keys| keys.iter().map(Value::as_str).collect())
            .ok_or_else(|| bad_format("retainKeys list"))?;
        self.budget.spend(keys.len() * (patch.len() + tree.len()))?;
        let listed = |key: &str| keys.contains(&key);
        let unlisted = patch
            .iter()
            .find(|(key, value)| !key.starts_with('$') && !value.is_null() && !listed(key));
        if unlisted.is_some() {
            return Err(bad_format("retainKeys list"));
        }
        if retains {
            tree.retain(|key, _| listed(key));
        }
        Ok(())
    }

    fn field(
        &self,
        tree: &mut Object,
        key: &str,
        value: &Value,
        order: Option<&Value>,
        member: Member<'s>,
    ) -> Result<(), PatchError> {
        match (value, tree.get_mut(key)) {
            (Value::Null, _) => {
                tree.remove(key);
            }
            (Value::Object(patch), Some(Value::Object(old)))
                if !member.merge.is_some_and(|merge| merge.patch_replace) =>
            {
                let retains = member.merge.is_some_and(|merge| merge.retain_keys);
                self.object(old, patch, self.place(member.shape), retains)?;
            }
            (Value::Object(patch), _) => {
                let mut fresh = Object::new();
                if patch.get(DIRECTIVE).and_then(Value::as_str) == Some("delete") {
                    tree.remove(key);
                    return Ok(());
                }
                self.object(&mut fresh, patch, self.place(member.shape), false)?;
                tree.insert(key.to_owned(), Value::Object(fresh));
            }
            (Value::Array(patch), old) => {
                let old = match old {
                    Some(Value::Array(items)) => std::mem::take(items),
                    _ => Vec::new(),
                };
                let items = self.list(old, patch, order, member)?;
                tree.insert(key.to_owned(), Value::Array(items));
            }
            (value, _) => {
                tree.insert(key.to_owned(), value.clone());
            }
        }
        Ok(())
    }

    fn place(&self, shape: &'s Shape) -> Place<'s> {
        match shape {
            Shape::Object(id) => Place::Typed(*id),
            Shape::Map(values) => Place::Map(values),
            _ => Place::Free,
        }
    }

    /// A list of the patch over a list of the tree.
    fn list(
        &self,
        old: Vec<Value>,
        patch: &[Value],
        order: Option<&Value>,
        member: Member<'s>,
    ) -> Result<Vec<Value>, PatchError> {
        let is_directive = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str) == Some("replace");
        let merge = member.merge.filter(|merge| merge.patch_merge);
        if merge.is_none() || patch.iter().any(is_directive) {
            return self.replaced(patch, member.shape);
        }
        if patch.iter().chain(&old).any(Value::is_array) {
            return Err(PatchError::new(422, "merging lists of lists is not supported"));
        }
        let key = merge.map_or("", |merge| merge.patch_merge_key.as_str());
        if key.is_empty() {
            return self.merge_scalars(old, patch, order);
        }
        let items = match member.shape {
            Shape::List(items) => self.place(items),
            _ => Place::Free,
        };
        let retains = merge.is_some_and(|merge| merge.retain_keys);
        self.merge_keyed(old, patch, order, key, items, retains)
    }

    /// The patch's list as it stands, its directives taken out.
    fn replaced(&self, patch: &[Value], shape: &'s Shape) -> Result<Vec<Value>, PatchError> {
        let items = match shape {
            Shape::List(items) => self.place(items),
            _ => Place::Free,
        };
        let mut fresh = Vec::new();
        for item in patch {
            match item {
                Value::Object(map) if map.contains_key(DIRECTIVE) => {}
                Value::Object(map) => {
                    let mut object = Object::new();
                    self.object(&mut object, map, items, false)?;
                    fresh.push(Value::Object(object));
                }
                other => fresh.push(other.clone()),
            }
        }
        Ok(fresh)
    }

    fn merge_keyed(
        &self,
        mut tree: Vec<Value>,
        patch: &[Value],
        order: Option<&Value>,
        key: &str,
        items: Place<'s>,
        retains: bool,
    ) -> Result<Vec<Value>, PatchError> {
        self.budget.spend((tree.len() + patch.len()) * patch.len())?;
        let before: Vec<Value> = tree.iter().map(|item| identity(item, Some(key)).clone()).collect();
        let mut touched: Vec<Value> = Vec::new();
        for item in patch {
            let map = item
                .as_object()
                .ok_or_else(|| PatchError::new(400, format!("Invalid patch format of list of objects: {item}")))?;
            let id = map.get(key).ok_or_else(|| no_merge_key(item, key))?;
            match map.get(DIRECTIVE).map(|directive| (directive, directive.as_str())) {
                Some((_, Some("delete"))) => {
                    tree.retain(|old| old.get(key) != Some(id));
                    continue;
                }
                Some((directive, Some("merge") | None | Some(_))) => return Err(bad_directive(directive)),
                None => {}
            }
            touched.push(id.clone());
            match tree.iter_mut().find(|old| old.get(key) == Some(id)) {
                Some(Value::Object(old)) => self.object(old, map, items, retains)?,
                _ => {
                    let mut fresh = Object::new();
                    self.object(&mut fresh, map, items, false)?;
                    tree.push(Value::Object(fresh));
                }
            }
        }
        let Some(order) = order else { return Ok(tree) };
        let order = order_keys(order, Some(key))?;
        check_subsequence(&touched, &order)?;
        self.budget.spend(tree.len() * (order.len() + before.len()))?;
        Ok(ordered(tree, &order, &before, Some(key)))
    }

    /// `$setElementOrder` for lists the patch does not otherwise touch.
    fn order_untouched(&self, tree: &mut Object, patch: &Object, place: Place<'s>) -> Result<(), PatchError> {
        for (directive, order) in patch {
            let Some(field) = directive.strip_prefix(ELEMENT_ORDER) else {
                continue;
            };
            if patch.contains_key(field) {
                continue;
            }
            let Some(Value::Array(items)) = tree.get_mut(field) else {
                continue;
            };
            let member = self.member(place, field);
            let Some(merge) = member.merge.filter(|merge| merge.patch_merge) else {
                continue;
            };
            let key = Some(merge.patch_merge_key.as_str()).filter(|key| !key.is_empty());
            let order = order_keys(order, key)?;
            let before: Vec<Value> = items.iter().map(|item| identity(item, key).clone()).collect();
            self.budget.spend(items.len() * (order.len() + before.len()))?;
            *items = ordered(std::mem::take(items), &order, &before, key);
        }
        Ok(())
    }

    fn delete_values(&self, tree: &mut Object, field: &str, values: &Value) -> Result<(), PatchError> {
        let values = values.as_array().ok_or_else(|| bad_format("primitive list"))?;
        if let Some(Value::Array(items)) = tree.get_mut(field) {
            self.budget.spend(items.len() * values.len())?;
            items.retain(|item| !values.contains(item));
        }
        Ok(())
    }

    fn merge_scalars(
        &self,
        mut tree: Vec<Value>,
        patch: &[Value],
        order: Option<&Value>,
    ) -> Result<Vec<Value>, PatchError> {
        if patch.iter().any(Value::is_object) {
            return Err(bad_format("primitive list"));
        }
        self.budget.spend((tree.len() + patch.len()) * patch.len())?;
        let before = tree.clone();
        for value in patch {
            if !tree.contains(value) {
                tree.push(value.clone());
            }
        }
        let Some(order) = order else { return Ok(tree) };
        let order = order_keys(order, None)?;
        check_subsequence(patch, &order)?;
        self.budget.spend(tree.len() * (order.len() + before.len()))?;
        Ok(ordered(tree, &order, &before, None))
    }
}

/// What a list's member is known by: its merge key, or itself in a list of scalars.
fn identity<'v>(item: &'v Value, key: Option<&str>) -> &'v Value {
    match key {
        Some(key) => item.get(key).unwrap_or(&Value::Null),
        None => item,
    }
}

/// The keys a `$setElementOrder` list names: its members, or their merge key.
fn order_keys(order: &Value, key: Option<&str>) -> Result<Vec<Value>, PatchError> {
    let items = order.as_array().ok_or_else(|| bad_format("setElementOrder list"))?;
    items
        .iter()
        .map(|item| match key {
            None => Ok(item.clone()),
            Some(key) => item.get(key).cloned().ok_or_else(|| no_merge_key(item, key)),
        })
        .collect()
}

/// The patch's members must stand in the order given by `$setElementOrder`.
fn check_subsequence(patch: &[Value], order: &[Value]) -> Result<(), PatchError> {
    let mut rest = order.iter();
    for item in patch {
        if !rest.any(|other| other == item) {
            return Err(PatchError::new(
                400,
                format!(
                    "The order in patch list:\n{}\n doesn't match setElementOrder list:\n{}\n",
                    Value::from(patch.to_vec()),
                    Value::from(order.to_vec())
                ),
            ));
        }
    }
    Ok(())
}

/// Members named by `order` in that order; the others, which only the server has, between them by their former position.
fn ordered(items: Vec<Value>, order: &[Value], before: &[Value], key: Option<&str>) -> Vec<Value> {
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        items.into_iter().partition(|item| order.contains(identity(item, key)));
    let rank = |item: &Value| order.iter().position(|wanted| wanted == identity(item, key));
    named.sort_by_cached_key(rank);
    let position = |item: &Value| {
        let own = identity(item, key);
        before.iter().position(|old| old == own)
    };
    let mut result = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in named {
        if let Some(here) = position(&item) {
            while let Some(other) = others.next_if(|other| position(other).is_some_and(|there| there < here)) {
                result.push(other);
            }
        }
        result.push(item);
    }
    result.extend(others);
    result
}
