//! Something for each of a few names. Pure.
//!
//! For what is held of every pod, several times: a `BTreeMap` has room for eleven entries at once, a pod mostly has one container.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// A map by name that takes no more memory than its entries do. Ordered by name; looking one up takes time by their number.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<T>(Vec<(String, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Named<T> {
    /// What has this name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(of, _)| of == name).map(|(_, value)| value)
    }

    /// Sets what has this name.
    pub fn insert(&mut self, name: String, value: T) {
        match self.0.binary_search_by(|(of, _)| of.cmp(&name)) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => {
                self.0.reserve_exact(1);
                self.0.insert(at, (name, value));
            }
        }
    }

    /// Keeps only the names for which `keep` holds.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| keep(name));
        self.0.shrink_to_fit();
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl<T> Extend<(String, T)> for Named<T> {
    fn extend<I: IntoIterator<Item = (String, T)>>(&mut self, entries: I) {
        for (name, value) in entries {
            self.insert(name, value);
        }
    }
}

impl<T> FromIterator<(String, T)> for Named<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(entries: I) -> Self {
        let mut all = Self::default();
        all.extend(entries);
        all
    }
}

impl<T> IntoIterator for Named<T> {
    type Item = (String, T);
    type IntoIter = std::vec::IntoIter<(String, T)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self::from_iter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map_of_a_maps_form_with_room_for_its_entries_alone() {
        let mut named: Named<i32> = [("b", 2), ("a", 1), ("b", 3)]
            .map(|(name, n)| (name.to_owned(), n))
            .into_iter()
            .collect();
        assert_eq!(named.iter().collect::<Vec<_>>(), [("a", &1), ("b", &3)]);
        assert_eq!((named.get("b"), named.get("c")), (Some(&3), None));
        assert_eq!(named.0.capacity(), 2);
        let text = serde_json::to_string(&named).expect("a map");
        assert_eq!(text, r#"{"a":1,"b":3}"#);
        assert_eq!(serde_json::from_str::<Named<i32>>(&text).expect("reads"), named);
        named.retain(|name| name == "b");
        assert_eq!((named.iter().count(), named.0.capacity()), (1, 1));
    }
}
