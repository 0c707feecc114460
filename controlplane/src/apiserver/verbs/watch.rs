//! Watches: initial state, then every change that matches, bookmarks in between (control-plane contract §2.7).
//!
//! A watch owns a position in the resource's history and a timer; the objects' bytes are shared with every other reader.

mod frames;
mod retirement;

use super::filter::Filter;
use super::{Answer, Call, list, parse_revision, store_failed, too_large};
use crate::apiserver::drain::Lift;
use crate::apiserver::negotiate::{Encoding, Output, Shape, not_acceptable};
use crate::apiserver::status::ApiError;
use crate::apiserver::{Body, body, reply};
use crate::resource::Kind;
use crate::resource::field_error::FieldError;
use crate::schema::protobuf;
use crate::store::Revision;
use crate::store::window::{Batch, Cursor, EncodedForms, Event, RevisionError, Snapshot, Stored};
use bytes::Bytes;
use client::Clock;
use frames::Out;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use retirement::Retirement;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Bookmarks come about this often.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The last bookmark comes this long before the end.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// Objects looked at for the initial state before others have their turn.
const BATCH: usize = 64;
/// A piece of the body ends once it has this many bytes; only one event may go beyond.
const PIECE_BYTES: usize = 64 << 10;
/// Longest watch, in seconds: a day. Longer wishes are cut to it (upstream's arithmetic overflows with some of them).
const LONGEST_SECONDS: u64 = 24 * 3600;

pub(super) async fn watch(call: &mut Call<'_>) -> Result<Answer, ApiError> {
    let filter = Filter::parse(&call.kind, call.info)?;
    let options = Options::read(call)?;
    if matches!(call.output.shape, Shape::PartialList(_)) {
        return Err(not_acceptable());
    }
    let window = Arc::clone(&call.window);
    let (initial, from) = match options.start {
        Start::State(revision) => {
            let snapshot = match revision {
                None => window.latest().await.map_err(|error| store_failed(&error))?,
                Some(revision) => {
                    call.reach(revision).await?;
                    window.cached()
                }
            };
            call.refuse_misfits()?;
            let from = snapshot.revision;
            (Some(snapshot), from)
        }
        Start::Now => (
            None,
            window.latest().await.map_err(|error| store_failed(&error))?.revision,
        ),
        Start::After(revision) => {
            call.reach(revision).await?;
            (None, revision)
        }
    };
    let interest = filter.interest(&call.collection(), &call.prefix);
    let cursor = match window.cursor_of(from, interest) {
        Ok(cursor) => cursor,
        Err(RevisionError::Gone { wanted, oldest }) => return Ok(Answer::watch(gone(wanted, oldest, call.output))),
        Err(RevisionError::Future { wanted, current }) => return Err(too_large(wanted, current)),
    };
    let now = Instant::now();
    let deadline = now + options.length(call);
    let lift = Lift::default();
    let initial = match initial {
        Some(snapshot) => Some(Initial {
            revision: snapshot.revision,
            objects: chosen(&snapshot, &call.collection(), &filter).await,
            end_bookmark: options.end_bookmark(),
            lift: lift.clone(),
        }),
        None => None,
    };
    let initial_bytes = initial.as_ref().map(Initial::bytes);
    let watcher = Watcher {
        initial,
        cursor,
        waiting: VecDeque::new(),
        ready: VecDeque::new(),
        writer: Writer {
            kind: Arc::clone(&call.kind),
            forms: Arc::clone(call.server.forms()),
            output: call.output,
            include: call.query.text("includeObject").to_owned(),
            clock: Arc::clone(call.server.clock()),
            has_columns: false,
        },
        retirement: Retirement::of(call),
        prefix: call.collection(),
        filter,
        seen: from,
        bookmarks: options.bookmarks,
        next_bookmark: next_bookmark(now, deadline),
        deadline,
        closing: call.server.closing().clone(),
    };
    let pieces = futures::stream::unfold(watcher, |mut watcher| async move {
        let piece = watcher.next().await?;
        Some((piece, watcher))
    });
    let mut response = response(body::stream(pieces), call.output);
    if initial_bytes.is_some() {
        // Whoever sends the reply keeps the request's place, its room and its deadline until then.
        response.extensions_mut().insert(lift);
    }
    Ok(Answer::Watch {
        response,
        initial_bytes: initial_bytes.unwrap_or_default(),
    })
}

