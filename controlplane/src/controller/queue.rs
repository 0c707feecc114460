//! A keyed work queue: each key at most once, never one key in two hands at a time, delays on tokio's clock.

use crate::metrics::QueueMetrics;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The longest delay: what is asked for may be longer than a clock can tell, and to look earlier does no harm.
const DELAY_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Sets and maps of keys are only looked into: in what order they have them is nobody's matter.
struct State<K> {
    /// With the time they became ready.
    ready: VecDeque<(K, Instant)>,
    /// Keys that wait: those in `ready`, and those added again while they are being worked on.
    dirty: HashSet<K>,
    running: HashSet<K>,
    delayed: BTreeMap<(Instant, u64), K>,
    /// Earliest delayed entry of each key.
    due: HashMap<K, (Instant, u64)>,
    /// Keys that are not to be worked on before then.
    held: HashMap<K, Instant>,
    sequence: u64,
    metrics: QueueMetrics,
}

/// The queue. Bounded by the number of distinct keys.
pub struct Queue<K> {
    state: Mutex<State<K>>,
    wake: Notify,
}

impl<K: Clone + Hash + Eq> Default for Queue<K> {
    fn default() -> Self {
        Self::counted(QueueMetrics::default())
    }
}

impl<K: Clone + Hash + Eq> Queue<K> {
    /// A queue that is counted.
    pub fn counted(metrics: QueueMetrics) -> Self {
        Self {
            state: Mutex::new(State {
                ready: VecDeque::new(),
                dirty: HashSet::new(),
                running: HashSet::new(),
                delayed: BTreeMap::new(),
                due: HashMap::new(),
                held: HashMap::new(),
                sequence: 0,
                metrics,
            }),
            wake: Notify::new(),
        }
    }
}

impl<K: Clone + Hash + Eq> State<K> {
    /// Whether there is something for the consumer to look at.
    fn add(&mut self, key: K) -> bool {
        if let Some(until) = self.held_until(&key) {
            return self.delay(key, until);
        }
        if !self.dirty.insert(key.clone()) {
            return false;
        }
        self.metrics.adds.inc();
        if self.running.contains(&key) {
            return false;
        }
        self.make_ready(key);
        true
    }

    /// Until when the key is held back; it is held no longer when that is over.
    fn held_until(&mut self, key: &K) -> Option<Instant> {
        let until = *self.held.get(key)?;
        if until > Instant::now() {
            return Some(until);
        }
        self.held.remove(key);
        None
    }

    /// The earliest of several delays wins; whether this one does.
    fn delay(&mut self, key: K, at: Instant) -> bool {
        if let Some(&due) = self.due.get(&key) {
            if due.0 <= at {
                return false;
            }
            self.delayed.remove(&due);
        }
        self.sequence += 1;
        let due = (at, self.sequence);
        self.delayed.insert(due, key.clone());
        self.due.insert(key, due);
        true
    }

    fn make_ready(&mut self, key: K) {
        self.ready.push_back((key, Instant::now()));
        self.metrics.depth.inc();
    }

    fn promote(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let key = entry.remove();
            self.due.remove(&key);
            self.add(key);
        }
    }
}

impl<K: Clone + Hash + Eq> Queue<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Adds the key, unless it waits already.
    pub fn add(&self, key: K) {
        if self.lock().add(key) {
            self.wake.notify_one();
        }
    }

    /// Adds the key after a delay, at most a year; the earliest of several delays wins.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let at = Instant::now() + delay.min(DELAY_MAX);
        if self.lock().delay(key, at) {
            self.wake.notify_one();
        }
    }

    /// Holds back a key that is being worked on: however it is added, it is worked on after that time, and then it is.
    pub fn hold(&self, key: &K, delay: Duration) {
        let until = Instant::now() + delay.min(DELAY_MAX);
        let mut state = self.lock();
        state.held.insert(key.clone(), until);
        state.dirty.remove(key);
        state.delay(key.clone(), until);
        drop(state);
        self.wake.notify_one();
    }

    /// The next key to work on. Call [`Queue::done`] afterwards. For one consumer; cancel safe.
    pub async fn next(&self) -> K {
        loop {
            let deadline = {
                let mut state = self.lock();
                state.promote(Instant::now());
                if let Some((key, since)) = state.ready.pop_front() {
                    state.metrics.depth.dec();
                    state.metrics.wait.observe(since.elapsed().as_secs_f64());
                    state.dirty.remove(&key);
                    state.running.insert(key.clone());
                    return key;
                }
                state.delayed.keys().next().map(|(at, _)| *at)
            };
            match deadline {
                None => self.wake.notified().await,
                Some(at) => tokio::select! {
                    biased;
                    () = self.wake.notified() => {}
                    () = sleep_until(at) => {}
                },
            }
        }
    }

    /// Says that the work on the key has ended; a key added meanwhile becomes ready.
    pub fn done(&self, key: &K) {
        let mut state = self.lock();
        state.running.remove(key);
        if state.dirty.contains(key) {
            state.make_ready(key.clone());
            drop(state);
            self.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::time::timeout;

    async fn next(queue: &Queue<u32>) -> Option<u32> {
        timeout(Duration::from_millis(1), queue.next()).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_merged_and_never_run_twice_at_once() {
        let queue = Queue::default();
        queue.add(1);
        queue.add(1);
        queue.add(2);
        assert_eq!(
            (next(&queue).await, next(&queue).await, next(&queue).await),
            (Some(1), Some(2), None)
        );
        queue.add(1);
        assert_eq!(next(&queue).await, None, "it is still being worked on");
        queue.done(&1);
        assert_eq!(next(&queue).await, Some(1));
        queue.done(&1);
        queue.done(&2);
        assert_eq!(next(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_delay_wins() {
        let queue = Arc::new(Queue::default());
        let start = Instant::now();
        queue.add_after(1, Duration::from_secs(60));
        queue.add_after(1, Duration::from_secs(5));
        queue.add_after(1, Duration::from_secs(30));
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.next().await }
        });
        assert_eq!(waiting.await.unwrap(), 1);
        assert_eq!(start.elapsed(), Duration::from_secs(5));
        queue.done(&1);
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(next(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_held_waits_however_it_is_added() {
        let queue = Queue::default();
        queue.add(1);
        assert_eq!(next(&queue).await, Some(1));
        queue.add(1);
        queue.hold(&1, Duration::from_secs(10));
        queue.add(1);
        queue.add_after(1, Duration::from_secs(1));
        queue.done(&1);
        queue.add(1);
        queue.add(2);
        assert_eq!((next(&queue).await, next(&queue).await), (Some(2), None));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(next(&queue).await, None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((next(&queue).await, next(&queue).await), (Some(1), None));
        queue.add(1);
        queue.done(&1);
        assert_eq!((next(&queue).await, next(&queue).await), (Some(1), None));
        assert!(queue.lock().held.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_delay_beyond_all_time_is_one() {
        let queue = Queue::default();
        queue.add_after(1, Duration::MAX);
        queue.add_after(2, Duration::from_secs(i64::MAX.unsigned_abs()));
        assert_eq!(next(&queue).await, None);
        tokio::time::advance(DELAY_MAX).await;
        assert_eq!((next(&queue).await, next(&queue).await), (Some(1), Some(2)));
    }
}
