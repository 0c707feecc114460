//! Turns on a thread: what is long and waits for nothing lets others of the same runtime run now and then.

use std::time::Duration;
use tokio::time::Instant;

/// How long the thread is kept from others, unless one thing takes longer by itself.
pub(crate) const TURN: Duration = Duration::from_millis(1);

/// Does this with each, one after the other, and others on the same thread have theirs whenever `turn` is over.
pub(crate) async fn each<T>(all: impl IntoIterator<Item = T>, turn: Duration, mut act: impl FnMut(T)) {
    let mut began = Instant::now();
    for one in all {
        act(one);
        if began.elapsed() >= turn {
            tokio::task::yield_now().await;
            began = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    #[tokio::test(start_paused = true)]
    async fn others_on_the_thread_have_their_turn_in_between() {
        for (turn, at_once) in [(Duration::ZERO, vec![1]), (TURN, vec![1, 2, 3])] {
            let mut done = Vec::new();
            let is_over = {
                let mut all = pin!(each([1, 2, 3], turn, |one| done.push(one)));
                futures::poll!(all.as_mut()).is_ready()
            };
            assert_eq!((is_over, done), (at_once.len() == 3, at_once), "{turn:?}");
        }
    }
}
