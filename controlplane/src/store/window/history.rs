//! A resource's present and recent past (pure): the current map, the events that led to it, and snapshots in between.
//!
//! Owns which revisions can still be read. A past state is rebuilt by undoing events from the nearest later snapshot.

use super::expected::{Expected, Misfit, Misfits};
use super::interest::{Asked, Interest, Interests, ReadFields};
use super::sample::Samples;
use super::{RevisionError, Stored};
use crate::store::{Change, Revision};
use imbl::OrdMap;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;

type Objects = OrdMap<Arc<str>, Arc<Stored>>;

/// A snapshot is kept every so many events: so many are undone at most to show a past state.
const CHECKPOINT_EVERY: u64 = 4096;
/// What an event costs, roughly, with the interests that note it, and what an object that has been written over costs beside its bytes: its key, its place on
/// the heap, what selectors have asked of it.
const EVENT_BYTES: usize = 144;
const OLD_BYTES: usize = 500;
/// As much of the latter as is counted with every object.
const ASKED_BYTES: usize = 256;
/// What one node of the objects' tree costs. A snapshot shares the nodes under which nothing has changed since.
const NODE_BYTES: usize = 1600;
/// Objects under one node, at least.
const NODE_OBJECTS: usize = 16;
/// Events a watcher takes at once: so many, and no more bytes than these of both their sides, but for one event that is larger alone. What a
/// watcher holds is not counted anywhere once it is forgotten here.
const BATCH: usize = 128;
const BATCH_BYTES: usize = 256 << 10;

/// A change with what was there before, so that selectors can tell who enters and who leaves.
#[derive(Debug)]
pub struct Event {
    /// The revision of the write.
    pub revision: Revision,
    /// The object before; `None` if it was created.
    pub old: Option<Arc<Stored>>,
    /// The object after; `None` if it was deleted.
    pub new: Option<Arc<Stored>>,
}

/// A watcher fell behind what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchClosed;

pub(super) struct History {
    objects: Objects,
    /// Changes up to and including this revision are forgotten.
    trimmed: Revision,
    /// The revision of the newest event, or of the start.
    newest: Revision,
    /// Position of the first event kept.
    base: u64,
    events: VecDeque<Kept>,
    /// What events and checkpoints hold on to that the present does not.
    bytes: usize,
    /// (position, state before the event at it, its cost), ascending.
    checkpoints: VecDeque<(u64, Objects, usize)>,
    interests: Interests,
    misfits: Misfits,
    samples: Samples,
    /// The first of the objects that were read and have not been compared with samples: there may be a hundred thousand, and whoever reads
    /// them waits for readers to be answered.
    unsampled: Option<Arc<str>>,
}

/// An event, since when it is there, and what it costs.
struct Kept {
    at: Instant,
    event: Arc<Event>,
    bytes: usize,
}

/// What a history does not hold on to any more.
#[derive(Default)]
pub(super) struct Forgotten {
    events: Vec<Arc<Event>>,
    checkpoints: Vec<Objects>,
    has_more: bool,
}

impl Forgotten {
    /// Whether it was all that was to be forgotten.
    pub(super) fn is_all(&self) -> bool {
        !self.has_more
    }
}

/// A past state: a later one, and the events to undo, the newest first.
pub(super) struct PastState {
    later: Objects,
    undone: Vec<Arc<Event>>,
}

impl PastState {
    pub(super) fn rebuild(self) -> Objects {
        let mut objects = self.later;
        for event in self.undone {
            match (&event.old, &event.new) {
                (Some(old), _) => {
                    objects.insert(Arc::clone(&old.key), Arc::clone(old));
                }
                (None, Some(new)) => {
                    objects.remove(&new.key);
                }
                (None, None) => {}
            }
        }
        objects
    }
}

