//! A schema as declarations that expressions are checked against: types, and how large values may be (control-plane contract §9). Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::{Form, Structural, Unique};
use crate::cel::{Decl, DeclKind, Listed, escaped};

/// Bytes of the largest request, as estimates count it.
pub(super) const REQUEST_BYTES: u64 = 3 << 20;
/// Bytes of a text, with its quotes, at least.
const TEXT_BYTES: u64 = 2;
/// Likewise of durations, dates and times; and at most.
const DURATION_BYTES: (u64, u64) = (3, 32);
const DATE_BYTES: u64 = 12;
const TIME_BYTES: (u64, u64) = (21, 32);

fn decl(kind: DeclKind, max: u64, min_bytes: u64, nullable: bool) -> Arc<Decl> {
    Arc::new(Decl {
        kind,
        max,
        min_bytes,
        nullable,
    })
}

fn text() -> Arc<Decl> {
    decl(DeclKind::Text, REQUEST_BYTES - 2, TEXT_BYTES, false)
}

impl Structural {
    /// What a value is declared as; with `has_meta` it has an object's names. `None` where nothing is known of it: such fields are
    /// hidden from expressions.
    pub(super) fn declare(&self, has_meta: bool) -> Option<Arc<Decl>> {
        let rules = self.rules.as_deref();
        let most = |of: fn(&super::Rules) -> Option<u64>| rules.and_then(of);
        let length = most(|rules| rules.length.1).map(|length| length.saturating_mul(4));
        let made = |kind, max, min_bytes| Some(decl(kind, max, min_bytes, self.nullable));
        match self.form {
            Form::Any => None,
            Form::IntOrString => made(DeclKind::IntOrString, length.unwrap_or(REQUEST_BYTES - 2), 1),
            Form::Boolean => made(DeclKind::Bool, 0, 4),
            Form::Integer => made(DeclKind::Int, 0, 1),
            Form::Number => made(DeclKind::Double, 0, 1),
            Form::String => self.declare_text(length),
            Form::Array => {
                let items = self.items.as_deref()?;
                let items = items.declare(items.embedded)?;
                let bound = (REQUEST_BYTES - 2) / (items.min_bytes + 1);
                let max = most(|rules| rules.items.1).unwrap_or(bound);
                let listed = match rules.and_then(|rules| rules.unique.as_ref()) {
                    Some(Unique::Set) => Listed::Set,
                    Some(Unique::Keys(keys)) => Listed::Keys(keys.clone()),
                    None => Listed::Atomic,
                };
                made(DeclKind::List(items, listed), max, 2)
            }
            Form::Object => match self.values.as_deref() {
                Some(values) => {
                    let values = values.declare(values.embedded)?;
                    let bound = (REQUEST_BYTES - 2) / (values.min_bytes + 6);
                    let max = most(|rules| rules.properties.1).unwrap_or(bound);
                    made(DeclKind::Map(values), max, 2)
                }
                None => self.declare_object(has_meta),
            },
        }
    }

    fn declare_text(&self, length: Option<u64>) -> Option<Arc<Decl>> {
        let rules = self.rules.as_deref();
        let format = rules.and_then(|rules| rules.format.as_deref());
        let made = |kind, max, min_bytes| Some(decl(kind, max, min_bytes, self.nullable));
        match format {
            Some("byte") => made(
                DeclKind::Bytes,
                length.map_or(REQUEST_BYTES - 2, |length| length / 4),
                TEXT_BYTES,
            ),
            Some("duration") => made(DeclKind::Duration, DURATION_BYTES.1, DURATION_BYTES.0),
            Some("date") => made(DeclKind::Time, DATE_BYTES, DATE_BYTES),
            Some("date-time") => made(DeclKind::Time, TIME_BYTES.1, TIME_BYTES.0),
            _ => {
                let allowed = rules.and_then(|rules| rules.allowed.as_deref()).unwrap_or_default();
                let longest = allowed
                    .iter()
                    .filter_map(Value::as_str)
                    .map(|text| text.len() as u64)
                    .max();
                made(
                    DeclKind::Text,
                    length.or(longest).unwrap_or(REQUEST_BYTES - 2),
                    TEXT_BYTES,
                )
            }
        }
    }

    fn declare_object(&self, has_meta: bool) -> Option<Arc<Decl>> {
        let mut fields = BTreeMap::new();
        let mut min_bytes = 2;
        let required = self.rules.as_deref().map_or(&[][..], |rules| &rules.required);
        for (name, property) in self.properties.iter() {
            let Some(field) = property.declare(property.embedded) else {
                continue;
            };
            if required.iter().any(|required| **required == *name) && property.default.is_none() {
                min_bytes += name.len() as u64 + field.min_bytes + 4;
            }
            if let Some(escaped) = escaped(name) {
                fields.insert(escaped.into(), (name.into(), field));
            }
        }
        if has_meta {
            let names = ["name", "generateName"].map(|name| (Box::from(name), (Box::from(name), text())));
            let names = decl(DeclKind::Object(names.into_iter().collect()), 0, 2, false);
            for (name, field) in [("kind", text()), ("apiVersion", text()), ("metadata", names)] {
                fields.insert(name.into(), (name.into(), field));
            }
        }
        Some(decl(DeclKind::Object(fields), 0, min_bytes, self.nullable))
    }
}
