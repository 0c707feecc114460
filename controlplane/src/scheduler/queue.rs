//! Pods that wait for a cycle: active, backing off, unschedulable, gated. Pure: time is passed in.
//!
//! Source: control-plane contract §11. Active pods leave by priority, then by waiting time. A pod that failed backs off for
//! 1 s·2ⁿ (at most 10 s) once something changed for it, and without any change after five minutes.

use super::pod::PodInfo;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_CAP: Duration = Duration::from_secs(10);
const UNSCHEDULABLE_FOR: Duration = Duration::from_secs(300);

/// Why a cycle did not place its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleFailure {
    /// No node will do: wait until something changes.
    Unschedulable,
    /// Something went wrong: try again.
    Error,
}

type ActiveOrder = (Reverse<i32>, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Active(ActiveOrder),
    /// Until then; `early` if an idle scheduler may take it before.
    Backoff {
        until: Instant,
        order: u64,
        early: bool,
    },
    Unschedulable {
        since: Instant,
    },
    Gated,
    /// In a cycle or being bound; `moved` if something changed for it meanwhile.
    InFlight {
        moved: bool,
    },
}

#[derive(Debug)]
struct Entry {
    info: Arc<PodInfo>,
    place: Place,
    failures: u32,
    /// End of the back-off that the last failure earned.
    until: Option<Instant>,
}

/// The queue. Holds every pod that has no node yet, by UID.
#[derive(Debug, Default)]
pub struct PodQueue {
    entries: BTreeMap<String, Entry>,
    active: BTreeMap<ActiveOrder, String>,
    backoff: BTreeMap<(Instant, u64), String>,
    /// By the time they became so.
    unschedulable: BTreeSet<(Instant, String)>,
    in_flight: BTreeSet<String>,
    sequence: u64,
}

impl PodQueue {
    /// Pods that wait, by upstream's names of the places they wait in.
    pub fn waiting(&self) -> [(&'static str, usize); 4] {
        let placed = self.active.len() + self.backoff.len() + self.unschedulable.len() + self.in_flight.len();
        [
            ("active", self.active.len()),
            ("backoff", self.backoff.len()),
            ("unschedulable", self.unschedulable.len()),
            ("gated", self.entries.len().saturating_sub(placed)),
        ]
    }

    fn next_number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn leave(&mut self, uid: &str) {
        match self.entries.get(uid).map(|e| e.place) {
            Some(Place::Active(order)) => {
                self.active.remove(&order);
            }
            Some(Place::Backoff { until, order, .. }) => {
                self.backoff.remove(&(until, order));
            }
            Some(Place::Unschedulable { since }) => {
                self.unschedulable.remove(&(since, uid.to_owned()));
            }
            Some(Place::InFlight { .. }) => {
                self.in_flight.remove(uid);
            }
            Some(Place::Gated) | None => {}
        }
    }

    fn enter(&mut self, uid: &str, place: Place) {
        self.leave(uid);
        match place {
            Place::Active(order) => {
                self.active.insert(order, uid.to_owned());
            }
            Place::Backoff { until, order, .. } => {
                self.backoff.insert((until, order), uid.to_owned());
            }
            Place::Unschedulable { since } => {
                self.unschedulable.insert((since, uid.to_owned()));
            }
            Place::InFlight { .. } => {
                self.in_flight.insert(uid.to_owned());
            }
            Place::Gated => {}
        }
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.place = place;
        }
    }

    fn activate(&mut self, uid: &str) {
        let number = self.next_number();
        if let Some(entry) = self.entries.get(uid) {
            let order = (Reverse(entry.info.priority), number);
            self.enter(uid, Place::Active(order));
        }
    }

    /// Active, or backing off if the last failure is too recent.
    fn ready(&mut self, uid: &str, now: Instant, early: bool) {
        let until = self.entries.get(uid).and_then(|e| e.until).filter(|until| *until > now);
        match until {
            None => self.activate(uid),
            Some(until) => {
                let order = self.next_number();
                self.enter(uid, Place::Backoff { until, order, early });
            }
        }
    }

