//! Whether what was asked of each key has an order (pure): one in which every operation stands between its beginning and its end, and
//! every answer is what a register with conditional writes gives.
//!
//! Linearizability is local: a history has such an order if that of each key has. The search is Wing and Gong's with Lowe's memory of
//! states visited; revisions leave little to search. Reads of everything are a read of each key. Never asks a store.

use crate::history::{Answer, Ask, Moment, Operation, Revision, Seen};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Steps of one key's search after which there is no verdict.
const STEPS_MAX: usize = 2_000_000;

/// What is wrong, by key.
pub fn check(operations: &[Operation], told: &HashMap<String, Revision>) -> Vec<String> {
    let mut keys: BTreeSet<&str> = operations.iter().filter_map(|operation| operation.ask.key()).collect();
    for operation in operations {
        if let Answer::Listed(_, contents) = &operation.answer {
            keys.extend(contents.keys().map(String::as_str));
        }
    }
    let revisions = revisions(operations, told);
    let mut wrong = false_conflicts(operations);
    for key in keys {
        let items = items(operations, key, &revisions);
        match search(&items) {
            Found::Order => {}
            Found::Nothing => wrong.push(format!(
                "{key}: no order of its {} operations explains the answers",
                items.len()
            )),
            Found::TooLong => wrong.push(format!("{key}: undecided after {STEPS_MAX} steps")),
        }
    }
    wrong
}

/// Conflicts whose own words say that there was none.
fn false_conflicts(operations: &[Operation]) -> Vec<String> {
    let is_false = |operation: &&Operation| match (&operation.answer, operation.ask.base()) {
        (Answer::Conflict(current), Some(base)) => current.as_ref().map_or(0, |seen| seen.revision) == base,
        _ => false,
    };
    let wrong = operations.iter().filter(is_false);
    wrong
        .map(|operation| format!("{:?} was refused although its condition held", operation.ask))
        .collect()
}

/// Of which revision each value is, as far as anybody was told.
fn revisions<'h>(operations: &'h [Operation], told: &'h HashMap<String, Revision>) -> HashMap<&'h str, Revision> {
    let mut known: HashMap<&str, Revision> = told
        .iter()
        .map(|(value, revision)| (value.as_str(), *revision))
        .collect();
    let mut note = |seen: &'h Seen| {
        known.insert(&seen.value, seen.revision);
    };
    for operation in operations {
        match &operation.answer {
            Answer::Conflict(Some(seen)) | Answer::Found(Some(seen)) => note(seen),
            Answer::Listed(_, contents) => contents.values().for_each(&mut note),
            _ => {}
        }
    }
    known
}

/// What an operation does to, or says of, one key.
#[derive(Clone, Copy, Debug)]
enum Act<'h> {
    Write {
        /// 0 where there must be no key.
        base: Revision,
        becomes: Option<&'h str>,
        /// If anybody was told.
        revision: Option<Revision>,
    },
    Sees(Option<&'h Seen>),
}

#[derive(Debug)]
struct Item<'h> {
    began: Moment,
    ended: Moment,
    /// Whether it certainly was done.
    is_certain: bool,
    act: Act<'h>,
}

impl Item<'_> {
    fn revision(&self) -> Option<Revision> {
        match self.act {
            Act::Write { revision, .. } => revision,
            Act::Sees(_) => None,
        }
    }
}

fn items<'h>(operations: &'h [Operation], key: &str, revisions: &HashMap<&str, Revision>) -> Vec<Item<'h>> {
    let item = |operation: &'h Operation| {
        let (act, is_certain) = match (&operation.ask, &operation.answer) {
            (Ask::List, Answer::Listed(_, contents)) => (Act::Sees(contents.get(key)), true),
            (ask, _) if ask.key() != Some(key) => return None,
            (_, Answer::Conflict(current) | Answer::Found(current)) => (Act::Sees(current.as_ref()), true),
            (ask, Answer::Done(revision)) => (write(ask, Some(*revision))?, true),
            (ask, Answer::Unknown) => {
                let revision = ask.value().and_then(|value| revisions.get(value)).copied();
                (write(ask, revision)?, revision.is_some())
            }
            _ => return None,
        };
        Some(Item {
            began: operation.began,
            ended: operation.ended,
            is_certain,
            act,
        })
    };
    operations.iter().filter_map(item).collect()
}

fn write(ask: &Ask, revision: Option<Revision>) -> Option<Act<'_>> {
    Some(Act::Write {
        base: ask.base()?,
        becomes: ask.value(),
        revision,
    })
}

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State<'h> {
    /// The newest revision known of the key, its deletions' too.
    last: Revision,
    /// Value, its revision and that of the creation, as far as they are known.
    present: Option<(&'h str, Option<Revision>, Option<Revision>)>,
}