impl History {
    /// Of these objects, as far as they are what is expected.
    pub(super) fn new(objects: Objects, revision: Revision, expected: Option<Expected>) -> Self {
        Self::of(objects, revision, Misfits::of(expected))
    }

    fn of(mut objects: Objects, revision: Revision, mut misfits: Misfits) -> Self {
        let others = objects.iter().filter(|(_, stored)| !misfits.judge_read(stored));
        let others: Vec<Arc<str>> = others.map(|(key, _)| Arc::clone(key)).collect();
        for key in others {
            objects.remove(&key);
        }
        Self {
            samples: Samples::default(),
            unsampled: objects.get_min().map(|(key, _)| Arc::clone(key)),
            objects,
            trimmed: revision,
            newest: revision,
            base: 0,
            events: VecDeque::new(),
            bytes: 0,
            checkpoints: VecDeque::new(),
            interests: Interests::default(),
            misfits,
        }
    }

    /// Compares some of the objects that were read with samples; whether it was all of them.
    pub(super) fn sample(&mut self, most: usize) -> bool {
        let Some(from) = self.unsampled.take() else { return true };
        let mut rest = self
            .objects
            .range::<_, str>((Bound::Included(&*from), Bound::Unbounded));
        let read = rest.by_ref().take(most).map(|(_, stored)| stored);
        // What was written since has been.
        read.filter(|stored| stored.is_whole())
            .for_each(|stored| self.samples.keep(stored));
        self.unsampled = rest.next().map(|(key, _)| Arc::clone(key));
        self.unsampled.is_none()
    }

    pub(super) fn objects(&self) -> Objects {
        self.objects.clone()
    }

    /// All there is, what does not belong there, too.
    pub(super) fn contents(&self) -> Objects {
        let mut all = self.objects.clone();
        all.extend(self.misfits.all());
        all
    }

    pub(super) fn newest(&self) -> Revision {
        self.newest
    }

    /// What the past holds on to, in bytes: superseded objects, events and checkpoints.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The position after the newest event.
    pub(super) fn end(&self) -> u64 {
        self.base + self.events.len() as u64
    }

    /// What is to be known of a change of the key before it is applied, if somebody is interested in fields: what finds them, and the
    /// object that is there now.
    pub(super) fn asks(&self, key: &str) -> Option<(Arc<ReadFields>, Option<Arc<Stored>>)> {
        let read = Arc::clone(self.interests.read_fields()?);
        Some((read, self.objects.get(key).map(Arc::clone)))
    }

    /// A change that has been written just now; beside it, what selectors can ask of it, if that has been read.
    pub(super) fn apply(&mut self, change: Change, asked: Option<&Asked>, now: Instant) {
        self.change(change, asked, now, Misfits::judge);
    }

    /// A change of before that has been read with everything else.
    pub(super) fn replay(&mut self, change: Change, now: Instant) {
        self.change(change, None, now, Misfits::judge_read);
    }

