//! Custom resource definitions at work: accepts their names, serves what they define, and takes it away again (control-plane contract
//! §9).
//!
//! Owns the status of definitions and what of them is served. What a definition deserves is decided purely
//! ([`crate::resource::definition::status`], [`crate::resource::custom`]); this reads the store's window, publishes, and writes straight to
//! the store: a kind is served before its definition says that it is established. Never answers a request.

mod sweep;

use super::state::ServerState;
use crate::resource::custom;
use crate::resource::definition::status::{self, CLEANUP};
use crate::resource::field::{at, list, text};
use crate::store::value::{TypeMeta, canonical, canonical_owned};
use crate::store::window::{Cursor, ResourceWindow, Snapshot, Stored};
use crate::store::{Expect, Revision, StoreError};
use crate::tree::SIZE_MAX_BYTES;
use bytes::Bytes;
use futures::FutureExt;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// Group and plural of definitions.
const RESOURCE: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");
/// What they are stored as.
const STORED_AS: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
/// How soon what could not be finished is tried again.
const AGAIN: Duration = Duration::from_millis(200);
/// How much later at most, when nothing changes meanwhile.
const AGAIN_MAX: Duration = Duration::from_secs(2);
/// Definitions that are served at most; further ones wait.
const SERVED_MAX: usize = 4096;

/// What is known of a definition that has been looked at.
#[derive(Default)]
struct Known {
    group: String,
    plural: String,
    /// Of what its kinds are made from; `None` while nothing is served.
    made_of: Option<u64>,
    /// Why no object can be judged by it.
    unusable: Option<Box<str>>,
    /// The revision that is as it should be; nothing need be done until there is another.
    settled: Option<Revision>,
    /// Its names are somebody else's, who may give them up.
    is_refused: bool,
}

/// See the module.
pub(super) struct Definitions {
    state: Arc<ServerState>,
    window: Arc<ResourceWindow>,
    known: HashMap<Arc<str>, Known>,
    /// Groups whose names have changed hands since the refused ones were looked at.
    freed: HashSet<String>,
}

/// Whether a definition is as it should be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Settled,
    /// To be looked at again.
    Pending,
}

impl Definitions {
    /// Serves what established definitions define; a server is ready when this has been done.
    ///
    /// # Errors
    /// Whatever the store answers.
    pub(super) async fn begin(state: Arc<ServerState>) -> Result<Self, StoreError> {
        let window = state
            .reader()
            .window_of(RESOURCE.0, RESOURCE.1)
            .ok_or(StoreError::Closed)?;
        let mut definitions = Self {
            state,
            window,
            known: HashMap::new(),
            freed: HashSet::new(),
        };
        let snapshot = definitions.window.latest().await?;
        for (key, stored) in &snapshot.objects {
            let definition = stored.tree();
            if status::is_true(&definition, "Established") {
                definitions.serve(key, &definition);
            }
        }
        Ok(definitions)
    }

    /// Follows the definitions until the store is closed; begins anew should that end in a panic.
    pub(super) async fn keep(self) {
        let state = Arc::clone(&self.state);
        let mut next = Some(self);
        loop {
            let followed = match next.take() {
                Some(definitions) => AssertUnwindSafe(definitions.run()).catch_unwind().await,
                None => Ok(()),
            };
            if followed.is_ok() {
                return;
            }
            tracing::error!("following the custom resource definitions ended in a panic; it begins anew");
            tokio::time::sleep(AGAIN_MAX).await;
            next = Self::begin(Arc::clone(&state)).await.ok();
        }
    }