/// The objects of the collection that the watch is about. Nothing else of the snapshot is kept.
async fn chosen(snapshot: &Snapshot, prefix: &str, filter: &Filter) -> VecDeque<Arc<Stored>> {
    let mut chosen = VecDeque::new();
    let mut read = 0;
    for (number, stored) in list::range(&snapshot.objects, prefix, None).enumerate() {
        read += stored.size();
        if number % BATCH == BATCH - 1 || read >= reply::STORED_BYTES {
            // A selector that chooses few of many, or has to read them first, must not hold others up.
            tokio::task::yield_now().await;
            read = 0;
        }
        if filter.matches(stored) {
            chosen.push_back(Arc::clone(stored));
        }
    }
    chosen
}

fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let last = deadline.checked_sub(LAST_BOOKMARK).unwrap_or(deadline);
    if now < last {
        (now + BOOKMARK_EVERY).min(last)
    } else {
        deadline
    }
}

fn response(body: Body, output: Output) -> Response<Body> {
    let content_type = match output.encoding {
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        Encoding::Json | Encoding::Yaml => "application/json",
    };
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A watch from a revision that is no longer kept: 200 with a single ERROR event.
fn gone(wanted: Revision, oldest: Revision, output: Output) -> Response<Body> {
    let error = ApiError::new(410, "Expired", format!("too old resource version: {wanted} ({oldest})"));
    response(body::full(event(output, "ERROR", &error.to_status())), output)
}

/// An event of an object that is no stored one.
fn event(output: Output, what: &str, object: &Value) -> Vec<u8> {
    if output.encoding == Encoding::Protobuf {
        let object = protobuf::of_object(object);
        debug_assert!(object.is_some(), "negotiated only for kinds that have this form");
        let object = object.unwrap_or_default();
        return [protobuf::event_head(what, object.len()), object].concat();
    }
    format!("{{\"type\":\"{what}\",\"object\":{object}}}\n").into_bytes()
}

enum Start {
    /// The state (of at least this revision, or the latest), then changes.
    State(Option<Revision>),
    /// Changes from now on.
    Now,
    /// Changes after a revision.
    After(Revision),
}

struct Options {
    start: Start,
    bookmarks: bool,
    timeout_seconds: Option<i64>,
}

impl Options {
    fn read(call: &Call<'_>) -> Result<Self, ApiError> {
        let query = call.query;
        let bookmarks = query.flag("allowWatchBookmarks");
        let send = query.get("sendInitialEvents").filter(|text| !text.is_empty());
        let matching = query.text("resourceVersionMatch");
        let revision = parse_revision(query.text("resourceVersion"))?;
        let problem = match (send, matching) {
            (None, "") | (Some(_), "NotOlderThan") => None,
            (None, _) => Some(FieldError::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )),
            (Some(_), "") => Some(FieldError::forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )),
            (Some(_), other) => Some(FieldError::not_supported(
                "resourceVersionMatch",
                other,
                &["NotOlderThan"],
            )),
        };
        if let Some(problem) = problem {
            return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", vec![problem]));
        }
        let is_any = matches!(revision, None | Some(0));
        let send = send.map_or(is_any, |_| query.flag("sendInitialEvents"));
        let start = match (send, revision) {
            (true, revision) => Start::State(revision),
            (false, None | Some(0)) => Start::Now,
            (false, Some(revision)) => Start::After(revision),
        };
        let timeout = query.number("timeoutSeconds")?;
        Ok(Self {
            start,
            bookmarks,
            timeout_seconds: timeout.filter(|seconds| *seconds != 0),
        })
    }

    fn end_bookmark(&self) -> bool {
        self.bookmarks
    }

    /// How long the watch lasts; without a wish of the client (or with 0) somewhere in [30, 60) minutes. A negative time is
    /// over at once.
    fn length(&self, call: &Call<'_>) -> Duration {
        let seconds = match self.timeout_seconds {
            Some(seconds) => u64::try_from(seconds).unwrap_or(0).min(LONGEST_SECONDS),
            None => 1800 + call.server.random() % 1800,
        };
        Duration::from_secs(seconds)
    }
}

