//! A schema as types of a table: what patches and ownership of fields need to know. Pure.

use super::{Form, Structural, Unique};
use crate::schema::{Field, ListType, Merge, Schema, SchemaBuilder, Shape, Type};

const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

impl Structural {
    /// The table of a kind's types: its own under `definition`, and those of metadata, which are `base`'s.
    pub(crate) fn table(&self, definition: &str, base: &Schema) -> Schema {
        let mut table = SchemaBuilder::default();
        self.object(definition, true, &mut table, base);
        table.finish()
    }

    /// The type of an object with properties of its own; a table that is full has it as free JSON.
    fn object(&self, definition: &str, has_meta: bool, table: &mut SchemaBuilder, base: &Schema) -> Shape {
        let mut fields: Vec<Field> = Vec::new();
        for (name, property) in self.properties.iter() {
            if has_meta && matches!(name, "apiVersion" | "kind" | "metadata") {
                continue;
            }
            fields.push(Field {
                name: name.into(),
                shape: property.shape(&format!("{definition}.{name}"), table, base),
                required: false,
                merge: property.merge().map(Box::new),
                default: property.default.clone(),
            });
        }
        if has_meta {
            let metadata = table.import(base, METADATA).map_or(Shape::Any, Shape::Object);
            for (name, shape) in [
                ("apiVersion", Shape::String),
                ("kind", Shape::String),
                ("metadata", metadata),
            ] {
                fields.push(Field {
                    name: name.into(),
                    shape,
                    required: false,
                    merge: None,
                    default: None,
                });
            }
        }
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        let own = Type {
            definition: definition.into(),
            fields: fields.into(),
            atomic: self.atomic,
        };
        table.add(own).map_or(Shape::Any, Shape::Object)
    }

    fn shape(&self, definition: &str, table: &mut SchemaBuilder, base: &Schema) -> Shape {
        let inner = |schema: &Option<Box<Self>>, table: &mut SchemaBuilder| {
            let shape = schema.as_ref().map(|schema| schema.shape(definition, table, base));
            Box::new(shape.unwrap_or(Shape::Any))
        };
        match self.form {
            Form::Object if self.embedded || !self.properties.is_empty() => {
                self.object(definition, self.embedded, table, base)
            }
            Form::Object if self.values.is_some() => Shape::Map(inner(&self.values, table)),
            Form::Array => Shape::List(inner(&self.items, table)),
            Form::Object | Form::Any => Shape::Any,
            Form::String => Shape::String,
            Form::Integer => Shape::Int64,
            Form::Number => Shape::Number,
            Form::Boolean => Shape::Boolean,
            Form::IntOrString => Shape::IntOrString,
        }
    }

    fn merge(&self) -> Option<Merge> {
        let unique = self.rules.as_ref().and_then(|rules| rules.unique.as_ref());
        let (list_type, keys) = match unique {
            Some(Unique::Set) => (Some(ListType::Set), Vec::new()),
            Some(Unique::Keys(keys)) => (Some(ListType::Map), keys.iter().map(ToString::to_string).collect()),
            None => (None, Vec::new()),
        };
        (self.atomic || list_type.is_some()).then(|| Merge {
            list_type,
            list_map_keys: keys,
            atomic_map: self.atomic,
            ..Merge::default()
        })
    }
}
