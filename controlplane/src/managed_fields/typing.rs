//! How values are put together: the one view of the schema that comparing, merging and pruning have. Pure.
//!
//! What no schema describes (free JSON, fields a definition preserves) has objects that are merged and lists and scalars that
//! are replaced, as upstream's deduced types.

use serde_json::{Map, Value};

use super::element;
use crate::resource::Kind;
use crate::schema::{ListType, Merge, Schema, Shape, Type, TypeId};

/// Fields nested deeper than this belong, with all below them, to the owner of their ancestor at this depth: an object may nest as
/// deep as its tree, and what says who owns it has to find room beside it. No built-in type comes near.
pub(super) const DEPTH_MAX: usize = 64;

/// The type of a value.
#[derive(Clone, Copy)]
pub struct Typing<'s> {
    schema: &'s Schema,
    at: At<'s>,
    depth: usize,
}

#[derive(Clone, Copy)]
enum At<'s> {
    Type(TypeId),
    Field(&'s Shape, Option<&'s Merge>),
    Free,
}

/// How a value is put together.
#[derive(Clone, Copy)]
pub(super) enum Form<'s> {
    /// One value: a scalar, or a list or object that is replaced as a whole.
    Leaf,
    /// An object of known fields.
    Struct(Struct<'s>),
    /// An object of free keys, with the type of its values.
    Map(Typing<'s>),
    /// A list of which each member is a step of its own.
    List(Members<'s>),
}

impl<'s> Typing<'s> {
    /// The type of a kind's objects, if its table has it.
    pub fn of_kind(kind: &'s Kind) -> Option<Self> {
        let (schema, object) = kind.schema();
        Some(Self::of(schema, object?))
    }

    /// The type of whole objects.
    pub fn of(schema: &'s Schema, object: TypeId) -> Self {
        Self {
            schema,
            at: At::Type(object),
            depth: 0,
        }
    }

    fn down(self, at: At<'s>) -> Self {
        Self {
            at,
            depth: self.depth + 1,
            ..self
        }
    }

    /// How values of the type are put together that are `value` at the moment: null, and what has the wrong JSON type, are leaves.
    pub(super) fn form(self, value: &Value) -> Form<'s> {
        if self.depth >= DEPTH_MAX {
            return Form::Leaf;
        }
        if let (Some(Declared::Object(id)), Value::Object(_)) = (self.declared(), value) {
            let fields = self.fields(id);
            return match self.is_atomic_map() || fields.known.atomic {
                true => Form::Leaf,
                false => Form::Struct(fields),
            };
        }
        match (self.at, value) {
            (At::Field(Shape::Map(values), _), Value::Object(_)) if !self.is_atomic_map() => {
                Form::Map(self.down(At::Field(values, None)))
            }
            (At::Field(Shape::List(items), Some(merge)), Value::Array(_)) => {
                let items = self.down(At::Field(items, None));
                match merge.list_type {
                    Some(ListType::Map) => Form::List(Members {
                        keys: &merge.list_map_keys,
                        items,
                    }),
                    Some(ListType::Set) => Form::List(Members { keys: &[], items }),
                    _ => Form::Leaf,
                }
            }
            (At::Free | At::Field(Shape::Any, _), Value::Object(_)) => Form::Map(self.down(At::Free)),
            _ => Form::Leaf,
        }
    }

    /// How the two values are put together; where only one is there or the other is null, the one says it.
    pub(super) fn form_of_both(self, one: Option<&Value>, other: Option<&Value>) -> Form<'s> {
        let given = |value: Option<&'_ Value>| value.filter(|value| !value.is_null()).map(|value| self.form(value));
        match (given(one), given(other)) {
            (Some(form), None) | (None, Some(form)) => form,
            (Some(one), Some(other)) if std::mem::discriminant(&one) == std::mem::discriminant(&other) => other,
            _ => Form::Leaf,
        }
    }

    fn is_atomic_map(self) -> bool {
        matches!(self.at, At::Field(_, Some(merge)) if merge.atomic_map)
    }

    /// What the schema says; `None` for what it leaves free.
    pub(super) fn declared(self) -> Option<Declared<'s>> {
        match self.at {
            At::Type(id) => Some(Declared::Object(id)),
            At::Field(Shape::Any, _) | At::Free => None,
            At::Field(Shape::Object(id), _) => Some(Declared::Object(*id)),
            At::Field(shape, _) => Some(Declared::Shape(shape)),
        }
    }

    /// The type of the members of a list, whatever becomes of the list as a whole.
    pub(super) fn items(self) -> Self {
        match self.at {
            At::Field(Shape::List(items), _) => self.down(At::Field(items, None)),
            _ => self.down(At::Free),
        }
    }

    /// The type of the values of a map.
    pub(super) fn values(self) -> Self {
        match self.at {
            At::Field(Shape::Map(values), _) => self.down(At::Field(values, None)),
            _ => self.down(At::Free),
        }
    }

    /// The type at a step of a field path, and whether the step is a field that the schema names.
    pub(super) fn step(self, step: &str) -> (Self, bool) {
        let Some(name) = step.strip_prefix("f:") else {
            return (self.items(), false);
        };
        match self.declared() {
            Some(Declared::Object(id)) => match self.fields(id).declared(name) {
                Some(field) => (field, true),
                None => (self.down(At::Free), false),
            },
            _ => (self.values(), false),
        }
    }

    /// The fields of an object's type, though it is replaced as a whole.
    pub(super) fn fields(self, id: TypeId) -> Struct<'s> {
        Struct {
            known: self.schema.get(id),
            typing: self,
        }
    }
}