    fn change(
        &mut self,
        change: Change,
        asked: Option<&Asked>,
        now: Instant,
        judge: fn(&mut Misfits, &Arc<Stored>) -> bool,
    ) {
        self.newest = change.revision;
        let old = self.objects.get(&change.key).map(Arc::clone);
        // One copy of the key for all revisions of an object.
        let key = old.as_ref().map_or(change.key, |old| Arc::clone(&old.key));
        let unfit = self.misfits.take(&key);
        let new = change.value.map(|value| {
            let created = match old.as_ref().or(unfit.as_ref()) {
                Some(old) if !change.created => old.created,
                _ => change.revision,
            };
            let stored = Stored::new(Arc::clone(&key), change.revision, created, value);
            Arc::new(stored.over(old.as_deref()))
        });
        let is_there = new.is_some();
        let new = new.filter(|stored| judge(&mut self.misfits, stored));
        if old.is_some() && is_there && new.is_none() {
            // It has not been deleted, and nobody is to believe so: who watches lists again, and is told which key it is.
            self.objects.remove(&key);
            self.break_off();
            return;
        }
        if old.is_none() && new.is_none() {
            // Nobody has been shown anything.
            return;
        }
        if self.end().is_multiple_of(CHECKPOINT_EVERY) {
            let nodes = (self.objects.len() / NODE_OBJECTS + 1).min(CHECKPOINT_EVERY as usize);
            self.bytes += nodes * NODE_BYTES;
            self.checkpoints
                .push_back((self.end(), self.objects.clone(), nodes * NODE_BYTES));
        }
        match &new {
            Some(stored) => {
                self.objects.insert(key, Arc::clone(stored));
            }
            None => {
                self.objects.remove(&key);
            }
        }
        if let Some(new) = &new {
            self.samples.keep(new);
        }
        let asked_bytes = old.as_ref().map_or(0, |old| old.written_over(new.as_ref()));
        if let Some((stored, asked)) = new.as_ref().zip(asked.and_then(|asked| asked.new.as_ref())) {
            stored.selectable_is(0, asked);
        }
        let event = Arc::new(Event {
            revision: change.revision,
            old,
            new,
        });
        let bytes = cost(&event) + asked_bytes.saturating_sub(ASKED_BYTES);
        self.bytes += bytes;
        self.interests.note(&event, asked, self.end(), self.base);
        self.events.push_back(Kept { at: now, event, bytes });
    }

    fn forget_first(&mut self, forgotten: &mut Forgotten) {
        let Some(first) = self.events.pop_front() else {
            return;
        };
        self.bytes -= first.bytes;
        self.trimmed = first.event.revision;
        self.base += 1;
        forgotten.events.push(first.event);
        while let Some((_, objects, cost)) = self.checkpoints.pop_front_if(|(at, _, _)| *at < self.base) {
            self.bytes -= cost;
            forgotten.checkpoints.push(objects);
        }
    }

    /// Forgets the oldest events until `bytes` are free, or none is left; gives what became free.
    pub(super) fn forget_bytes(&mut self, bytes: usize) -> usize {
        let before = self.bytes;
        let mut forgotten = Forgotten::default();
        while !self.events.is_empty() && before - self.bytes < bytes {
            self.forget_first(&mut forgotten);
        }
        before - self.bytes
    }

    /// Begins anew with these objects: who reads events has missed some.
    pub(super) fn replace(&mut self, objects: Objects, revision: Revision) {
        let end = self.end();
        let interests = std::mem::take(&mut self.interests);
        let mut misfits = std::mem::take(&mut self.misfits);
        misfits.forget();
        *self = Self::of(objects, revision, misfits);
        // No position given out before is good any more, not even the newest.
        self.base = end + 1;
        self.interests = interests;
        self.interests.begin_anew(self.base);
    }

    /// Forgets all events: who reads them has missed something that no event tells.
    fn break_off(&mut self) {
        let end = self.end();
        self.events.clear();
        self.checkpoints.clear();
        (self.bytes, self.trimmed, self.base) = (0, self.newest, end + 1);
        self.interests.begin_anew(self.base);
    }

    /// Forgets events of before `limit`, the oldest first and no more than `most`; whoever drops them holds no lock then.
    pub(super) fn forget_before(&mut self, limit: Option<Instant>, most: usize) -> Forgotten {
        let mut forgotten = Forgotten::default();
        let is_past = |first: &Kept| limit.is_some_and(|limit| first.at < limit);
        while self.events.front().is_some_and(is_past) {
            if forgotten.events.len() >= most {
                forgotten.has_more = true;
                break;
            }
            self.forget_first(&mut forgotten);
        }
        forgotten
    }

    /// The position of the first event after `revision`.
    pub(super) fn position_after(&self, revision: Revision) -> Result<u64, RevisionError> {
        if revision < self.trimmed {
            return Err(RevisionError::Gone {
                wanted: revision,
                oldest: self.trimmed,
            });
        }
        let index = self.events.partition_point(|kept| kept.event.revision <= revision);
        Ok(self.base + index as u64)
    }

