//! Owners that the graph does not know: asked live, and remembered once they are known to be gone.

use super::graph::{FOREGROUND, ObjectId, Owner, group_of};
use super::{Collector, DEADLINE, lock};
use crate::controller::write::Resource;
use crate::planted;
use client::Key;
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DynamicObject, PartialObjectMeta};
use std::collections::{BTreeSet, VecDeque};
use tokio::time::timeout;

/// Absent owners remembered.
const ABSENT: usize = 500;
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// What a reference says, and where from: a UID alone would let a wrong reference speak against an object that is there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    group: String,
    kind: String,
    /// Empty for a resource that is in no namespace.
    namespace: String,
    name: String,
    uid: String,
}

impl Place {
    fn of(owner: &OwnerReference, namespace: &str) -> Self {
        Self {
            group: group_of(&owner.api_version).to_owned(),
            kind: owner.kind.clone(),
            namespace: namespace.to_owned(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        }
    }
}

/// What there is to ask about an owner.
pub(super) enum Question {
    /// Nothing.
    Answered(Owner),
    /// Whether the server has it, of that resource.
    Of(Resource),
}

/// Owners known to be gone: a UID never comes back.
#[derive(Default)]
pub(super) struct Absent {
    known: BTreeSet<Place>,
    order: VecDeque<Place>,
}

impl Absent {
    fn add(&mut self, place: Place) {
        if self.known.insert(place.clone()) {
            self.order.push_back(place);
        }
        while self.order.len() > ABSENT {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }

    /// An object that was there is gone.
    pub(super) fn add_object(&mut self, gone: &ObjectId) {
        self.add(Place {
            group: gone.resource.group.to_string(),
            kind: gone.resource.kind.to_string(),
            namespace: gone.key.namespace.clone(),
            name: gone.key.name.clone(),
            uid: gone.uid.clone(),
        });
    }

    fn has(&self, owner: &OwnerReference, namespace: &str) -> bool {
        ["", namespace]
            .into_iter()
            .any(|namespace| self.known.contains(&Place::of(owner, namespace)))
    }
}

/// The metadata of an object there.
pub(super) type Live = PartialObjectMeta<DynamicObject>;

impl Collector {
    /// What is to be asked about the owner that a reference names. Asks nobody.
    pub(super) fn question(&self, dependent: &ObjectId, owner: &OwnerReference) -> Result<Question, String> {
        let namespace = dependent.key.namespace.as_str();
        if lock(&self.absent).has(owner, namespace) || planted::is(planted::Fault::NoLiveLookup) {
            return Ok(Question::Answered(Owner::Absent));
        }
        let (version, kind) = (&owner.api_version, &owner.kind);
        let key = (group_of(version).to_owned(), kind.clone());
        let resource = lock(&self.kinds).get(&key).cloned();
        let Some(resource) = resource else {
            return Err(format!("owner kind {kind} of {version} is not known"));
        };
        Ok(match resource.namespaced && namespace.is_empty() {
            true => Question::Answered(Owner::Impossible),
            false => Question::Of(resource),
        })
    }

    /// What the server says of the owner that a reference names; `is_shared` says whether others may profit from an absence.
    pub(super) async fn look_up(
        &self,
        dependent: &ObjectId,
        owner: &OwnerReference,
        resource: &Resource,
        is_shared: bool,
    ) -> Result<Owner, String> {
        let namespace = if resource.namespaced {
            dependent.key.namespace.as_str()
        } else {
            ""
        };
        let live = self.live(resource, &Key::new(namespace, owner.name.clone())).await?;
        let Some(live) = live.filter(|live| live.metadata.uid.as_deref() == Some(&*owner.uid)) else {
            if is_shared {
                lock(&self.absent).add(Place::of(owner, namespace));
            }
            return Ok(Owner::Absent);
        };
        let finalizers = live.metadata.finalizers.unwrap_or_default();
        let is_waiting = live.metadata.deletion_timestamp.is_some() && finalizers.iter().any(|f| f == FOREGROUND);
        Ok(if is_waiting { Owner::Waiting } else { Owner::Present })
    }

    /// The object there now, if there is one. That its resource is not served says nothing about the object.
    pub(super) async fn live(&self, resource: &Resource, key: &Key) -> Result<Option<Live>, String> {
        let request = Request::get(resource.path(key)).header(http::header::ACCEPT, METADATA);
        let request = request.body(Vec::new()).map_err(|e| e.to_string())?;
        match timeout(DEADLINE, self.environment.client.request::<Live>(request)).await {
            Err(_) => Err("deadline exceeded".into()),
            Ok(Ok(live)) => Ok(Some(live)),
            Ok(Err(kube::Error::Api(status)))
                if status.code == 404 && status.details.as_ref().is_some_and(|d| d.name == key.name) =>
            {
                Ok(None)
            }
            Ok(Err(error)) => Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> OwnerReference {
        OwnerReference {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: name.into(),
            uid: "u".into(),
            ..OwnerReference::default()
        }
    }

    #[test]
    fn what_a_wrong_reference_names_says_nothing_of_the_object_of_that_uid() {
        let mut absent = Absent::default();
        absent.add(Place::of(&owner("web"), "b"));
        absent.add(Place::of(&owner("wbe"), "a"));
        assert!(absent.has(&owner("web"), "b"));
        assert!(!absent.has(&owner("web"), "a"), "it may be there");
        absent.add(Place::of(&owner("web"), ""));
        assert!(absent.has(&owner("web"), "a"), "of a resource in no namespace");
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut absent = Absent::default();
        for n in 0..=ABSENT {
            absent.add(Place::of(&owner(&n.to_string()), "a"));
        }
        assert_eq!((absent.known.len(), absent.order.len()), (ABSENT, ABSENT));
        assert!(!absent.has(&owner("0"), "a"));
    }
}
