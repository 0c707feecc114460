//! Watches: initial state, then every change that matches, bookmarks in between (control-plane contract §2.7).
//!
//! A watch owns a position in the resource's history and a timer; the objects' bytes are shared with every other reader.

use super::filter::Filter;
use super::{Call, list, parse_revision, store_failed, too_large};
use crate::apiserver::negotiate::{Output, Shape, not_acceptable};
use crate::apiserver::status::ApiError;
use crate::apiserver::{Body, body, reply};
use crate::resource::Kind;
use crate::resource::field_error::FieldError;
use crate::store::Revision;
use crate::store::window::{Event, ResourceWindow, RevisionError, Snapshot, Stored};
use bytes::{Bytes, BytesMut};
use client::Clock;
use futures::FutureExt;
use futures::stream::{BoxStream, StreamExt};
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Bookmarks come about this often.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The last bookmark comes this long before the end.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// Events written into one piece of the body.
const BATCH: usize = 64;

pub(super) async fn watch(call: &mut Call<'_>) -> Result<Response<Body>, ApiError> {
    let filter = Filter::parse(call.kind, call.info)?;
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
    let events = match window.watch(from) {
        Ok(events) => events.ready_chunks(BATCH).boxed(),
        Err(RevisionError::Gone { wanted, oldest }) => return Ok(gone(wanted, oldest)),
        Err(RevisionError::Future { wanted, current }) => return Err(too_large(wanted, current)),
    };
    let now = Instant::now();
    let deadline = now + options.length(call);
    let initial = initial.map(|snapshot| Initial::new(snapshot, call.collection(), options.end_bookmark()));
    let watcher = Watcher {
        initial,
        events,
        window,
        writer: Writer {
            kind: call.kind,
            output: call.output,
            include: call.query.text("includeObject").to_owned(),
            clock: Arc::clone(call.server.clock()),
            has_columns: false,
        },
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
    Ok(response(body::stream(pieces)))
}

fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let last = deadline.checked_sub(LAST_BOOKMARK).unwrap_or(deadline);
    if now < last {
        (now + BOOKMARK_EVERY).min(last)
    } else {
        deadline
    }
}

fn response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A watch from a revision that is no longer kept: 200 with a single ERROR event.
fn gone(wanted: Revision, oldest: Revision) -> Response<Body> {
    let error = ApiError::new(410, "Expired", format!("too old resource version: {wanted} ({oldest})"));
    response(body::full(line(&json!({"type": "ERROR", "object": error.to_status()}))))
}

fn line(value: &Value) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
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
    timeout_seconds: Option<u64>,
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
            timeout_seconds: timeout
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|s| *s > 0),
        })
    }

    fn end_bookmark(&self) -> bool {
        self.bookmarks
    }

    /// How long the watch lasts; without a wish of the client somewhere in [30, 60) minutes.
    fn length(&self, call: &Call<'_>) -> Duration {
        let seconds = self
            .timeout_seconds
            .unwrap_or_else(|| 1800 + call.server.random() % 1800);
        Duration::from_secs(seconds)
    }
}

/// The state a watch begins with, written piece by piece.
struct Initial {
    snapshot: Snapshot,
    prefix: String,
    /// Relative key to go on from.
    start: Option<String>,
    end_bookmark: bool,
}

impl Initial {
    fn new(snapshot: Snapshot, prefix: String, end_bookmark: bool) -> Self {
        Self {
            snapshot,
            prefix,
            start: None,
            end_bookmark,
        }
    }

    /// Some more objects; empty at the end.
    fn batch(&mut self) -> Vec<Arc<Stored>> {
        let found = list::range(&self.snapshot.objects, &self.prefix, self.start.as_deref());
        let batch: Vec<Arc<Stored>> = found.take(BATCH).map(Arc::clone).collect();
        if let Some(last) = batch.last() {
            let suffix = last.key.get(self.prefix.len()..).unwrap_or("");
            self.start = Some(format!("{suffix}\0"));
        }
        batch
    }
}

struct Watcher {
    initial: Option<Initial>,
    events: BoxStream<'static, Vec<Arc<Event>>>,
    window: Arc<ResourceWindow>,
    writer: Writer,
    prefix: String,
    filter: Filter,
    /// The newest revision written.
    seen: Revision,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    closing: CancellationToken,
}

