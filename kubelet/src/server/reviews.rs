//! Reviews: what the API server is asked about those who ask this kubelet. Strangers cause them, so they are joined, few at a time and
//! no more a second than upstream's client makes; whoever finds too many waiting is told to come again.

use crate::rate::{Bucket, Rate};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The longest time for an answer, what is waited for a turn included.
const DEADLINE: Duration = Duration::from_secs(10);
/// Questions that are with the API server at a time, and those that wait for it or for their turn.
const AT_ONCE: usize = 8;
const WAITING_MAX: usize = 64;

/// A review the API server did not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    /// It refused or failed.
    #[error("{0}")]
    Call(&'static str, #[source] Box<kube::Error>),
    /// It took too long.
    #[error("{0}: context deadline exceeded")]
    Deadline(&'static str),
    /// There is no API server to ask.
    #[error("no API server to ask")]
    NoServer,
    /// Too many others are to be asked about.
    #[error("{0}: too many are waiting")]
    TooMany(&'static str),
}

/// The way of one kind of question to the API server.
#[derive(Debug)]
pub(super) struct Desk {
    what: &'static str,
    waiting: Semaphore,
    turns: Semaphore,
    rate: Mutex<Bucket>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desk {
    /// For questions of that kind, as fast as upstream's client asks by default (`kubeAPIQPS`, `kubeAPIBurst`).
    pub(super) fn new(what: &'static str) -> Self {
        Self {
            what,
            waiting: Semaphore::new(WAITING_MAX),
            turns: Semaphore::new(AT_ONCE),
            rate: Mutex::new(Bucket::new(Rate::default())),
        }
    }

    /// How many questions there are.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        WAITING_MAX - self.waiting.available_permits()
    }

    /// Asks, in its turn.
    pub(super) async fn ask<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, ReviewError> {
        let _place = self
            .waiting
            .try_acquire()
            .map_err(|_| ReviewError::TooMany(self.what))?;
        let asked = async {
            let _turn = self.turns.acquire().await;
            loop {
                let taken = locked(&self.rate).take(Instant::now());
                match taken {
                    Ok(()) => return call.await,
                    Err(wait) => tokio::time::sleep(wait).await,
                }
            }
        };
        match tokio::time::timeout(DEADLINE, asked).await {
            Err(_) => Err(ReviewError::Deadline(self.what)),
            Ok(Err(source)) => Err(ReviewError::Call(self.what, Box::new(source))),
            Ok(Ok(answer)) => Ok(answer),
        }
    }
}

/// Equal questions, asked once: whoever comes while one is under way gets its answer. A question ends when nobody waits for it.
pub(super) struct Joined<K, T> {
    under_way: Mutex<HashMap<K, WeakShared<BoxFuture<'static, T>>>>,
}

impl<K: Eq + Hash, T: Clone> Joined<K, T> {
    /// None is under way.
    pub(super) fn new() -> Self {
        let under_way = Mutex::default();
        Self { under_way }
    }

    /// The answer to a question; `begin` asks it if nobody has.
    pub(super) async fn ask(&self, key: K, begin: impl FnOnce() -> BoxFuture<'static, T>) -> T {
        let question = self.question(key, begin);
        let answer = question.await;
        self.forget();
        answer
    }

    fn question(&self, key: K, begin: impl FnOnce() -> BoxFuture<'static, T>) -> Shared<BoxFuture<'static, T>> {
        let mut under_way = locked(&self.under_way);
        if let Some(question) = under_way.get(&key).and_then(WeakShared::upgrade) {
            return question;
        }
        let question = begin().shared();
        if let Some(weak) = question.downgrade() {
            under_way.insert(key, weak);
        }
        question
    }

    /// Drops what nobody waits for any more.
    fn forget(&self) {
        locked(&self.under_way).retain(|_, question| question.upgrade().is_some());
    }
}

/// An answer, or why there is none, for all who asked.
pub(super) type Reviewed<T> = Result<T, Arc<ReviewError>>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(start_paused = true)]
    async fn equal_questions_are_asked_once_and_the_next_anew() {
        let joined = Arc::new(Joined::new());
        let asked = Arc::new(AtomicUsize::new(0));
        let ask = |key: &'static str| {
            let (joined, asked) = (joined.clone(), asked.clone());
            async move {
                let begin = || {
                    asked.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_secs(1)).map(|()| "x").boxed()
                };
                joined.ask(key, begin).await
            }
        };
        let answers = futures::future::join_all((0..50).map(|_| ask("a"))).await;
        assert_eq!((answers, asked.load(Ordering::SeqCst)), (vec!["x"; 50], 1));
        assert!(locked(&joined.under_way).is_empty());
        futures::future::join(ask("a"), ask("b")).await;
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        // Who gives up leaves the others their answer.
        let (mut first, second) = (Box::pin(ask("a")), ask("a"));
        assert!(futures::poll!(&mut first).is_pending());
        let second = tokio::spawn(second);
        tokio::task::yield_now().await;
        drop(first);
        assert_eq!(second.await.ok(), Some("x"));
    }

    #[tokio::test(start_paused = true)]
    async fn few_are_asked_at_a_time_and_who_finds_too_many_waiting_is_told_at_once() {
        let desk = Desk::new("TokenReview");
        let (at_a_time, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let call = || async {
            let now = at_a_time.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            at_a_time.fetch_sub(1, Ordering::SeqCst);
            kube::Result::Ok(())
        };
        let answers = futures::future::join_all((0..100).map(|_| desk.ask(call()))).await;
        let refused = answers
            .iter()
            .filter(|a| matches!(a, Err(ReviewError::TooMany("TokenReview"))));
        assert_eq!(
            (refused.count(), most.load(Ordering::SeqCst)),
            (100 - WAITING_MAX, AT_ONCE)
        );
        assert!(desk.ask(call()).await.is_ok(), "there is room again");
        let never = desk.ask(std::future::pending::<kube::Result<()>>()).await;
        assert!(matches!(never, Err(ReviewError::Deadline(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_are_asked_a_second_than_by_upstreams_client() {
        let desk = Desk::new("TokenReview");
        let begun = Instant::now();
        for _ in 0..150 {
            desk.ask(async { kube::Result::Ok(()) }).await.expect("asked");
        }
        // A hundred at once, the others at fifty a second of the test's own time.
        assert_eq!(begun.elapsed().as_secs(), 1);
    }
}
