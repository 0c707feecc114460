//! Whether lists and watches are one truth (pure): what is told leads from list to list, each change once and in order, everything
//! acknowledged is told, and nothing is that nobody wrote.

use crate::history::{Answer, Ask, Change, Contents, Operation, Part, Revision, Seen, Watcher};
use std::collections::{BTreeMap, HashMap};

/// Who may have made a change.
struct Writers<'h> {
    /// Acknowledged, by revision.
    done: BTreeMap<Revision, &'h Ask>,
    /// Of unknown outcome.
    unknown: Vec<&'h Ask>,
}

impl<'h> Writers<'h> {
    fn of(operations: &'h [Operation]) -> Self {
        let mut writers = Self {
            done: BTreeMap::new(),
            unknown: Vec::new(),
        };
        for operation in operations {
            match operation.answer {
                Answer::Done(revision) => drop(writers.done.insert(revision, &operation.ask)),
                Answer::Unknown if operation.ask.base().is_some() => writers.unknown.push(&operation.ask),
                _ => {}
            }
        }
        writers
    }

    /// Whether somebody asked for a change over `base` (0: over nothing).
    fn explain(&self, change: &Change, base: Revision) -> bool {
        let is_it = |ask: &Ask| {
            ask.key() == Some(&change.key) && ask.value() == change.value.as_deref() && ask.base() == Some(base)
        };
        match self.done.get(&change.revision) {
            Some(ask) => is_it(ask),
            None => self.unknown.iter().any(|ask| is_it(ask)),
        }
    }
}

/// What is wrong with what the watchers saw. Keys of others than these operations' are not looked at. Everybody must have reached
/// `newest`.
pub fn check(operations: &[Operation], watchers: &[Watcher], newest: Revision) -> Vec<String> {
    let writers = Writers::of(operations);
    let lists = lists(operations);
    let mut wrong = Vec::new();
    for watcher in watchers {
        let mut told = |what: String| wrong.push(format!("{}: {what}", watcher.name));
        let mut reached = 0;
        for part in &watcher.parts {
            if part.revision < reached {
                told(format!("read revision {} after {reached} had been told", part.revision));
            }
            reached = follow(part, &writers, &lists, &mut told);
        }
        if reached < newest {
            told(format!("reached {reached} and not {newest}"));
        }
    }
    wrong
}

/// The revisions of values that watchers were told.
pub fn told(watchers: &[Watcher]) -> HashMap<String, Revision> {
    let mut told = HashMap::new();
    for part in watchers.iter().flat_map(|watcher| &watcher.parts) {
        let read = part.contents.values().map(|seen| (seen.value.clone(), seen.revision));
        told.extend(read);
        let changes = part.steps.iter().flat_map(|step| &step.changes);
        told.extend(changes.filter_map(|change| Some((change.value.clone()?, change.revision))));
    }
    told
}

type Lists<'h> = BTreeMap<Revision, Vec<&'h Contents>>;

fn lists(operations: &[Operation]) -> Lists<'_> {
    let mut lists = Lists::new();
    for operation in operations {
        if let Answer::Listed(revision, contents) = &operation.answer {
            lists.entry(*revision).or_default().push(contents);
        }
    }
    lists
}

/// Replays a part; returns the revision it reached.
fn follow(part: &Part, writers: &Writers<'_>, lists: &Lists<'_>, told: &mut dyn FnMut(String)) -> Revision {
    let mut state = part.contents.clone();
    let mut reached = part.revision;
    let mut seen: BTreeMap<Revision, &Change> = BTreeMap::new();
    for step in &part.steps {
        if step.revision <= reached {
            told(format!("told {} after {reached}", step.revision));
        }
        let mut newest = reached;
        for change in &step.changes {
            if change.revision <= newest || change.revision > step.revision {
                told(format!(
                    "{change:?} is told after {newest}, in a step to {}",
                    step.revision
                ));
            }
            compare(lists, (newest, change.revision - 1), &state, told);
            newest = newest.max(change.revision);
            let base = state.get(&change.key).map_or(0, |seen| seen.revision);
            if change.is_creation != (base == 0 && change.value.is_some()) || base == 0 && change.value.is_none() {
                told(format!("{change:?} is told over revision {base}"));
            }
            if !writers.explain(change, base) {
                told(format!("{change:?} is told over revision {base}, and nobody wrote it"));
            }
            apply(&mut state, change);
            seen.insert(change.revision, change);
        }
        compare(lists, (newest, step.revision), &state, told);
        reached = reached.max(step.revision);
    }
    for (revision, ask) in writers.done.range(part.revision + 1..reached.max(part.revision) + 1) {
        if !seen.contains_key(revision) {
            told(format!("{ask:?} was acknowledged at {revision}, and is not told"));
        }
    }
    reached
}

fn apply(state: &mut Contents, change: &Change) {
    let Some(value) = &change.value else {
        state.remove(&change.key);
        return;
    };
    let created = state.get(&change.key).map_or(change.revision, |seen| seen.created);
    let (revision, value) = (change.revision, value.clone());
    state.insert(
        change.key.clone(),
        Seen {
            revision,
            created,
            value,
        },
    );
}

/// Compares with the lists of these revisions, the first and the last included.
fn compare(lists: &Lists<'_>, (first, last): (Revision, Revision), state: &Contents, told: &mut dyn FnMut(String)) {
    if first > last {
        return;
    }
    for (revision, found) in lists.range(first..=last) {
        for list in found.iter().filter(|list| **list != state) {
            let differs = |key: &&String| list.get(*key) != state.get(*key);
            let key = list.keys().chain(state.keys()).find(differs).map_or("", String::as_str);
            let (listed, replayed) = (list.get(key), state.get(key));
            told(format!(
                "the list at {revision} has {listed:?} at {key}, what was told leads to {replayed:?}"
            ));
        }
    }
}

#[cfg(test)]
mod tests;
