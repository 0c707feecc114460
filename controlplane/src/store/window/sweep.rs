//! Letting go of what the window has outlived, and of what its objects have in common, a little at a time: whoever applies the next
//! changes waits for one step of it, however much there is.
//!
//! Owns when a sweep begins, how far it is, and which revisions can still be read. Never makes anything visible.

use super::{ResourceWindow, Shared};
use crate::store::{Revision, Store};
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long every revision stays readable (upstream compacts every 5 minutes).
pub(super) const KEEP: Duration = Duration::from_secs(300);
/// How often the window looks for what it has outlived.
const SWEEP: Duration = Duration::from_secs(30);
/// How many changes are forgotten in a step, under the lock of their resource: well below a millisecond.
pub(super) const STEP: usize = 1024;
/// How many objects that were read are compared with samples in a step, under that lock: about a millisecond.
const SAMPLED: usize = 256;

/// See the module.
pub(super) struct Sweep {
    due: Instant,
    marks: VecDeque<(Instant, Revision)>,
    under_way: Option<UnderWay>,
}

/// One sweep.
struct UnderWay {
    began: Instant,
    left: Vec<Arc<ResourceWindow>>,
    outlived: Option<Revision>,
}

impl Sweep {
    /// Of a window that begins now, at a revision.
    pub(super) fn begin(start: Revision) -> Self {
        let now = Instant::now();
        Self {
            due: now,
            marks: VecDeque::from([(now, start)]),
            under_way: None,
        }
    }

    /// Until there is something to do; what is left of a sweep is done when others have had their turn.
    pub(super) async fn is_due(&self) {
        match self.under_way {
            Some(_) => tokio::task::yield_now().await,
            None => tokio::time::sleep_until(self.due).await,
        }
    }

    /// Takes one step, if there is one to take.
    pub(super) async fn step(&mut self, store: &dyn Store, shared: &Shared) {
        let now = Instant::now();
        if self.under_way.is_none() {
            if now < self.due {
                return;
            }
            self.under_way = Some(self.start(shared, now));
            self.due = now + SWEEP;
        }
        let Some(under_way) = &mut self.under_way else { return };
        if let Some(resource) = under_way.left.last() {
            if !resource.change(|history| history.sample(SAMPLED)) {
                return;
            }
            let limit = under_way.began.checked_sub(KEEP);
            // Dropped here, with no lock held.
            let forgotten = resource.change(|history| history.forget_before(limit, STEP));
            if forgotten.is_all() {
                under_way.left.pop();
            }
            return;
        }
        let outlived = under_way.outlived;
        self.under_way = None;
        end(store, shared, outlived).await;
    }

    fn start(&mut self, shared: &Shared, now: Instant) -> UnderWay {
        let applied = *shared.applied.borrow();
        self.marks.push_back((now, applied));
        let mut outlived = None;
        while let Some(&(at, revision)) = self.marks.front() {
            if now.duration_since(at) < KEEP {
                break;
            }
            outlived = Some(revision);
            self.marks.pop_front();
        }
        let resources = shared.resources.read().unwrap_or_else(PoisonError::into_inner);
        UnderWay {
            began: now,
            left: resources.by_prefix.values().map(Arc::clone).collect(),
            outlived,
        }
    }
}

async fn end(store: &dyn Store, shared: &Shared, outlived: Option<Revision>) {
    // The window keeps its own history, so the store's log is only the way here.
    let applied = *shared.applied.borrow();
    if let Err(error) = store.has_read(applied).await {
        tracing::warn!(%error, "the store cannot be compacted");
    }
    if let Some(revision) = outlived {
        let mut resources = shared.resources.write().unwrap_or_else(PoisonError::into_inner);
        // Taken apart once nobody waits for the lock.
        let forgotten = std::mem::take(&mut resources.past);
        drop(resources);
        drop(forgotten);
        shared.oldest.send_replace(revision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::Memory;
    use crate::store::window::Window;
    use crate::store::{Expect, StoreError};
    use bytes::Bytes;

    #[tokio::test(start_paused = true)]
    async fn what_was_read_at_the_start_is_compared_with_samples_afterwards() {
        const COUNT: usize = 3 * SAMPLED;
        let store = Arc::new(Memory::new());
        let object =
            |number: usize| Bytes::from(format!("{{\"data\":\"{}\",\"name\":{number}}}", "abcdefgh".repeat(50)));
        for number in 0..COUNT {
            let key = format!("/registry/pods/{number:04}");
            store.put(&key, object(number), Expect::Absent).await.unwrap();
        }
        let window = Window::open(store.clone()).await.unwrap();
        let pods = window.resource("/registry/pods/");
        let kept = || -> Vec<usize> {
            pods.cached()
                .objects
                .values()
                .map(|stored| stored.kept_size())
                .collect()
        };
        assert!(kept().iter().all(|kept| *kept > 400), "nobody waits for it");
        tokio::time::advance(SWEEP).await;
        while kept().iter().filter(|kept| **kept > 400).count() > 1 {
            tokio::task::yield_now().await;
        }
        for (number, stored) in pods.cached().objects.values().enumerate() {
            assert_eq!(stored.raw(), object(number));
        }
    }

    /// As many changes of one key.
    async fn write(store: &Memory, window: &Window, count: usize) -> Result<(), StoreError> {
        let mut at = store.put("/registry/pods/a", Bytes::new(), Expect::Absent).await?;
        for _ in 1..count {
            at = store.put("/registry/pods/a", Bytes::new(), Expect::At(at)).await?;
        }
        window.resource("/registry/pods/").latest().await.map(drop)
    }

    #[tokio::test(start_paused = true)]
    async fn changes_become_visible_in_the_middle_of_a_sweep() {
        const STEPS: usize = 10;
        let store = Arc::new(Memory::new());
        let window = Window::open(store.clone()).await.unwrap();
        let pods = window.resource("/registry/pods/");
        write(&store, &window, STEPS * STEP).await.unwrap();
        let all = window.history_bytes();
        tokio::time::advance(KEEP + SWEEP).await;
        let (mut held, mut forgotten, mut is_written) = (all, Vec::new(), false);
        // What is left is of the change in between.
        while held > all / 100 {
            tokio::task::yield_now().await;
            if !is_written && forgotten.len() == 2 {
                store
                    .put("/registry/pods/b", Bytes::new(), Expect::Absent)
                    .await
                    .unwrap();
                assert_eq!(pods.latest().await.unwrap().objects.len(), 2);
                assert!(window.history_bytes() > all / 2, "it waited for all of it");
                is_written = true;
            }
            let now = window.history_bytes();
            if now < held {
                forgotten.push(held - now);
                held = now;
            }
        }
        assert!(is_written && forgotten.len() >= STEPS / 2, "{forgotten:?}");
        let most = *forgotten.iter().max().unwrap();
        assert!(most <= 3 * all / STEPS, "{most} of {all} at once");
    }
}
