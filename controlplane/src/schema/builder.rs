//! Putting a table together type by type: for kinds whose types come in with a definition. Pure.

use std::collections::HashMap;

use super::{Field, Schema, Shape, Type, TypeId};

/// A table being made.
#[derive(Default)]
pub(crate) struct SchemaBuilder {
    types: Vec<Type>,
    by_definition: HashMap<Box<str>, TypeId>,
}

impl SchemaBuilder {
    /// Adds a type; `None` if the table is full.
    pub(crate) fn add(&mut self, new: Type) -> Option<TypeId> {
        let id = TypeId(u16::try_from(self.types.len()).ok()?);
        self.by_definition.insert(new.definition.clone(), id);
        self.types.push(new);
        Some(id)
    }

    /// Adds a type of another table with all it refers to, which must not be itself.
    pub(crate) fn import(&mut self, from: &Schema, definition: &str) -> Option<TypeId> {
        if let Some(id) = self.by_definition.get(definition) {
            return Some(*id);
        }
        let known = from.get(from.type_of(definition)?);
        let fields = known.fields.iter().map(|field| Field {
            shape: self.imported(from, &field.shape),
            ..field.clone()
        });
        let fields: Box<[Field]> = fields.collect();
        self.add(Type {
            definition: known.definition.clone(),
            fields,
            atomic: known.atomic,
        })
    }

    fn imported(&mut self, from: &Schema, shape: &Shape) -> Shape {
        match shape {
            Shape::Object(id) => self
                .import(from, &from.get(*id).definition)
                .map_or(Shape::Any, Shape::Object),
            Shape::List(items) => Shape::List(Box::new(self.imported(from, items))),
            Shape::Map(values) => Shape::Map(Box::new(self.imported(from, values))),
            other => other.clone(),
        }
    }

    /// The table.
    pub(crate) fn finish(self) -> Schema {
        Schema {
            types: self.types,
            by_definition: self.by_definition,
        }
    }
}
