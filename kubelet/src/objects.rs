//! ConfigMaps, Secrets, Services and service account tokens that pods refer to.
//!
//! Owns one watch per object that some pod on this node needs, and the tokens issued for pods. Never lists what no pod asked
//! for, never writes an object.

mod mirror;
mod token;

pub use token::{Token, TokenRequestKey};

use crate::id::PodUid;
use crate::pod::spec::ResolvedObjects;
use client::Clock;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::Api;
use mirror::{Mirror, Scope};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// How long a pod waits for an object's first answer before its turn fails (and is tried again).
const FIRST_ANSWER: Duration = Duration::from_secs(30);

/// Kinds of objects pods refer to by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// `ConfigMap`.
    ConfigMap,
    /// `Secret`.
    Secret,
}

/// Names one object a pod refers to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectRef {
    /// A reference to a ConfigMap.
    pub fn config_map(namespace: &str, name: &str) -> Self {
        Self {
            kind: ObjectKind::ConfigMap,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// A reference to a Secret.
    pub fn secret(namespace: &str, name: &str) -> Self {
        Self {
            kind: ObjectKind::Secret,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// An object that could not be had. "Not found" is no error here: absent objects are absent from the answer.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The API server has not answered yet.
    #[error("failed to sync {what} cache: {why}")]
    Unanswered {
        /// `configmap`, `secret` or `service`.
        what: &'static str,
        /// The last failure, or that time ran out.
        why: String,
    },
    /// A service account token was not issued.
    #[error("failed to fetch token: {0}")]
    Token(String),
}

enum Entry {
    ConfigMap(Mirror<ConfigMap>),
    Secret(Mirror<Secret>),
}

struct Watched {
    entry: Arc<Entry>,
    pods: BTreeSet<PodUid>,
}

/// The objects this node's pods refer to, each watched while some pod needs it.
pub struct Objects {
    client: kube::Client,
    watched: Mutex<BTreeMap<ObjectRef, Watched>>,
    services: Mirror<Service>,
    tokens: token::Tokens,
    /// Rung whenever any watched object changed.
    changed: Arc<Notify>,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").finish_non_exhaustive()
    }
}

impl Objects {
    /// Starts watching services; everything else is watched when first asked for. Must be called inside a tokio runtime.
    pub fn new(client: kube::Client, clock: Arc<dyn Clock>) -> Self {
        let changed = Arc::new(Notify::new());
        let with_address = Scope::fields("spec.clusterIP!=None");
        Self {
            services: Mirror::start(Api::all(client.clone()), with_address, changed.clone()),
            tokens: token::Tokens::new(client.clone(), clock),
            watched: Mutex::default(),
            changed,
            client,
        }
    }

    fn entry(&self, pod: &PodUid, reference: &ObjectRef) -> Arc<Entry> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let found = watched.entry(reference.clone()).or_insert_with(|| Watched {
            entry: Arc::new(self.start(reference)),
            pods: BTreeSet::new(),
        });
        found.pods.insert(pod.clone());
        found.entry.clone()
    }

    fn start(&self, reference: &ObjectRef) -> Entry {
        let scope = Scope::fields(&format!("metadata.name={}", reference.name));
        let (client, namespace) = (self.client.clone(), &reference.namespace);
        let changed = self.changed.clone();
        match reference.kind {
            ObjectKind::ConfigMap => Entry::ConfigMap(Mirror::start(Api::namespaced(client, namespace), scope, changed)),
            ObjectKind::Secret => Entry::Secret(Mirror::start(Api::namespaced(client, namespace), scope, changed)),
        }
    }

    /// The ConfigMap, or `None` when there is none; watched until [`Self::release`] of every pod that asked.
    pub async fn config_map(&self, pod: &PodUid, namespace: &str, name: &str) -> Result<Option<Arc<ConfigMap>>, ObjectError> {
        match &*self.entry(pod, &ObjectRef::config_map(namespace, name)) {
            Entry::ConfigMap(mirror) => Ok(mirror.all("configmap", FIRST_ANSWER).await?.values().next().cloned()),
            Entry::Secret(_) => Ok(None),
        }
    }

    /// The Secret, or `None` when there is none; watched until [`Self::release`] of every pod that asked.
    pub async fn secret(&self, pod: &PodUid, namespace: &str, name: &str) -> Result<Option<Arc<Secret>>, ObjectError> {
        match &*self.entry(pod, &ObjectRef::secret(namespace, name)) {
            Entry::Secret(mirror) => Ok(mirror.all("secret", FIRST_ANSWER).await?.values().next().cloned()),
            Entry::ConfigMap(_) => Ok(None),
        }
    }

    /// Everything a container's environment needs: these objects (absent ones left out) and the services.
    pub async fn resolve(&self, pod: &PodUid, references: &[ObjectRef]) -> Result<ResolvedObjects, ObjectError> {
        // All watches start before the first is waited for.
        for reference in references {
            self.entry(pod, reference);
        }
        let mut out = ResolvedObjects {
            services: self.services.all("service", FIRST_ANSWER).await?.values().cloned().collect(),
            ..ResolvedObjects::default()
        };
        for reference in references {
            match reference.kind {
                ObjectKind::ConfigMap => {
                    let found = self.config_map(pod, &reference.namespace, &reference.name).await?;
                    out.config_maps.extend(found.map(|object| (reference.name.clone(), object)));
                }
                ObjectKind::Secret => {
                    let found = self.secret(pod, &reference.namespace, &reference.name).await?;
                    out.secrets.extend(found.map(|object| (reference.name.clone(), object)));
                }
            }
        }
        Ok(out)
    }

    /// A token for a pod's service account, issued again once 80 % of its life or 24 hours are over.
    pub async fn token(&self, key: &TokenRequestKey) -> Result<Token, ObjectError> {
        self.tokens.get(key).await
    }

    /// Forgets a pod: objects nobody else needs are no longer watched, its tokens are dropped.
    pub fn release(&self, pod: &PodUid) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|_, entry| {
            entry.pods.remove(pod);
            !entry.pods.is_empty()
        });
        drop(watched);
        self.tokens.release(pod);
    }

    /// Waits for some watched object's next change after this call was first polled.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// How many objects are watched by name.
    pub fn watched(&self) -> usize {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

#[cfg(test)]
mod tests;