impl<'h> State<'h> {
    /// The state after an act; `None` if it cannot be.
    fn after(&self, act: Act<'h>) -> Option<Self> {
        match act {
            Act::Sees(None) => self.present.is_none().then(|| self.clone()),
            Act::Sees(Some(seen)) => {
                let (value, revision, created) = self.present?;
                let is_it = value == seen.value
                    && revision == Some(seen.revision)
                    && created.is_none_or(|created| created == seen.created);
                is_it.then(|| self.clone())
            }
            Act::Write {
                base,
                becomes,
                revision,
            } => {
                let is_met = match self.present {
                    None => base == 0,
                    Some((_, revision, _)) => base != 0 && revision == Some(base),
                };
                if !is_met || revision.is_some_and(|revision| revision <= self.last) {
                    return None;
                }
                let created = self.present.map_or(revision, |(_, _, created)| created);
                Some(Self {
                    last: revision.unwrap_or(self.last),
                    present: becomes.map(|value| (value, revision, created)),
                })
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Found {
    Order,
    Nothing,
    TooLong,
}

/// A set of items by index.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Done(Vec<u64>);

impl Done {
    fn has(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    fn with(&self, index: usize) -> Self {
        let mut words = self.0.clone();
        words[index / 64] |= 1 << (index % 64);
        Self(words)
    }
}

/// Where the search stands: what is done, what the key holds then, the latest beginning among what is done, and before which item
/// everything certain is done.
type Place<'h> = (Done, State<'h>, Moment, usize);

fn search(items: &[Item<'_>]) -> Found {
    let nothing = State { last: 0, present: None };
    let mut stack: Vec<Place<'_>> = vec![(Done(vec![0; items.len() / 64 + 1]), nothing, 0, 0)];
    let mut visited = HashSet::new();
    while let Some((done, state, latest, from)) = stack.pop() {
        let from = (from..items.len()).find(|index| items[*index].is_certain && !done.has(*index));
        let Some(from) = from else { return Found::Order };
        if !visited.insert((done.clone(), state.clone())) {
            continue;
        }
        if visited.len() > STEPS_MAX {
            return Found::TooLong;
        }
        let mut next = following(items, &done, &state, latest);
        // What ends first is tried first: it lies on top.
        next.sort_by_key(|(index, _)| std::cmp::Reverse((!items[*index].is_certain, items[*index].ended)));
        for (index, after) in next {
            stack.push((done.with(index), after, latest.max(items[index].began), from));
        }
    }
    Found::Nothing
}

/// What may come next, and what the key holds then.
fn following<'h>(items: &[Item<'h>], done: &Done, state: &State<'h>, latest: Moment) -> Vec<(usize, State<'h>)> {
    let open = || (0..items.len()).filter(|index| !done.has(*index));
    let certain = || open().map(|index| &items[index]).filter(|item| item.is_certain);
    // Nothing comes before what has ended before it began, and revisions come in order.
    let horizon = certain().map(|item| item.ended).min().unwrap_or(Moment::MAX);
    let turn = certain().filter_map(Item::revision).min().unwrap_or(Revision::MAX);
    let mut next = Vec::new();
    for index in open() {
        let item = &items[index];
        if item.began > horizon {
            break;
        }
        if item.ended < latest || item.revision().is_some_and(|revision| revision > turn) {
            continue;
        }
        let Some(after) = state.after(item.act) else { continue };
        if matches!(item.act, Act::Sees(_)) && item.began <= latest {
            // It changes and forbids nothing: later it could not be better.
            return vec![(index, after)];
        }
        next.push((index, after));
    }
    next
}

/// Whether revisions come in the order of time, over all keys: who asks after another was answered gets a newer one, and no list is
/// older than what was acknowledged before it began.
pub fn check_time(operations: &[Operation]) -> Vec<String> {
    let mut wrong = Vec::new();
    // Twice the revision: a list stands behind the write it is the revision of.
    let mut points: Vec<(Revision, &Operation)> = Vec::new();
    let mut writers: BTreeMap<Revision, &Operation> = BTreeMap::new();
    for operation in operations {
        match operation.answer {
            Answer::Done(revision) => {
                if let Some(other) = writers.insert(revision, operation) {
                    wrong.push(format!(
                        "revision {revision} is that of {:?} and of {:?}",
                        other.ask, operation.ask
                    ));
                }
                points.push((2 * revision, operation));
            }
            Answer::Listed(revision, _) => points.push((2 * revision + 1, operation)),
            _ => {}
        }
    }
    points.sort_by_key(|(point, _)| std::cmp::Reverse(*point));
    // The first end among those of newer points.
    let mut first: Option<(Moment, Revision)> = None;
    for run in points.chunk_by(|one, other| one.0 == other.0) {
        for (point, operation) in run {
            if let Some((ended, newer)) = first
                && ended < operation.began
            {
                wrong.push(format!(
                    "{:?} has revision {}, and began after {} had been told",
                    operation.ask,
                    point / 2,
                    newer / 2
                ));
            }
        }
        for (point, operation) in run {
            if first.is_none_or(|(ended, _)| operation.ended < ended) {
                first = Some((operation.ended, *point));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests;
