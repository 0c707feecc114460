//! Dynamic resource allocation on the node (KEP-4381; kubelet contract §8): claims that the scheduler allocated are prepared by their
//! drivers before a pod's sandbox is made, and let go of once its containers have stopped.
//!
//! Owns which claims are prepared here, for whom, and the file that tells the next kubelet: that a driver is about to be asked is on disk
//! before it is asked. [`drivers`] owns who can be asked, [`board`] what they tell of their devices. Pods' workers call; nothing here
//! decides when. Never allocates anything.

mod answer;
mod board;
mod checkpoint;
mod claim;
mod driver;
mod drivers;
mod health;
mod prepare;
pub mod reconcile;
mod state;
mod status;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod wipe;

pub use checkpoint::CheckpointError;
pub use claim::has_claims;
pub use state::{Device, Prepared};

use crate::host::FileWork;
use crate::host::directory::replace;
use crate::metrics::DraMetrics;
use crate::plugin::Handler;
use board::HealthBoard;
use drivers::Drivers;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use prepare::Turns;
use state::{Claims, Name, distinct};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The file.
const FILE: &str = "dra_manager_state";
/// How long a write of it is waited for.
const FILE_DEADLINE: Duration = Duration::from_secs(10);

/// Why a pod's claims are not prepared or not let go of. The words are upstream's, with the driver where that is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DraError {
    /// The claim is none the pod can use.
    #[error("{0}")]
    Claim(String),
    /// The claim cannot be read.
    #[error("fetch ResourceClaim {name}: {why}")]
    Fetch {
        /// Its name.
        name: String,
        /// What the API server said.
        why: String,
    },
    /// Its driver is not on this node, or not running.
    #[error("DRA driver {0} is not registered")]
    NoDriver(String),
    /// The driver did not answer, or with an error.
    #[error("{call}: rpc error: code = {code} desc = {message} (DRA driver {driver}, ResourceClaims: {claims})")]
    Call {
        /// What it was asked.
        call: &'static str,
        /// gRPC's code.
        code: &'static str,
        /// Its description.
        message: String,
        /// The driver.
        driver: String,
        /// The claims' names.
        claims: String,
    },
    /// The driver's answer is of no use.
    #[error("{what} (DRA driver {driver})")]
    Answer {
        /// The driver.
        driver: String,
        /// What is wrong with it.
        what: String,
    },
    /// The state is not on disk.
    #[error("checkpoint ResourceClaim state: {0}")]
    Checkpoint(String),
    /// A container is to have what was never prepared.
    #[error("internal error: unable to get claim info for ResourceClaim {name} in namespace {namespace}")]
    Unprepared {
        /// The claim's name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
}

/// Why a kubelet does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("could not read the DRA state {path:?}, please drain node and remove DRA state file, err: {why}")]
pub struct Useless {
    path: PathBuf,
    why: String,
}

/// What it is made from.
pub struct Given {
    /// The API server; without one no claim can be read.
    pub client: Option<kube::Client>,
    /// The node's name.
    pub node: String,
    /// What is counted.
    pub metrics: DraMetrics,
}

/// The claims of a node.
pub struct Dra {
    client: Option<kube::Client>,
    node: String,
    held: Arc<Mutex<Held>>,
    path: PathBuf,
    files: FileWork,
    /// Who works with which claims now.
    turns: Turns,
    drivers: Drivers,
    board: HealthBoard,
    metrics: DraMetrics,
    /// Whether any pod uses any claim.
    any: watch::Sender<bool>,
    useless: Option<Useless>,
}

#[derive(Default)]
struct Held {
    claims: Claims,
    /// Counts changes.
    changed: u64,
    /// The newest change that is on disk.
    written: u64,
}

impl Dra {
    /// Takes over what an earlier kubelet left in a directory. That it is of no use is kept for [`Dra::useless`].
    pub fn open(directory: &Path, given: Given) -> Self {
        let path = directory.join(FILE);
        let read = match crate::host::kept::read(&path) {
            Ok(bytes) => checkpoint::read(&bytes).map_err(|why| why.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Claims::default()),
            Err(error) => Err(error.to_string()),
        };
        let (claims, useless) = match read {
            Ok(claims) => (claims, None),
            Err(why) => {
                let path = path.clone();
                (Claims::default(), Some(Useless { path, why }))
            }
        };
        let board = HealthBoard::new();
        let any = watch::Sender::new(!claims.0.is_empty());
        let held = Held {
            claims,
            ..Held::default()
        };
        given.metrics.in_use(held.claims.in_use());
        let drivers = Drivers::new(given.client.is_some(), board.clone(), given.metrics.clone());
        Self {
            client: given.client,
            node: given.node,
            held: Arc::new(Mutex::new(held)),
            path,
            files: FileWork::new(FILE_DEADLINE),
            turns: Turns::default(),
            drivers,
            board,
            metrics: given.metrics,
            any,
            useless,
        }
    }

