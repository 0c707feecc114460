//! Keeps what is registered as the sockets are: one task that looks when something changed, and one more for each socket that is
//! being registered. While nothing is pending it only waits for the kernel.

use super::plan::{Record, State, plan, wait};
use super::sockets::{Identity, Watcher};
use super::{CSI, Handler, Plugin, client};
use crate::metrics::PluginMetrics;
use futures::FutureExt;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The wait before the directory is tried again that cannot be listed.
const UNLISTED: Duration = Duration::from_secs(10);
/// Sockets that are being registered at a time: one that hangs holds a place for seconds.
const AT_ONCE: usize = 16;

/// Who works with plugins, by their type.
pub type Handlers = BTreeMap<&'static str, Arc<dyn Handler>>;

/// What came of a registration.
struct Outcome {
    /// What was registered, with its type, whatever the plugin heard of it.
    registered: Option<(String, Plugin)>,
    error: Option<String>,
}

/// Owns which plugins of a node are registered.
pub struct Registry {
    root: PathBuf,
    handlers: Arc<Handlers>,
    begun: Instant,
    found: BTreeMap<PathBuf, Identity>,
    records: BTreeMap<PathBuf, Record>,
    plugins: BTreeMap<PathBuf, (String, Plugin)>,
    tasks: JoinSet<(PathBuf, Outcome)>,
    told_cut: bool,
    metrics: PluginMetrics,
}

impl Registry {
    /// A registry of the sockets below a directory.
    pub fn new(root: PathBuf, handlers: Handlers, metrics: PluginMetrics) -> Self {
        Self {
            root,
            handlers: Arc::new(handlers),
            begun: Instant::now(),
            found: BTreeMap::new(),
            records: BTreeMap::new(),
            plugins: BTreeMap::new(),
            tasks: JoinSet::new(),
            told_cut: false,
            metrics,
        }
    }

    /// Runs until shut down; what is registered stays so.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut watcher = Watcher::new(self.root.clone());
        let mut look = true;
        loop {
            let mut blind = None;
            if look {
                match watcher.look().await {
                    Ok(found) => {
                        if found.cut && !std::mem::replace(&mut self.told_cut, true) {
                            tracing::error!(path = %self.root.display(), "there are more plugins than are looked at");
                        }
                        self.found = found.sockets;
                    }
                    Err(error) => {
                        tracing::error!(path = %self.root.display(), %error, "plugins cannot be listed");
                        blind = Some(self.begun.elapsed() + UNLISTED);
                    }
                }
            }
            let wake_at = self.turn().into_iter().chain(blind).min();
            let registered = self.plugins.keys().map(PathBuf::as_path);
            self.metrics.are(self.found.keys().map(PathBuf::as_path), registered);
            look = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    match ended {
                        Ok((path, outcome)) => self.take(path, outcome),
                        // Nothing of the registry's may die unnoticed: the kubelet ends with it, and is started anew.
                        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                        Err(_) => {}
                    }
                    false
                }
                () = watcher.changed(wake_at.map(|at| self.begun + at)) => true,
            };
        }
    }

    /// Does what is to be done now; tells when to come again.
    fn turn(&mut self) -> Option<Duration> {
        let plan = plan(&self.found, &self.records, self.begun.elapsed());
        for path in plan.deregister {
            self.records.remove(&path);
            self.deregister(&path);
        }
        for path in plan.register {
            if self.tasks.len() >= AT_ONCE {
                // The next that ends makes room.
                break;
            }
            let Some(identity) = self.found.get(&path) else {
                continue;
            };
            let record = self.records.entry(path.clone()).or_insert(Record {
                identity: *identity,
                state: State::Registering,
                failures: 0,
            });
            record.state = State::Registering;
            let task = register(path.clone(), self.handlers.clone());
            self.tasks.spawn(async move { (path, task.await) }.boxed());
        }
        plan.wake_at
    }

    fn deregister(&mut self, path: &PathBuf) {
        if let Some((kind, plugin)) = self.plugins.remove(path) {
            tracing::info!(kind, name = plugin.name, socket = %path.display(), "a plugin is gone");
            if let Some(handler) = self.handlers.get(kind.as_str()) {
                handler.deregister(&plugin);
            }
        }
    }

    fn take(&mut self, path: PathBuf, outcome: Outcome) {
        let Some(record) = self.records.get_mut(&path) else {
            return;
        };
        if let Some(error) = &outcome.error {
            tracing::warn!(socket = %path.display(), error, "a plugin's registration");
        }
        match outcome.registered {
            Some((kind, plugin)) => {
                tracing::info!(kind, name = plugin.name, socket = %path.display(), "a plugin is registered");
                record.state = State::Registered;
                record.failures = 0;
                self.plugins.insert(path, (kind, plugin));
            }
            None => {
                record.failures = record.failures.saturating_add(1);
                let again = self.begun.elapsed() + wait(record.failures);
                record.state = State::Failed { again };
            }
        }
    }
}

/// Registers the plugin at a socket, and tells it.
async fn register(socket: PathBuf, handlers: Arc<Handlers>) -> Outcome {
    let failed = |error| Outcome {
        registered: None,
        error: Some(error),
    };
    let place = socket.display().to_string();
    let registrant = match client::ask(socket).await {
        Ok(registrant) => registrant,
        Err(error) => return failed(error),
    };
    let taken = match handlers.get(registrant.kind.as_str()) {
        Some(handler) => handler
            .register(&registrant.plugin)
            .await
            .map_err(|refusal| refusal.to_string()),
        None => Err(no_handler(&registrant.kind, &place)),
    };
    let told = registrant.tell(taken.as_ref().err().map(String::as_str)).await;
    if let Err(error) = taken {
        let unheard = told.err().map(|why| format!(" (the plugin was not told: {why})"));
        return failed(format!("{error}{}", unheard.unwrap_or_default()));
    }
    Outcome {
        registered: Some((registrant.kind, registrant.plugin)),
        error: told.err().map(|why| {
            format!("RegisterPlugin error -- failed to send registration status at socket {place}, err: {why}")
        }),
    }
}

fn no_handler(kind: &str, place: &str) -> String {
    let why = match kind {
        CSI => " (this kubelet does not mount volumes of CSI drivers yet)",
        _ => "",
    };
    format!("RegisterPlugin error -- no handler registered for plugin type: {kind} at socket {place}{why}")
}
