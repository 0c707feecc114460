//! Watches: one stream of all of etcd's changes, as steps of ours.
//!
//! Everything is watched, not our prefix alone: then every revision is told of, whatever it changed, and a reader reaches the newest
//! one without asking. (Progress told on demand would do the same with less, but etcd before 3.4.25 and 3.5.8 tells it ahead of the
//! changes it stands for.) A watch begins at the revision that is known already, whose changes are left out: etcd refuses a revision
//! only if it is older than the compacted one. Never resumes by itself: it ends with the reason, and the window goes on elsewhere.

use crate::fence::{self, Fence};
use crate::keys::Keys;
use crate::rpc::Rpc;
use crate::verdict::{self, Verdict};
use bytes::Bytes;
use futures::StreamExt;
use proto::etcd::event::EventType;
use proto::etcd::watch_request::RequestUnion;
use proto::etcd::{Event, KeyValue, WatchCreateRequest, WatchRequest, WatchResponse};
use std::sync::Arc;
use store::{Change, Revision, Step, Steps, StoreError};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::AsciiMetadataValue;
use tonic::{Request, Status, Streaming};

/// All keys there are: from the first to the end.
fn everything() -> (Vec<u8>, Vec<u8>) {
    (vec![0], vec![0])
}

/// The changes after a revision under a prefix.
pub(crate) async fn watch(
    (rpc, fence): (Arc<Rpc>, Arc<Fence>),
    keys: Keys,
    prefix: String,
    after: Revision,
) -> Result<Steps, StoreError> {
    let theirs = match keys.oldest() {
        Some(oldest) if after < oldest => return Err(StoreError::Compacted { wanted: after, oldest }),
        _ => keys.theirs_at(after) as Revision,
    };
    let watched = open(&rpc, everything(), theirs).await;
    let reader = Reader {
        watched: watched.map_err(|error| told(&keys, error))?,
        note: keys.form(),
        fence,
        keys,
        prefix,
        seen: theirs,
        has_ended: false,
    };
    let steps = futures::stream::unfold(reader, |mut reader| async move {
        if reader.has_ended {
            return None;
        }
        let step = reader.next().await.map_err(|error| told(&reader.keys, error));
        reader.has_ended = step.is_err();
        Some((step, reader))
    });
    Ok(steps.boxed())
}

/// An error with revisions as we tell them.
fn told(keys: &Keys, error: StoreError) -> StoreError {
    match error {
        StoreError::Compacted { wanted, oldest } => StoreError::Compacted {
            wanted: keys.ours_at(wanted as i64),
            oldest: keys.ours_at(oldest as i64),
        },
        other => other,
    }
}

struct Reader {
    watched: Watched,
    fence: Arc<Fence>,
    /// Where what is noted of the whole stands.
    note: Vec<u8>,
    keys: Keys,
    prefix: String,
    /// A revision of etcd's.
    seen: Revision,
    has_ended: bool,
}

impl Reader {
    async fn next(&mut self) -> Result<Step, StoreError> {
        loop {
            let events = self.watched.events().await?;
            let newest = events
                .iter()
                .filter_map(|event| event.kv.as_ref())
                .map(|kv| kv.mod_revision as Revision);
            let Some(newest) = newest.max().filter(|newest| *newest > self.seen) else {
                continue;
            };
            self.check(&events)?;
            let changes = events.into_iter().filter_map(|event| change(&self.keys, event));
            let known = self.keys.ours_at(self.seen as i64);
            let changes = changes.filter(|change| change.revision > known && change.key.starts_with(&self.prefix));
            let changes = changes.collect();
            self.seen = newest;
            return Ok(Step {
                revision: self.keys.ours_at(newest as i64),
                changes,
            });
        }
    }
}

impl Reader {
    /// Nothing is told of what another move has done: not that all went before it came, nor what came then.
    fn check(&self, events: &[Event]) -> Result<(), StoreError> {
        let is_new = |kv: &KeyValue| kv.key == self.note && kv.mod_revision > self.fence.noted();
        let noted = events.iter().rfind(|event| event.kv.as_ref().is_some_and(is_new));
        let Some(noted) = noted else {
            return self.fence.check();
        };
        let kv = noted.kv.as_ref().filter(|_| !is_deletion(noted));
        self.fence.look(fence::found(kv))
    }
}

fn is_deletion(event: &Event) -> bool {
    event.r#type == i32::from(EventType::Delete)
}

/// An event as a change of ours; `None` if its key is none of ours.
fn change(keys: &Keys, event: Event) -> Option<Change> {
    let is_deletion = is_deletion(&event);
    let kv = event.kv?;
    Some(Change {
        revision: keys.ours_at(kv.mod_revision),
        key: keys.ours(&kv.key)?,
        created: !is_deletion && kv.create_revision == kv.mod_revision,
        value: (!is_deletion).then(|| Bytes::from(kv.value)),
    })
}

