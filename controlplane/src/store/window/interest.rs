//! Which changes of a resource matter to which watchers, so that an event costs what its interested watchers cost: those of one
//! object, of one namespace, of one value of a field (the pods of a node).
//!
//! Owns, for each such interest somebody has, the positions of the events that may matter to it, and its wake-up. What it keeps
//! for an interest goes with its last reader, and with the events. Never reads or filters events itself.

use super::history::{Event, WatchClosed};
use super::{Selectable, Stored};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::watch;

/// The field that keys say.
const NAME: &str = "metadata.name";

/// Finds the selectable fields of an object; see [`Stored::selectable`].
pub type ReadFields = dyn Fn(&Value) -> BTreeMap<&'static str, String> + Send + Sync;

/// What a watcher wants at most. It may get more than it wants, and filters what it gets.
#[derive(Clone)]
pub enum Interest {
    /// The object of a key.
    Key(Box<str>),
    /// The objects whose keys are a name behind this prefix, which ends in `/`.
    Prefix(Box<str>),
    /// The objects of which a field has a value, or had one before.
    Field {
        /// Such as `spec.nodeName`.
        field: Box<str>,
        /// The value; empty for objects that have none.
        value: Box<str>,
        /// Finds the field.
        read: Arc<ReadFields>,
    },
}

/// What selectors can ask of the two sides of a change. It is read before the change is applied, without any lock: who parses holds
/// nobody up.
#[derive(Clone, Default)]
pub(super) struct Asked {
    pub(super) old: Option<Arc<Selectable>>,
    pub(super) new: Option<Arc<Selectable>>,
}

/// Reads it of an object that is there.
pub(super) fn read_of(stored: &Stored, read: &ReadFields) -> Arc<Selectable> {
    stored.selectable(0, |stored| {
        let tree = stored.tree();
        Selectable::with(&tree, read(&tree))
    })
}

/// The interests there are in one resource.
#[derive(Default)]
pub(super) struct Interests {
    keys: HashMap<Box<str>, Channel>,
    prefixes: HashMap<Box<str>, Channel>,
    fields: BTreeMap<Box<str>, FieldValues>,
    /// Whom events of this moment matter to.
    woken: Vec<watch::Sender<u64>>,
}

struct FieldValues {
    read: Arc<ReadFields>,
    values: HashMap<Box<str>, Channel>,
}

/// One interest.
struct Channel {
    /// Of the events that may matter, ascending; those that are forgotten leave with the next event or reader.
    positions: VecDeque<u64>,
    /// What is not known here is before this position.
    known_from: u64,
    readers: usize,
    changed: watch::Sender<u64>,
    is_woken: bool,
}

impl Channel {
    fn new(end: u64) -> Self {
        Self {
            positions: VecDeque::new(),
            known_from: end,
            readers: 0,
            changed: watch::Sender::new(0),
            is_woken: false,
        }
    }

    fn forget_before(&mut self, base: u64) {
        while let Some(first) = self.positions.front()
            && *first < base
        {
            self.known_from = first + 1;
            self.positions.pop_front();
        }
    }

    fn note(&mut self, position: u64, base: u64, woken: &mut Vec<watch::Sender<u64>>) {
        self.forget_before(base);
        if self.positions.back() == Some(&position) {
            return;
        }
        self.positions.push_back(position);
        self.wake(woken);
    }

    fn wake(&mut self, woken: &mut Vec<watch::Sender<u64>>) {
        if !std::mem::replace(&mut self.is_woken, true) {
            woken.push(self.changed.clone());
        }
    }
}

impl Interests {
    /// A reader has come who has read all events before `end`; its wake-ups from now on.
    pub(super) fn join(&mut self, interest: &Interest, end: u64) -> watch::Receiver<u64> {
        let channel = match interest {
            Interest::Key(key) => self.keys.entry(key.clone()),
            Interest::Prefix(prefix) => self.prefixes.entry(prefix.clone()),
            Interest::Field { field, value, read } => {
                let fields = self.fields.entry(field.clone()).or_insert_with(|| FieldValues {
                    read: Arc::clone(read),
                    values: HashMap::new(),
                });
                fields.values.entry(value.clone())
            }
        };
        let channel = channel.or_insert_with(|| Channel::new(end));
        channel.readers += 1;
        // Whoever has been woken, and has not read yet, is no reason not to wake this one.
        channel.is_woken = false;
        channel.changed.subscribe()
    }

