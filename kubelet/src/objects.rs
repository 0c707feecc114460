//! ConfigMaps, Secrets, Services and service account tokens that pods refer to.
//!
//! Owns one watch per object that some pod on this node needs, and the tokens issued for pods. Never lists what no pod asked
//! for, never writes an object.

mod kept;
mod runtime_class;
mod token;

pub use kept::KnownObject;
pub use token::{Token, TokenRequestKey};

use crate::autonomy::Kept;
use crate::id::PodUid;
use crate::volume::{EnvFile, EnvFileValues};
use client::informer::{self, Informer};
use client::{AsTree, Clock};
use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How long a pod waits for an object's first answer before its turn fails (and is tried again).
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// Kinds of objects pods refer to by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// `ConfigMap`.
    ConfigMap,
    /// `Secret`.
    Secret,
}

impl ObjectKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }
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

/// What a container's environment refers to, as it was when asked; absent things are simply not in the maps.
#[derive(Debug, Clone, Default)]
pub struct ResolvedObjects {
    /// By name, in the pod's namespace.
    pub config_maps: BTreeMap<String, Arc<ConfigMap>>,
    /// By name, in the pod's namespace.
    pub secrets: BTreeMap<String, Arc<Secret>>,
    /// All services with a cluster address.
    pub services: Vec<Arc<Service>>,
    /// What files in the pod's volumes tell, by volume and path inside it.
    pub files: BTreeMap<EnvFile, EnvFileValues>,
}

/// An object that could not be had. "Not found" is no error here: absent objects are absent from the answer.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// This kubelet has no API server.
    #[error("{0} is not available without an API server")]
    NoServer(&'static str),
    /// The API server has not answered yet.
    #[error("failed to sync {0} cache: timed out waiting for the condition")]
    Unanswered(&'static str),
    /// There is no such runtime class.
    #[error("runtimeclass.node.k8s.io {0:?} not found")]
    RuntimeClass(String),
    /// A service account could not be read.
    #[error("failed to get service account: {0}")]
    ServiceAccount(String),
    /// A service account token was not issued.
    #[error("failed to fetch token: {0}")]
    Token(String),
}

enum Entry {
    ConfigMap(Informer<ConfigMap>),
    Secret(Informer<Secret>),
    /// They never change, so nobody watches them.
    FixedConfigMap(Arc<ConfigMap>),
    FixedSecret(Arc<Secret>),
}

impl Entry {
    fn is_fixed(&self) -> bool {
        matches!(self, Self::FixedConfigMap(_) | Self::FixedSecret(_))
    }
}

struct Watched {
    entry: Arc<Entry>,
    pods: BTreeSet<PodUid>,
}

/// The objects this node's pods refer to, each watched while some pod needs it.
pub struct Objects {
    /// What asks the API server; nothing in standalone mode.
    server: Option<Server>,
    watched: Mutex<BTreeMap<ObjectRef, Watched>>,
    clock: Arc<dyn Clock>,
    seed: u64,
    /// What node autonomy has kept.
    kept: Option<Arc<Kept>>,
}

struct Server {
    client: kube::Client,
    services: Informer<Service>,
    runtime_classes: OnceLock<Informer<RuntimeClass>>,
    tokens: token::Tokens,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").finish_non_exhaustive()
    }
}

impl Objects {
    /// Starts watching services; everything else is watched when first asked for. Without a client nothing can be had. Must be
    /// called inside a tokio runtime.
    pub fn new(client: impl Into<Option<kube::Client>>, clock: Arc<dyn Clock>, seed: u64) -> Self {
        let server = client.into().map(|client| Server {
            services: Informer::spawn_as_tree(Api::all(client.clone()), scope("spec.clusterIP!=None", seed)),
            runtime_classes: OnceLock::new(),
            tokens: token::Tokens::new(client.clone(), clock.clone()),
            client,
        });
        Self {
            server,
            watched: Mutex::default(),
            clock,
            seed,
            kept: None,
        }
    }

