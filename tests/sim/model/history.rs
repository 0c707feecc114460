//! The order of writes: every success stands on the revision right before it, what was answered lasts, and a watcher that was cut
//! and resumed has seen every change once.

use crate::watcher::{Sighting, WATCHED};
use controlplane::store::{Record, Revision};
use std::collections::BTreeMap;

/// One change, with what its key's last revision was before.
#[derive(Clone, Debug)]
struct Entry {
    key: String,
    previous: Option<Revision>,
    stands: bool,
}

#[derive(Default)]
pub struct History {
    newest: Revision,
    entries: BTreeMap<Revision, Entry>,
    /// The last revision of every key that exists.
    modified: BTreeMap<String, Revision>,
    /// Answered writes, with the revision they were conditional on.
    answered: BTreeMap<Revision, (String, Option<Revision>)>,
    /// Conditional writes through the API: what they were based on, what they became.
    conditional: Vec<(Revision, Revision)>,
}

impl History {
    pub fn on_change(&mut self, revision: Revision, key: &str, stands: bool) -> Option<String> {
        let newest = std::mem::replace(&mut self.newest, revision);
        let previous = self.modified.get(key).copied();
        if stands {
            self.modified.insert(key.to_owned(), revision);
        } else {
            self.modified.remove(key);
        }
        let key = key.to_owned();
        self.entries.insert(revision, Entry { key, previous, stands });
        (revision != newest + 1).then(|| format!("revision {revision} of the store followed {newest}"))
    }

    pub fn acknowledged(&mut self, key: &str, revision: Revision, base: Option<Revision>) {
        self.answered.insert(revision, (key.to_owned(), base));
    }

    pub fn conditional(&mut self, base: Revision, revision: Revision) {
        self.conditional.push((base, revision));
    }

    /// Compares what a reopened store holds with what it answered before.
    pub fn reopened(&mut self, revision: Revision, records: &[Record]) -> Vec<String> {
        let kept: BTreeMap<String, Revision> = records.iter().map(|r| (r.key.to_string(), r.modified)).collect();
        let mut told: Vec<String> = Vec::new();
        for (answered, (key, _)) in &self.answered {
            if *answered > revision {
                told.push(format!("r{answered} of {key} was acknowledged and is lost"));
            }
        }
        // The last answered write of each key, unless a later change of it is there.
        let last: BTreeMap<&String, Revision> = self.answered.iter().map(|(at, (key, _))| (key, *at)).collect();
        for (key, at) in last {
            let deleted = self.entries.get(&at).is_some_and(|entry| !entry.stands);
            match kept.get(key) {
                Some(kept) if *kept < at => {
                    told.push(format!("r{at} of {key} was acknowledged and is lost (r{kept} is back)"))
                }
                Some(_) => {}
                None if deleted || self.was_deleted_after(key, at) => {}
                None => told.push(format!("r{at} of {key} was acknowledged and is lost (the key is gone)")),
            }
        }
        self.newest = revision;
        self.modified = kept;
        told
    }

    fn was_deleted_after(&self, key: &str, at: Revision) -> bool {
        self.entries
            .range(at..)
            .any(|(_, entry)| entry.key == key && !entry.stands)
    }

    pub fn at_rest(&self) -> Vec<String> {
        let mut told = Vec::new();
        for (revision, (key, base)) in &self.answered {
            match self.entries.get(revision) {
                None => told.push(format!(
                    "r{revision} of {key} was acknowledged and nobody was told of it"
                )),
                Some(entry) if entry.key != *key => told.push(format!(
                    "r{revision} was acknowledged for {key} and is of {}",
                    entry.key
                )),
                Some(entry) if entry.previous != *base => told.push(format!(
                    "r{revision} of {key} was conditional on {base:?} and followed {:?}",
                    entry.previous
                )),
                Some(_) => {}
            }
        }
        for (base, revision) in &self.conditional {
            let previous = self.entries.get(revision).map(|entry| entry.previous);
            if previous.is_some_and(|previous| previous != Some(*base)) {
                told.push(format!(
                    "an update on {base} became r{revision}, which followed {previous:?}"
                ));
            }
        }
        told
    }

    /// Changes of what is watched, in a span of revisions.
    fn watched(&self, after: Revision, until: Revision) -> Vec<Revision> {
        if after >= until {
            return Vec::new();
        }
        let span = self.entries.range(after + 1..=until);
        span.filter(|(_, entry)| entry.key.starts_with(WATCHED))
            .map(|(revision, _)| *revision)
            .collect()
    }

    /// What the keys under watch were at a revision.
    fn keys_at(&self, revision: Revision) -> BTreeMap<&str, Revision> {
        let mut keys = BTreeMap::new();
        for (at, entry) in self
            .entries
            .range(..=revision)
            .filter(|(_, entry)| entry.key.starts_with(WATCHED))
        {
            if entry.stands {
                keys.insert(entry.key.as_str(), *at);
            } else {
                keys.remove(entry.key.as_str());
            }
        }
        keys
    }

    /// Judges what one watcher saw, in its order.
    pub fn judge_sightings(&self, sightings: &[Sighting]) -> Vec<String> {
        let mut told = Vec::new();
        let mut seen: Revision = 0;
        for sighting in sightings {
            match sighting {
                Sighting::Listed(at, items) => {
                    let truth = self.keys_at(*at);
                    let items: BTreeMap<&str, Revision> = items.iter().map(|(key, at)| (key.as_str(), *at)).collect();
                    if items != truth {
                        told.push(format!("a list at {at} has {items:?}, the store had {truth:?}"));
                    }
                    seen = *at;
                }
                Sighting::Event(at) => {
                    let due = self.watched(seen, *at);
                    if due != [*at] {
                        told.push(format!("a watch at {seen} went on with {at}, the store with {due:?}"));
                    }
                    seen = *at;
                }
                Sighting::Bookmark(at) => {
                    let missed = self.watched(seen, *at);
                    if !missed.is_empty() || *at < seen {
                        told.push(format!(
                            "a bookmark at {at} followed {seen}, and {missed:?} was not delivered"
                        ));
                    }
                    seen = *at;
                }
                Sighting::Resumed(at) => {
                    if *at != seen {
                        told.push(format!("a watch resumed from {at} and had seen {seen}"));
                    }
                }
            }
        }
        told
    }
}
