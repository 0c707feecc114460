//! Structural schemas: what a definition says of the fields of its objects (control-plane contract §9). Pure.
//!
//! [`read`] makes one of `openAPIV3Schema` and says what is not structural about it; it prunes, defaults and validates trees.
//! Trees and schemas are at most 100 levels deep ([`crate::tree`]), so that all of this may recurse; patterns run in time that is
//! linear in the text and are bounded when they are compiled. What a schema and an object make together is bounded too: what
//! defaults add, and the work of judging.

mod declare;
mod embedded;
mod expressions;
mod field_path;
pub(super) mod judge;
mod obey;
mod patterns;
mod properties;
mod read;
mod refuse;
mod settled;
mod tree;
mod types;
mod validate;

pub(crate) use tree::DefaultsTooLarge;

pub(super) use read::read;

use std::sync::Arc;

use serde_json::Value;

use crate::pattern::Pattern;
use expressions::Expressions;
use properties::Properties;

/// The type of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// Whatever it is.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// `x-kubernetes-int-or-string`.
    IntOrString,
}

/// A schema of one value and of all that is in it.
#[derive(Debug, Default)]
pub(crate) struct Structural {
    form: Form,
    nullable: bool,
    /// Unknown fields are kept.
    preserves: bool,
    /// An object with kind, apiVersion and metadata of its own.
    embedded: bool,
    /// There is such an object here or below.
    has_embedded: bool,
    /// The object is one value to whoever owns fields of it.
    atomic: bool,
    properties: Properties,
    /// The properties that have a default.
    defaulted: Box<[Box<str>]>,
    /// The values of fields that are no properties; with `any_values` they may be anything.
    values: Option<Box<Structural>>,
    any_values: bool,
    items: Option<Box<Structural>>,
    default: Option<Box<Value>>,
    rules: Option<Box<Rules>>,
    /// Rules of expressions as they were written, until they are checked.
    uncompiled: Box<[Value]>,
    expressions: Option<Box<Expressions>>,
    /// Whether there are such rules here or below.
    has_rules: bool,
    /// At the root: why no object can be judged by this, such as that it was stored before there was a bound it is beyond.
    unusable: Option<Box<str>>,
}

/// What a value must be beside its type.
#[derive(Debug, Default)]
struct Rules {
    required: Box<[Box<str>]>,
    allowed: Option<Box<[Value]>>,
    pattern: Option<Arc<Pattern>>,
    /// The bound, and whether it is excluded.
    minimum: Option<(f64, bool)>,
    maximum: Option<(f64, bool)>,
    multiple_of: Option<f64>,
    length: Bounds,
    items: Bounds,
    properties: Bounds,
    format: Option<Box<str>>,
    unique: Option<Unique>,
    all_of: Box<[Structural]>,
    any_of: Box<[Structural]>,
    one_of: Box<[Structural]>,
    not: Option<Box<Structural>>,
}

/// Least and most.
#[derive(Debug, Default)]
struct Bounds(Option<u64>, Option<u64>);

/// How the members of a list differ.
#[derive(Debug)]
enum Unique {
    /// As a whole.
    Set,
    /// By these fields.
    Keys(Box<[Box<str>]>),
}

#[cfg(test)]
mod bound_tests;
#[cfg(test)]
mod rule_bound_tests;
#[cfg(test)]
mod rule_language_tests;
#[cfg(test)]
mod rule_tests;
#[cfg(test)]
mod rule_value_tests;
#[cfg(test)]
mod tests;
