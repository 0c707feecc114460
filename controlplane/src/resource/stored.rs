//! What is stored under a key (control-plane contract §10), for data that do not say it themselves. Pure.
//!
//! Owns the way from a key to a kind; where a kind is stored is its row's.

use super::field::{flag, list, text};
use super::{Registry, custom};
use serde_json::Value;
use std::collections::HashMap;

/// Where all objects are.
const ROOT: &str = "/registry/";

/// What is taken of ranges, and the resources upstream stores that as, in the core group: its rules of encryption name them so.
const RANGES: [(&str, &str); 3] = [
    ("ranges/serviceips", "serviceipallocations"),
    ("ranges/secondaryserviceips", "serviceipallocations"),
    ("ranges/servicenodeports", "servicenodeportallocations"),
];

/// `apiVersion` and `kind`, of the form that is stored.
pub(crate) type StoredAs = (String, String);

/// Finds what keys are of; remembers what it has read of definitions.
#[derive(Default)]
pub(crate) struct KeyKinds {
    built_in: HashMap<String, StoredAs>,
    custom: HashMap<(String, String), Option<StoredAs>>,
}

impl KeyKinds {
    /// Of the built-in kinds, and of those that definitions define.
    pub(crate) fn new() -> Self {
        let kinds = Registry::built_in().kinds();
        let stored = kinds.filter(|kind| kind.is_stored() && kind.conversion.is_none());
        let of = stored.map(|kind| {
            let stored_as = (kind.api_version.to_string(), kind.kind.to_string());
            (kind.storage_prefix.to_string(), stored_as)
        });
        Self {
            built_in: of.collect(),
            custom: HashMap::new(),
        }
    }

    /// What the object under a key is stored as; `read` gives the value of another key. `None` if nobody knows.
    pub(crate) fn of(&mut self, key: &str, read: impl Fn(&str) -> Option<Vec<u8>>) -> Option<StoredAs> {
        let place = key.strip_prefix(ROOT)?;
        let (first, rest) = place.split_once('/')?;
        if let Some(found) = self.built_in.get(first) {
            return Some(found.clone());
        }
        let (second, _) = rest.split_once('/')?;
        if let Some(found) = self.built_in.get(&place[..first.len() + 1 + second.len()]) {
            return Some(found.clone());
        }
        let known = self.custom.entry((first.to_owned(), second.to_owned()));
        let known = known.or_insert_with(|| defined(&serde_json::from_slice(&read(&definition(first, second))?).ok()?));
        known.clone()
    }
}

/// Which resource's a key is, by group and plural name; `None` for what is no object's. What is not built in is custom.
pub(crate) fn resource_of() -> impl Fn(&str) -> Option<(String, String)> {
    let kinds = Registry::built_in().kinds();
    let stored = kinds.filter(|kind| kind.is_stored() && kind.conversion.is_none());
    let of = stored.map(|kind| {
        // Both groups' events are in one place, which upstream has under the core group's name.
        let group = if kind.group == "events.k8s.io" { "" } else { &kind.group };
        let names = (group.to_owned(), kind.plural.to_string());
        (kind.storage_prefix.to_string(), names)
    });
    let built_in: HashMap<String, (String, String)> = of.collect();
    move |key| {
        let place = key.strip_prefix(ROOT)?;
        if let Some((_, plural)) = RANGES.iter().find(|(own, _)| *own == place) {
            return Some((String::new(), (*plural).to_owned()));
        }
        let (first, rest) = place.split_once('/')?;
        if let Some(found) = built_in.get(first) {
            return Some(found.clone());
        }
        let (second, _) = rest.split_once('/')?;
        let found = built_in.get(&place[..first.len() + 1 + second.len()]);
        let custom = || first.contains('.').then(|| (first.to_owned(), second.to_owned()));
        found.cloned().or_else(custom)
    }
}

/// The key of a definition.
fn definition(group: &str, plural: &str) -> String {
    let definitions = custom::storage_prefix("apiextensions.k8s.io", "customresourcedefinitions");
    format!("{ROOT}{definitions}/{plural}.{group}")
}

/// What objects of a definition are stored as.
fn defined(definition: &Value) -> Option<StoredAs> {
    let versions = list(definition, &["spec", "versions"]);
    let storage = versions.iter().find(|version| flag(version, &["storage"]))?;
    let group = text(definition, &["spec", "group"]);
    let kind = match text(definition, &["status", "acceptedNames", "kind"]) {
        "" => text(definition, &["spec", "names", "kind"]),
        accepted => accepted,
    };
    Some((format!("{group}/{}", text(storage, &["name"])), kind.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_of_resources() {
        let of = resource_of();
        for (key, found) in [
            ("/registry/secrets/a/b", Some(("", "secrets"))),
            ("/registry/deployments/a/b", Some(("apps", "deployments"))),
            ("/registry/minions/n1", Some(("", "nodes"))),
            ("/registry/services/specs/a/b", Some(("", "services"))),
            ("/registry/services/endpoints/a/b", Some(("", "endpoints"))),
            ("/registry/events/a/b", Some(("", "events"))),
            ("/registry/ingress/a/b", Some(("networking.k8s.io", "ingresses"))),
            (
                "/registry/apiextensions.k8s.io/customresourcedefinitions/a.b",
                Some(("apiextensions.k8s.io", "customresourcedefinitions")),
            ),
            ("/registry/zoo.example/lions/a/leo", Some(("zoo.example", "lions"))),
            ("/registry/ranges/serviceips", Some(("", "serviceipallocations"))),
            (
                "/registry/ranges/servicenodeports",
                Some(("", "servicenodeportallocations")),
            ),
            ("/registry/ranges/other", None),
            ("compact_rev_key", None),
        ] {
            let expected = found.map(|(group, plural)| (group.to_owned(), plural.to_owned()));
            assert_eq!(of(key), expected, "{key}");
        }
    }
}
