//! Where events wait to be taken in: so many, and beyond it they are dropped, which the log has once a second at most. Nobody waits here.

use super::outbox::BACKLOG;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// A line for each would cost more than the event: they are dropped where there are thousands of them a second.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// What was dropped and not told of.
#[derive(Debug, Default)]
struct Dropped {
    untold: u64,
    told: Option<Instant>,
}

impl Dropped {
    /// How many are to be told of, if it is time.
    fn due(&mut self, now: Instant) -> Option<u64> {
        let is_time = self.told.is_none_or(|told| now - told >= TOLD_EVERY);
        if self.untold == 0 || !is_time {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

/// The end that events are put into. Clones share it.
pub(crate) struct Inbox<E> {
    send: mpsc::Sender<E>,
    dropped: Arc<Mutex<Dropped>>,
}

impl<E> Clone for Inbox<E> {
    fn clone(&self) -> Self {
        Self {
            send: self.send.clone(),
            dropped: Arc::clone(&self.dropped),
        }
    }
}

impl<E> Inbox<E> {
    /// An empty one, and the end that they are taken from.
    pub(crate) fn new() -> (Self, mpsc::Receiver<E>) {
        let (send, receive) = mpsc::channel(BACKLOG);
        let dropped = Arc::default();
        (Self { send, dropped }, receive)
    }

    /// Puts an event in, or drops it where too many wait.
    pub(crate) fn put(&self, event: E) {
        let is_dropped = self.send.try_send(event).is_err();
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        dropped.untold += u64::from(is_dropped);
        if dropped.untold == 0 {
            return;
        }
        if let Some(events) = dropped.due(Instant::now()) {
            tracing::warn!(events, "events dropped: too many are waiting");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_told_of_at_once_and_then_once_a_second() {
        let (mut dropped, began) = (Dropped::default(), Instant::now());
        for (after, more, told) in [
            (0, 0, None),
            (0, 1, Some(1)),
            (1, 3, None),
            (999, 1, None),
            (1000, 0, Some(4)),
            (5000, 0, None),
            (5000, 2, Some(2)),
        ] {
            dropped.untold += more;
            assert_eq!(
                dropped.due(began + Duration::from_millis(after)),
                told,
                "after {after} ms"
            );
        }
    }

    #[test]
    fn beyond_the_backlog_events_are_dropped() {
        let (inbox, mut receive) = Inbox::new();
        (0..BACKLOG + 3).for_each(|event| inbox.clone().put(event));
        let dropped = |inbox: &Inbox<usize>| inbox.dropped.lock().unwrap().untold;
        assert_eq!(dropped(&inbox), 2, "the first was told of");
        assert_eq!(receive.try_recv(), Ok(0));
        inbox.put(0);
        assert_eq!((receive.len(), dropped(&inbox)), (BACKLOG, 2));
    }
}