impl Watcher {
    /// The next piece of the body; `None` ends the watch.
    async fn next(&mut self) -> Option<Bytes> {
        while let Some(initial) = &mut self.initial {
            let batch = initial.batch();
            let mut out = BytesMut::new();
            for stored in batch.iter().filter(|stored| self.filter.matches(stored)) {
                self.writer.event(&mut out, "ADDED", stored, stored.revision);
            }
            if batch.is_empty() {
                if initial.end_bookmark {
                    self.writer.bookmark(&mut out, initial.snapshot.revision, true);
                }
                self.initial = None;
            }
            if !out.is_empty() {
                return Some(out.freeze());
            }
            // A selector that chooses few of many must not hold others up.
            tokio::task::yield_now().await;
        }
        loop {
            let wake = match self.bookmarks {
                true => self.next_bookmark.min(self.deadline),
                false => self.deadline,
            };
            let mut out = BytesMut::new();
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                batch = self.events.next() => self.write(&mut out, batch?),
                () = tokio::time::sleep_until(wake) => {
                    let now = Instant::now();
                    if now >= self.deadline {
                        return None;
                    }
                    self.bookmark(&mut out)?;
                    self.next_bookmark = next_bookmark(now, self.deadline);
                }
            }
            if !out.is_empty() {
                return Some(out.freeze());
            }
        }
    }

    /// A bookmark of the newest revision, after every event up to it.
    fn bookmark(&mut self, out: &mut BytesMut) -> Option<()> {
        let revision = self.window.cached().revision;
        while let Some(batch) = self.events.next().now_or_never() {
            self.write(out, batch?);
        }
        self.seen = self.seen.max(revision);
        self.writer.bookmark(out, self.seen, false);
        Some(())
    }

    fn write(&mut self, out: &mut BytesMut, batch: Vec<Arc<Event>>) {
        for event in batch {
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
    kind: &'static Kind,
    output: Output,
    include: String,
    clock: Arc<dyn Clock>,
    /// Whether column definitions were sent: only the first event carries them.
    has_columns: bool,
}

impl Writer {
    fn event(&mut self, out: &mut BytesMut, what: &str, stored: &Arc<Stored>, revision: Revision) {
        if self.output.shape == Shape::Whole {
            let (head, rest) = stored.json(Some((&self.kind.api_version(), self.kind.kind)), revision);
            out.extend_from_slice(b"{\"type\":\"");
            out.extend_from_slice(what.as_bytes());
            out.extend_from_slice(b"\",\"object\":");
            out.extend_from_slice(&head);
            out.extend_from_slice(&rest);
            out.extend_from_slice(b"}\n");
            return;
        }
        let value = reply::whole(stored, revision, self.kind);
        let object = match self.output.shape {
            Shape::Table(version) => self.row(value, version),
            Shape::Partial(version) => Ok(reply::partial(&value, version)),
            Shape::Whole | Shape::PartialList(_) => Ok(value),
        };
        let event = match object {
            Ok(object) => json!({"type": what, "object": object}),
            Err(error) => json!({"type": "ERROR", "object": error.to_status()}),
        };
        out.extend_from_slice(&line(&event));
    }

    fn row(&mut self, value: Value, version: &str) -> Result<Value, ApiError> {
        let metadata = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
        let now = self.clock.now();
        let objects = [Arc::new(value)];
        let mut table = reply::table_of(self.kind, &objects, version, &self.include, now, metadata)?;
        if std::mem::replace(&mut self.has_columns, true)
            && let Some(table) = table.as_object_mut()
        {
            table.insert("columnDefinitions".to_owned(), Value::Null);
        }
        Ok(table)
    }

    fn bookmark(&self, out: &mut BytesMut, revision: Revision, is_initial_end: bool) {
        let (kind, api_version) = match self.output.shape {
            Shape::Table(version) => ("Table".to_owned(), format!("meta.k8s.io/{version}")),
            Shape::Partial(version) | Shape::PartialList(version) => {
                ("PartialObjectMetadata".to_owned(), format!("meta.k8s.io/{version}"))
            }
            Shape::Whole => (self.kind.kind.to_owned(), self.kind.api_version()),
        };
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if is_initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let mut object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        if matches!(self.output.shape, Shape::Table(_)) {
            object["rows"] = json!([]);
        }
        out.extend_from_slice(&line(&json!({"type": "BOOKMARK", "object": object})));
    }
}
