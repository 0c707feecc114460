//! A small world for properties of plans: an API server as a map of objects, which writes change as they would there, and what a
//! controller has seen of it, which may be behind.

use crate::controller::execute::Applied;
use crate::controller::informers::Informers;
use crate::controller::kept::Kept;
use crate::controller::owner::Candidates;
use crate::controller::write::{Failure, PatchKind, Resource, Verb, Write};
use client::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

type Objects = BTreeMap<Key, Value>;

/// The objects there are, and those a controller has seen, by the plural name of their resource.
#[derive(Clone, Default)]
pub(in crate::controller) struct World {
    actual: BTreeMap<String, Objects>,
    seen: BTreeMap<String, Objects>,
    revision: u64,
    /// Seconds.
    pub(in crate::controller) now: i64,
}

fn failed(write: &Write, code: u16, reason: &str) -> Failure {
    Failure {
        resource: write.resource.plural.to_string(),
        creating: matches!(write.verb, Verb::Create(_)),
        deleting: matches!(write.verb, Verb::Delete { .. }),
        code,
        reason: reason.to_owned(),
        message: reason.to_owned(),
    }
}

/// Whether the body names another object, or another state of it.
fn differs(old: &Value, body: &Value) -> bool {
    ["uid", "resourceVersion"].iter().any(|key| {
        let asked = &body["metadata"][*key];
        !asked.is_null() && *asked != old["metadata"][*key]
    })
}

