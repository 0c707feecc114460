//! The scheduler's recorder: events of events.k8s.io/v1, whose repeats are one series. Never blocks and never fails its caller.
//!
//! As client-go's `tools/events`: an event that was told before (by all but its note) becomes a series, which is told when it begins, every
//! half hour, and when it has ended, which is after six minutes without another one.

use crate::controller::event::inbox::Inbox;
use crate::controller::event::memory::{Memory, digest, stamp};
use crate::controller::event::outbox::{self, Correlate, Delivery};
use crate::controller::event::spam::SpamFilter;
use crate::controller::event::{cut, name, namespace};
use client::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// After so long without a repeat a series has ended, and an event is forgotten.
const ENDS_AFTER: Duration = Duration::from_secs(6 * 60);
/// How often a series that goes on is told.
const TOLD_EVERY: Duration = Duration::from_secs(30 * 60);
/// The longest name of who reports, in bytes.
const INSTANCE_BYTES: usize = 128;

/// What the scheduler tells.
#[derive(Clone, Debug)]
pub struct Note {
    /// What it is about.
    pub regarding: ObjectReference,
    /// What else has to do with it.
    pub related: Option<ObjectReference>,
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// Upstream's reason.
    pub reason: &'static str,
    /// What was being done, in upstream's word.
    pub action: &'static str,
    /// The text.
    pub note: String,
}

/// A handle that accepts events.
#[derive(Clone)]
pub struct Recorder {
    inbox: Inbox<Note>,
}

impl Recorder {
    /// Starts a recorder that writes as the scheduler `name` on this host until every handle is dropped.
    pub fn spawn(client: kube::Client, clock: Arc<dyn Clock>, name: &str, host: &str) -> Self {
        let (inbox, receive) = Inbox::new();
        let mut instance = format!("{name}-{host}");
        instance.truncate(instance.floor_char_boundary(INSTANCE_BYTES));
        tokio::spawn(outbox::run(client, SeriesEvents::new(clock, name, instance), receive));
        Self { inbox }
    }

    /// Records an event; drops it when too many wait, or its object has had too many. A long note is cut.
    pub fn record(&self, mut note: Note) {
        cut(&mut note.note);
        self.inbox.put(note);
    }
}

/// One event, with its repeats.
struct Known {
    note: Note,
    /// What its name ends with.
    stamp: u64,
    began: Timestamp,
    /// When the last one came.
    last: Instant,
    /// How many came, and when the last did by wall time, if there was more than one.
    series: Option<(u32, Timestamp)>,
    /// Whether the server was told of it.
    is_told: bool,
}

/// Who reports.
struct Source {
    controller: String,
    instance: String,
}

impl Source {
    /// What is to be sent for the event as it is now.
    fn delivery(&self, identity: u128, known: &Known) -> Delivery {
        let Known { note, stamp, began, .. } = known;
        let (namespace, name) = (namespace(&note.regarding), name(&note.regarding, *stamp));
        let mut whole = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": micros(*began), "type": note.kind, "reason": note.reason, "action": note.action, "note": note.note,
            "regarding": note.regarding, "reportingController": self.controller, "reportingInstance": self.instance,
        });
        if let Some(related) = &note.related {
            whole["related"] = json!(related);
        }
        let series = known
            .series
            .map(|(count, last)| json!({"count": count, "lastObservedTime": micros(last)}));
        if let Some(series) = &series {
            whole["series"] = series.clone();
        }
        Delivery {
            identity,
            collection: format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"),
            name,
            patch: series.map(|series| json!({"series": series})),
            whole,
        }
    }

    /// What is to be said of series at their end, or now and then.
    fn series<'k>(&self, known: impl Iterator<Item = (u128, &'k Known)>) -> Vec<Delivery> {
        let series = known.filter(|(_, known)| known.is_told && known.series.is_some());
        series.map(|(identity, known)| self.delivery(identity, known)).collect()
    }
}

/// A scheduler's events.
struct SeriesEvents {
    clock: Arc<dyn Clock>,
    source: Source,
    known: Memory<Known>,
    spam: SpamFilter,
    made: u64,
    /// When it is looked for ended series, and when the others are told.
    ends: Instant,
    tells: Instant,
}

fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn parts(reference: &ObjectReference) -> [&Option<String>; 7] {
    let ObjectReference {
        api_version,
        field_path,
        kind,
        name,
        namespace,
        resource_version,
        uid,
    } = reference;
    [api_version, field_path, kind, name, namespace, resource_version, uid]
}

/// What the event is the same by: all but the note. The object's version belongs to it, as upstream.
fn identity(note: &Note) -> u128 {
    let related = note.related.as_ref().map(parts);
    digest((note.kind, note.action, note.reason, parts(&note.regarding), related))
}

impl SeriesEvents {
    fn new(clock: Arc<dyn Clock>, controller: &str, instance: String) -> Self {
        let now = Instant::now();
        Self {
            clock,
            source: Source {
                controller: controller.to_owned(),
                instance,
            },
            known: Memory::default(),
            spam: SpamFilter::default(),
            made: 0,
            ends: now + ENDS_AFTER,
            tells: now + TOLD_EVERY,
        }
    }
}

impl Correlate for SeriesEvents {
    type Event = Note;

    fn take(&mut self, note: Note) -> Vec<Delivery> {
        let (now, at) = (self.clock.now(), Instant::now());
        let identity = identity(&note);
        self.made += 1;
        let stamp = stamp(now, (&self.source.instance, identity, self.made));
        let mut came_before = true;
        let (known, forgotten) = self.known.touch(identity, || {
            came_before = false;
            let (began, last) = (now, at);
            Known {
                note,
                stamp,
                began,
                last,
                series: None,
                is_told: false,
            }
        });
        let goes_on = known.series.is_some();
        if came_before {
            let count = known.series.map_or(1, |(count, _)| count);
            known.series = Some((count.saturating_add(1), now));
            known.last = at;
        }
        // Of a series that goes on nothing is said yet.
        let is_news = !known.is_told || !goes_on;
        known.is_told = known.is_told || self.spam.admits(&known.note.regarding, at);
        let news = (is_news && known.is_told).then(|| self.source.delivery(identity, known));
        let forgotten = forgotten.map(|known| (self::identity(&known.note), known));
        let ended = forgotten.iter().map(|(identity, known)| (*identity, known));
        self.source.series(ended).into_iter().chain(news).collect()
    }

    fn due(&self) -> Option<Instant> {
        (self.known.len() > 0).then(|| self.ends.min(self.tells))
    }

    fn tick(&mut self) -> Vec<Delivery> {
        let now = Instant::now();
        let mut all = Vec::new();
        if now >= self.ends {
            self.ends = now + ENDS_AFTER;
            let ended = self.known.retain(|known| now - known.last <= ENDS_AFTER);
            all = self
                .source
                .series(ended.iter().map(|(identity, known)| (*identity, known)));
        }
        if now >= self.tells {
            self.tells = now + TOLD_EVERY;
            all.extend(self.source.series(self.known.values()));
        }
        all
    }
}

#[cfg(test)]
mod tests;
