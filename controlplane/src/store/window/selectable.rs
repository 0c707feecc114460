//! What selectors ask of an object: its labels and the fields that its kind selects by, without the object (pure).
//!
//! Owns their form in memory. Every watched revision has one, so it takes little more than its text: labels stand in one text, sorted,
//! whatever number of them there is.

use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// What a field costs beside its text, roughly, and what the whole costs.
const EACH_BYTES: usize = 56;
const WHOLE_BYTES: usize = 128;

/// What selectors can ask of an object.
#[derive(Debug)]
pub struct Selectable {
    labels: Labels,
    /// Selectable fields that are not empty.
    fields: Box<[(Cow<'static, str>, Box<str>)]>,
}

impl Selectable {
    /// Of an object with these fields.
    pub fn of(value: &Value, fields: impl IntoIterator<Item = (Cow<'static, str>, String)>) -> Self {
        let fields = fields.into_iter().filter(|(_, text)| !text.is_empty());
        Self {
            labels: Labels::of(value),
            fields: fields.map(|(name, text)| (name, text.into_boxed_str())).collect(),
        }
    }

    /// Of an object with these fields, whose names are known when this is built.
    pub(super) fn with(value: &Value, fields: BTreeMap<&'static str, String>) -> Self {
        let fields = fields.into_iter();
        Self::of(value, fields.map(|(name, text)| (Cow::Borrowed(name), text)))
    }

    /// The value of `metadata.labels[key]`.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }

    /// A field's text; empty when it is not set.
    pub fn field(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, text)| text)
    }

    /// What it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        let fields = self.fields.iter().map(|(_, text)| text.len() + EACH_BYTES);
        WHOLE_BYTES + self.labels.text.len() + self.labels.ends.len() * size_of::<u32>() + fields.sum::<usize>()
    }
}

/// Keys and values in turn, sorted by key, as one text.
#[derive(Debug)]
struct Labels {
    text: Box<str>,
    /// Where each of them ends.
    ends: Box<[u32]>,
}

impl Labels {
    fn of(value: &Value) -> Self {
        let labels = value["metadata"]["labels"].as_object();
        let pairs = labels.into_iter().flatten();
        let mut pairs: Vec<(&str, &str)> = pairs
            .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
            .collect();
        pairs.sort_unstable();
        let mut text = String::with_capacity(pairs.iter().map(|(key, value)| key.len() + value.len()).sum());
        let mut ends = Vec::with_capacity(2 * pairs.len());
        for part in pairs.into_iter().flat_map(|(key, value)| [key, value]) {
            // Objects are a few MiB at most.
            let Ok(end) = u32::try_from(text.len() + part.len()) else {
                break;
            };
            text.push_str(part);
            ends.push(end);
        }
        Self {
            text: text.into_boxed_str(),
            ends: ends.into_boxed_slice(),
        }
    }

    /// The text between two neighbours; `number` counts keys and values.
    fn part(&self, number: usize) -> &str {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        let range = start as usize..self.ends[number] as usize;
        self.text.get(range).unwrap_or_default()
    }

    fn get(&self, key: &str) -> Option<&str> {
        let (mut low, mut high) = (0, self.ends.len() / 2);
        while low < high {
            let middle = low.midpoint(high);
            match self.part(2 * middle).cmp(key) {
                std::cmp::Ordering::Equal => return Some(self.part(2 * middle + 1)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_are_found_however_many_there_are() {
        for count in [0, 1, 2, 3, 1000] {
            let labels: BTreeMap<String, String> = (0..count).map(|n| (format!("k{n}"), format!("v{n}"))).collect();
            let selectable = Selectable::of(&json!({"metadata": {"labels": labels}}), []);
            for (key, value) in &labels {
                assert_eq!(selectable.label(key), Some(value.as_str()));
            }
            for other in ["", "k", "k0v0", "v0", "zz"] {
                assert_eq!(selectable.label(other), None, "{other}");
            }
        }
        let odd = Selectable::of(&json!({"metadata": {"labels": {"a": 1, "b": "", "ä": "ö"}}}), []);
        assert_eq!(["a", "b", "ä"].map(|key| odd.label(key)), [None, Some(""), Some("ö")]);
    }

    /// 20,000 labels of 7 bytes took 2 MB in a tree of their own.
    #[test]
    fn many_labels_take_no_more_than_their_text_does() {
        let labels: BTreeMap<String, String> = (0..20_000).map(|n| (format!("{n:x}"), String::new())).collect();
        let value = json!({"metadata": {"labels": labels}});
        let taken = Selectable::of(&value, []).bytes();
        assert!(taken <= value.to_string().len() * 5 / 4, "{taken}");
    }
}
