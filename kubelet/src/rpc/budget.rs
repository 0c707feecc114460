//! How much of answers is held at a time that are not whole yet, or wait to be looked at: each may be as large as a message may be, and
//! many others' together must not take the memory of the node. Owns the count, and refuses whoever is large when it is full.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::transport::{Channel, Error};

/// What everybody may hold though all is taken, bytes.
const SMALL: usize = 64 << 10;
/// A message begins with whether it is compressed, and its length.
const HEAD: usize = 5;

/// What some connections may hold together. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    bytes_max: usize,
    taken: Arc<AtomicUsize>,
}

impl Budget {
    /// One of so many bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            taken: Arc::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// A share, of nothing yet.
    pub(crate) fn share(&self) -> Share {
        Share {
            budget: self.clone(),
            held: 0,
        }
    }
}

/// What one holds, until it goes.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Budget,
    held: usize,
}

impl Share {
    /// Holds so many bytes in place of those it held.
    ///
    /// # Errors
    /// There is no room for them: it holds none.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), Status> {
        let Budget { bytes_max, taken } = &self.budget;
        let held = std::mem::take(&mut self.held);
        let others = taken.fetch_sub(held, Ordering::Relaxed).saturating_sub(held);
        if bytes > SMALL && others.saturating_add(bytes) > *bytes_max {
            return Err(Status::resource_exhausted(format!(
                "more than {bytes_max} bytes of messages are being received at a time"
            )));
        }
        taken.fetch_add(bytes, Ordering::Relaxed);
        self.held = bytes;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.held, Ordering::Relaxed);
    }
}

/// A channel whose answers are counted, if there is something to count them by.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) channel: Channel,
    pub(super) budget: Option<Budget>,
}

impl Service<Request<Body>> for Counted {
    type Response = Response<Body>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Response<Body>, Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Service::<Request<Body>>::poll_ready(&mut self.channel, cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let share = self.budget.as_ref().map(Budget::share);
        let answer = self.channel.call(request);
        async move {
            let answer = answer.await?;
            Ok(answer.map(|body| match share {
                None => body,
                Some(share) => Body::new(Answer {
                    body,
                    share,
                    message: Message::default(),
                }),
            }))
        }
        .boxed()
    }
}

/// An answer of which what has come of a message that is not whole is held.
struct Answer {
    body: Body,
    share: Share,
    message: Message,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let begun = self.message.take(data);
            if let Err(status) = self.share.hold(begun) {
                return Poll::Ready(Some(Err(status)));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// How far the message is that is being received.
#[derive(Debug, Default)]
struct Message {
    head: [u8; HEAD],
    /// As much of the head as there is.
    known: usize,
    /// Bytes that came behind it, and those that are still to come.
    come: usize,
    left: usize,
}

impl Message {
    /// Takes what came next; tells how much there is of the last message, if that is not whole.
    fn take(&mut self, mut bytes: &[u8]) -> usize {
        while let Some(byte) = bytes.first() {
            if let Some(place) = self.head.get_mut(self.known) {
                *place = *byte;
                self.known += 1;
                bytes = &bytes[1..];
                if self.known == HEAD {
                    let [_, length @ ..] = self.head;
                    self.left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                }
            } else {
                let some = self.left.min(bytes.len());
                self.left -= some;
                self.come += some;
                bytes = &bytes[some..];
            }
            if self.known == HEAD && self.left == 0 {
                *self = Self::default();
            }
        }
        self.come
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_large_is_refused_once_all_is_taken_and_what_is_small_never() {
        let budget = Budget::new(10 * SMALL);
        let (mut first, mut second) = (budget.share(), budget.share());
        first.hold(6 * SMALL).expect("room");
        second.hold(4 * SMALL).expect("all of it");
        assert!(second.hold(4 * SMALL + 1).is_err());
        second.hold(SMALL).expect("it holds nothing since");
        second.hold(4 * SMALL).expect("in place of that");
        let mut others: Vec<Share> = (0..20).map(|_| budget.share()).collect();
        others
            .iter_mut()
            .for_each(|share| share.hold(SMALL).expect("it is small"));
        assert!(first.hold(6 * SMALL).is_err());
        drop((others, second));
        first.hold(10 * SMALL).expect("everything");
        drop(first);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn what_came_of_a_message_counts_until_it_is_whole() {
        let mut message = Message::default();
        let head = |length: u8| [0, 0, 0, 0, length];
        assert_eq!(message.take(&head(9)[..3]), 0);
        assert_eq!(message.take(&head(9)[3..]), 0);
        assert_eq!(message.take(&[7; 4]), 4);
        assert_eq!(message.take(&[7; 4]), 8);
        assert_eq!(message.take(&[7]), 0, "it is whole");
        let next = [&head(0)[..], &head(2), &[7, 7], &head(3), &[7]].concat();
        assert_eq!(message.take(&next), 1);
    }

    proptest! {
        /// However it is cut into pieces.
        #[test]
        fn pieces_are_as_the_whole(lengths in proptest::collection::vec(0u8..200, 1..10), cuts in proptest::collection::vec(1usize..60, 1..40)) {
            let mut bytes = Vec::new();
            for length in &lengths {
                bytes.extend([1, 0, 0, 0, *length]);
                bytes.extend(vec![7; usize::from(*length)]);
            }
            let mut message = Message::default();
            let mut rest = &bytes[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, others) = rest.split_at((*cut).min(rest.len()));
                let come = message.take(piece);
                let done = bytes.len() - others.len();
                let mut begun = 0;
                for length in &lengths {
                    let end = begun + 5 + usize::from(*length);
                    if done < end {
                        prop_assert_eq!(come, done.saturating_sub(begun + 5));
                        break;
                    }
                    begun = end;
                }
                rest = others;
            }
            prop_assert_eq!(message.take(&[]), 0);
        }
    }
}