/// What the schema says of a value.
#[derive(Clone, Copy)]
pub(super) enum Declared<'s> {
    Object(TypeId),
    Shape(&'s Shape),
}

/// An object of known fields.
#[derive(Clone, Copy)]
pub(super) struct Struct<'s> {
    known: &'s Type,
    typing: Typing<'s>,
}

/// Fields that every value of their type has, though it be empty: nobody adds them, so nobody owns them. (They are structs, not
/// pointers, in Go, which the published schemas do not tell.)
const ALWAYS_THERE: &[&str] = &[
    "jobTemplate",
    "metadata",
    "spec",
    "status",
    "strategy",
    "template",
    "updateStrategy",
];

impl<'s> Struct<'s> {
    /// The type of the named field; what the schema does not have is free.
    pub(super) fn field(self, name: &str) -> Typing<'s> {
        self.declared(name).unwrap_or_else(|| self.typing.down(At::Free))
    }

    /// The type of the named field, if the schema has it.
    pub(super) fn declared(self, name: &str) -> Option<Typing<'s>> {
        let field = self.known.field(name)?;
        Some(self.typing.down(At::Field(&field.shape, field.merge.as_deref())))
    }

    /// What the field is in every object of the type that does not have it: structs are empty, lists that may not be left out
    /// are null; `None` for all that is simply not there.
    pub(super) fn absent(self, name: &str) -> Option<Value> {
        let field = self.known.field(name)?;
        match &field.shape {
            Shape::Object(id) if ALWAYS_THERE.contains(&name) && !self.typing.schema.get(*id).atomic => {
                Some(Value::Object(Map::new()))
            }
            Shape::List(_) | Shape::Map(_) if field.required => Some(Value::Null),
            _ => None,
        }
    }

    fn default(self, name: &str) -> Option<&'s Value> {
        self.known.field(name)?.default.as_deref()
    }
}

/// Why a member of a list cannot be told from the others; the text is upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoKey {
    #[error("associative list with keys may not have a null element")]
    Null,
    #[error("associative list with keys may not have non-map elements")]
    NoObject,
    #[error(
        "associative list with keys has an element that omits all key fields [{0}] (and doesn't have default values for any key \
         fields)"
    )]
    Omitted(String),
    #[error("associative list without keys has an element that's a map type")]
    SetOfObjects,
    #[error("not supported: associative list with lists as elements")]
    SetOfLists,
    #[error("associative list without keys has an element that's an explicit null")]
    SetOfNull,
}

/// A list of which each member is a step of its own: of objects known by some of their fields, or a set of scalars.
#[derive(Clone, Copy)]
pub(super) struct Members<'s> {
    /// The fields; none for a set.
    keys: &'s [String],
    /// The members' type.
    pub(super) items: Typing<'s>,
}

impl Members<'_> {
    /// The step to a member; keys it lacks have their defaults.
    ///
    /// # Errors
    /// Why it has none.
    pub(super) fn step(self, member: &Value) -> Result<String, NoKey> {
        if self.keys.is_empty() {
            return match member {
                Value::Object(_) => Err(NoKey::SetOfObjects),
                Value::Array(_) => Err(NoKey::SetOfLists),
                scalar => element::value(scalar).ok_or(NoKey::SetOfNull),
            };
        }
        let object = match member {
            Value::Null => return Err(NoKey::Null),
            Value::Object(object) => object,
            _ => return Err(NoKey::NoObject),
        };
        let fields = match self.items.declared() {
            Some(Declared::Object(id)) => Some(self.items.fields(id)),
            _ => None,
        };
        let value = |key: &str| object.get(key).or_else(|| fields?.default(key));
        let found: Vec<(&str, &Value)> = self
            .keys
            .iter()
            .filter_map(|key| Some((key.as_str(), value(key)?)))
            .collect();
        if found.is_empty() {
            let names: Vec<String> = self.keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(NoKey::Omitted(names.join(" ")));
        }
        Ok(element::keyed(found))
    }
}
