//! Whether stored text is as a schema would have it, told without making a tree of it. Pure.
//!
//! Owns no answer that counts: text that is settled is left alone, all other is pruned and defaulted, which may change nothing.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::Structural;
use super::tree::is_meta;

impl Structural {
    /// Makes an object that was stored under another schema what this one would have made of it: pruned, with defaults. An object
    /// of a schema that cannot be used stays what it is.
    pub(crate) fn refresh(&self, object: &mut Value) {
        if self.unusable.is_none() {
            self.prune_object(object, &mut Vec::new());
            self.fill_in(object);
        }
    }

    /// Whether [`Structural::refresh`] would change nothing in the object of this text; a no may be wrong.
    pub(crate) fn is_settled(&self, text: &[u8]) -> bool {
        let root = Seed {
            schema: self,
            may_be_null: true,
            has_meta: true,
        };
        let mut reading = serde_json::Deserializer::from_slice(text);
        self.unusable.is_some() || root.deserialize(&mut reading).is_ok()
    }
}

/// Reads a value, and fails at the first thing that the schema would change.
#[derive(Clone, Copy)]
struct Seed<'s> {
    schema: &'s Structural,
    may_be_null: bool,
    /// Its apiVersion, kind and metadata are the API's.
    has_meta: bool,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value as the schema has it")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        match self.may_be_null {
            true => Ok(()),
            false => Err(E::custom("a null that goes")),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Some(items) = &self.schema.items else {
            while members.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        let member = Seed {
            schema: items,
            may_be_null: true,
            has_meta: items.embedded,
        };
        while members.next_element_seed(member)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut defaulted = 0;
        while let Some(Key(key)) = members.next_key()? {
            if self.has_meta && is_meta(&key) {
                members.next_value::<IgnoredAny>()?;
                // What an embedded object's schema says of its metadata is looked at by those who make a tree.
                if self.schema.properties.contains_key(&key) && self.schema.embedded {
                    return Err(A::Error::custom("metadata of an embedded object"));
                }
                continue;
            }
            let property = self.schema.properties.get(&key);
            defaulted += usize::from(property.is_some_and(|property| property.default.is_some()));
            match property.or(self.schema.values.as_deref()) {
                Some(schema) => members.next_value_seed(Seed {
                    schema,
                    may_be_null: property.is_none_or(|property| property.nullable),
                    has_meta: schema.embedded,
                })?,
                None if self.schema.preserves || self.schema.any_values => {
                    members.next_value::<IgnoredAny>()?;
                }
                None => return Err(A::Error::custom("an unknown field")),
            }
        }
        let wanted = self.schema.defaulted.iter();
        match defaulted == wanted.filter(|name| !(self.has_meta && is_meta(name))).count() {
            true => Ok(()),
            false => Err(A::Error::custom("a default is missing")),
        }
    }
}

/// A key, copied only where it is written with escapes.
struct Key<'k>(Cow<'k, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(key)))
            }

            fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }
        deserializer.deserialize_str(Read)
    }
}
