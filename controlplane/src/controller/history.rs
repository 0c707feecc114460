//! ControllerRevisions: the templates that a DaemonSet or a StatefulSet had, by number. Pure.
//!
//! Source: control-plane contract §12. A revision's data is a strategic merge patch that puts its template back (`kubectl rollout
//! undo` sends it as it is). Two revisions are equal when their data are; the name only keeps them apart: `NAME-HASH`, FNV-1 (32 bit)
//! over the data and the collision count's digits, as upstream. What exists is recognised by its data, so revisions made by upstream's
//! controllers are taken over as they are. Nothing here writes; nothing changes the data of what exists.

use super::owner::controller_reference;
use super::write::{self, Failure, PatchKind, Resource, Write};
use client::Key;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use proto::api::names;
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The label with the hash of a StatefulSet's revision.
pub const HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// The label of pods that says which revision they were made from: its name for StatefulSets, its hash for DaemonSets, whose
/// revisions carry it, too.
pub const REVISION_LABEL: &str = "controller-revision-hash";
/// Longest owner's name within a revision's, so that this is at most 253 characters.
const PREFIX_MAX: usize = 223;

/// What is kept of a ControllerRevision: its data as text, in one spelling.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its number; a higher one is newer.
    pub number: i64,
    /// Its data: sorted keys, no nulls.
    data: Box<str>,
}

impl<'de> Deserialize<'de> for Revision {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            #[serde(default)]
            metadata: ObjectMeta,
            #[serde(default)]
            revision: i64,
            #[serde(default)]
            data: Value,
        }
        let wire = Wire::deserialize(deserializer)?;
        Ok(Self {
            metadata: wire.metadata,
            number: wire.revision,
            data: spelled(wire.data),
        })
    }
}

impl kube::Resource for Revision {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        ControllerRevision::kind(&())
    }
    fn group((): &()) -> Cow<'_, str> {
        ControllerRevision::group(&())
    }
    fn version((): &()) -> Cow<'_, str> {
        ControllerRevision::version(&())
    }
    fn plural((): &()) -> Cow<'_, str> {
        ControllerRevision::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A template as revisions hold it: spelled once, it is compared with many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spelling(Box<str>);

impl Spelling {
    /// Spells a template.
    pub fn of(template: &PodTemplateSpec) -> Self {
        Self(spelled(data_of(template)))
    }
}

/// One spelling of data: absent and null are the same, keys are sorted.
fn spelled(mut data: Value) -> Box<str> {
    drop_nulls(&mut data);
    data.to_string().into_boxed_str()
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, member| !member.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// The data that puts the template back.
pub fn data_of(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).expect("API types have string keys and serialise");
    drop_nulls(&mut template);
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

impl Revision {
    /// Whether it has this template.
    pub fn is_of(&self, template: &Spelling) -> bool {
        self.data == template.0
    }

    /// Its template; `None` when its data hold none that can be read.
    pub fn template(&self) -> Option<PodTemplateSpec> {
        let data: Value = serde_json::from_str(&self.data).ok()?;
        let mut template = data.get("spec")?.get("template")?.clone();
        template.as_object_mut()?.remove("$patch");
        serde_json::from_value(template).ok()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its value of the label that pods are told apart by, if it has one.
    pub fn label(&self) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(REVISION_LABEL).map(String::as_str)
    }
}

/// In the order of their numbers; of one number the older first, then by name.
pub fn sort(revisions: &mut [Arc<Revision>]) {
    revisions.sort_by(|a, b| {
        let key = |r: &Revision| (r.number, r.metadata.creation_timestamp.as_ref().map(|t| t.0));
        key(a).cmp(&key(b)).then_with(|| a.name().cmp(b.name()))
    });
}

/// The hash that a StatefulSet's revision of these data is named by.
pub fn hash(data: &Value, collisions: i32) -> String {
    let text = format!("{data}{collisions}");
    let fnv = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        hash.wrapping_mul(0x0100_0193) ^ u32::from(byte)
    });
    names::safe_encode(&fnv.to_string())
}

/// The name of an owner's revision of that hash.
pub fn name(owner: &str, hash: &str) -> String {
    let mut end = owner.len().min(PREFIX_MAX);
    while !owner.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{hash}", &owner[..end])
}

/// Creates the revision of a template.
pub fn create<K: kube::Resource>(
    owner: (&Resource, &K),
    template: &PodTemplateSpec,
    label: (&str, &str),
    number: i64,
) -> Write {
    let meta = owner.1.meta();
    let mut labels = template
        .metadata
        .as_ref()
        .and_then(|m| m.labels.clone())
        .unwrap_or_default();
    labels.insert(label.0.to_owned(), label.1.to_owned());
    let revision = ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name(&owner.1.name_any(), label.1)),
            namespace: meta.namespace.clone(),
            labels: Some(labels),
            annotations: meta.annotations.clone(),
            owner_references: Some(vec![controller_reference(owner.0, owner.1)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data_of(template))),
        revision: number,
    };
    Write::create(write::CONTROLLER_REVISIONS, &revision)
}

/// Gives a revision another number, if it is still as it was seen.
pub fn renumber(revision: &Revision, number: i64) -> Write {
    let body = json!({
        "metadata": {"resourceVersion": revision.metadata.resource_version, "uid": revision.metadata.uid},
        "revision": number,
    });
    Write::patch(write::CONTROLLER_REVISIONS, Key::of(revision), PatchKind::Merge, body)
}

/// Whether a creation failed because its name is taken by a revision of another owner or template: then another hash is to be
/// taken. One that is not seen yet is no reason, nor is one of this owner and template: it was made by a request whose answer got lost.
pub fn collides(failure: &Failure, holder: Option<&Revision>, owner_uid: &str, template: &Spelling) -> bool {
    let is_taken = failure.creating && failure.reason == "AlreadyExists" && failure.resource == "controllerrevisions";
    let is_own = |revision: &Revision| {
        let mut owners = revision.metadata.owner_references.iter().flatten();
        let owned = owners.any(|owner| owner.controller == Some(true) && owner.uid == owner_uid);
        owned && revision.is_of(template)
    };
    is_taken && holder.is_some_and(|holder| !is_own(holder))
}

/// Deletes the oldest of `revisions`, which are sorted, above `limit`, sparing those that are still `live`, and whether those count.
pub fn expire(revisions: &[Arc<Revision>], limit: i32, live: &BTreeSet<&str>, live_counts: bool) -> Vec<Write> {
    let is_live = |r: &Arc<Revision>| live.contains(r.name()) || r.label().is_some_and(|label| live.contains(label));
    let counted = revisions.iter().filter(|r| live_counts || !is_live(r)).count();
    let Ok(limit) = usize::try_from(limit) else {
        return vec![];
    };
    revisions
        .iter()
        .filter(|r| !is_live(r) && r.metadata.deletion_timestamp.is_none())
        .take(counted.saturating_sub(limit))
        .map(|r| Write::delete(write::CONTROLLER_REVISIONS, &**r))
        .collect()
}

#[cfg(test)]
mod tests;