    fn entry(&self, pod: &PodUid, reference: &ObjectRef) -> Result<Arc<Entry>, ObjectError> {
        let server = self
            .server
            .as_ref()
            .ok_or(ObjectError::NoServer(reference.kind.as_str()))?;
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let found = watched.entry(reference.clone()).or_insert_with(|| Watched {
            entry: Arc::new(self.start(server, reference)),
            pods: BTreeSet::new(),
        });
        // One that never changes may have been deleted and made anew: a pod that comes later gets that.
        if found.pods.insert(pod.clone()) && found.entry.is_fixed() {
            found.entry = Arc::new(self.start(server, reference));
        }
        Ok(found.entry.clone())
    }

    /// Watches an object no longer.
    fn fix(&self, reference: &ObjectRef, entry: Entry) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = watched.get_mut(reference) {
            found.entry = Arc::new(entry);
        }
    }

    fn start(&self, server: &Server, reference: &ObjectRef) -> Entry {
        let options = scope(&format!("metadata.name={}", reference.name), self.seed);
        let (client, namespace) = (server.client.clone(), &reference.namespace);
        match reference.kind {
            ObjectKind::ConfigMap => {
                Entry::ConfigMap(Informer::spawn_as_tree(Api::namespaced(client, namespace), options))
            }
            ObjectKind::Secret => Entry::Secret(Informer::spawn_as_tree(Api::namespaced(client, namespace), options)),
        }
    }

    /// The ConfigMap, or `None` when there is none; watched until [`Self::release`] of every pod that asked, or until it is seen to
    /// be immutable.
    pub async fn config_map(
        &self,
        pod: &PodUid,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<ConfigMap>>, ObjectError> {
        let reference = ObjectRef::config_map(namespace, name);
        match &*self.entry(pod, &reference)? {
            Entry::ConfigMap(informer) => {
                if !informer.is_synced()
                    && let Some(kept) = self.kept_config_map(&reference).await
                {
                    return Ok(kept);
                }
                answered(informer, "configmap").await?;
                let found = informer.get(namespace, name);
                if let Some(map) = found.as_ref().filter(|map| map.immutable == Some(true)) {
                    self.fix(&reference, Entry::FixedConfigMap(map.clone()));
                }
                Ok(found)
            }
            Entry::FixedConfigMap(map) => Ok(Some(map.clone())),
            Entry::Secret(_) | Entry::FixedSecret(_) => Ok(None),
        }
    }

    /// The Secret, or `None` when there is none; watched as ConfigMaps are.
    pub async fn secret(&self, pod: &PodUid, namespace: &str, name: &str) -> Result<Option<Arc<Secret>>, ObjectError> {
        let reference = ObjectRef::secret(namespace, name);
        match &*self.entry(pod, &reference)? {
            Entry::Secret(informer) => {
                if !informer.is_synced()
                    && let Some(kept) = self.kept_secret(&reference).await
                {
                    return Ok(kept);
                }
                answered(informer, "secret").await?;
                let found = informer.get(namespace, name);
                if let Some(secret) = found.as_ref().filter(|secret| secret.immutable == Some(true)) {
                    self.fix(&reference, Entry::FixedSecret(secret.clone()));
                }
                Ok(found)
            }
            Entry::FixedSecret(secret) => Ok(Some(secret.clone())),
            Entry::ConfigMap(_) | Entry::FixedConfigMap(_) => Ok(None),
        }
    }

    /// Everything a container's environment needs: these objects (absent ones left out) and the services.
    pub async fn resolve(&self, pod: &PodUid, references: &[ObjectRef]) -> Result<ResolvedObjects, ObjectError> {
        // All watches start before the first is waited for.
        for reference in references {
            self.entry(pod, reference)?;
        }
        let mut out = ResolvedObjects {
            services: self.all_services().await?,
            ..ResolvedObjects::default()
        };
        for reference in references {
            match reference.kind {
                ObjectKind::ConfigMap => {
                    let found = self.config_map(pod, &reference.namespace, &reference.name).await?;
                    out.config_maps
                        .extend(found.map(|object| (reference.name.clone(), object)));
                }
                ObjectKind::Secret => {
                    let found = self.secret(pod, &reference.namespace, &reference.name).await?;
                    out.secrets.extend(found.map(|object| (reference.name.clone(), object)));
                }
            }
        }
        Ok(out)
    }

    /// The services, once somebody has told them.
    async fn all_services(&self) -> Result<Vec<Arc<Service>>, ObjectError> {
        if let Some(server) = &self.server {
            if !server.services.is_synced()
                && let Some(kept) = self.kept_services().await
            {
                return Ok(kept);
            }
            answered(&server.services, "service").await?;
        }
        Ok(self.services())
    }

    /// The services that are known now. A static pod waits for no API server, which it may itself be part of.
    pub fn services(&self) -> Vec<Arc<Service>> {
        let server = self.server.as_ref();
        server.map(|server| server.services.list()).unwrap_or_default()
    }

    /// A token for a pod's service account, issued again once 80 % of its life or 24 hours are over.
    pub async fn token(&self, key: &TokenRequestKey) -> Result<Token, ObjectError> {
        if let Some(kept) = self.kept_token(key).await {
            return Ok(kept);
        }
        match &self.server {
            Some(server) => server.tokens.get(key).await,
            None => Err(ObjectError::NoServer("service account token")),
        }
    }

    /// A service account as it is now; nothing of it is kept.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<ServiceAccount, ObjectError> {
        let server = self.server.as_ref().ok_or(ObjectError::NoServer("serviceaccount"))?;
        let api: Api<AsTree<ServiceAccount>> = Api::namespaced(server.client.clone(), namespace);
        let found = tokio::time::timeout(FIRST_ANSWER, api.get(name)).await;
        let found = found.map_err(|_| ObjectError::ServiceAccount("the API server did not answer in time".into()))?;
        found
            .map(|found| found.0)
            .map_err(|error| ObjectError::ServiceAccount(error.to_string()))
    }

    /// Forgets a pod: objects nobody else needs are no longer watched, its tokens are dropped.
    pub fn release(&self, pod: &PodUid) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|_, entry| {
            entry.pods.remove(pod);
            !entry.pods.is_empty()
        });
        drop(watched);
        if let Some(server) = &self.server {
            server.tokens.release(pod);
        }
    }

    /// The changes of these objects from now on; the first [`Changes::next`] returns at once for objects that exist.
    pub fn changes(&self, pod: &PodUid, references: &[ObjectRef]) -> Changes {
        let mut changes = Changes::default();
        for reference in references {
            match self.entry(pod, reference).as_deref() {
                Ok(Entry::ConfigMap(informer)) => changes.config_maps.push(informer.subscribe()),
                Ok(Entry::Secret(informer)) => changes.secrets.push(informer.subscribe()),
                // Without an API server nothing changes.
                Ok(Entry::FixedConfigMap(_) | Entry::FixedSecret(_)) | Err(_) => {}
            }
        }
        changes
    }

    /// How many objects are watched by name.
    pub fn watched(&self) -> usize {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

fn scope(fields: &str, seed: u64) -> informer::Options {
    informer::Options {
        fields: fields.to_owned(),
        seed,
        ..informer::Options::default()
    }
}

async fn answered<K: informer::Object>(informer: &Informer<K>, what: &'static str) -> Result<(), ObjectError> {
    let patience = tokio::time::timeout(FIRST_ANSWER, informer.synced());
    patience.await.map_err(|_| ObjectError::Unanswered(what))
}

/// What happens to some objects; see [`Objects::changes`].
#[derive(Default)]
pub struct Changes {
    config_maps: Vec<informer::Subscription<ConfigMap>>,
    secrets: Vec<informer::Subscription<Secret>>,
}

impl Changes {
    /// Waits for the next change of any of them; forever if there are none. Cancel safe.
    pub async fn next(&mut self) {
        let maps = self
            .config_maps
            .iter_mut()
            .map(|s| async { drop(s.next().await) }.boxed());
        let secrets = self.secrets.iter_mut().map(|s| async { drop(s.next().await) }.boxed());
        let all: Vec<_> = maps.chain(secrets).collect();
        if all.is_empty() {
            return std::future::pending().await;
        }
        futures::future::select_all(all).await;
    }
}

#[cfg(test)]
mod tests;
