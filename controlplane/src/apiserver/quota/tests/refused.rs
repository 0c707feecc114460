//! What the store refuses after it was charged.

use super::*;
use crate::store::{Expect, Revision, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Semaphore;

/// A memory store that is contrary about what is made under a prefix.
struct Contrary {
    memory: Memory,
    prefix: &'static str,
    /// What the next writes are answered, each with a permit of `pass`.
    answers: Mutex<VecDeque<StoreError>>,
    pass: Semaphore,
    /// Writes that have come to be answered so.
    asked: AtomicUsize,
    /// Whether it has no space: for nobody, once it has said so.
    is_full: AtomicBool,
}

impl Contrary {
    fn about(prefix: &'static str, answers: impl IntoIterator<Item = StoreError>) -> Arc<Self> {
        Arc::new(Self {
            memory: Memory::new(),
            prefix,
            answers: Mutex::new(answers.into_iter().collect()),
            pass: Semaphore::new(0),
            asked: AtomicUsize::new(0),
            is_full: AtomicBool::new(false),
        })
    }

    fn answer(&self, key: &str) -> Option<StoreError> {
        let mut answers = self.answers.lock().unwrap();
        key.starts_with(self.prefix).then(|| answers.pop_front()).flatten()
    }
}

fn full() -> StoreError {
    StoreError::Full {
        directory: "/data".into(),
        free_mib: 1,
        reserve_mib: 16,
    }
}

#[async_trait]
impl crate::store::around::Around for Contrary {
    fn inner(&self) -> &dyn Store {
        &self.memory
    }

    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err(full());
        }
        let Some(answer) = self.answer(key) else {
            return self.memory.put(key, value, expect).await;
        };
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.pass.acquire().await.unwrap().forget();
        let is_full = matches!(answer, StoreError::Full { .. });
        self.is_full.store(is_full, Ordering::SeqCst);
        Err(answer)
    }

    async fn put_if(
        &self,
        key: &str,
        value: Bytes,
        expect: Expect,
        _unchanged: &[(String, Revision)],
    ) -> Result<Revision, StoreError> {
        Store::put(self, key, value, expect).await
    }

    async fn put_for_deletion(&self, key: &str, value: Bytes, expect: Revision) -> Result<Revision, StoreError> {
        self.memory.put(key, value, Expect::At(expect)).await
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_for_certain_is_given_back_and_what_may_be_stored_is_not() {
    let unsure = StoreError::Unusable("nobody knows".into());
    for (answer, charged) in [(full(), "0"), (unsure, "1")] {
        let store = Contrary::about("/registry/configmaps/a/", [answer]);
        store.pass.add_permits(1);
        let world = World::in_namespace(store).await;
        world.quota("q", json!({"configmaps": "3"})).await;
        let refused = world.map("m").await;
        assert_eq!(refused.0, 500, "{refused:?}");
        assert_eq!(world.used("q").await["configmaps"], charged, "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_name_that_is_refused_gives_back_what_the_first_was_charged() {
    let taken = StoreError::Conflict {
        key: String::new(),
        current: None,
    };
    let store = Contrary::about("/registry/pods/a/", [taken]);
    let world = World::in_namespace(Arc::clone(&store) as Arc<dyn Store>).await;
    world.quota("q", json!({"pods": "3"})).await;
    let resources = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "2"}});
    let pod = json!({"metadata": {"generateName": "p-"}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": resources}]}});
    let path = format!("{SPACE}/pods");
    let mut making = pin!(world.send("POST", &path, &pod));
    while store.asked.load(Ordering::SeqCst) == 0 {
        assert!(futures::poll!(making.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    assert_eq!(world.used("q").await["pods"], "1");
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}});
    let made = world.send("POST", &format!("{SPACE}/limitranges"), &range).await;
    assert_eq!(made.0, 201, "{made:?}");
    store.pass.add_permits(1);
    let refused = making.await;
    assert!(
        why(&refused).contains("maximum cpu usage per Container is 1, but limit is 2"),
        "{refused:?}"
    );
    assert_eq!(world.used("q").await["pods"], "0");
}
