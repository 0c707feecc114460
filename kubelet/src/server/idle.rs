//! Whether a connection is of use: one that asks for nothing ends, so that silent ones cannot keep places. Owns no socket.

use super::answer::{self, Answer};
use hyper::body::Body;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// How long a connection may take for its first request.
const FIRST_DEADLINE: Duration = Duration::from_secs(30);
/// How long it may be open between requests, as upstream's.
const IDLE_MAX: Duration = Duration::from_secs(90);
/// Answers up to this size must be taken within the time of an idle connection: to be refused keeps nobody's place.
const SHORT_BYTES: u64 = 64 << 10;

#[derive(Clone, Copy, Debug)]
struct State {
    /// Requests under way.
    under_way: usize,
    /// When there is nothing to wait for any more if none is.
    until: Instant,
}

/// The requests of one connection.
#[derive(Clone, Debug)]
pub(super) struct InUse(Arc<watch::Sender<State>>);

/// A request under way, until it is dropped.
#[derive(Debug)]
pub(super) struct UnderWay(InUse);

impl InUse {
    /// Of a connection that begins now.
    pub(super) fn new() -> Self {
        let until = Instant::now() + FIRST_DEADLINE;
        Self(Arc::new(watch::Sender::new(State { under_way: 0, until })))
    }

    /// A request begins.
    pub(super) fn begin(&self) -> UnderWay {
        self.0.send_modify(|state| state.under_way += 1);
        UnderWay(self.clone())
    }

    /// Ends once the connection has asked for nothing for too long.
    pub(super) async fn unused(&self) {
        let mut changes = self.0.subscribe();
        loop {
            let state = *changes.borrow_and_update();
            let late = async {
                match state.under_way {
                    0 => sleep_until(state.until).await,
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                () = late => return,
            }
        }
    }
}

impl UnderWay {
    /// The same answer; the request is under way until a long one is sent.
    pub(super) fn until_sent(self, answer: Answer) -> Answer {
        match answer.body().size_hint().exact() {
            Some(bytes) if bytes <= SHORT_BYTES => answer,
            _ => answer::holding(answer, self),
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.send_modify(|state| {
            state.under_way -= 1;
            state.until = Instant::now() + IDLE_MAX;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_when_nothing_is_asked_and_never_during_a_request() {
        let begun = Instant::now();
        let in_use = InUse::new();
        timeout(HOUR, in_use.unused()).await.expect("no first request");
        assert_eq!(begun.elapsed().as_secs(), FIRST_DEADLINE.as_secs());

        let (first, second) = (in_use.begin(), in_use.begin());
        assert!(timeout(HOUR, in_use.unused()).await.is_err());
        drop(first);
        assert!(timeout(HOUR, in_use.unused()).await.is_err());
        drop(second);
        let ended = Instant::now();
        timeout(HOUR, in_use.unused()).await.expect("idle");
        assert_eq!(ended.elapsed().as_secs(), IDLE_MAX.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_long_answer_keeps_a_connection_until_it_is_sent() {
        let in_use = InUse::new();
        let _refused = in_use.begin().until_sent(answer::text(401, "no"));
        timeout(HOUR, in_use.unused()).await.expect("idle");
        let long = in_use.begin().until_sent(answer::bytes(vec![0; 1 << 20]));
        assert!(timeout(HOUR, in_use.unused()).await.is_err());
        drop(long);
        timeout(HOUR, in_use.unused()).await.expect("idle");
    }
}
