//! How a value is laid out as text: JSON without blanks, JSON with blanks, YAML; whole, or a list with its objects one by one. Pure.
//!
//! One by one gives the same bytes as whole: each part is written in a document that has nothing else around it, and that is cut
//! away.

use crate::apiserver::negotiate::{Encoding, Output};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Blanks may make a text so many times longer; one that is nested so deeply that they would do more is written without.
const GROWTH_MAX: usize = 8;
/// What blanks may add to any text.
const GROWTH_FREE_BYTES: usize = 64 << 10;

/// A way to write values down for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// JSON with blanks.
    Pretty,
    Yaml,
}

impl Layout {
    /// What was negotiated; `None` for JSON without blanks, and for what is no text.
    pub(super) fn of(output: Output) -> Option<Self> {
        match output.encoding {
            Encoding::Yaml => Some(Self::Yaml),
            Encoding::Json => output.pretty.then_some(Self::Pretty),
            Encoding::Protobuf => None,
        }
    }

    /// What the text of a value takes at most, which has so many bytes without blanks.
    pub(super) fn most_bytes(compact: usize) -> usize {
        compact * GROWTH_MAX + GROWTH_FREE_BYTES
    }

    /// A document of its own; without blanks where it would have more than `most` bytes.
    pub(super) fn document(self, value: &Value, most: usize) -> Vec<u8> {
        let mut text = self.bounded(value, value, most).unwrap_or_else(|| compact(value));
        if self == Self::Pretty || !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        text
    }

    /// The text of `document`, where `value` is what counts; `None` if blanks make too much of it, or more than `most` bytes.
    fn bounded(self, document: &Value, value: &Value, most: usize) -> Option<Vec<u8>> {
        let mut length = Counted(0);
        serde_json::to_writer(&mut length, value).ok()?;
        let mut text = Bounded {
            text: Vec::new(),
            most: Self::most_bytes(length.0).min(most),
        };
        match self {
            Self::Yaml => serde_saphyr::to_io_writer(&mut text, document).ok()?,
            Self::Pretty => serde_json::to_writer_pretty(&mut text, document).ok()?,
        }
        Some(text.text)
    }

    /// A list up to its first object: the members before `key`, at which the objects are.
    pub(super) fn opened(self, members: &Map<String, Value>, key: &str, is_empty: bool) -> Vec<u8> {
        let before = members.iter().filter(|(name, _)| name.as_str() < key);
        let before: Vec<Vec<u8>> = before.map(|(name, value)| self.member(name, value)).collect();
        match self {
            Self::Pretty => {
                let before: Vec<u8> = before
                    .into_iter()
                    .flat_map(|text| [text, b",\n".to_vec()].concat())
                    .collect();
                [b"{\n", before.as_slice(), format!("  \"{key}\": [").as_bytes()].concat()
            }
            Self::Yaml => {
                let begin = if is_empty { " []" } else { "" };
                [before.concat().as_slice(), format!("{key}:{begin}\n").as_bytes()].concat()
            }
        }
    }

    /// One object of the list, with what separates it from the one before.
    pub(super) fn item(self, value: &Value, is_first: bool) -> Vec<u8> {
        let text = self.bounded(&json!({"i": [value]}), value, usize::MAX);
        match self {
            Self::Pretty => {
                let separator: &[u8] = if is_first { b"\n" } else { b",\n" };
                let item = text
                    .as_deref()
                    .and_then(|text| cut(text, "{\n  \"i\": [\n", "\n  ]\n}"));
                [separator, &item.map_or_else(|| compact(value), <[u8]>::to_vec)].concat()
            }
            Self::Yaml => {
                let item = text.as_deref().and_then(|text| cut(text, "i:\n", ""));
                // JSON is YAML too.
                item.map_or_else(|| [b"- ", compact(value).as_slice(), b"\n"].concat(), <[u8]>::to_vec)
            }
        }
    }

    /// What follows the last object: the members after `key`.
    pub(super) fn closed(self, members: &Map<String, Value>, key: &str, is_empty: bool) -> Vec<u8> {
        let after = members.iter().filter(|(name, _)| name.as_str() > key);
        let after = after.map(|(name, value)| self.member(name, value));
        match self {
            Self::Pretty => {
                let end: &[u8] = if is_empty { b"]" } else { b"\n  ]" };
                let after: Vec<u8> = after.flat_map(|text| [b",\n".to_vec(), text].concat()).collect();
                [end, &after, b"\n}\n"].concat()
            }
            Self::Yaml => after.flatten().collect(),
        }
    }

    /// A member of a list's object.
    fn member(self, name: &str, value: &Value) -> Vec<u8> {
        let document = json!({ name: value });
        match self {
            Self::Yaml => serde_saphyr::to_string(&document)
                .map(String::into_bytes)
                .unwrap_or_default(),
            Self::Pretty => {
                let text = serde_json::to_vec_pretty(&document).unwrap_or_default();
                cut(&text, "{\n", "\n}").unwrap_or_default().to_vec()
            }
        }
    }
}

fn compact(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

fn cut<'a>(text: &'a [u8], before: &str, after: &str) -> Option<&'a [u8]> {
    text.strip_prefix(before.as_bytes())?.strip_suffix(after.as_bytes())
}

/// Counts what is written.
struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps what is written, up to a length.
struct Bounded {
    text: Vec<u8>,
    most: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() + bytes.len() > self.most {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "too many blanks"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
