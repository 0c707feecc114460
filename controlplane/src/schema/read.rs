//! Reading JSON and YAML text into a tree, noting duplicate keys on the way. Pure.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The text form of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// A tree and the paths of keys that stood twice (the last value wins).
pub(super) struct Read {
    pub(super) value: Value,
    pub(super) duplicates: Vec<String>,
}

/// Most parser events a YAML body may have, aliases expanded.
const YAML_EVENTS_MAX: usize = 1_000_000;

/// Reads one document of no particular kind.
///
/// # Errors
/// The parser's text.
pub fn parse(bytes: &[u8], media: Media) -> Result<Value, String> {
    read(bytes, media).map(|read| read.value)
}

/// Reads one document. The error is the parser's text.
pub(super) fn read(bytes: &[u8], media: Media) -> Result<Read, String> {
    let mut path = String::new();
    let mut duplicates = Vec::new();
    let seed = Tree {
        path: &mut path,
        duplicates: &mut duplicates,
    };
    let value = match media {
        Media::Json => {
            let mut reader = serde_json::Deserializer::from_slice(bytes);
            let value = seed.deserialize(&mut reader).map_err(|error| error.to_string())?;
            reader.end().map_err(|error| error.to_string())?;
            value
        }
        Media::Yaml => {
            let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
            serde_saphyr::with_deserializer_from_str_with_options(text, yaml_options(), |reader| {
                seed.deserialize(reader)
            })
            .map_err(|error| error.without_snippet().to_string())?
        }
        Media::Protobuf => super::protobuf::read(bytes)?,
    };
    Ok(Read { value, duplicates })
}

/// A map that has integer keys arrives with its duplicates already collapsed (last wins), so those go unreported.
fn yaml_options() -> serde_saphyr::Options {
    let mut options = serde_saphyr::Options::default();
    options.duplicate_keys = serde_saphyr::options::DuplicateKeyPolicy::LastWins;
    options.alias_limits.max_total_replayed_events = YAML_EVENTS_MAX;
    options.strict_booleans = false;
    options
}

struct Tree<'a> {
    path: &'a mut String,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        let length = self.path.len();
        loop {
            self.path.push_str(&format!("[{}]", items.len()));
            let seed = Tree {
                path: self.path,
                duplicates: self.duplicates,
            };
            let item = access.next_element_seed(seed)?;
            self.path.truncate(length);
            match item {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let length = self.path.len();
        while let Some(key) = access.next_key_seed(Key)? {
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(&key);
            let seed = Tree {
                path: self.path,
                duplicates: self.duplicates,
            };
            let value = access.next_value_seed(seed)?;
            if map.insert(key, value).is_some() {
                self.duplicates.push(self.path.clone());
            }
            self.path.truncate(length);
        }
        Ok(Value::Object(map))
    }
}

/// A key: a string, or in YAML a scalar that becomes one.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key that is a scalar")
    }

    fn visit_str<E>(self, value: &str) -> Result<String, E> {
        Ok(value.to_owned())
    }

    fn visit_bool<E>(self, value: bool) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_i64<E>(self, value: i64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_u64<E>(self, value: u64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_f64<E>(self, value: f64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_unit<E>(self) -> Result<String, E> {
        Ok("null".to_owned())
    }
}
