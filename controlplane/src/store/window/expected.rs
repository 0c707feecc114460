//! What the objects of a resource must say they are, and those that do not (pure).
//!
//! Owns the objects of a resource that are something else: they are told by key, and never shown as what they are not.

use super::Stored;
use crate::store::unreadable;
use crate::store::value::TypeMeta;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// What an object under a resource's prefix must say it is.
#[derive(Clone, Debug)]
pub struct Expected {
    of: TypeMeta<'static>,
    /// Whether another version of the group will do: what is stored stays in the version that was the storage version then.
    any_version: bool,
}

impl Expected {
    /// Objects of exactly this version.
    pub fn version(api_version: &str, kind: &str) -> Self {
        let of = TypeMeta::new(api_version, kind).into_owned();
        Self { of, any_version: false }
    }

    /// Objects of the kind, of any version of its group.
    pub fn any_version(api_version: &str, kind: &str) -> Self {
        let of = TypeMeta::new(api_version, kind).into_owned();
        Self { of, any_version: true }
    }

    fn fits(&self, found: &TypeMeta<'_>) -> bool {
        let is_version = match self.any_version {
            true => self.of.group() == found.group() && found.api_version.contains('/'),
            false => self.of.api_version == found.api_version,
        };
        is_version && self.of.kind == found.kind
    }
}

/// An object that is not what its key says, or that cannot be read: the text names the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misfit(Arc<str>);

/// The objects of one resource that are something else.
#[derive(Default)]
pub(super) struct Misfits {
    expected: Option<Expected>,
    by_key: BTreeMap<Arc<str>, (Misfit, Arc<Stored>)>,
}

impl Misfits {
    pub(super) fn of(expected: Option<Expected>) -> Self {
        let by_key = BTreeMap::new();
        Self { expected, by_key }
    }

    /// What a key held before that did not belong there; whoever asks writes over it.
    pub(super) fn take(&mut self, key: &str) -> Option<Arc<Stored>> {
        self.by_key.remove(key).map(|(_, stored)| stored)
    }

    /// Whether an object is what belongs there; what is not is kept in mind until its key holds something else.
    pub(super) fn judge(&mut self, stored: &Arc<Stored>) -> bool {
        let raw = stored.raw();
        if let Some(why) = unreadable::reason(&raw) {
            return self.keep(stored, Misfit(why.into()));
        }
        let Some(expected) = &self.expected else { return true };
        let found = TypeMeta::of(&raw);
        if found.as_ref().is_some_and(|found| expected.fits(found)) {
            return true;
        }
        let found = found.map_or_else(|| "no object".to_owned(), |found| found.to_string());
        self.is_not(stored, found)
    }

    /// As [`Misfits::judge`], of bytes that were on a disk meanwhile: all of the text is looked at, once.
    pub(super) fn judge_read(&mut self, stored: &Arc<Stored>) -> bool {
        if !self.judge(stored) {
            return false;
        }
        if self.expected.is_none() {
            return true;
        }
        let raw = stored.raw();
        let text = std::str::from_utf8(&raw).map_err(|error| error.to_string());
        let is_json = text.and_then(|text| {
            let read = serde_json::from_str::<IgnoredAny>(text);
            read.map_err(|error| error.to_string())
        });
        match is_json {
            Ok(_) => true,
            Err(error) => self.is_not(stored, format!("damaged bytes ({error})")),
        }
    }

    fn is_not(&mut self, stored: &Arc<Stored>, found: String) -> bool {
        let Some(expected) = &self.expected else { return true };
        let text = format!("{} holds {found}, where {} belongs", stored.key, expected.of);
        self.keep(stored, Misfit(text.into()))
    }

    fn keep(&mut self, stored: &Arc<Stored>, misfit: Misfit) -> bool {
        tracing::error!(error = %misfit, "a stored object is not what its key says; it is not served");
        self.by_key
            .insert(Arc::clone(&stored.key), (misfit, Arc::clone(stored)));
        false
    }

    /// All of them, with their keys.
    pub(super) fn all(&self) -> impl Iterator<Item = (Arc<str>, Arc<Stored>)> {
        let all = self.by_key.iter();
        all.map(|(key, (_, stored))| (Arc::clone(key), Arc::clone(stored)))
    }

    /// All are judged anew.
    pub(super) fn forget(&mut self) {
        self.by_key.clear();
    }

    /// That of a key.
    pub(super) fn at(&self, key: &str) -> Option<&Misfit> {
        self.by_key.get(key).map(|(misfit, _)| misfit)
    }

    /// That of a key, and what the key holds.
    pub(super) fn held(&self, key: &str) -> Option<(Misfit, Arc<Stored>)> {
        self.by_key.get(key).cloned()
    }

    /// The first under a prefix.
    pub(super) fn under(&self, prefix: &str) -> Option<&Misfit> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let (key, (misfit, _)) = self.by_key.range::<str, _>(from).next()?;
        key.starts_with(prefix).then_some(misfit)
    }
}

#[cfg(test)]
mod tests;
