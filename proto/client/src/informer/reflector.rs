//! Following a resource without a copy of it: for who keeps something else of each object.
//!
//! Owns what is asked of the server and how far that has come. Never keeps an object: what is told is told once, in the server's order.

use super::follow::follow;
use super::sink::{Event, Sink};
use super::{Object, Options, Progress, source_of, text};
use kube::api::Api;
use kube::core::{ObjectList, WatchEvent};
use std::marker::PhantomData;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The objects of a list, one after the other: none of them is held while the next one is read.
pub type Listed<'a, K> = &'a mut dyn Iterator<Item = Result<K, serde_json::Error>>;

/// What hears of objects. Called by one task, which waits for it.
pub trait Listener<K>: Send + Sync + 'static {
    /// There are these objects, and no others any more.
    ///
    /// # Errors
    /// The first one among `objects`: what came before it is there all the same, but what did not come may be there, too. They are told
    /// again then.
    fn all(&self, objects: Listed<'_, K>) -> Result<(), serde_json::Error>;
    /// There is this object now: another one than before, or a later state of it.
    fn there(&self, object: K);
    /// This object is gone; what it was at last.
    fn gone(&self, object: K);
}

/// A resource that is followed, until this is dropped.
pub struct Reflector {
    progress: Arc<watch::Sender<Progress>>,
    task: JoinHandle<()>,
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reflector {
    /// Starts to follow what `api` lists. Must be called inside a tokio runtime.
    pub fn spawn<K: Object>(api: Api<K>, options: Options, listener: impl Listener<K>) -> Self {
        let progress = Arc::new(watch::Sender::new(Progress::default()));
        let sink = Arc::new(Passing {
            progress: progress.clone(),
            listener,
            kind: PhantomData,
        });
        let task = tokio::spawn(follow(source_of(api, options), sink));
        Self { progress, task }
    }

    /// Waits until the first list has been told, or nobody follows any more.
    pub fn synced(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut progress = self.progress.subscribe();
        async move {
            // It fails when nobody follows any more.
            let _ = progress.wait_for(|p| p.listed > 0).await;
        }
    }

    /// Ends it: nothing is told afterwards.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

struct Passing<K, L> {
    progress: Arc<watch::Sender<Progress>>,
    listener: L,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object, L: Listener<K>> Sink for Passing<K, L> {
    fn progress(&self) -> &watch::Sender<Progress> {
        &self.progress
    }

    fn replace(&self, list: &str) -> Result<String, serde_json::Error> {
        let Some((revision, objects)) = text::parts(list) else {
            let list: ObjectList<K> = serde_json::from_str(list)?;
            self.listener.all(&mut list.items.into_iter().map(Ok))?;
            return Ok(list.metadata.resource_version.unwrap_or_default());
        };
        let read = |object: &str| serde_json::from_str(&text::without_owners(object));
        self.listener.all(&mut objects.into_iter().map(read))?;
        Ok(revision)
    }

    fn event(&self, text: &str) -> Result<Event, serde_json::Error> {
        let seen = |object: &K| Event::Seen(object.meta().resource_version.clone());
        Ok(match serde_json::from_str::<WatchEvent<K>>(text)? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let seen = seen(&object);
                self.listener.there(object);
                seen
            }
            WatchEvent::Deleted(object) => {
                let seen = seen(&object);
                self.listener.gone(object);
                seen
            }
            WatchEvent::Bookmark(bookmark) => Event::Seen(Some(bookmark.metadata.resource_version)),
            WatchEvent::Error(status) => Event::Error(status),
        })
    }
}
