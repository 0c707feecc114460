//! A store under faults: histories of what its clients asked and were told, and a judge who knows nothing of stores.
//!
//! The judge is [`history`] (what was asked and told), [`register`] (linearizability of each key, revisions in the order of time) and
//! [`truth`] (lists and watches are one); it shares no code with what it judges. [`drive`] asks a store and writes the history down,
//! [`members`] is an etcd cluster whose members live in network namespaces of their own ([`isolation`]), with [`certificates`] or
//! without, in some [`weather`]; [`campaign`] breaks it by seed.

pub mod campaign;
pub mod certificates;
pub mod drive;
pub mod history;
pub mod isolation;
pub mod members;
pub mod register;
pub mod truth;
pub mod weather;

#[cfg(test)]
mod tests;

use history::{Event, Revision, Watcher};

/// All that is wrong with a history and with what watchers saw meanwhile; `newest` is the revision they all must have reached.
pub fn judge(events: &[Event], watchers: &[Watcher], newest: Revision) -> Vec<String> {
    let operations = history::operations(events);
    let mut wrong = register::check(&operations, &truth::told(watchers));
    wrong.extend(register::check_time(&operations));
    wrong.extend(truth::check(&operations, watchers, newest));
    wrong
}
