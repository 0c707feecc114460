//! Watches: one stream of all of etcd's changes, as steps of ours.
//!
//! Everything is watched, not our prefix alone: then every revision is told of, whatever it changed, and a reader reaches the newest
//! one without asking. (Progress told on demand would do the same with less, but etcd before 3.4.25 and 3.5.8 tells it ahead of the
//! changes it stands for.) A watch begins at the revision that is known already, whose changes are left out: etcd refuses a revision
//! only if it is older than the compacted one. Never resumes by itself: it ends with the reason, and the window goes on elsewhere.

use crate::keys::Keys;
use crate::rpc::Rpc;
use crate::verdict::{self, Verdict};
use bytes::Bytes;
use futures::StreamExt;
use proto::etcd::event::EventType;
use proto::etcd::watch_request::RequestUnion;
use proto::etcd::{Event, WatchCreateRequest, WatchRequest, WatchResponse};
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
pub(crate) async fn watch(rpc: Arc<Rpc>, keys: Keys, prefix: String, after: Revision) -> Result<Steps, StoreError> {
    let watched = open(&rpc, everything(), after).await?;
    let reader = Reader {
        watched,
        keys,
        prefix,
        seen: after,
        has_ended: false,
    };
    let steps = futures::stream::unfold(reader, |mut reader| async move {
        if reader.has_ended {
            return None;
        }
        let step = reader.next().await;
        reader.has_ended = step.is_err();
        Some((step, reader))
    });
    Ok(steps.boxed())
}

struct Reader {
    watched: Watched,
    keys: Keys,
    prefix: String,
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
            let changes = events.into_iter().filter_map(|event| change(&self.keys, event));
            let known = self.seen;
            let changes = changes.filter(|change| change.revision > known && change.key.starts_with(&self.prefix));
            let changes = changes.collect();
            self.seen = newest;
            return Ok(Step {
                revision: newest,
                changes,
            });
        }
    }
}

/// An event as a change of ours; `None` if its key is none of ours.
fn change(keys: &Keys, event: Event) -> Option<Change> {
    let is_deletion = event.r#type == i32::from(EventType::Delete);
    let kv = event.kv?;
    Some(Change {
        revision: kv.mod_revision as Revision,
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

fn silent(rpc: &Rpc, member: usize) -> StoreError {
    rpc.failed(member);
    StoreError::Unavailable(format!("{}: the watch tells nothing of what is there", rpc.url(member)))
}