/// Owner references are merged by UID, all else as a merge patch.
fn strategic(old: &mut Value, body: &Value) {
    let mut rest = body.clone();
    let references = rest["metadata"]["ownerReferences"].take();
    if let Some(metadata) = rest["metadata"].as_object_mut() {
        metadata.remove("ownerReferences");
    }
    json_patch::merge(old, &rest);
    for reference in references.as_array().into_iter().flatten() {
        let mut known: Vec<Value> = old["metadata"]["ownerReferences"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        known.retain(|o| o["uid"] != reference["uid"]);
        if reference["$patch"] != "delete" {
            known.push(reference.clone());
        }
        old["metadata"]["ownerReferences"] = json!(known);
    }
}

impl World {
    /// The time.
    pub(in crate::controller) fn time(&self) -> Timestamp {
        Timestamp::from_second(1_000_000 + self.now).unwrap()
    }

    fn stamp(&mut self, object: &mut Value) -> u64 {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.revision
    }

    /// Puts an object there as somebody else would; the controller has not seen it.
    pub(in crate::controller) fn put(&mut self, resource: &Resource, mut object: Value) {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        let key = Key::new(text("namespace"), text("name"));
        if meta_missing(&object, "uid") {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.revision + 1));
        }
        if meta_missing(&object, "creationTimestamp") {
            object["metadata"]["creationTimestamp"] = json!(Time(self.time()));
        }
        self.stamp(&mut object);
        self.actual
            .entry(resource.plural.to_string())
            .or_default()
            .insert(key, object);
    }

    /// Changes an object as somebody else would, if it is there.
    pub(in crate::controller) fn change(&mut self, resource: &Resource, key: &Key, change: impl FnOnce(&mut Value)) {
        let Some(mut object) = self.object(resource, key) else {
            return;
        };
        change(&mut object);
        self.put(resource, object);
    }

    /// Removes an object as somebody else would.
    pub(in crate::controller) fn remove(&mut self, resource: &Resource, key: &Key) {
        self.revision += 1;
        if let Some(objects) = self.actual.get_mut(&*resource.plural) {
            objects.remove(key);
        }
    }

    /// What there is at the key.
    pub(in crate::controller) fn object(&self, resource: &Resource, key: &Key) -> Option<Value> {
        self.actual.get(&*resource.plural)?.get(key).cloned()
    }

    /// The keys of what there is.
    pub(in crate::controller) fn keys(&self, resource: &Resource) -> Vec<Key> {
        let objects = self.actual.get(&*resource.plural);
        objects.into_iter().flat_map(|o| o.keys().cloned()).collect()
    }

    /// What there is.
    pub(in crate::controller) fn all<K: DeserializeOwned>(&self, resource: &Resource) -> Vec<Arc<K>> {
        typed(self.actual.get(&*resource.plural))
    }

    /// What the controller has seen.
    pub(in crate::controller) fn seen<K: DeserializeOwned>(&self, resource: &Resource) -> Vec<Arc<K>> {
        typed(self.seen.get(&*resource.plural))
    }

    /// The controller sees all there is of a resource.
    pub(in crate::controller) fn look(&mut self, resource: &Resource) {
        let now = self.actual.get(&*resource.plural).cloned().unwrap_or_default();
        self.seen.insert(resource.plural.to_string(), now);
    }

    /// Does a write as the API server would; as the harness, the controller then sees all there is of the resource.
    pub(in crate::controller) fn apply(&mut self, write: &Write) -> Result<Applied, Failure> {
        let done = self.write(write)?;
        self.look(&write.resource);
        Ok(done)
    }

    /// As [`World::apply`], but the controller hears nothing of it.
    pub(in crate::controller) fn apply_unheard(&mut self, write: &Write) {
        let _ = self.write(write);
    }

    fn write(&mut self, write: &Write) -> Result<Applied, Failure> {
        let key = write.key.clone();
        if let Some(adopter) = &write.adopter {
            let owner = self.object(&adopter.resource, &adopter.key);
            let may_adopt =
                |owner: &Value| owner["metadata"]["uid"] == *adopter.uid && meta_missing(owner, "deletionTimestamp");
            if !owner.as_ref().is_some_and(may_adopt) {
                return Err(failed(write, 0, ""));
            }
        }
        if let Verb::Create(body) = &write.verb {
            return self.create(write, body);
        }
        let Some(old) = self.object(&write.resource, &key) else {
            return Err(failed(write, 404, "NotFound"));
        };
        let mut new = old.clone();
        match &write.verb {
            Verb::Create(_) => {}
            Verb::Replace(body) | Verb::ReplaceSub(_, body) | Verb::Patch(_, _, body) if differs(&old, body) => {
                return Err(failed(write, 409, "Conflict"));
            }
            Verb::Replace(body) => new = body.clone(),
            Verb::ReplaceSub(part, body) => new[*part] = body[*part].clone(),
            Verb::Patch(PatchKind::Strategic, _, body) => strategic(&mut new, body),
            Verb::Patch(_, _, body) => json_patch::merge(&mut new, body),
            Verb::Delete { uid, .. } => {
                if old["metadata"]["uid"] != *uid {
                    return Err(failed(write, 409, "Conflict"));
                }
                if write.resource.plural != "pods" {
                    self.remove(&write.resource, &key);
                } else if meta_missing(&new, "deletionTimestamp") {
                    new["metadata"]["deletionTimestamp"] = json!(Time(self.time()));
                    self.put(&write.resource, new);
                }
                let uid = uid.clone();
                return Ok(Applied::Deleted {
                    key,
                    uid,
                    was_there: true,
                });
            }
        }
        self.put(&write.resource, new);
        let revision = self.revision;
        Ok(Applied::At { key, revision })
    }

    fn create(&mut self, write: &Write, body: &Value) -> Result<Applied, Failure> {
        let mut object = body.clone();
        if meta_missing(&object, "name") {
            let stem = object["metadata"]["generateName"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            object["metadata"]["name"] = json!(format!("{stem}{}", self.revision + 1));
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = Key::new(write.key.namespace.clone(), name);
        if self.object(&write.resource, &key).is_some() {
            return Err(failed(write, 409, "AlreadyExists"));
        }
        if write.resource.plural == "pods" {
            object["status"] = json!({"phase": "Pending"});
        }
        self.put(&write.resource, object);
        let revision = self.revision;
        Ok(Applied::At { key, revision })
    }
}

fn meta_missing(object: &Value, field: &str) -> bool {
    object["metadata"].get(field).is_none_or(Value::is_null)
}

fn typed<K: DeserializeOwned>(objects: Option<&Objects>) -> Vec<Arc<K>> {
    let objects = objects.into_iter().flat_map(BTreeMap::values);
    objects
        .map(|o| Arc::new(serde_json::from_value(o.clone()).unwrap()))
        .collect()
}

/// Splits what an owner controls from what nobody does.
pub(in crate::controller) fn candidates<K: kube::Resource>(all: Vec<Arc<K>>, uid: &str) -> Candidates<K> {
    let controller = |object: &Arc<K>| {
        let mut owners = object.meta().owner_references.iter().flatten();
        owners.find(|o| o.controller == Some(true)).map(|o| o.uid.clone())
    };
    let (mut controlled, mut orphans) = (Vec::new(), Vec::new());
    for object in all {
        match controller(&object) {
            Some(owner) if owner == uid => controlled.push(object),
            Some(_) => {}
            None => orphans.push(object),
        }
    }
    (controlled, orphans)
}

/// Informers of a server that has these objects, by the plural name of their resource, and never any others.
pub(in crate::controller) fn informers_of(objects: BTreeMap<&'static str, Vec<Value>>) -> Informers {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let plural = request.uri().path().rsplit('/').next().unwrap_or_default();
        let items = objects.get(plural).cloned().unwrap_or_default();
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        async move {
            if is_watch {
                std::future::pending::<()>().await;
            }
            let list =
                json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items});
            let body = kube::client::Body::from(list.to_string().into_bytes());
            Ok::<_, std::convert::Infallible>(http::Response::new(body))
        }
    });
    Informers::spawn(&kube::Client::new(service, "default"), 0, Kept::Asked)
}
