//! The fields an object has: of a configuration, those its sender has an opinion about. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::element;
use super::field_set::{Below, FieldSet, Node};
use super::scope::{At, Scope};
use super::typing::{Form, Members, Typing};

/// The fields of `object` as far as `scope` goes: scalars, what is replaced as a whole, members of lists, keys of maps.
pub(super) fn extract(typing: Typing<'_>, scope: Scope, object: &Value) -> FieldSet {
    fields(typing, scope.root(), object).into_set()
}

/// What is at a node, the node included if it is a leaf.
fn fields(typing: Typing<'_>, scope: At, value: &Value) -> Node {
    let mut node = Node::default();
    match typing.form(value) {
        Form::Leaf => {
            if scope.is_inside() {
                node.join();
            }
        }
        Form::Struct(known) => {
            for (name, value) in value.as_object().into_iter().flatten() {
                let Some(scope) = scope.down(name) else { continue };
                let declared = known.declared(name);
                let mut found = fields(known.field(name), scope, value);
                if scope.is_inside() && (declared.is_none() || is_nothing(value)) {
                    found.join();
                }
                node.put(|| element::field(name), found);
            }
        }
        Form::Map(values) => {
            for (name, value) in value.as_object().into_iter().flatten() {
                let Some(scope) = scope.down(name) else { continue };
                let mut found = fields(values, scope, value);
                if scope.is_inside() {
                    found.join();
                }
                node.put(|| element::field(name), found);
            }
        }
        Form::List(members) => {
            if let Some(scope) = scope.member() {
                of_members(&mut node, members, scope, value);
            }
        }
    }
    node
}

/// Null, or an object without members.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Members of one step that are there several times count as one value.
fn of_members(node: &mut Node, members: Members<'_>, scope: At, list: &Value) {
    let mut found: BTreeMap<String, Option<&Value>> = BTreeMap::new();
    for member in list.as_array().into_iter().flatten() {
        let Ok(step) = members.step(member) else {
            // Nobody can own part of such a list.
            node.join();
            return;
        };
        found
            .entry(step)
            .and_modify(|known| *known = None)
            .or_insert(Some(member));
    }
    for (step, member) in found {
        let mut below = member.map_or_else(Node::default, |member| fields(members.items, scope, member));
        if scope.is_inside() {
            below.join();
        }
        node.put(|| step, below);
    }
}

/// The set, with each named field in it of which something below is in it: who has an opinion about `spec.replicas` wants `spec`
/// to be there. Keys of maps and members of lists are not named, but there on their own.
pub(super) fn with_named_fields(typing: Typing<'_>, set: &FieldSet) -> FieldSet {
    named(typing, set.root()).into_set()
}

fn named(typing: Typing<'_>, set: Below<'_>) -> Node {
    let mut node = Node::default();
    for (step, below) in set.steps() {
        let (typing, is_named) = typing.step(step);
        let mut found = named(typing, below);
        if below.is_member() || is_named {
            found.join();
        }
        node.put(|| step.to_owned(), found);
    }
    node
}