    /// Follows the definitions until the store is closed.
    async fn run(mut self) {
        let mut cursor: Option<Cursor> = None;
        let mut again = AGAIN;
        loop {
            // Position first, look second: a change in between is seen by one of the two.
            let snapshot = self.window.cached();
            let position = cursor
                .take()
                .map_or_else(|| self.window.cursor(snapshot.revision).ok(), Some);
            let progress = match self.pass(&snapshot).await {
                Ok(progress) => progress,
                Err(_closed) => return,
            };
            let next = match position {
                None => None,
                Some(mut changes) => {
                    let told = match progress {
                        Progress::Settled => Some(changes.next().await.is_ok()),
                        Progress::Pending => tokio::time::timeout(again, changes.next())
                            .await
                            .ok()
                            .map(|next| next.is_ok()),
                    };
                    again = match told {
                        None => (again * 2).min(AGAIN_MAX),
                        Some(_) => AGAIN,
                    };
                    told.unwrap_or(true).then_some(changes)
                }
            };
            // A cursor that fell behind is taken anew, at the state that is read next: not at once, or it would be a busy loop.
            if next.is_none() {
                if self.window.latest().await.is_err() {
                    return;
                }
                tokio::time::sleep(AGAIN).await;
            }
            cursor = next;
        }
    }

    /// Looks at every definition that is not settled. One that cannot be written keeps no other waiting.
    ///
    /// # Errors
    /// `Closed` only.
    async fn pass(&mut self, snapshot: &Snapshot) -> Result<Progress, StoreError> {
        let gone: Vec<Arc<str>> = self
            .known
            .keys()
            .filter(|key| !snapshot.objects.contains_key(*key))
            .map(Arc::clone)
            .collect();
        for key in gone {
            if let Some(known) = self.known.remove(&key) {
                self.state.publisher().serve(&known.group, &known.plural, &[]);
                self.freed.insert(known.group);
            }
        }
        let freed = std::mem::take(&mut self.freed);
        let mut progress = Progress::Settled;
        for (key, stored) in &snapshot.objects {
            let is_settled = |known: &Known| {
                let may_have_changed = known.is_refused && freed.contains(&known.group);
                known.settled == Some(stored.revision) && !may_have_changed
            };
            if self.known.get(key).is_some_and(is_settled) {
                continue;
            }
            match self.settle(key, stored).await {
                Ok(Progress::Settled) => {
                    if let Some(known) = self.known.get_mut(key) {
                        known.settled = Some(stored.revision);
                    }
                }
                Ok(Progress::Pending) => progress = Progress::Pending,
                Err(StoreError::Closed) => return Err(StoreError::Closed),
                Err(error) => {
                    tracing::warn!(%key, %error, "a custom resource definition cannot be looked after, retrying");
                    progress = Progress::Pending;
                }
            }
        }
        Ok(progress)
    }

    async fn settle(&mut self, key: &Arc<str>, stored: &Stored) -> Result<Progress, StoreError> {
        let definition = stored.owned_tree();
        if !at(&definition, &["metadata", "deletionTimestamp"]).is_null() {
            return self.end(key, stored, definition).await;
        }
        let now = self.state.now();
        let served = self.state.served();
        let group = served.registry().group(text(&definition, &["spec", "group"]));
        let wanted = status::decide(&definition, group.map(|group| &**group), now);
        let before = at(&definition, &["status"]).clone();
        let mut next = definition;
        next["status"] = wanted;
        let is_known = self.known.contains_key(key);
        if status::is_true(&next, "Established") {
            if !is_known && self.known.values().filter(|known| known.made_of.is_some()).count() >= SERVED_MAX {
                tracing::warn!(%key, "there are too many custom resource definitions; this one is not served");
                return Ok(Progress::Settled);
            }
            self.serve(key, &next);
        }
        let known = self.known.entry(Arc::clone(key)).or_default();
        let gave_names_up = is_known && at(&before, &["acceptedNames"]) != at(&next, &["status", "acceptedNames"]);
        text(&next, &["spec", "group"]).clone_into(&mut known.group);
        text(&next, &["spec", "names", "plural"]).clone_into(&mut known.plural);
        known.is_refused = !status::is_true(&next, "NamesAccepted");
        status::tell_schema(&mut next["status"], known.unusable.as_deref(), now);
        if gave_names_up {
            self.freed.insert(text(&next, &["spec", "group"]).to_owned());
        }
        match next["status"] != before {
            true => self.write(stored, &next).await,
            false => Ok(Progress::Settled),
        }
    }

