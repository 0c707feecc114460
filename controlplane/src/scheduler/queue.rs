//! Pods that wait for a cycle: active, backing off, unschedulable, gated. Pure: time is passed in.
//!
//! Source: control-plane contract §11. Active pods leave by priority, then by the time since which they wait: for their first cycle, or since
//! the last one failed, whatever wakes them when. A pod that failed backs off for
//! 1 s·2ⁿ (at most 10 s) once something changed for it, and without any change after five minutes; errors in a row are counted apart from
//! refusals.

mod backoff;

pub use backoff::BackoffTimes;

use super::event::label;
use super::plugin::priority_sort::{self, ActiveOrder};
use super::plugin::scheduling_gates;
use super::plugin::{Plugin, PluginSet};
use super::pod::PodInfo;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const UNSCHEDULABLE_FOR: Duration = Duration::from_secs(300);
/// Back-offs that end in the same one of these count as equally long where pods are taken early: the priority decides then.
const WINDOW: Duration = Duration::from_secs(1);

/// Why a cycle did not place its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleFailure {
    /// No node will do, by these plugins: wait until something changes that may change their mind.
    Unschedulable(PluginSet),
    /// Something went wrong: try again.
    Error,
}

/// Whose turn it is among those that may be taken early: the window in which the back-off ends, then as among active ones.
type Turn = (u64, ActiveOrder);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Active(ActiveOrder),
    /// Until then; with its turn, if an idle scheduler may take it before.
    Backoff {
        until: Instant,
        order: u64,
        early: Option<Turn>,
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
    /// Since when it waits, among others: given when it came and when a cycle failed.
    number: u64,
    /// Cycles that did not place it.
    failures: u32,
    /// Those in which nodes were refused, and errors since the last such: the back-off goes by the one or the other.
    refusals: u32,
    errors: u32,
    /// When it came, or was no longer held back by gates.
    since: Option<Instant>,
    /// Who refused it in its last cycle.
    refused: PluginSet,
    /// End of the back-off that the last failure earned.
    until: Option<Instant>,
    /// Whether it is tried, since it was refused last, because nothing had happened for it for long.
    waited_long: bool,
}

impl Entry {
    /// Who is why the pod waits.
    fn blamed(&self) -> PluginSet {
        match self.place {
            Place::Gated => PluginSet::NONE.with(Plugin::SchedulingGates),
            Place::InFlight { .. } => PluginSet::NONE,
            Place::Active(_) | Place::Backoff { .. } | Place::Unschedulable { .. } => self.refused,
        }
    }
}

/// What cycles a pod has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// With the one that it is in.
    pub attempts: u32,
    /// Since when it could have had one.
    pub since: Instant,
    /// Whether it has this one because nothing had happened for it for long.
    pub waited_long: bool,
}

/// The queue. Holds every pod that has no node yet, by UID.
#[derive(Debug, Default)]
pub struct PodQueue {
    entries: BTreeMap<String, Entry>,
    active: BTreeMap<ActiveOrder, String>,
    backoff: BTreeMap<(Instant, u64), String>,
    /// Those of them that may be taken early: there may be many that may not.
    early: BTreeMap<Turn, String>,
    /// Windows are counted from here.
    began: Option<Instant>,
    /// By who refused them, then by the time they became so: an event concerns some of those only.
    unschedulable: BTreeMap<PluginSet, BTreeSet<(Instant, String)>>,
    in_flight: BTreeSet<String>,
    /// Those of them for which others are being evicted.
    held: BTreeSet<String>,
    sequence: u64,
    times: BackoffTimes,
    /// Pods that came into a queue since somebody asked, by its name and the event's.
    entered: BTreeMap<(&'static str, &'static str), u64>,
    /// How many wait because of a plugin, by scheduler.
    blamed: BTreeMap<Plugin, BTreeMap<String, usize>>,
}

impl PodQueue {
    /// An empty queue with these times.
    pub fn new(times: BackoffTimes) -> Self {
        Self {
            times,
            ..Self::default()
        }
    }

