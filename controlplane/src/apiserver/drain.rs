//! Replies on their way to clients who may not read them.
//!
//! A reply is handed over in pieces that keep nothing else in memory, each when the connection can take it, and keeps its place and
//! its room ([`super::flow`]) until the last piece has left this process. A client that takes nothing for [`STALL`], or has not
//! taken all when the request's time is over, loses the reply: the task that sends it is ended, which resets an HTTP/2 stream and
//! closes an HTTP/1 connection, because neither asks for more of a body while the client does not read. Owns no reply's content.

use super::body::BodyError;
use super::{Body, flow};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Longest time a client may leave a piece of a reply untaken.
pub(super) const STALL: Duration = Duration::from_secs(30);
/// How often replies are looked for that stall or whose time is over.
const SWEEP: Duration = Duration::from_secs(5);
/// Largest piece of a reply handed to the connection at once: HTTP/2's usual frame, TLS's largest record.
const PIECE_BYTES: usize = 16 << 10;
/// What of one reply may lie in the connection's buffers.
const UNSENT_BYTES: usize = 64 << 10;

tokio::task_local! {
    /// Ends the task that sends.
    static BREAK: CancellationToken;
}

/// Runs what sends replies (an HTTP/2 stream, a connection) so that a reply nobody takes can end it; `None` if one did.
pub(super) async fn breakable<F: Future>(sending: F) -> Option<F::Output> {
    let broken = CancellationToken::new();
    tokio::select! {
        biased;
        () = broken.cancelled() => None,
        output = BREAK.scope(broken.clone(), sending) => Some(output),
    }
}

/// Ends the task in which this is called, if it is [`breakable`].
pub(super) fn end_task() {
    // Elsewhere there is nothing to end.
    let _ = BREAK.try_with(CancellationToken::cancel);
}

/// What the client sees of a reply that was taken from it, if it asks for more.
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
    /// The room for its bytes.
    pub(super) _bytes: Option<Arc<flow::ByteReservation>>,
    /// Its place among the user's watches.
    pub(super) _watch: Option<flow::ByteReservation>,
}

/// When a reply must have been sent.
#[derive(Clone)]
pub(super) struct Deadline {
    at: Instant,
    lifted: Lift,
}

/// Lifts a [`Deadline`]: for a watch once its initial state is sent, which needs its place and its room no longer.
#[derive(Clone, Default)]
pub(super) struct Lift(Arc<Lifted>);

#[derive(Default)]
struct Lifted {
    is_lifted: AtomicBool,
    kept: Mutex<Kept>,
}

/// A request's place and the room for what it sends.
type Kept = (Option<Arc<flow::Seat>>, Option<Arc<flow::ByteReservation>>);

impl Lift {
    pub(super) fn lift(&self) {
        self.0.is_lifted.store(true, Ordering::Relaxed);
        self.keep(None, None);
    }

    /// Keeps a place and its room until then.
    pub(super) fn keep(&self, seat: Option<Arc<flow::Seat>>, room: Option<Arc<flow::ByteReservation>>) {
        let kept = {
            let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *kept, (seat, room))
        };
        drop(kept);
    }
}

impl Deadline {
    pub(super) fn new(at: Instant, lifted: Lift) -> Self {
        Self { at, lifted }
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.at && !self.lifted.0.is_lifted.load(Ordering::Relaxed)
    }
}

/// The replies of one server that are being sent.
#[derive(Default)]
pub(super) struct OutgoingReplies {
    sending: Mutex<Listed>,
    /// Told when the list is empty no more.
    listed: Notify,
}

#[derive(Default)]
struct Listed {
    next: u64,
    replies: BTreeMap<u64, Weak<Mutex<OutgoingReply>>>,
}

