//! Reading JSON and YAML text into a tree, noting duplicate keys on the way. Pure.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::outcome::Problem;
use crate::tree::{self, DEPTH_MAX, SIZE_MAX_BYTES, TreeError};

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
/// Stack of the thread that reads YAML; only what is used of it is ever there.
const YAML_STACK_BYTES: usize = 8 << 20;
/// Most duplicate keys reported (upstream's decoder stops noting there).
const DUPLICATES_MAX: usize = 100;
/// Longest path reported; what is behind it is cut off.
const PATH_MAX_BYTES: usize = 1024;

/// Reads one document of no particular kind.
///
/// # Errors
/// The parser's text.
pub fn parse(bytes: &[u8], media: Media) -> Result<Value, String> {
    read(bytes, media).map(|read| read.value)
}

/// As [`parse`], with the keys that stood twice.
///
/// # Errors
/// The parser's text.
pub fn parse_noting(bytes: &[u8], media: Media) -> Result<(Value, Vec<Problem>), String> {
    let Read { value, duplicates } = read(bytes, media)?;
    Ok((value, duplicates.into_iter().map(Problem::Duplicate).collect()))
}

/// Reads one document. The error is the parser's text.
pub(super) fn read(bytes: &[u8], media: Media) -> Result<Read, String> {
    let mut path = String::new();
    let mut duplicates = Vec::new();
    let mut bytes_left = SIZE_MAX_BYTES;
    let seed = Tree {
        path: &mut path,
        duplicates: &mut duplicates,
        levels_left: DEPTH_MAX,
        bytes_left: &mut bytes_left,
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
            let value = on_own_stack(|| {
                serde_saphyr::with_deserializer_from_str_with_options(text, yaml_options(), |reader| {
                    seed.deserialize(reader)
                })
                .map_err(|error| error.without_snippet().to_string())
            })?;
            // The reader counts keys and strings alone; aliases repeat anything else as well.
            tree::check(&value).map_err(|error| error.to_string())?;
            value
        }
        Media::Protobuf => {
            let value = super::protobuf::read(bytes)?;
            tree::check(&value).map_err(|error| error.to_string())?;
            value
        }
    };
    Ok(Read { value, duplicates })
}

/// Runs `work` on a thread of its own: the YAML reader takes up to 25 kB of stack a level, so that [`DEPTH_MAX`] levels are
/// more than a worker's stack holds. Bodies in YAML are rare.
fn on_own_stack<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .stack_size(YAML_STACK_BYTES)
            .spawn_scoped(scope, work);
        let thread = thread.map_err(|error| format!("no thread to read YAML with: {error}"))?;
        thread
            .join()
            .unwrap_or_else(|_| Err("the YAML reader failed".to_owned()))
    })
}

/// A map that has integer keys arrives with its duplicates already collapsed (last wins), so those go unreported.
fn yaml_options() -> serde_saphyr::Options {
    let mut options = serde_saphyr::Options::default();
    options.duplicate_keys = serde_saphyr::options::DuplicateKeyPolicy::LastWins;
    options.alias_limits.max_total_replayed_events = YAML_EVENTS_MAX;
    options.strict_booleans = false;
    if let Some(budget) = &mut options.budget {
        budget.max_depth = DEPTH_MAX;
    }
    options
}

struct Tree<'a> {
    path: &'a mut String,
    duplicates: &'a mut Vec<String>,
    /// Lists and objects that may still be opened inside one another.
    levels_left: usize,
    /// Bytes of keys and strings the document may still have: YAML's aliases can repeat a long one at will.
    bytes_left: &'a mut usize,
}

impl Tree<'_> {
    /// The reader of a member one level down.
    fn member(&mut self) -> Tree<'_> {
        Tree {
            path: self.path,
            duplicates: self.duplicates,
            levels_left: self.levels_left,
            bytes_left: self.bytes_left,
        }
    }

    /// Takes part in the document's bytes.
    fn text<E: Error>(&mut self, length: usize) -> Result<(), E> {
        match self.bytes_left.checked_sub(length) {
            Some(left) => {
                *self.bytes_left = left;
                Ok(())
            }
            None => Err(E::custom(TreeError::TooLarge)),
        }
    }

    /// Opens a list or an object.
    fn open<E: Error>(&mut self) -> Result<(), E> {
        match self.levels_left.checked_sub(1) {
            Some(left) => {
                self.levels_left = left;
                Ok(())
            }
            None => Err(E::custom(TreeError::TooDeep)),
        }
    }

    fn note_duplicate(&mut self) {
        if self.duplicates.len() < DUPLICATES_MAX {
            let end = self.path.floor_char_boundary(PATH_MAX_BYTES);
            let shown = self.path.get(..end).unwrap_or_default();
            self.duplicates.push(shown.to_owned());
        }
    }
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

    fn visit_str<E: Error>(mut self, value: &str) -> Result<Value, E> {
        self.text(value.len())?;
        Ok(Value::from(value))
    }

    fn visit_string<E: Error>(mut self, value: String) -> Result<Value, E> {
        self.text(value.len())?;
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        self.open()?;
        let mut items = Vec::new();
        let length = self.path.len();
        loop {
            self.path.push_str(&format!("[{}]", items.len()));
            let item = access.next_element_seed(self.member())?;
            self.path.truncate(length);
            match item {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        self.open()?;
        let mut map = Map::new();
        let length = self.path.len();
        while let Some(key) = access.next_key_seed(Key)? {
            self.text(key.len())?;
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(&key);
            let value = access.next_value_seed(self.member())?;
            if map.insert(key, value).is_some() {
                self.note_duplicate();
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