    /// Pods that wait, by upstream's names of the places they wait in.
    pub fn waiting(&self) -> [(&'static str, usize); 4] {
        let unschedulable = self.unschedulable.values().map(BTreeSet::len).sum::<usize>();
        let placed = self.active.len() + self.backoff.len() + unschedulable + self.in_flight.len();
        [
            ("active", self.active.len()),
            ("backoff", self.backoff.len()),
            ("unschedulable", unschedulable),
            ("gated", self.entries.len().saturating_sub(placed)),
        ]
    }

    /// How many pods have come into a queue since this was asked last: its name, the event's, and the number.
    pub fn entered(&mut self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + use<> {
        let entered = std::mem::take(&mut self.entered);
        entered.into_iter().map(|((queue, event), pods)| (queue, event, pods))
    }

    fn count(&mut self, queue: &'static str, event: &'static str) {
        *self.entered.entry((queue, event)).or_default() += 1;
    }

    fn next_number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn leave(&mut self, uid: &str) {
        let known = self.entries.get(uid);
        let (place, refused) = known.map(|e| (Some(e.place), e.refused)).unwrap_or_default();
        if known.is_some_and(|e| !e.blamed().is_empty()) {
            self.blame(uid, -1);
        }
        match place {
            Some(Place::Active(order)) => {
                self.active.remove(&order);
            }
            Some(Place::Backoff { until, order, early }) => {
                self.backoff.remove(&(until, order));
                if let Some(turn) = early {
                    self.early.remove(&turn);
                }
            }
            Some(Place::Unschedulable { since }) => {
                if let Some(alike) = self.unschedulable.get_mut(&refused) {
                    alike.remove(&(since, uid.to_owned()));
                    if alike.is_empty() {
                        self.unschedulable.remove(&refused);
                    }
                }
            }
            Some(Place::InFlight { .. }) => {
                self.in_flight.remove(uid);
                self.held.remove(uid);
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
            Place::Backoff { until, order, early } => {
                self.backoff.insert((until, order), uid.to_owned());
                if let Some(turn) = early {
                    self.early.insert(turn, uid.to_owned());
                }
            }
            Place::Unschedulable { since } => {
                let refused = self.entries.get(uid).map(|e| e.refused).unwrap_or_default();
                let alike = self.unschedulable.entry(refused).or_default();
                alike.insert((since, uid.to_owned()));
            }
            Place::InFlight { .. } => {
                self.in_flight.insert(uid.to_owned());
            }
            Place::Gated => {}
        }
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.place = place;
        if !entry.blamed().is_empty() {
            self.blame(uid, 1);
        }
    }

    fn activate(&mut self, uid: &str, event: &'static str) {
        if let Some(entry) = self.entries.get(uid) {
            let order = priority_sort::order(&entry.info, entry.number);
            self.enter(uid, Place::Active(order));
            self.count("active", event);
        }
    }

    /// Active, or backing off if the last failure is too recent.
    fn ready(&mut self, uid: &str, now: Instant, early: bool, event: &'static str) {
        let Some(entry) = self.entries.get(uid) else { return };
        match entry.until.filter(|until| *until > now) {
            None => self.activate(uid, event),
            Some(until) => {
                let order = entry.number;
                let began = *self.began.get_or_insert(now);
                let window = until.saturating_duration_since(began).as_secs() / WINDOW.as_secs();
                let early = early.then(|| (window, priority_sort::order(&entry.info, order)));
                self.enter(uid, Place::Backoff { until, order, early });
                self.count("backoff", event);
            }
        }
    }

    /// Takes in a pod without a node, or what it has become; what PreEnqueue said (upstream's name of it), where it had to be asked: of a
    /// pod that is new, or was held back.
    pub fn put(&mut self, info: Arc<PodInfo>, now: Instant) -> Option<&'static str> {
        let (uid, number) = (info.uid.clone(), self.next_number());
        let gated = scheduling_gates::holds_back(&info);
        let said = if gated {
            "UnschedulableAndUnresolvable"
        } else {
            "Success"
        };
        match self.entries.get_mut(&uid) {
            None => {
                let entry = Entry {
                    info,
                    place: Place::Gated,
                    number,
                    failures: 0,
                    refusals: 0,
                    errors: 0,
                    since: (!gated).then_some(now),
                    refused: PluginSet::default(),
                    until: None,
                    waited_long: false,
                };
                self.entries.insert(uid.clone(), entry);
                self.blame(&uid, 1);
                match gated {
                    // Upstream has the gated among the unschedulable.
                    true => self.count("unschedulable", label::ADDED),
                    false => self.activate(&uid, label::ADDED),
                }
                Some(said)
            }
            Some(entry) => {
                let changed =
                    entry.info.pod.spec != info.pod.spec || entry.info.pod.metadata.labels != info.pod.metadata.labels;
                let place = entry.place;
                let event = label::waiting_changed(&entry.info, &info);
                entry.info = info;
                if !gated {
                    entry.since.get_or_insert(now);
                }
                match place {
                    Place::Gated if !gated => self.activate(&uid, event),
                    Place::Unschedulable { .. } if changed => self.ready(&uid, now, true, event),
                    Place::InFlight { .. } if changed => entry.place = Place::InFlight { moved: true },
                    _ => {}
                }
                matches!(place, Place::Gated).then_some(said)
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

    /// How many pods are being bound, where none is in a cycle: all that were taken, but those for whose sake others go.
    pub fn decided(&self) -> usize {
        self.in_flight.len().saturating_sub(self.held.len())
    }

    /// What cycles a pod has had.
    pub fn tried(&self, uid: &str) -> Option<Tried> {
        let entry = self.entries.get(uid)?;
        Some(Tried {
            attempts: entry.failures.saturating_add(1),
            since: entry.since?,
            waited_long: entry.waited_long,
        })
    }

    /// How many pods wait because of a plugin, by it and their scheduler: of those that have had one, none, too.
    pub fn blamed(&self) -> impl Iterator<Item = (Plugin, &str, usize)> {
        let each = self
            .blamed
            .iter()
            .flat_map(|(plugin, by)| by.iter().map(|(name, pods)| (*plugin, name, pods)));
        each.map(|(plugin, name, pods)| (plugin, name.as_str(), *pods))
    }

    /// Counts that the pod waits where it is, or (-1) no longer does.
    fn blame(&mut self, uid: &str, sign: isize) {
        let Some(entry) = self.entries.get(uid) else { return };
        let scheduler = entry.info.scheduler();
        for plugin in entry.blamed().each() {
            let by = self.blamed.entry(plugin).or_default();
            match by.get_mut(scheduler) {
                Some(pods) => *pods = pods.saturating_add_signed(sign),
                None => drop(by.insert(scheduler.to_owned(), usize::from(sign > 0))),
            }
        }
    }

    /// The next pod for a cycle. An idle scheduler takes pods out of their back-off early (upstream's SchedulerPopFromBackoffQ),
    /// except after errors: the one whose back-off ends first, by whole seconds, and of those the most important.
    pub fn pop(&mut self, now: Instant) -> Option<Arc<PodInfo>> {
        self.advance(now);
        let uid = match self.active.first_key_value() {
            Some((_, uid)) => uid.clone(),
            None => {
                let uid = self.early.first_key_value()?.1.clone();
                self.count("active", label::TAKEN_EARLY);
                uid
            }
        };
        self.enter(&uid, Place::InFlight { moved: false });
        self.entries.get(&uid).map(|e| e.info.clone())
    }

    /// Remembers who refused a pod that is still worked at: others are being evicted for it.
    pub fn hold(&mut self, uid: &str, refused: PluginSet) {
        if let Some(entry) = self
            .entries
            .get_mut(uid)
            .filter(|e| matches!(e.place, Place::InFlight { .. }))
        {
            entry.refused = refused;
            self.held.insert(uid.to_owned());
        }
    }

    /// Takes back a pod that was held, to wait for what may help it.
    pub fn release(&mut self, uid: &str, now: Instant) {
        if let Some(refused) = self.entries.get(uid).map(|e| e.refused) {
            self.fail(uid, ScheduleFailure::Unschedulable(refused), now);
        }
    }

    /// The pod lost what it waited for: it gets another cycle.
    pub fn retry(&mut self, uid: &str, now: Instant, event: &'static str) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        match &mut entry.place {
            Place::Unschedulable { .. } => self.ready(uid, now, true, event),
            Place::InFlight { moved } => *moved = true,
            Place::Active(_) | Place::Backoff { .. } | Place::Gated => {}
        }
    }

    /// Takes back a pod that a cycle or its binding did not place.
    pub fn fail(&mut self, uid: &str, setback: ScheduleFailure, now: Instant) {
        let (times, number) = (self.times, self.next_number());
        let Some(place) = self.entries.get(uid).map(|e| e.place) else {
            return;
        };
        let moved = matches!(place, Place::InFlight { moved: true });
        // Counts of refusals follow what the entry says.
        self.leave(uid);
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.place = Place::InFlight { moved };
        entry.number = number;
        entry.failures = entry.failures.saturating_add(1);
        let before = match setback {
            ScheduleFailure::Unschedulable(_) => {
                entry.errors = 0;
                &mut entry.refusals
            }
            ScheduleFailure::Error => &mut entry.errors,
        };
        let delay = times.after(*before);
        *before = before.saturating_add(1);
        entry.until = Some(now + delay);
        entry.waited_long = false;
        if let ScheduleFailure::Unschedulable(refused) = setback {
            entry.refused = refused;
        }
        match setback {
            ScheduleFailure::Unschedulable(_) if !moved => {
                self.enter(uid, Place::Unschedulable { since: now });
                self.count("unschedulable", label::FAILED);
            }
            ScheduleFailure::Unschedulable(_) => self.ready(uid, now, true, label::FAILED),
            ScheduleFailure::Error => self.ready(uid, now, false, label::FAILED),
        }
    }

    /// Something changed (in no cycle: those end before anything else is looked at) about which these plugins may care, and which may
    /// help the pods for which `helps` is true, told who refused them; `event` is what that is counted as.
    pub fn wake(
        &mut self,
        now: Instant,
        (event, concerns): (&'static str, PluginSet),
        helps: impl Fn(&PodInfo, PluginSet) -> bool,
    ) {
        let is_concerned = |refused: PluginSet| refused.is_empty() || refused.meets(concerns);
        let helped = |uid: &String| {
            let entry = self.entries.get(uid);
            entry.is_some_and(|e| is_concerned(e.refused) && helps(&e.info, e.refused))
        };
        let concerned = self.unschedulable.iter().filter(|(refused, _)| is_concerned(**refused));
        let waiting = concerned.flat_map(|(_, alike)| alike.iter().map(|(_, uid)| uid));
        let woken: Vec<String> = waiting.filter(|uid| helped(uid)).cloned().collect();
        let moved: Vec<String> = self.held.iter().filter(|uid| helped(uid)).cloned().collect();
        for uid in woken {
            self.ready(&uid, now, true, event);
        }
        for uid in moved {
            if let Some(entry) = self.entries.get_mut(&uid) {
                entry.place = Place::InFlight { moved: true };
            }
        }
    }

    /// Moves what is due by `now`.
    pub fn advance(&mut self, now: Instant) {
        while let Some((&(until, _), uid)) = self.backoff.first_key_value() {
            if until > now {
                break;
            }
            let uid = uid.clone();
            self.activate(&uid, label::BACKOFF_OVER);
        }
        while let Some((since, uid)) = self.longest() {
            if *since + UNSCHEDULABLE_FOR > now {
                break;
            }
            let uid = uid.clone();
            if let Some(entry) = self.entries.get_mut(&uid) {
                entry.waited_long = true;
            }
            self.ready(&uid, now, true, label::WAITED_LONG);
        }
    }

    /// When [`PodQueue::advance`] has something to do next.
    pub fn next_due(&self) -> Option<Instant> {
        let backoff = self.backoff.keys().next().map(|(until, _)| *until);
        let stale = self.longest().map(|(since, _)| *since + UNSCHEDULABLE_FOR);
        backoff.into_iter().chain(stale).min()
    }

    /// The one that is unschedulable for longest.
    fn longest(&self) -> Option<&(Instant, String)> {
        self.unschedulable.values().filter_map(BTreeSet::first).min()
    }
}

#[cfg(test)]
mod tests;
