//! Controlling owners: references, adoption, release. Pure.

use super::write::{Adopter, PatchKind, Resource, Write};
use client::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use proto::api::selector::Selector;
use serde_json::json;
use std::sync::Arc;

/// The reference a controlling owner puts on what it makes.
pub fn controller_reference<K: kube::Resource>(resource: &Resource, owner: &K) -> OwnerReference {
    let meta = owner.meta();
    OwnerReference {
        api_version: resource.api_version(),
        kind: resource.kind.to_string(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// What an owner owns, and the writes that make it so.
#[derive(Debug)]
pub struct Claims<K> {
    /// Controlled objects that match.
    pub owned: Vec<Arc<K>>,
    /// Adoptions of matching orphans and releases of controlled objects that no longer match.
    pub writes: Vec<Write>,
}

/// Objects that an owner controls, and those of its namespace that nobody does.
pub type Candidates<K> = (Vec<Arc<K>>, Vec<Arc<K>>);

/// Decides ownership: `controlled` refer to the owner already, `orphans` refer to no controller.
pub fn claim<O: kube::Resource, K: kube::Resource>(
    owner: (&Resource, &O),
    selector: &Selector,
    resource: &Resource,
    controlled: Vec<Arc<K>>,
    orphans: Vec<Arc<K>>,
) -> Claims<K> {
    claim_where(owner, selector, |_| true, resource, controlled, orphans)
}

/// As [`claim`], of objects that also are as `may_belong` says.
pub fn claim_where<O: kube::Resource, K: kube::Resource>(
    owner: (&Resource, &O),
    selector: &Selector,
    may_belong: impl Fn(&K) -> bool,
    resource: &Resource,
    controlled: Vec<Arc<K>>,
    orphans: Vec<Arc<K>>,
) -> Claims<K> {
    let deleting = owner.1.meta().deletion_timestamp.is_some();
    let matches = |object: &Arc<K>| selector.matches_optional(object.meta().labels.as_ref()) && may_belong(object);
    let (owned, strangers): (Vec<_>, Vec<_>) = controlled.into_iter().partition(&matches);
    let mut writes = Vec::new();
    if deleting {
        return Claims { owned, writes };
    }
    let reference = controller_reference(owner.0, owner.1);
    let adopter = Arc::new(Adopter {
        resource: owner.0.clone(),
        key: Key::of(owner.1),
        uid: reference.uid.clone(),
    });
    let patch = |object: &Arc<K>, reference: serde_json::Value| {
        let body = json!({"metadata": {"uid": object.meta().uid, "ownerReferences": [reference]}});
        Write::patch(resource.clone(), Key::of(&**object), PatchKind::Strategic, body)
    };
    for stranger in &strangers {
        writes.push(patch(stranger, json!({"$patch": "delete", "uid": reference.uid})));
    }
    let adoptable = |object: &&Arc<K>| matches(object) && object.meta().deletion_timestamp.is_none();
    for orphan in orphans.iter().filter(adoptable) {
        writes.push(patch(orphan, json!(reference)).adopted_by(&adopter));
    }
    Claims { owned, writes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::write::{PODS, REPLICA_SETS};
    use crate::held::Pod;
    use k8s_openapi::api::apps::v1::ReplicaSet;

    #[test]
    fn who_adopts_has_to_be_there_and_who_lets_go_has_not() {
        let set = json!({"metadata": {"name": "web", "namespace": "default", "uid": "u"}});
        let set: ReplicaSet = serde_json::from_value(set).unwrap();
        let pod = |name: &str, app: &str| {
            let pod = json!({"metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}}});
            Arc::new(serde_json::from_value::<Pod>(pod).unwrap())
        };
        let selector = json!({"matchLabels": {"app": "web"}});
        let selector = Selector::from_api(&serde_json::from_value(selector).unwrap()).unwrap();
        let controlled = vec![pod("stranger", "other")];
        let orphans = vec![pod("orphan", "web")];
        let claims = claim((&REPLICA_SETS, &set), &selector, &PODS, controlled, orphans);
        let adopters: Vec<_> = claims
            .writes
            .iter()
            .map(|write| (&*write.key.name, write.adopter.as_deref().cloned()))
            .collect();
        let web = Adopter {
            resource: REPLICA_SETS,
            key: Key::new("default", "web"),
            uid: "u".to_owned(),
        };
        assert_eq!(adopters, [("stranger", None), ("orphan", Some(web))]);
    }
}
