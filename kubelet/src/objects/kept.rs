//! What node autonomy keeps of objects, and what is taken from there while no API server has answered.

use super::{Entry, ObjectKind, ObjectRef, Objects, Token, TokenRequestKey, Watched};
use crate::autonomy::{Kept, KeptToken};
use crate::id::PodUid;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

/// Who watches what is to be kept, among the pods: no UID is like it.
const HOLDER: &str = "node autonomy";
/// When a token that was kept is to be replaced: as soon as an API server may be there to give another.
const KEPT_TOKEN_REFRESH: SignedDuration = SignedDuration::from_secs(30);

/// What the API server has of an object; nothing if it has none.
pub enum KnownObject {
    /// Of a ConfigMap.
    ConfigMap(Option<Arc<ConfigMap>>),
    /// Of a Secret.
    Secret(Option<Arc<Secret>>),
}

impl Objects {
    /// Has these objects answer from what is kept while that counts.
    pub fn with_kept(mut self, kept: Option<Arc<Kept>>) -> Self {
        self.kept = kept;
        self
    }

    /// Watches these objects for the sake of what is kept, and those of an earlier call no longer.
    pub fn hold(&self, references: &BTreeSet<ObjectRef>) {
        let Some(server) = &self.server else { return };
        let holder = PodUid::from(HOLDER);
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|reference, entry| {
            if !references.contains(reference) {
                entry.pods.remove(&holder);
            }
            !entry.pods.is_empty()
        });
        for reference in references {
            let found = watched.entry(reference.clone()).or_insert_with(|| Watched {
                entry: Arc::new(self.start(server, reference)),
                pods: BTreeSet::new(),
            });
            found.pods.insert(holder.clone());
        }
    }

    /// What the API server has of a watched object; nothing while that is not known.
    pub fn known(&self, reference: &ObjectRef) -> Option<KnownObject> {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = watched.get(reference)?.entry.clone();
        drop(watched);
        let (namespace, name) = (&reference.namespace, &reference.name);
        match (&*entry, reference.kind) {
            (Entry::ConfigMap(informer), ObjectKind::ConfigMap) if informer.is_synced() => {
                let found = informer.get(namespace, name);
                if let Some(map) = found.as_ref().filter(|map| map.immutable == Some(true)) {
                    self.fix(reference, Entry::FixedConfigMap(map.clone()));
                }
                Some(KnownObject::ConfigMap(found))
            }
            (Entry::Secret(informer), ObjectKind::Secret) if informer.is_synced() => {
                let found = informer.get(namespace, name);
                if let Some(secret) = found.as_ref().filter(|secret| secret.immutable == Some(true)) {
                    self.fix(reference, Entry::FixedSecret(secret.clone()));
                }
                Some(KnownObject::Secret(found))
            }
            (Entry::FixedConfigMap(map), _) => Some(KnownObject::ConfigMap(Some(map.clone()))),
            (Entry::FixedSecret(secret), _) => Some(KnownObject::Secret(Some(secret.clone()))),
            _ => None,
        }
    }

    /// The services, once the API server has told them.
    pub fn known_services(&self) -> Option<Vec<Arc<Service>>> {
        let server = self.server.as_ref()?;
        server.services.is_synced().then(|| server.services.list())
    }

    /// The handler of a class, once the API server has told it; from here on classes are watched, whether a start asks for one or not.
    pub fn known_handler(&self, class: &str) -> Option<String> {
        let classes = self.runtime_classes(self.server.as_ref()?);
        let found = classes.is_synced().then(|| classes.get("", class)).flatten();
        found.map(|class| class.handler.clone())
    }

    /// The tokens pods have.
    pub fn held_tokens(&self) -> Vec<(TokenRequestKey, KeptToken)> {
        let held = self.server.as_ref().map(|server| server.tokens.held());
        held.unwrap_or_default()
    }

    /// Of a ConfigMap what was kept, if nobody else has told yet and that counts.
    pub(super) async fn kept_config_map(&self, reference: &ObjectRef) -> Option<Option<Arc<ConfigMap>>> {
        self.kept.as_ref()?.config_map(reference).await
    }

    /// Of a Secret, likewise.
    pub(super) async fn kept_secret(&self, reference: &ObjectRef) -> Option<Option<Arc<Secret>>> {
        self.kept.as_ref()?.secret(reference).await
    }

    /// The services that were kept, likewise.
    pub(super) async fn kept_services(&self) -> Option<Vec<Arc<Service>>> {
        self.kept.as_ref()?.services().await
    }

    /// The handler that was kept, likewise.
    pub(super) async fn kept_handler(&self, class: &str) -> Option<String> {
        self.kept.as_ref()?.handler(class).await
    }

    /// The token that was kept, likewise.
    pub(super) async fn kept_token(&self, key: &TokenRequestKey) -> Option<Token> {
        let now = self.clock.now();
        // One for a plugin is none of those that are kept, even if it is asked for in the same words.
        let kept = self.kept.as_ref().filter(|_| key.service_account_uid.is_empty())?;
        let kept = kept.token(key, now).await?;
        let token = Token {
            value: kept.value,
            refresh_at: now.checked_add(KEPT_TOKEN_REFRESH).unwrap_or(now),
        };
        if let Some(server) = &self.server
            && let Ok(expires) = Timestamp::from_second(kept.expires)
        {
            // When the API server answers, and then does not give another, this one is what there is.
            server.tokens.start_with(key, token.clone(), expires);
        }
        Some(token)
    }
}
