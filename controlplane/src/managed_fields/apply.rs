//! Server-side apply: a configuration merged into an object, what its manager no longer names taken out, conflicts told (control-plane
//! contract §2.5; KEP-555). Pure.

use serde_json::{Map, Value};

use super::check;
use super::compare::compare;
use super::conflict::Conflicts;
use super::entry::{Entries, Entry, Operation};
use super::extract::{extract, with_named_fields};
use super::field_set::FieldSet;
use super::last_applied;
use super::merge::merge;
use super::remove::remove;
use super::scope::Scope;
use super::typing::Typing;
use super::update::{self, Live, Writer};

/// Owns what was there before anybody applied, if nobody was tracked.
const BEFORE: &str = "before-first-apply";

/// Why a configuration cannot be applied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ApplyError {
    /// It does not have the form its schema asks for; upstream's words.
    #[error("{0}")]
    Untyped(String),
    /// Others own fields that it changes.
    #[error("{}", .0.message())]
    Conflicts(Conflicts),
}

/// What an apply is of, and how.
#[derive(Clone, Copy)]
pub struct Apply<'a> {
    /// The object's type.
    pub typing: Typing<'a>,
    /// The fields its endpoint can change.
    pub scope: Scope,
    /// Who applies.
    pub writer: Writer<'a>,
    /// Whether fields that others own are taken from them.
    pub force: bool,
}

/// An object after an apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The object, without managedFields.
    pub object: Value,
    /// Its managedFields, as text.
    pub owners: Option<String>,
}

impl Apply<'_> {
    /// The object after `config` was applied. One that is not there yet has kind and apiVersion alone ([`nothing`]).
    ///
    /// # Errors
    /// [`ApplyError`]; 500 and 409.
    pub fn to(&self, live: Live<'_>, config: &Value) -> Result<Applied, ApplyError> {
        if let Some(problems) = check::problems(self.typing, config) {
            return Err(ApplyError::Untyped(problems));
        }
        let (entries, live) = (self.entries(live), live.object);
        let is_kubectl = self.writer.manager == last_applied::MANAGER;
        let mut new = match self.merged(live, config, entries.clone(), self.force) {
            Err(ApplyError::Conflicts(conflicts)) if is_kubectl => {
                let left = last_applied::disputed(self.typing, self.writer.api_version, live, conflicts);
                match left.is_empty() {
                    true => self.merged(live, config, entries, true)?,
                    false => return Err(ApplyError::Conflicts(left)),
                }
            }
            other => other?,
        };
        if is_kubectl {
            last_applied::renew(&mut new.object, config);
        }
        Ok(new)
    }

    /// Who owns what before; what was never tracked belongs to a manager of its own.
    fn entries(&self, live: Live<'_>) -> Entries {
        let entries = live.owners.map(Entries::stored).unwrap_or_default();
        if !entries.is_empty() {
            return entries;
        }
        let writer = Writer {
            manager: BEFORE,
            ..self.writer
        };
        let found = compare(self.typing, self.scope, None, live.object);
        update::updated(entries, &found, &writer)
    }

    fn merged(&self, live: &Value, config: &Value, mut entries: Entries, force: bool) -> Result<Applied, ApplyError> {
        let own = self.writer.manager(Operation::Apply);
        let mut new = live.clone();
        merge(self.typing, &mut new, config);
        let last = entries.remove(&own);
        let fields = extract(self.typing, self.scope, config);
        if let Some(last) = &last {
            let named = extract(self.typing, Scope::EVERYTHING, config);
            self.prune(&mut new, &last.fields.to_set(), &entries.owned().united(&named));
        }
        self.settle(live, &new, &mut entries, force)?;
        if !fields.is_empty() {
            let is_change = *live != new;
            let before = last.and_then(|last| last.time);
            entries.0.push(Entry {
                time: if is_change { Some(self.writer.time()) } else { before },
                manager: own,
                fields: fields.into(),
            });
        }
        Ok(Applied {
            object: new,
            owners: entries.into_text(),
        })
    }

    /// Takes out what the manager applied last time, unless somebody (it, too) names it now, and nothing else.
    fn prune(&self, merged: &mut Value, last: &FieldSet, owned: &FieldSet) {
        if owned.covers(last) {
            return;
        }
        let named = |set: &FieldSet| with_named_fields(self.typing, set);
        let all_of = |object: &Value| named(&extract(self.typing, Scope::EVERYTHING, object));
        let name = FieldSet::of(&["metadata", "name"]);
        let (last, owned, all) = (named(last), named(&owned.clone().united(&name)), all_of(merged));
        let mut pruned = merged.clone();
        remove(self.typing, &mut pruned, &last);
        // What went with a field of the manager's but belongs to others comes back.
        let unowned = all.clone().without(&all_of(&pruned).united(&owned));
        pruned.clone_from(merged);
        remove(self.typing, &mut pruned, &unowned);
        // So does what nobody owns.
        let mut gone = all.without(&all_of(&pruned));
        gone.intersect(&last);
        remove(self.typing, merged, &gone);
    }

    /// Settles who owns what else the apply changed: with `force` nobody else.
    fn settle(&self, live: &Value, new: &Value, entries: &mut Entries, force: bool) -> Result<(), ApplyError> {
        let found = compare(self.typing, self.scope, Some(live), new);
        let mut conflicts = Conflicts::default();
        for entry in entries.0.iter_mut().filter(|entry| entry.fields.meets(&found.changed)) {
            if !force {
                conflicts.add(&entry.manager, entry.fields.set(), &found.changed);
            }
            entry.fields.lose(&found.changed);
        }
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
        for entry in &mut entries.0 {
            entry.fields.lose(&found.removed);
        }
        Ok(())
    }
}

/// An object of which nothing is there yet.
pub fn nothing(api_version: &str, kind: &str) -> Value {
    serde_json::json!({"apiVersion": api_version, "kind": kind, "metadata": Map::new()})
}
