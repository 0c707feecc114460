//! Schema tables: what types the fields of kinds have, and the one walk of a JSON tree they drive. Pure.
//!
//! A table is a value that kinds hold. That of the built-in types is built at first use from k8s-openapi's published schemas, `data/merge-keys.tsv` and `data/schema-defaults.tsv`; the
//! raw schemas are dropped, names and shapes stay. [`decode`] reads a request body; [`normalize`] does the same to a tree
//! that is there already (a patch's result). Both fill in the published schemas' few defaults; the kind's own defaults are
//! `Strategy::default`'s.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use schemars::SchemaGenerator;
use serde_json::Value;

mod build;
mod builder;
mod outcome;
pub(crate) mod protobuf;
mod read;
mod scalar;
mod walk;

pub(crate) use build::definitions;
pub(crate) use builder::SchemaBuilder;
pub use outcome::{DecodeError, Decoded, Problem};
pub use read::{Media, parse, parse_noting};
#[cfg(test)]
pub(crate) use walk::PROBLEMS_MAX;
pub use walk::{decode, decode_body, decode_options, normalize, prune};

/// Index of a type in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeId(u16);

/// The form a field's value has in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A string.
    String,
    /// Base64 of bytes.
    Bytes,
    /// RFC 3339, whole seconds.
    Time,
    /// RFC 3339, microseconds.
    MicroTime,
    /// A quantity: a string, or a number that becomes one.
    Quantity,
    /// An int32 or a string.
    IntOrString,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// Any JSON, kept as it is.
    Any,
    /// An object of a known type.
    Object(TypeId),
    /// A list.
    List(Box<Shape>),
    /// An object with free keys.
    Map(Box<Shape>),
}

/// How the members of a list belong together in server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole.
    Atomic,
    /// Keyed objects.
    Map,
    /// A set of scalars.
    Set,
}

/// What patches need to know about a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merge {
    /// Server-side apply's view of a list; `None` for lists nothing is said about (atomic) and for objects.
    pub list_type: Option<ListType>,
    /// Keys of a [`ListType::Map`].
    pub list_map_keys: Vec<String>,
    /// Strategic merge patch merges the list instead of replacing it.
    pub patch_merge: bool,
    /// Strategic merge patch replaces the object instead of merging it.
    pub patch_replace: bool,
    /// Strategic merge patch honours `$retainKeys` here.
    pub retain_keys: bool,
    /// The key strategic merge patch matches list members by; empty for lists of scalars.
    pub patch_merge_key: String,
    /// Server-side apply treats the object as one value.
    pub atomic_map: bool,
}

/// One field of a type.
#[derive(Clone, Debug)]
pub struct Field {
    /// JSON name.
    pub name: Box<str>,
    /// Form of the value.
    pub shape: Shape,
    /// Whether the published schema requires it; such fields are kept when empty.
    pub required: bool,
    /// Merge facts, absent for plain fields.
    pub merge: Option<Box<Merge>>,
    /// Default in the published schema.
    pub default: Option<Box<Value>>,
}

/// One object type.
#[derive(Debug)]
pub struct Type {
    /// Definition name, such as `io.k8s.api.core.v1.PodSpec`.
    pub definition: Box<str>,
    /// Fields sorted by name.
    pub fields: Box<[Field]>,
    /// Server-side apply treats objects of this type as one value.
    pub atomic: bool,
}

impl Type {
    /// The named field.
    pub fn field(&self, name: &str) -> Option<&Field> {
        let found = self.fields.binary_search_by(|field| (*field.name).cmp(name));
        found.ok().map(|i| &self.fields[i])
    }

    /// The Go type's name: what follows the last dot.
    pub fn go_name(&self) -> &str {
        self.definition.rsplit('.').next().unwrap_or(&self.definition)
    }
}

/// The table.
pub struct Schema {
    types: Vec<Type>,
    by_definition: HashMap<Box<str>, TypeId>,
}

impl Schema {
    /// The type of a definition name.
    pub fn type_of(&self, definition: &str) -> Option<TypeId> {
        self.by_definition.get(definition).copied()
    }

    /// The type at an index of this table.
    pub fn get(&self, id: TypeId) -> &Type {
        &self.types[usize::from(id.0)]
    }
}

/// Adds a published type, and all it refers to.
pub type AddSchema = fn(&mut SchemaGenerator) -> schemars::Schema;

/// Where a kind's types are published.
#[derive(Clone)]
pub enum Definitions {
    /// In k8s-openapi.
    BuiltIn(AddSchema),
    /// With the kind: by name, in OpenAPI's form, as JSON. A tree would take ten times as much, and is asked for only while documents
    /// are made.
    Own(Arc<str>),
}

type Make = Box<dyn FnOnce() -> Schema + Send>;

/// A table that is made when it is first needed, and shared by all kinds whose types stand in it.
pub struct SchemaTable(LazyLock<Schema, Make>);

impl SchemaTable {
    /// The table of these published types.
    pub(crate) fn of(types: impl Iterator<Item = AddSchema> + Send + 'static) -> Self {
        Self(LazyLock::new(Box::new(move || build::build(types))))
    }

    /// The table that `make` makes.
    pub(crate) fn made(make: impl FnOnce() -> Schema + Send + 'static) -> Self {
        Self(LazyLock::new(Box::new(make)))
    }

    /// The table.
    pub fn get(&self) -> &Schema {
        &self.0
    }
}

#[cfg(test)]
mod tests;
