//! A local copy of the objects one selector picks, kept by one watch for as long as the value lives.

use super::ObjectError;
use futures::StreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

const BACKOFF_FIRST: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// What to watch.
pub(super) struct Scope(watcher::Config);

impl Scope {
    pub(super) fn fields(selector: &str) -> Self {
        Self(watcher::Config::default().fields(selector))
    }
}

/// Objects by `namespace/name`.
pub(super) type Contents<K> = Arc<BTreeMap<String, Arc<K>>>;

#[derive(Clone)]
struct State<K> {
    /// `None` until the first list was answered.
    contents: Option<Contents<K>>,
    /// The last failure since the last success.
    error: Option<String>,
}

/// The copy; dropping it ends the watch.
pub(super) struct Mirror<K> {
    state: watch::Receiver<State<K>>,
    task: JoinHandle<()>,
}

impl<K> Drop for Mirror<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<K> Mirror<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    pub(super) fn start(api: Api<K>, scope: Scope, changed: Arc<Notify>) -> Self {
        let (sender, state) = watch::channel(State {
            contents: None,
            error: None,
        });
        let task = tokio::spawn(follow(api, scope.0, sender, changed));
        Self { state, task }
    }

    /// The objects, once they were listed for the first time.
    pub(super) async fn all(&self, what: &'static str, patience: Duration) -> Result<Contents<K>, ObjectError> {
        let mut state = self.state.clone();
        let answered = async {
            match state.wait_for(|s| s.contents.is_some() || s.error.is_some()).await {
                Ok(state) => match (&state.contents, &state.error) {
                    (Some(contents), _) => Ok(contents.clone()),
                    (None, Some(error)) => Err(error.clone()),
                    (None, None) => Err("no answer".to_owned()),
                },
                Err(_) => Err("the watch has ended".to_owned()),
            }
        };
        match tokio::time::timeout(patience, answered).await {
            Ok(Ok(contents)) => Ok(contents),
            Ok(Err(why)) => Err(ObjectError::Unanswered { what, why }),
            Err(_) => Err(ObjectError::Unanswered {
                what,
                why: "timed out waiting for the condition".to_owned(),
            }),
        }
    }
}

fn key<K: Resource>(object: &K) -> String {
    let meta = object.meta();
    format!(
        "{}/{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    )
}

async fn follow<K>(api: Api<K>, config: watcher::Config, state: watch::Sender<State<K>>, changed: Arc<Notify>)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let mut events = std::pin::pin!(watcher::watcher(api, config));
    let mut contents: BTreeMap<String, Arc<K>> = BTreeMap::new();
    let mut backoff = BACKOFF_FIRST;
    while let Some(event) = events.next().await {
        let publish = match event {
            Ok(Event::Init) => {
                contents.clear();
                false
            }
            Ok(Event::InitApply(object)) => {
                contents.insert(key(&object), Arc::new(object));
                false
            }
            Ok(Event::Apply(object)) => {
                contents.insert(key(&object), Arc::new(object));
                true
            }
            Ok(Event::Delete(object)) => {
                contents.remove(&key(&object));
                true
            }
            Ok(Event::InitDone) => true,
            Err(error) => {
                tracing::debug!(%error, "object watch failed, retrying");
                let text = error.to_string();
                state.send_modify(|s| s.error = Some(text));
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
                continue;
            }
        };
        if publish {
            backoff = BACKOFF_FIRST;
            let now = Arc::new(contents.clone());
            state.send_modify(|s| {
                s.contents = Some(now);
                s.error = None;
            });
            changed.notify_waiters();
        }
    }
}