/// The state a watch begins with, written piece by piece; what is written is let go of.
struct Initial {
    revision: Revision,
    /// Not written yet.
    objects: VecDeque<Arc<Stored>>,
    end_bookmark: bool,
    /// Told when all of it is written.
    lift: Lift,
}

impl Initial {
    /// What it holds, as lists count it.
    fn bytes(&self) -> usize {
        reply::held_bytes(self.objects.iter())
    }
}

struct Watcher {
    initial: Option<Initial>,
    cursor: Cursor,
    /// Events read and not written yet.
    waiting: VecDeque<Arc<Event>>,
    /// Written and not handed over yet.
    ready: VecDeque<Bytes>,
    writer: Writer,
    retirement: Retirement,
    prefix: String,
    filter: Filter,
    /// Every event up to this revision has been written.
    seen: Revision,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    closing: CancellationToken,
}

impl Watcher {
    /// The next piece of the body; `None` ends the watch.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(ready) = self.ready.pop_front() {
            return Some(ready);
        }
        while self.initial.is_some() {
            let out = self.write_initial();
            tokio::task::yield_now().await;
            if let Some(first) = self.hand_over(out) {
                return Some(first);
            }
        }
        loop {
            let wake = match self.bookmarks {
                true => self.next_bookmark.min(self.deadline),
                false => self.deadline,
            };
            let mut out = Out::default();
            if self.waiting.is_empty() {
                tokio::select! {
                    biased;
                    () = self.closing.cancelled() => return None,
                    () = tokio::time::sleep_until(wake) => {
                        let now = Instant::now();
                        if now >= self.deadline {
                            return None;
                        }
                        if self.bookmark(&mut out)? {
                            self.next_bookmark = next_bookmark(now, self.deadline);
                        }
                    }
                    batch = self.cursor.next() => self.accept(batch.ok()?),
                    () = self.retirement.changed() => {}
                }
            } else if self.closing.is_cancelled() || Instant::now() >= self.deadline {
                // However slowly it is read, and whatever is left.
                return None;
            }
            if self.retirement.is_over() {
                return None;
            }
            self.write(&mut out);
            if let Some(first) = self.hand_over(out) {
                return Some(first);
            }
        }
    }

    /// The first frame now, the others later.
    fn hand_over(&mut self, out: Out) -> Option<Bytes> {
        self.ready = out.frames();
        self.ready.pop_front()
    }

    fn write_initial(&mut self) -> Out {
        let mut out = Out::default();
        let Some(initial) = &mut self.initial else { return out };
        let mut read = 0;
        while out.len() < PIECE_BYTES && read < reply::STORED_BYTES {
            let Some(stored) = initial.objects.pop_front() else {
                if initial.end_bookmark {
                    self.writer.bookmark(&mut out, initial.revision, true);
                }
                initial.lift.lift();
                self.initial = None;
                return out;
            };
            read += stored.size();
            self.writer.event(&mut out, "ADDED", &stored, stored.revision);
        }
        out
    }

    /// A bookmark of the newest revision up to which every event has been written; false if events have to go first.
    fn bookmark(&mut self, out: &mut Out) -> Option<bool> {
        let batch = self.cursor.take().ok()?;
        self.accept(batch);
        if !self.waiting.is_empty() {
            return Some(false);
        }
        self.writer.bookmark(out, self.seen, false);
        Some(true)
    }

    fn accept(&mut self, batch: Batch) {
        self.waiting.extend(batch.events);
        if self.waiting.is_empty()
            && let Some(revision) = batch.complete_to
        {
            self.seen = self.seen.max(revision);
        }
    }

    /// Writes what waits, until the piece is full.
    fn write(&mut self, out: &mut Out) {
        while out.len() < PIECE_BYTES
            && let Some(event) = self.waiting.pop_front()
        {
            self.seen = event.revision;
            let inside = |stored: &&Arc<Stored>| stored.key.starts_with(&self.prefix) && self.filter.matches(stored);
            let old = event.old.as_ref().filter(inside);
            let new = event.new.as_ref().filter(inside);
            match (old, new) {
                (None, Some(new)) => self.writer.event(out, "ADDED", new, event.revision),
                (Some(_), Some(new)) => self.writer.event(out, "MODIFIED", new, event.revision),
                (Some(old), None) => self.writer.event(out, "DELETED", old, event.revision),
                (None, None) => {}
            }
        }
    }
}

