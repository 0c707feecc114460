//! Replies on their way to clients who may not read them.
//!
//! A reply is handed over in pieces, each when the connection can take it, and keeps its place and its bytes ([`super::flow`])
//! until the last one. A client that takes nothing for [`STALL`] loses the reply: what it holds is freed, a watch ends (and can be
//! resumed), anything else breaks off. Owns no reply's content.

use super::body::BodyError;
use super::{Body, flow};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Longest time a client may leave a piece of a reply untaken.
const STALL: Duration = Duration::from_secs(30);
/// How often stalled replies are looked for.
const SWEEP: Duration = Duration::from_secs(5);
/// Largest piece of a reply handed to the connection at once.
const PIECE_BYTES: usize = 64 << 10;

/// What the client sees of a reply that was taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnStall {
    /// The regular end: it goes on with another request.
    End,
    /// An error: what it has is not complete.
    Break,
}

/// What a reply keeps until it is sent.
#[derive(Default)]
pub(super) struct HeldResources {
    /// Its request's place.
    pub(super) _seat: Option<Arc<flow::Seat>>,
    /// The bytes it was granted.
    pub(super) _bytes: Option<Arc<flow::ByteReservation>>,
}

/// The replies of one server that are being sent.
#[derive(Default)]
pub(super) struct OutgoingReplies {
    sending: Mutex<Vec<Weak<Mutex<OutgoingReply>>>>,
    /// Notified when the list is empty no more.
    listed: Notify,
}

impl OutgoingReplies {
    /// The body, which keeps `holds` until it is sent.
    pub(super) fn guard(self: &Arc<Self>, body: Body, holds: HeldResources, on_stall: OnStall) -> Body {
        let sending = OutgoingReply {
            body: Some(body),
            rest: Bytes::new(),
            holds,
            on_stall,
            untaken_since: None,
        };
        let guarded = GuardedBody {
            drains: Arc::clone(self),
            sending: Arc::new(Mutex::new(sending)),
            is_listed: false,
        };
        guarded.boxed_unsync()
    }

    fn list(&self) -> MutexGuard<'_, Vec<Weak<Mutex<OutgoingReply>>>> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes stalled replies from their clients, until dropped.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            self.listed.notified().await;
            while !self.list().is_empty() {
                tokio::time::sleep(SWEEP).await;
                self.sweep(Instant::now());
            }
        }
    }

    fn sweep(&self, now: Instant) {
        let mut freed = Vec::new();
        self.list().retain(|weak| {
            let Some(sending) = weak.upgrade() else { return false };
            let mut sending = lock(&sending);
            let is_stalled = sending
                .untaken_since
                .is_some_and(|since| now.duration_since(since) >= STALL);
            if is_stalled {
                freed.push(sending.give_up());
            }
            sending.body.is_some()
        });
        if !freed.is_empty() {
            tracing::debug!(count = freed.len(), "clients do not read their replies; these end");
        }
    }
}

fn lock(sending: &Mutex<OutgoingReply>) -> MutexGuard<'_, OutgoingReply> {
    sending.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One reply's state.
struct OutgoingReply {
    /// `None` once it was taken away, or sent.
    body: Option<Body>,
    /// What is left of the frame being handed over.
    rest: Bytes,
    holds: HeldResources,
    on_stall: OnStall,
    /// When a piece was handed over that nobody has asked to follow since; `None` while the client waits for the server.
    untaken_since: Option<Instant>,
}

impl OutgoingReply {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.rest.is_empty() {
            let Some(body) = &mut self.body else {
                return Poll::Ready(None);
            };
            match http_body::Body::poll_frame(Pin::new(body), context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Poll::Ready(end) => return Poll::Ready(end),
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

/// The body of a reply that can be taken from its client.
struct GuardedBody {
    drains: Arc<OutgoingReplies>,
    sending: Arc<Mutex<OutgoingReply>>,
    /// Most replies are one piece; they are never looked for.
    is_listed: bool,
}

impl http_body::Body for GuardedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let mut sending = lock(&this.sending);
        if sending.body.is_none() && sending.untaken_since.is_some() {
            return Poll::Ready(match sending.on_stall {
                OnStall::End => None,
                OnStall::Break => Some(Err("the reply was not read for too long".into())),
            });
        }
        let polled = sending.poll(context);
        let goes_on = matches!(polled, Poll::Ready(Some(Ok(_))));
        sending.untaken_since = goes_on.then(Instant::now);
        let is_over = matches!(polled, Poll::Ready(None | Some(Err(_)))) || sending.is_sent();
        if is_over {
            sending.untaken_since = None;
            // Freed before the connection lets go of the body.
            drop(sending.give_up());
        }
        drop(sending);
        if goes_on && !is_over && !std::mem::replace(&mut this.is_listed, true) {
            this.drains.list().push(Arc::downgrade(&this.sending));
            this.drains.listed.notify_one();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let sending = lock(&self.sending);
        sending.untaken_since.is_none() && sending.is_sent()
    }

    fn size_hint(&self) -> SizeHint {
        let sending = lock(&self.sending);
        let mut hint = sending
            .body
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), http_body::Body::size_hint);
        let rest = sending.rest.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

impl OutgoingReply {
    /// Everything the reply keeps.
    fn give_up(&mut self) -> (Option<Body>, Bytes, HeldResources) {
        let rest = std::mem::take(&mut self.rest);
        (self.body.take(), rest, std::mem::take(&mut self.holds))
    }

    fn is_sent(&self) -> bool {
        self.rest.is_empty() && self.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }
}

#[cfg(test)]
mod tests;
