//! What must hold for every kind: properties over random objects of the built-in kinds and of definitions that are random themselves.
//!
//! Objects are drawn from a kind's own schema ([`objects`]); what fails is told by the smallest objects that still fail ([`smallest`]).

pub(crate) mod objects;
pub(crate) mod room;

mod apply;
mod contract;
mod definitions;
mod forms;
mod patches;
mod smallest;

use std::sync::Arc;

use proptest::prelude::ProptestConfig;
use serde_json::Value;

use crate::resource::{Kind, Registry};

/// Cases of a property over every kind, which take a second together. Seeds are not shrunk: objects are.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 6,
        max_shrink_iters: 0,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// All built-in kinds, and a few that a definition asks for.
fn kinds(seed: u64) -> Vec<Arc<Kind>> {
    let defined = (0..6).map(|nth| definitions::kind(seed.wrapping_add(nth)));
    Registry::built_in().kinds().cloned().chain(defined).collect()
}

/// The tree with its lists in one order, without objects and lists of which nothing is left: which of those stay is not what
/// the properties are about.
fn settled(mut tree: Value) -> Value {
    fn settle(value: &mut Value) {
        match value {
            Value::Array(list) => {
                list.iter_mut().for_each(settle);
                list.sort_by_cached_key(ToString::to_string);
            }
            Value::Object(map) => {
                map.values_mut().for_each(settle);
                map.retain(|_, value| !is_empty(value));
            }
            _ => {}
        }
    }
    settle(&mut tree);
    tree
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        other => other.is_null(),
    }
}

/// Says what differs, unless the two are equal.
fn same(what: &str, found: &Value, expected: &Value) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what}:\n  found    {found}\n  expected {expected}")),
    }
}