    /// Serves what an established definition defines, unless that is served already.
    fn serve(&mut self, key: &Arc<str>, definition: &Value) {
        let mut hasher = DefaultHasher::new();
        let parts = [
            &["spec"][..],
            &["status", "acceptedNames"],
            &["metadata", "deletionTimestamp"],
        ];
        for part in parts {
            at(definition, part).to_string().hash(&mut hasher);
        }
        let made_of = Some(hasher.finish());
        let (group, plural) = (
            text(definition, &["spec", "group"]),
            text(definition, &["spec", "names", "plural"]),
        );
        let known = self.known.entry(Arc::clone(key)).or_insert_with(|| Known {
            group: group.to_owned(),
            plural: plural.to_owned(),
            ..Known::default()
        });
        if known.made_of != made_of {
            known.made_of = made_of;
            let kinds = custom::kinds(definition);
            let unusable = kinds
                .iter()
                .find_map(|kind| Some((&kind.version, kind.structural.as_ref()?.unusable()?)));
            known.unusable = unusable.map(|(version, why)| format!("version {version}: {why}").into());
            self.state.publisher().serve(group, plural, &kinds);
        }
    }

    /// One step of a definition's end: its objects go, then its finalizer, then what is served.
    async fn end(&mut self, key: &Arc<str>, stored: &Stored, definition: Value) -> Result<Progress, StoreError> {
        if !list(&definition, &["metadata", "finalizers"])
            .iter()
            .any(|one| one == CLEANUP)
        {
            return Ok(Progress::Settled);
        }
        if status::is_true(&definition, "Established") {
            self.serve(key, &definition);
        }
        let now = self.state.now();
        let mut next = definition;
        if !status::is_true(&next, "Terminating") {
            next["status"] = status::ending(&next, false, now);
            return self.write_end(stored, &next).await;
        }
        let (group, plural) = (
            text(&next, &["spec", "group"]),
            text(&next, &["spec", "names", "plural"]),
        );
        // What is built in is not the definition's, whose names were never accepted then.
        if !self.state.served().registry().is_built_in(group, plural)
            && sweep::sweep(&self.state, group, plural).await? > 0
        {
            return Ok(Progress::Pending);
        }
        next["status"] = status::ending(&next, true, now);
        if let Some(finalizers) = next["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|one| one != CLEANUP);
        }
        let is_last = list(&next, &["metadata", "finalizers"]).is_empty();
        if !is_last {
            return self.write_end(stored, &next).await;
        }
        match self.state.store().delete(&stored.key, stored.revision).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(Progress::Pending),
            Err(error) => Err(error),
        }
    }

    /// A step of a definition's end, which a nearly full disk takes too.
    async fn write_end(&self, stored: &Stored, definition: &Value) -> Result<Progress, StoreError> {
        let raw = bytes(definition);
        let store = self.state.store();
        match store.put_for_deletion(&stored.key, raw, stored.revision).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(Progress::Pending),
            Err(error) => Err(error),
        }
    }

    async fn write(&self, stored: &Stored, definition: &Value) -> Result<Progress, StoreError> {
        let raw = bytes(definition);
        match self
            .state
            .store()
            .put(&stored.key, raw, Expect::At(stored.revision))
            .await
        {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(Progress::Pending),
            Err(error) => Err(error),
        }
    }
}

/// A definition's bytes to store. Its owners go if it is too large only with them, as in a request's write.
fn bytes(definition: &Value) -> Bytes {
    let (api_version, kind) = STORED_AS;
    let of = TypeMeta::new(api_version, kind);
    let owned = canonical(&of, definition);
    Bytes::from(match owned.len() <= SIZE_MAX_BYTES {
        true => owned,
        false => canonical_owned(&of, definition, None),
    })
}

/// Adds the finalizer under which a definition's objects go before it does.
pub(super) fn hold(definition: &mut Value) {
    let mut finalizers = list(definition, &["metadata", "finalizers"]).to_vec();
    if !finalizers.iter().any(|one| one == CLEANUP) {
        finalizers.push(json!(CLEANUP));
        definition["metadata"]["finalizers"] = Value::Array(finalizers);
    }
}