impl OutgoingReplies {
    /// The body, which keeps `holds` until it is sent.
    pub(super) fn guard(
        self: &Arc<Self>,
        body: Body,
        holds: HeldResources,
        on_stall: OnStall,
        deadline: Option<Deadline>,
    ) -> Body {
        let sending = OutgoingReply {
            body: Some(body),
            rest: Bytes::new(),
            holds,
            on_stall,
            deadline,
            unsent: 0,
            is_asked: false,
            untaken_since: None,
            is_broken: false,
            task: None,
            waker: None,
            listed: None,
        };
        let guarded = GuardedBody {
            drains: Arc::clone(self),
            sending: Arc::new(Mutex::new(sending)),
        };
        guarded.boxed_unsync()
    }

    fn list(&self) -> MutexGuard<'_, Listed> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replies of which something has not left this process.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.list().replies.len()
    }

    /// Takes stalled and overdue replies from their clients, until dropped.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            self.listed.notified().await;
            while !self.list().replies.is_empty() {
                tokio::time::sleep(SWEEP).await;
                self.sweep(Instant::now());
            }
        }
    }

    fn sweep(&self, now: Instant) {
        // Not under the lock: whoever drops a reply's last reference takes it from the list.
        let replies: Vec<Arc<Mutex<OutgoingReply>>> = self.list().replies.values().filter_map(Weak::upgrade).collect();
        let mut ended = 0;
        for reply in replies {
            let mut sending = lock(&reply);
            if sending.is_broken || !(sending.is_stalled(now) || sending.is_overdue(now)) {
                continue;
            }
            let content = sending.give_up();
            // Nobody else has any of it where no task sends: what it keeps is free already.
            let holds = sending.task.is_none().then(|| std::mem::take(&mut sending.holds));
            let (task, waker) = (sending.task.take(), sending.waker.take());
            drop(sending);
            drop((content, holds));
            if let Some(task) = task {
                task.cancel();
            }
            if let Some(waker) = waker {
                waker.wake();
            }
            ended += 1;
        }
        if ended > 0 {
            tracing::debug!(count = ended, "clients do not read their replies; these end");
        }
    }
}

fn lock(sending: &Mutex<OutgoingReply>) -> MutexGuard<'_, OutgoingReply> {
    sending.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a body answers when it is asked for its next frame.
type PolledFrame = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// One reply's state: lives until the body is dropped and its pieces have left.
struct OutgoingReply {
    /// `None` once it was taken away, or sent.
    body: Option<Body>,
    /// What is left of the frame being handed over.
    rest: Bytes,
    holds: HeldResources,
    on_stall: OnStall,
    deadline: Option<Deadline>,
    /// Bytes handed over that have not left yet.
    unsent: usize,
    /// Whether the connection waits for the server.
    is_asked: bool,
    /// When the client last took something, while there is something for it to take.
    untaken_since: Option<Instant>,
    /// It was taken from the client.
    is_broken: bool,
    /// Ends the task that sends; `None` for readers in this process, whose pieces are theirs.
    task: Option<CancellationToken>,
    /// Whom to tell when a piece has left.
    waker: Option<Waker>,
    listed: Option<(Arc<OutgoingReplies>, u64)>,
}

impl Drop for OutgoingReply {
    fn drop(&mut self) {
        if let Some((drains, number)) = self.listed.take() {
            drains.list().replies.remove(&number);
        }
    }
}

impl OutgoingReply {
    fn is_stalled(&self, now: Instant) -> bool {
        let is_due = self.unsent > 0 || !self.is_asked;
        is_due
            && self
                .untaken_since
                .is_some_and(|since| now.duration_since(since) >= STALL)
    }

    fn is_overdue(&self, now: Instant) -> bool {
        self.deadline.as_ref().is_some_and(|deadline| deadline.is_over(now))
    }

    /// Everything the reply would still write.
    fn give_up(&mut self) -> (Option<Body>, Bytes) {
        self.is_broken = true;
        (self.body.take(), std::mem::take(&mut self.rest))
    }