    /// A reader that had joined has gone.
    pub(super) fn leave(&mut self, interest: &Interest) {
        let Some(channel) = self.channel(interest) else { return };
        channel.readers -= 1;
        if channel.readers > 0 {
            return;
        }
        match interest {
            Interest::Key(key) => {
                self.keys.remove(key);
            }
            Interest::Prefix(prefix) => {
                self.prefixes.remove(prefix);
            }
            Interest::Field { field, value, .. } => {
                if let Some(fields) = self.fields.get_mut(field) {
                    fields.values.remove(value);
                    if fields.values.is_empty() {
                        self.fields.remove(field);
                    }
                }
            }
        }
    }

    fn channel(&mut self, interest: &Interest) -> Option<&mut Channel> {
        match interest {
            Interest::Key(key) => self.keys.get_mut(key),
            Interest::Prefix(prefix) => self.prefixes.get_mut(prefix),
            Interest::Field { field, value, .. } => self.fields.get_mut(field)?.values.get_mut(value),
        }
    }

    /// What finds the fields that somebody is interested in; `None` if nobody is in any. Names are known without the object.
    pub(super) fn read_fields(&self) -> Option<&Arc<ReadFields>> {
        let mut fields = self.fields.iter().filter(|(field, _)| &***field != NAME);
        fields.next().map(|(_, of)| &of.read)
    }

    /// A new event; those before `base` are forgotten. Where nobody has read what its fields are, it may matter to all who are interested in one.
    pub(super) fn note(&mut self, event: &Event, asked: Option<&Asked>, position: u64, base: u64) {
        let woken = &mut self.woken;
        let sides = [event.old.as_ref(), event.new.as_ref()];
        if let Some(stored) = sides.into_iter().flatten().next() {
            let key = &*stored.key;
            let prefix = key.rfind('/').map_or("", |slash| &key[..=slash]);
            for channel in [self.keys.get_mut(key), self.prefixes.get_mut(prefix)]
                .into_iter()
                .flatten()
            {
                channel.note(position, base, woken);
            }
        }
        for (field, of) in &mut self.fields {
            // The key says it: nothing is parsed for that.
            if &**field == NAME {
                let name = sides.into_iter().flatten().next().map(|stored| stored.name());
                if let Some(channel) = name.and_then(|name| of.values.get_mut(name)) {
                    channel.note(position, base, woken);
                }
                continue;
            }
            let Some(asked) = asked else {
                for channel in of.values.values_mut() {
                    channel.note(position, base, woken);
                }
                continue;
            };
            for selectable in [&asked.old, &asked.new].into_iter().flatten() {
                if let Some(channel) = of.values.get_mut(selectable.field(field)) {
                    channel.note(position, base, woken);
                }
            }
        }
    }

    /// The next positions at `position` or behind that may matter, `most` of them; and where to go on.
    ///
    /// # Errors
    /// If some of them are no longer known.
    pub(super) fn read(
        &mut self,
        interest: &Interest,
        position: u64,
        (base, end, most): (u64, u64, usize),
    ) -> Result<(Vec<u64>, u64), WatchClosed> {
        let channel = self.channel(interest).ok_or(WatchClosed)?;
        channel.forget_before(base);
        channel.is_woken = false;
        if position < channel.known_from {
            return Err(WatchClosed);
        }
        let from = channel.positions.partition_point(|known| *known < position);
        let found: Vec<u64> = channel.positions.range(from..).take(most).copied().collect();
        let is_all = from + found.len() == channel.positions.len();
        let next = match found.last() {
            Some(last) if !is_all => last + 1,
            _ => end,
        };
        Ok((found, next))
    }

    /// Nothing of before is known any more: all readers have missed something.
    pub(super) fn begin_anew(&mut self, base: u64) {
        let woken = &mut self.woken;
        let fields = self.fields.values_mut().flat_map(|of| of.values.values_mut());
        for channel in self.keys.values_mut().chain(self.prefixes.values_mut()).chain(fields) {
            channel.positions.clear();
            channel.known_from = base;
            channel.wake(woken);
        }
    }

    /// Whom to wake.
    pub(super) fn take_woken(&mut self) -> Vec<watch::Sender<u64>> {
        std::mem::take(&mut self.woken)
    }
}

#[cfg(test)]
mod tests;
