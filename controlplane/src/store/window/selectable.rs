//! What selectors ask of an object: its labels and the fields that its kind selects by, without the object (pure).
//!
//! Owns their form in memory. Every watched revision has one, so it takes little more than its text: labels stand in one text, sorted,
//! whatever number of them there is, and fields in another.

use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// What the whole costs beside its text.
const WHOLE_BYTES: usize = 160;

/// What selectors can ask of an object.
#[derive(Debug)]
pub struct Selectable {
    labels: Labels,
    /// Names of the selectable fields that are not empty.
    names: Box<[Cow<'static, str>]>,
    /// Their texts, in that order.
    fields: Parts,
}

impl Selectable {
    /// Of an object with these fields.
    pub fn of(value: &Value, fields: impl IntoIterator<Item = (Cow<'static, str>, String)>) -> Self {
        let fields = fields.into_iter().filter(|(_, text)| !text.is_empty());
        let (names, texts): (Vec<_>, Vec<String>) = fields.unzip();
        Self {
            labels: Labels::of(value),
            names: names.into_boxed_slice(),
            fields: Parts::of(texts.iter().map(String::as_str)),
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
        let found = self.names.iter().position(|known| known == name);
        found.map_or("", |at| self.fields.part(at))
    }

    /// What it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        let names = self.names.len() * size_of::<Cow<'static, str>>();
        WHOLE_BYTES + self.labels.0.bytes() + names + self.fields.bytes()
    }
}

/// Texts in one.
#[derive(Debug)]
struct Parts {
    text: Box<str>,
    /// Where each of them ends.
    ends: Box<[u32]>,
}

impl Parts {
    fn of<'a>(parts: impl Iterator<Item = &'a str> + Clone) -> Self {
        let mut text = String::with_capacity(parts.clone().map(str::len).sum());
        let mut ends = Vec::with_capacity(parts.clone().count());
        for part in parts {
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

    /// The text between two neighbours.
    fn part(&self, number: usize) -> &str {
        let Some(end) = self.ends.get(number) else { return "" };
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(start as usize..*end as usize).unwrap_or_default()
    }

    fn bytes(&self) -> usize {
        self.text.len() + self.ends.len() * size_of::<u32>()
    }
}

/// Keys and values in turn, sorted by key.
#[derive(Debug)]
struct Labels(Parts);

impl Labels {
    fn of(value: &Value) -> Self {
        let labels = value["metadata"]["labels"].as_object();
        let pairs = labels.into_iter().flatten();
        let mut pairs: Vec<(&str, &str)> = pairs
            .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
            .collect();
        pairs.sort_unstable();
        Self(Parts::of(pairs.iter().flat_map(|(key, value)| [*key, *value])))
    }

    fn get(&self, key: &str) -> Option<&str> {
        let (mut low, mut high) = (0, self.0.ends.len() / 2);
        while low < high {
            let middle = low.midpoint(high);
            match self.0.part(2 * middle).cmp(key) {
                std::cmp::Ordering::Equal => return Some(self.0.part(2 * middle + 1)),
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

    #[test]
    fn fields_that_are_empty_are_not_kept_and_the_others_are_found() {
        let fields = [("a", "x"), ("b", ""), ("c", "yz"), ("d", "ö")];
        let fields = fields.map(|(name, text)| (Cow::Borrowed(name), text.to_owned()));
        let selectable = Selectable::of(&json!({}), fields);
        assert_eq!(
            ["a", "b", "c", "d", "e"].map(|name| selectable.field(name)),
            ["x", "", "yz", "ö", ""]
        );
        assert_eq!(selectable.names.len(), 3);
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