    /// Takes in a pod without a node, or what it has become.
    pub fn put(&mut self, info: Arc<PodInfo>, now: Instant) {
        let uid = info.uid.clone();
        let gated = info.is_gated();
        match self.entries.get_mut(&uid) {
            None => {
                let entry = Entry {
                    info,
                    place: Place::Gated,
                    failures: 0,
                    until: None,
                };
                self.entries.insert(uid.clone(), entry);
                if !gated {
                    self.activate(&uid);
                }
            }
            Some(entry) => {
                let changed =
                    entry.info.pod.spec != info.pod.spec || entry.info.pod.metadata.labels != info.pod.metadata.labels;
                let place = entry.place;
                entry.info = info;
                match place {
                    Place::Gated if !gated => self.activate(&uid),
                    Place::Unschedulable { .. } if changed => self.ready(&uid, now, true),
                    Place::InFlight { .. } if changed => self.enter(&uid, Place::InFlight { moved: true }),
                    _ => {}
                }
            }
        }
    }

    /// Forgets a pod: it is gone, or has a node.
    pub fn remove(&mut self, uid: &str) {
        self.leave(uid);
        self.entries.remove(uid);
    }

    /// Whether the pod is known.
    pub fn contains(&self, uid: &str) -> bool {
        self.entries.contains_key(uid)
    }

    /// The next pod for a cycle. An idle scheduler takes pods out of their back-off early (upstream's SchedulerPopFromBackoffQ),
    /// except after errors.
    pub fn pop(&mut self, now: Instant) -> Option<Arc<PodInfo>> {
        self.advance(now);
        let uid = match self.active.first_key_value() {
            Some((_, uid)) => uid.clone(),
            None => {
                let early = |uid: &&String| {
                    matches!(
                        self.entries.get(*uid).map(|e| e.place),
                        Some(Place::Backoff { early: true, .. })
                    )
                };
                self.backoff.values().find(early)?.clone()
            }
        };
        self.enter(&uid, Place::InFlight { moved: false });
        self.entries.get(&uid).map(|e| e.info.clone())
    }

    /// Takes back a pod that a cycle or its binding did not place.
    pub fn fail(&mut self, uid: &str, setback: ScheduleFailure, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        let moved = matches!(entry.place, Place::InFlight { moved: true });
        let delay = BACKOFF_FIRST
            .saturating_mul(1 << entry.failures.min(10))
            .min(BACKOFF_CAP);
        entry.failures += 1;
        entry.until = Some(now + delay);
        match setback {
            ScheduleFailure::Unschedulable if !moved => self.enter(uid, Place::Unschedulable { since: now }),
            ScheduleFailure::Unschedulable => self.ready(uid, now, true),
            ScheduleFailure::Error => self.ready(uid, now, false),
        }
    }

    /// Something changed that may help the pods for which `helps` is true.
    pub fn wake(&mut self, now: Instant, helps: impl Fn(&PodInfo) -> bool) {
        let helped = |uid: &String| self.entries.get(uid).is_some_and(|e| helps(&e.info));
        let woken: Vec<String> = self
            .unschedulable
            .iter()
            .map(|(_, uid)| uid)
            .filter(|uid| helped(uid))
            .cloned()
            .collect();
        let moved: Vec<String> = self.in_flight.iter().filter(|uid| helped(uid)).cloned().collect();
        for uid in woken {
            self.ready(&uid, now, true);
        }
        for uid in moved {
            self.enter(&uid, Place::InFlight { moved: true });
        }
    }

    /// Moves what is due by `now`.
    pub fn advance(&mut self, now: Instant) {
        while let Some((&(until, _), uid)) = self.backoff.first_key_value() {
            if until > now {
                break;
            }
            let uid = uid.clone();
            self.activate(&uid);
        }
        while let Some((since, uid)) = self.unschedulable.first() {
            if *since + UNSCHEDULABLE_FOR > now {
                break;
            }
            let uid = uid.clone();
            self.ready(&uid, now, true);
        }
    }

    /// When [`PodQueue::advance`] has something to do next.
    pub fn next_due(&self) -> Option<Instant> {
        let backoff = self.backoff.keys().next().map(|(until, _)| *until);
        let stale = self.unschedulable.first().map(|(since, _)| *since + UNSCHEDULABLE_FOR);
        backoff.into_iter().chain(stale).min()
    }
}

#[cfg(test)]
mod tests;