    fn is_sent(&self) -> bool {
        self.unsent == 0
            && self.rest.is_empty()
            && !self.is_broken
            && self.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    /// Fills `rest`; whatever else there is to answer comes back.
    fn fill(&mut self, context: &mut Context<'_>) -> Option<PolledFrame> {
        while self.rest.is_empty() {
            let polled = match &mut self.body {
                Some(body) => http_body::Body::poll_frame(Pin::new(body), context),
                None => Poll::Ready(None),
            };
            match polled {
                Poll::Pending => {
                    self.is_asked = true;
                    if self.unsent == 0 {
                        self.untaken_since = None;
                    }
                    return Some(Poll::Pending);
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Some(Poll::Ready(Some(Ok(trailers)))),
                },
                Poll::Ready(Some(Err(error))) => {
                    self.body = None;
                    self.untaken_since = None;
                    return Some(Poll::Ready(Some(Err(error))));
                }
                Poll::Ready(None) => {
                    self.body = None;
                    return Some(self.end(context));
                }
            }
        }
        None
    }

    /// The end comes once everything has left, so that who sends is there for as long as the client has something to take.
    fn end(&mut self, context: &Context<'_>) -> PolledFrame {
        self.is_asked = false;
        if self.unsent > 0 {
            self.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        self.untaken_since = None;
        Poll::Ready(None)
    }

    /// So many bytes have left; gives whom to tell.
    fn taken(&mut self, bytes: usize) -> Option<Waker> {
        self.unsent -= bytes;
        self.untaken_since = (self.unsent > 0 || !self.is_asked).then(Instant::now);
        self.waker.take()
    }
}

/// Bytes the connection has until it has written them.
struct Piece {
    bytes: Box<[u8]>,
    sending: Arc<Mutex<OutgoingReply>>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let waker = lock(&self.sending).taken(self.bytes.len());
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct GuardedBody {
    drains: Arc<OutgoingReplies>,
    sending: Arc<Mutex<OutgoingReply>>,
}

impl Drop for GuardedBody {
    fn drop(&mut self) {
        let content = {
            let mut sending = lock(&self.sending);
            (sending.body.take(), std::mem::take(&mut sending.rest))
        };
        drop(content);
    }
}

impl GuardedBody {
    /// Has the sweep look at the reply, from its first piece on.
    fn list(&self, sending: &mut OutgoingReply) {
        if sending.listed.is_some() {
            return;
        }
        let mut list = self.drains.list();
        let number = list.next;
        list.next += 1;
        list.replies.insert(number, Arc::downgrade(&self.sending));
        drop(list);
        sending.listed = Some((Arc::clone(&self.drains), number));
        sending.task = BREAK.try_with(CancellationToken::clone).ok();
        self.drains.listed.notify_one();
    }
}

impl http_body::Body for GuardedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut sending = lock(&self.sending);
        if !sending.is_broken && sending.is_overdue(Instant::now()) {
            let content = sending.give_up();
            drop(content);
        }
        if sending.is_broken {
            return Poll::Ready(match sending.on_stall {
                OnStall::End => None,
                OnStall::Break => Some(Err("the reply was not read in time".into())),
            });
        }
        if sending.unsent >= UNSENT_BYTES {
            sending.is_asked = false;
            sending.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        if let Some(polled) = sending.fill(context) {
            return polled;
        }
        self.list(&mut sending);
        sending.is_asked = false;
        sending.untaken_since = Some(Instant::now());
        let piece = {
            let length = sending.rest.len().min(PIECE_BYTES);
            sending.rest.split_to(length)
        };
        if sending.rest.is_empty() {
            sending.rest = Bytes::new();
        }
        if sending.task.is_none() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        sending.unsent += piece.len();
        let piece = Piece {
            bytes: Box::from(&piece[..]),
            sending: Arc::clone(&self.sending),
        };
        drop(sending);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.sending).is_sent()
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

#[cfg(test)]
mod tests;
