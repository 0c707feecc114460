//! One answer for everybody who asks at about the same time.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How old an answer may be.
const FRESH: Duration = Duration::from_secs(1);

/// Holds the newest answer. Whoever asks while one is being made waits for it.
#[derive(Debug)]
pub(super) struct Shared<T> {
    newest: Mutex<Option<(Instant, Arc<T>)>>,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self {
            newest: Mutex::new(None),
        }
    }
}

impl<T> Shared<T> {
    /// The newest answer if it is fresh and enough, else a new one.
    pub(super) async fn get(&self, enough: impl Fn(&T) -> bool, make: impl Future<Output = T>) -> Arc<T> {
        let mut newest = self.newest.lock().await;
        if let Some((made, answer)) = &*newest
            && made.elapsed() < FRESH
            && enough(answer)
        {
            return answer.clone();
        }
        let answer = Arc::new(make.await);
        *newest = Some((Instant::now(), answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test(start_paused = true)]
    async fn who_asks_together_shares_one_answer_and_who_asks_for_more_does_not() {
        let (shared, made) = (Shared::default(), AtomicU32::new(0));
        let ask = |least: u32| {
            let make = async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                made.fetch_add(1, Ordering::Relaxed) + 1
            };
            shared.get(move |answer| *answer >= least, make)
        };
        let (first, second) = futures::future::join(ask(0), ask(0)).await;
        assert_eq!((*first, *second), (1, 1));
        assert_eq!(*ask(2).await, 2, "what is there is not enough");
        assert_eq!(*ask(0).await, 2);
        tokio::time::advance(FRESH).await;
        assert_eq!(*ask(0).await, 3, "what is there is too old");
    }
}