    /// What an earlier kubelet left and cannot be read: devices are prepared that nobody would let go of.
    pub fn useless(&self) -> Option<&Useless> {
        self.useless.as_ref()
    }

    /// Who works with plugins of drivers.
    pub fn handler(&self) -> Arc<dyn Handler> {
        Arc::new(self.drivers.clone())
    }

    /// Removes the ResourceSlices of drivers that are gone from this node, until shut down.
    pub async fn wipe(self: Arc<Self>, shutdown: CancellationToken) {
        if let Some(client) = self.client.clone() {
            wipe::run(client, self.node.clone(), self.drivers.clone(), shutdown).await;
        }
    }

    /// The names of the devices that the runtime is to give a container, in the Container Device Interface.
    ///
    /// # Errors
    /// What it is to have was not prepared.
    pub fn devices(&self, pod: &Pod, container: &Container) -> Result<Vec<String>, DraError> {
        let used = self.of_container(pod, container)?;
        let ids = used.iter().flat_map(|(claim, request)| claim.cdi_device_ids(request));
        // Two requests may lead to one device.
        Ok(distinct(ids).into_iter().cloned().collect())
    }

    /// The claims a container uses, as they are prepared, and the request of each. They may have very many names: whoever looks at these
    /// keeps nobody from the state.
    fn of_container(&self, pod: &Pod, container: &Container) -> Result<Vec<(Arc<Prepared>, String)>, DraError> {
        let namespace = crate::pod_object::namespace(pod);
        let used = claim::of_container(pod, container)?;
        let held = self.held();
        let prepared = used.into_iter().map(|(name, request)| {
            let key = (namespace.to_owned(), name);
            match held.claims.0.get(&key) {
                Some(prepared) => Ok((prepared.clone(), request)),
                None => {
                    let (namespace, name) = key;
                    Err(DraError::Unprepared { name, namespace })
                }
            }
        });
        prepared.collect()
    }

    /// The claims a container uses, as they are prepared: namespace, name, and what is known. For those who tell of it.
    pub fn used(&self, pod: &Pod, container: &Container) -> Vec<(String, String, Prepared)> {
        let namespace = crate::pod_object::namespace(pod);
        let used = claim::of_container(pod, container).unwrap_or_default();
        let mut told: Vec<(Name, Arc<Prepared>)> = Vec::new();
        let held = self.held();
        for (name, _) in used {
            if told.iter().any(|((_, known), _)| *known == name) {
                continue;
            }
            let key = (namespace.to_owned(), name);
            if let Some(prepared) = held.claims.0.get(&key) {
                told.push((key, prepared.clone()));
            }
        }
        drop(held);
        let told = told.into_iter();
        told.map(|((namespace, name), prepared)| (namespace, name, Arc::unwrap_or_clone(prepared)))
            .collect()
    }

    /// Tells in a pod's status how well the devices of its claims are.
    pub fn tell_health(&self, pod: &Pod, status: &mut PodStatus) {
        if has_claims(pod) {
            let held = self.held();
            status::tell(pod, status, &held.claims, |driver, pool, device| {
                self.board.of(driver, pool, device)
            });
        }
    }

    /// Tells when a status may have to say something else of devices' health.
    pub fn health_changes(&self) -> watch::Receiver<u64> {
        self.board.changes()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state; it is on disk after [`Dra::keep`].
    fn change<T>(&self, change: impl FnOnce(&mut Claims) -> T) -> T {
        let mut held = self.held();
        let result = change(&mut held.claims);
        held.changed += 1;
        self.metrics.in_use(held.claims.in_use());
        let any = !held.claims.0.is_empty();
        self.any.send_if_modified(|told| std::mem::replace(told, any) != any);
        result
    }

    /// Waits until every change so far is on disk.
    async fn keep(&self) -> Result<(), DraError> {
        let (held, path) = (self.held.clone(), self.path.clone());
        let wanted = self.held().changed;
        let job = move || {
            let lock = || held.lock().unwrap_or_else(PoisonError::into_inner);
            // A copy, which shares what is large: nobody waits while all of it becomes text.
            let (claims, changed) = {
                let held = lock();
                if held.written >= wanted {
                    return Ok(());
                }
                (held.claims.clone(), held.changed)
            };
            replace(&path, &checkpoint::write(&claims))?;
            lock().written = changed;
            Ok(())
        };
        let told = |error: &dyn std::fmt::Display| DraError::Checkpoint(format!("{}: {error}", self.path.display()));
        match self.files.run(FILE, job).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(told(&error as &io::Error)),
            Err(error) => Err(told(&error)),
        }
    }
}