    /// What the state at `revision`, which is not in the future, is rebuilt from.
    pub(super) fn past(&self, revision: Revision) -> Result<PastState, RevisionError> {
        let wanted = self.position_after(revision)?;
        let next = self.checkpoints.partition_point(|(at, _, _)| *at < wanted);
        let (position, later) = match self.checkpoints.get(next) {
            Some((at, objects, _)) => (*at, objects.clone()),
            None => (self.end(), self.objects.clone()),
        };
        let index = |position: u64| usize::try_from(position - self.base).unwrap_or(usize::MAX);
        let undone = self.events.range(index(wanted)..index(position));
        Ok(PastState {
            later,
            undone: undone.rev().map(|kept| Arc::clone(&kept.event)).collect(),
        })
    }

    /// Some events from `position` on, and where to go on; none when there is none yet.
    pub(super) fn batch(&self, position: u64) -> Result<(Vec<Arc<Event>>, u64), WatchClosed> {
        let skip = position.checked_sub(self.base).ok_or(WatchClosed)?;
        let skip = usize::try_from(skip).map_err(|_| WatchClosed)?;
        let events = within(self.events.iter().skip(skip).take(BATCH));
        let next = position + events.len() as u64;
        Ok((events, next))
    }

    /// As [`History::batch`], only events that may matter to an interest that has joined.
    pub(super) fn batch_of(
        &mut self,
        interest: &Interest,
        position: u64,
    ) -> Result<(Vec<Arc<Event>>, u64), WatchClosed> {
        let bounds = (self.base, self.end(), BATCH);
        let (positions, next) = self.interests.read(interest, position, bounds)?;
        let index = |position: u64| usize::try_from(position - self.base).unwrap_or(usize::MAX);
        let found = positions.iter().filter_map(|at| self.events.get(index(*at)));
        let events = within(found);
        // What is left of them is read next.
        let next = positions.get(events.len()).map_or(next, |left| *left);
        Ok((events, next))
    }

    /// The interests, and the position that they know from.
    pub(super) fn interests(&mut self) -> (&mut Interests, u64) {
        let end = self.end();
        (&mut self.interests, end)
    }

    /// What a key holds that does not belong there.
    pub(super) fn misfit_at(&self, key: &str) -> Option<Misfit> {
        self.misfits.at(key).cloned()
    }

    /// The same, and what it holds.
    pub(super) fn misfit_held(&self, key: &str) -> Option<(Misfit, Arc<Stored>)> {
        self.misfits.held(key)
    }

    /// The first such under a prefix.
    pub(super) fn misfit_under(&self, prefix: &str) -> Option<Misfit> {
        self.misfits.under(prefix).cloned()
    }

    /// Whom what has happened since the last call matters to.
    pub(super) fn take_woken(&mut self) -> Vec<watch::Sender<u64>> {
        self.interests.take_woken()
    }
}

/// As many of the events as a watcher may hold at once, the first one at least.
fn within<'e>(events: impl Iterator<Item = &'e Kept>) -> Vec<Arc<Event>> {
    let mut bytes = 0;
    let mut taken = Vec::new();
    for Kept { event, .. } in events {
        let sides = [&event.old, &event.new].into_iter().flatten();
        bytes += sides.map(|stored| stored.size()).sum::<usize>();
        if bytes > BATCH_BYTES && !taken.is_empty() {
            break;
        }
        taken.push(Arc::clone(event));
    }
    taken
}

/// What the event alone holds on to: the object that was written over. The new one is the present, or counted with the event
/// that ended it.
fn cost(event: &Event) -> usize {
    EVENT_BYTES + event.old.as_ref().map_or(0, |old| OLD_BYTES + old.kept_size())
}

#[cfg(test)]
mod tests;
