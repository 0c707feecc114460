//! Carries out what was decided about an object.

use super::graph::{Action, ObjectId};
use super::{CONCURRENCY, Collector, lock};
use crate::controller::execute::{Applied, execute};
use crate::controller::write::{Failure, PatchKind, Resource, Verb, Write};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

/// How often a deletion is repeated because the object changes meanwhile, though its owners do not.
const CONFLICTS: usize = 5;

impl Collector {
    pub(super) async fn act(&self, action: Action) -> Result<(), String> {
        if action.needs_all_dependents()
            && let Some(first) = lock(&self.unlisted).first()
        {
            return Err(format!("{first} has not been listed yet: there may be more dependents"));
        }
        match action {
            Action::Nothing => Ok(()),
            Action::Wake(uids) => {
                uids.into_iter().for_each(|uid| self.queue.add(uid));
                Ok(())
            }
            Action::Delete {
                object,
                revision,
                owners,
                propagation,
            } => self.delete(object, revision, &owners, propagation).await,
            Action::SetOwners {
                object,
                revision,
                owners,
            } => self.set_owners(object, &revision, owners).await,
            Action::SetFinalizers {
                object,
                revision,
                finalizers,
            } => self.patch(object, &revision, "finalizers", json!(finalizers)).await,
            Action::Orphan {
                object,
                dependents,
                revision,
                finalizers,
            } => {
                let freed = stream::iter(dependents).map(|(dependent, revision, owners)| async move {
                    self.set_owners(dependent, &revision, owners).await
                });
                freed.buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
                // A dependent may be heard of only once its owner is gone.
                lock(&self.graph).release(&object);
                self.patch(object, &revision, "finalizers", json!(finalizers)).await
            }
        }
    }

    /// Deletes the object as long as its owners are those that were judged, however late the graph is.
    async fn delete(
        &self,
        object: ObjectId,
        mut revision: String,
        owners: &[OwnerReference],
        propagation: &'static str,
    ) -> Result<(), String> {
        for _ in 0..CONFLICTS {
            let verb = Verb::Delete {
                uid: object.uid.clone(),
                revision: Some(revision),
                grace: None,
                propagation: Some(propagation),
            };
            let write = Write::new(Resource::clone(&object.resource), object.key.clone(), verb);
            match execute(&self.environment.client, &write).await {
                Err(Failure { code: 409, .. }) | Ok(Applied::Deleted { was_there: false, .. }) => {}
                done => return settled(done.map(|_| ())),
            }
            let live = self.live(&object.resource, &object.key).await?;
            let Some(live) = live.filter(|live| live.metadata.uid.as_deref() == Some(&*object.uid)) else {
                // Its owner is not to wait for it if nobody ever tells (an extension's server may tell of it by another UID).
                self.remove(&object.uid);
                return Ok(());
            };
            if live.metadata.owner_references.as_deref().unwrap_or_default() != owners {
                return Err("its owners have changed".into());
            }
            revision = live.metadata.resource_version.unwrap_or_default();
        }
        Err("it keeps changing".into())
    }

    async fn set_owners(&self, object: ObjectId, revision: &str, owners: Vec<OwnerReference>) -> Result<(), String> {
        let owners = if owners.is_empty() { Value::Null } else { json!(owners) };
        self.patch(object, revision, "ownerReferences", owners).await
    }

    async fn patch(&self, object: ObjectId, revision: &str, field: &str, value: Value) -> Result<(), String> {
        let body = json!({"metadata": {"uid": object.uid, "resourceVersion": revision, field: value}});
        let write = Write::patch(Resource::clone(&object.resource), object.key, PatchKind::Merge, body);
        settled(execute(&self.environment.client, &write).await.map(|_| ()))
    }
}

fn settled(done: Result<(), Failure>) -> Result<(), String> {
    match done {
        // Gone already: the informer will tell.
        Err(Failure { code: 404, .. }) => Ok(()),
        done => done.map_err(|failure| failure.message),
    }
}