/// A watch of some keys at one member.
pub(crate) struct Watched {
    rpc: Arc<Rpc>,
    member: usize,
    /// The watch lasts as long as this does.
    _requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
    after: Revision,
    /// The newest revision told of.
    seen: Revision,
    /// What was known to be newer than all that was told, when it was last looked.
    awaited: Revision,
}

/// Begins to watch a key, or a range, after a revision; it has begun on return.
///
/// # Errors
/// Nobody answers, or etcd refuses it (for want of a role, say).
pub(crate) async fn open(rpc: &Arc<Rpc>, range: (Vec<u8>, Vec<u8>), after: Revision) -> Result<Watched, StoreError> {
    let (key, range_end) = range;
    let create = WatchCreateRequest {
        key,
        range_end,
        // 0 would be: from now on.
        start_revision: after.max(1) as i64,
        fragment: true,
    };
    let (requests, stream) = mpsc::channel(1);
    let request = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    // The channel is empty: it is taken at once.
    let _ = requests.try_send(request);
    let mut request = Request::new(ReceiverStream::new(stream));
    // A member that has lost the others ends the watch in place of falling silent.
    let metadata = request.metadata_mut();
    metadata.insert("hasleader", AsciiMetadataValue::from_static("true"));
    let (member, mut client) = rpc.watch_client();
    let opening = async {
        let mut responses = client.watch(request).await?.into_inner();
        let first = responses.message().await?;
        Ok((first.ok_or_else(|| Status::unavailable("the watch ended"))?, responses))
    };
    let (first, responses) = match tokio::time::timeout(rpc.deadlines.attempt, opening).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(status)) => return Err(broken(rpc, member, &status)),
        Err(_) => return Err(silent(rpc, member)),
    };
    let watched = Watched {
        rpc: Arc::clone(rpc),
        member,
        _requests: requests,
        responses,
        after,
        seen: after,
        awaited: 0,
    };
    rpc.told_by(first.header.as_ref())?;
    if let Err((_, why)) = rpc.trust(member).await {
        rpc.failed(member);
        return Err(StoreError::Unavailable(format!("{}: {why}", rpc.url(member))));
    }
    // What etcd answers first has no events, and says whether it watches.
    match first.canceled {
        true => Err(watched.cancelled(&first)),
        false => Ok(watched),
    }
}

impl Watched {
    /// The next events: all of each of their revisions; none now and then.
    ///
    /// # Errors
    /// Why the watch has ended.
    pub(crate) async fn events(&mut self) -> Result<Vec<Event>, StoreError> {
        let mut events = Vec::new();
        loop {
            let stall = self.rpc.deadlines.stall;
            let response = match tokio::time::timeout(stall, self.responses.message()).await {
                Ok(Ok(Some(response))) => response,
                Ok(Ok(None)) => return Err(broken(&self.rpc, self.member, &Status::unavailable("the watch ended"))),
                Ok(Err(status)) => return Err(broken(&self.rpc, self.member, &status)),
                Err(_) => {
                    self.check_stall()?;
                    continue;
                }
            };
            if response.canceled {
                return Err(self.cancelled(&response));
            }
            let is_part = response.fragment;
            if !is_part && events.is_empty() && self.rpc.is_left(self.member) {
                // What it tells is late, too. Nothing of it is lost: another tells it.
                return Err(late(&self.rpc, self.member));
            }
            events.extend(response.events);
            let told = events.last().and_then(|event| event.kv.as_ref());
            self.seen = told.map_or(self.seen, |kv| self.seen.max(kv.mod_revision as Revision));
            if !is_part {
                return Ok(events);
            }
        }
    }

    /// Ends a watch of which a whole pause ago something was awaited that it has not told of.
    fn check_stall(&mut self) -> Result<(), StoreError> {
        if self.rpc.is_left(self.member) {
            return Err(late(&self.rpc, self.member));
        }
        if self.awaited > self.seen {
            return Err(silent(&self.rpc, self.member));
        }
        self.awaited = self.rpc.newest();
        Ok(())
    }

    fn cancelled(&self, response: &WatchResponse) -> StoreError {
        if response.compact_revision > 0 {
            return StoreError::Compacted {
                wanted: self.after,
                oldest: response.compact_revision as Revision,
            };
        }
        let reason = &response.cancel_reason;
        let status = match reason.contains("permission denied") {
            true => Status::permission_denied(reason),
            false => Status::unavailable(reason),
        };
        broken(&self.rpc, self.member, &status)
    }
}

fn broken(rpc: &Rpc, member: usize, status: &Status) -> StoreError {
    let text = format!("{}: {}", rpc.url(member), verdict::text(status));
    match verdict::of(status) {
        Verdict::Refused => StoreError::Refused(text),
        _ => {
            rpc.failed(member);
            StoreError::Unavailable(text)
        }
    }
}

fn late(rpc: &Rpc, member: usize) -> StoreError {
    StoreError::Unavailable(format!("{}: it answers late, and another does not", rpc.url(member)))
}

fn silent(rpc: &Rpc, member: usize) -> StoreError {
    rpc.failed(member);
    StoreError::Unavailable(format!("{}: the watch tells nothing of what is there", rpc.url(member)))
}