/// Writes events in the negotiated shape.
struct Writer {
    kind: Arc<Kind>,
    forms: Arc<EncodedForms>,
    output: Output,
    include: String,
    clock: Arc<dyn Clock>,
    /// Whether column definitions were sent: only the first event carries them.
    has_columns: bool,
}

impl Writer {
    fn event(&mut self, out: &mut Out, what: &str, stored: &Arc<Stored>, revision: Revision) {
        if self.output.shape == Shape::Whole && self.output.encoding == Encoding::Protobuf {
            let raw = reply::message(stored, revision, &self.kind, &self.forms);
            let (head, tail) = protobuf::envelope(&self.kind.api_version, &self.kind.kind, raw.len());
            let object = head.len() + raw.len() + tail.len();
            out.text.extend_from_slice(&protobuf::event_head(what, object));
            out.text.extend_from_slice(&head);
            out.share(raw);
            out.text.extend_from_slice(tail);
            return;
        }
        if self.output.shape == Shape::Whole {
            let (head, rest) = reply::parts(stored, revision, &self.kind);
            out.text.extend_from_slice(b"{\"type\":\"");
            out.text.extend_from_slice(what.as_bytes());
            out.text.extend_from_slice(b"\",\"object\":");
            out.text.extend_from_slice(&head);
            out.share(rest);
            out.text.extend_from_slice(b"}\n");
            return;
        }
        let value = reply::whole(stored, revision, &self.kind);
        let object = match self.output.shape {
            Shape::Table(version) => self.row(value, version),
            Shape::Partial(version) => Ok(reply::partial(&value, version)),
            Shape::Whole | Shape::PartialList(_) => Ok(value),
        };
        let event = match object {
            Ok(object) => event(self.output, what, &object),
            Err(error) => event(self.output, "ERROR", &error.to_status()),
        };
        out.text.extend_from_slice(&event);
    }

    fn row(&mut self, value: Value, version: &str) -> Result<Value, ApiError> {
        let metadata = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
        let now = self.clock.now();
        let objects = [Arc::new(value)];
        let mut table = reply::table_of(&self.kind, &objects, version, &self.include, now, metadata)?;
        if std::mem::replace(&mut self.has_columns, true)
            && let Some(table) = table.as_object_mut()
        {
            table.insert("columnDefinitions".to_owned(), Value::Null);
        }
        Ok(table)
    }

    fn bookmark(&self, out: &mut Out, revision: Revision, is_initial_end: bool) {
        let (kind, api_version) = match self.output.shape {
            Shape::Table(version) => ("Table".to_owned(), format!("meta.k8s.io/{version}")),
            Shape::Partial(version) | Shape::PartialList(version) => {
                ("PartialObjectMetadata".to_owned(), format!("meta.k8s.io/{version}"))
            }
            Shape::Whole => (self.kind.kind.to_string(), self.kind.api_version.to_string()),
        };
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if is_initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let mut object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        if matches!(self.output.shape, Shape::Table(_)) {
            object["rows"] = json!([]);
        }
        out.text.extend_from_slice(&event(self.output, "BOOKMARK", &object));
    }
}
