//! Encryption at rest: the file is read before the store is, its changes are taken up, and plugins are looked at.
//!
//! Owns the moment at which a configuration begins to hold. What it means is the crate `encryption`'s.

use super::DaemonError;
use crate::apiserver::unstored::health::Health;
use crate::config::{Config, EncryptionFile, StoreKind};
use crate::metrics::Part;
use crate::pki::PkiError;
use crate::pki::reload::WatchedFiles;
use crate::resource::stored::resource_of;
use crate::store::Store;
use encryption::metrics::Metrics;
use encryption::{Encrypted, Encryption, LOOK_AGAIN, LOOK_EVERY, Transformers, config};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const FLAG: &str = "encryption-provider-config";
/// How often plugins that are not well are asked at the start, and before a new configuration begins to hold.
const ATTEMPTS: u32 = 30;
/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// What has to be looked after as long as the store is used.
pub(super) struct Kept {
    encryption: Encryption,
    followed: Option<(EncryptionFile, WatchedFiles)>,
    metrics: Arc<Metrics>,
}

/// The store as the configuration has it. There is something around it in any case: what was encrypted once and is not to be any
/// more is named, and not taken for damage. `server` is the API server's name, as what is counted has it.
///
/// # Errors
/// Names the file and the field.
pub(super) async fn around(
    config: &Config,
    server: &str,
    store: Arc<dyn Store>,
) -> Result<(Arc<dyn Store>, Kept), DaemonError> {
    let mut followed = None;
    let mut transformers = Transformers::default();
    let metrics = Arc::new(Metrics::of(server));
    if let Some(file) = &config.encryption {
        // Looked at before it is read: no change falls in between.
        let watched = WatchedFiles::new(vec![file.path.clone()]);
        transformers = read(&file.path, &metrics).map_err(|why| DaemonError::File {
            flag: FLAG,
            path: file.path.clone(),
            why,
        })?;
        followed = file.reloads.then(|| (file.clone(), watched));
        if let Err(why) = well(&transformers).await {
            // Reading the store says whether that matters already.
            tracing::error!(why, "a key management plugin is not well");
        }
    }
    let mut encryption = Encryption::new(transformers, Arc::new(resource_of()));
    if let StoreKind::Etcd(options) = &config.store {
        let prefix = options.prefix.clone();
        encryption = encryption.at(Arc::new(move |key| etcd::place(&prefix, key)));
    }
    let store = Arc::new(Encrypted::new(store, encryption.clone()));
    let kept = Kept {
        encryption,
        followed,
        metrics,
    };
    Ok((store, kept))
}

fn read(path: &Path, metrics: &Arc<Metrics>) -> Result<Transformers, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    Ok(Transformers::new(&config::parse(&text)?, metrics))
}

/// Asks the plugins until all are well, for a while.
async fn well(transformers: &Transformers) -> Result<(), String> {
    let mut found = transformers.look().await;
    for _ in 1..ATTEMPTS {
        if found.is_ok() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        found = transformers.look().await;
    }
    found
}

impl Kept {
    /// What is counted of it, also of configurations to come.
    pub(super) fn metrics(&self) -> Part {
        let metrics = Arc::clone(&self.metrics);
        Box::new(move |registry| metrics.register(registry))
    }

    /// Looks after it until shutdown.
    pub(super) fn spawn(self, tasks: &mut JoinSet<()>, health: &Health, shutdown: &CancellationToken) {
        let (newest, changed) = watch::channel(None);
        if let Some((file, watched)) = self.followed {
            let (path, metrics) = (file.path, Arc::clone(&self.metrics));
            let read = move || {
                let wrong = |why| {
                    metrics.reloaded(false);
                    let path = path.clone();
                    PkiError::Content { path, why }
                };
                read(&path, &metrics).map(Arc::new).map_err(wrong)
            };
            let take = move |new| drop(newest.send_replace(Some(new)));
            tasks.spawn(watched.follow(read, take, shutdown.clone()));
            tasks.spawn(keep(
                (self.encryption, self.metrics),
                changed,
                health.clone(),
                shutdown.clone(),
            ));
        } else if self.encryption.transformers().has_plugins() {
            let keeping = keep(
                (self.encryption, self.metrics),
                changed,
                health.clone(),
                shutdown.clone(),
            );
            tasks.spawn(async move {
                keeping.await;
                drop(newest);
            });
        }
    }
}

/// Makes changed configurations hold once their plugins are well, and looks at plugins from time to time.
async fn keep(
    (encryption, metrics): (Encryption, Arc<Metrics>),
    mut changed: watch::Receiver<Option<Arc<Transformers>>>,
    health: Health,
    shutdown: CancellationToken,
) {
    let mut pause = Duration::ZERO;
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            news = changed.changed() => {
                if news.is_err() {
                    return;
                }
                let new = changed.borrow_and_update().clone();
                if let Some(new) = new {
                    metrics.reloaded(adopt(&encryption, new).await);
                }
                pause = Duration::ZERO;
            }
            () = tokio::time::sleep(pause) => {
                let transformers = encryption.transformers();
                let found = transformers.look().await;
                health.set_plugins(transformers.has_plugins().then_some(found.is_ok()));
                pause = if found.is_ok() { LOOK_EVERY } else { LOOK_AGAIN };
                if let Err(why) = found {
                    tracing::warn!(why, "a key management plugin is not well");
                }
            }
        }
    }
}

/// Makes a changed configuration hold if its plugins are well; tells whether it does.
async fn adopt(encryption: &Encryption, new: Arc<Transformers>) -> bool {
    let found = well(&new).await;
    match &found {
        Ok(()) => {
            encryption.replace(new);
            tracing::info!("the changed encryption configuration holds");
        }
        Err(why) => tracing::error!(
            why,
            "the changed encryption configuration is left aside: a plugin of its is not well"
        ),
    }
    found.is_ok()
}
