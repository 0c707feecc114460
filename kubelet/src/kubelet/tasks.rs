//! The tasks of a kubelet. None of them may die unnoticed: a node whose guard is gone looks healthy until it is full.
//!
//! Owns which task is which. A task that ends by itself has nothing to do here; one that panics ends the kubelet, which is started anew.

use futures::FutureExt;
use std::collections::BTreeMap;
use tokio::task::{Id, JoinSet};

/// Tasks by their names; they end with it.
#[derive(Default)]
pub(super) struct Tasks {
    set: JoinSet<()>,
    names: BTreeMap<Id, &'static str>,
}

impl Tasks {
    /// Begins one.
    pub(super) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        // Boxed, so that what carries a task is there once.
        let id = self.set.spawn(task.boxed()).id();
        self.names.insert(id, name);
    }

    /// Waits for one to panic, and tells its name. Cancel safe.
    pub(super) async fn panicked(&mut self) -> &'static str {
        while let Some(ended) = self.set.join_next_with_id().await {
            let (id, has_panicked) = match ended {
                Ok((id, ())) => (id, false),
                Err(error) => (error.id(), error.is_panic()),
            };
            let name = self.names.remove(&id).unwrap_or_default();
            if has_panicked {
                return name;
            }
        }
        std::future::pending().await
    }

    /// Waits until all have ended, however they do.
    pub(super) async fn ended(&mut self) {
        while self.set.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn a_panic_is_told_by_name_and_an_end_is_none() {
        let mut tasks = Tasks::default();
        let (go, gone) = oneshot::channel::<()>();
        tasks.spawn("off", async {});
        tasks.spawn("guard", async {
            drop(gone.await);
            panic!("as a test");
        });
        while tasks.set.len() > 1 {
            assert_eq!(tasks.panicked().now_or_never(), None, "one that has nothing to do");
            tokio::task::yield_now().await;
        }
        drop(go);
        assert_eq!(tasks.panicked().await, "guard");
        tasks.ended().await;
        assert_eq!(tasks.panicked().now_or_never(), None, "there is none left");
    }
}
