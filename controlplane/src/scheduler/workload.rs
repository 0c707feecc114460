//! Which pods belong together by their owners: what the default spread constraints count.
//!
//! Reads the process's informers; owns nothing. Source: contract §11 (system default constraints are for pods of a Service,
//! ReplicaSet, ReplicationController or StatefulSet).

use super::pod::PodInfo;
use super::sources::Sources;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use proto::api::selector::Selector;
use std::collections::BTreeMap;

/// The pods that lie behind the same Services and have the same controller as this one; nothing if it has neither.
pub fn selector(informers: &Sources, pod: &PodInfo) -> Option<Selector> {
    let namespace = &pod.key.namespace;
    let mut pairs: BTreeMap<String, String> = BTreeMap::new();
    for service in informers.services.list_namespace(namespace) {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        if let Some(selector) = selector.filter(|pairs| !pairs.is_empty())
            && selector
                .iter()
                .all(|(key, value)| pod.kin.labels.get(key) == Some(value))
        {
            pairs.extend(selector.clone());
        }
    }
    let owners = pod.pod.metadata.owner_references.iter().flatten();
    let owner = owners.clone().find(|owner| owner.controller == Some(true));
    let of_owner = owner.and_then(|owner| match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("v1", "ReplicationController") => {
            let found = informers.replication_controllers.get(namespace, &owner.name)?;
            let pairs = found.spec.as_ref()?.selector.clone()?;
            Some(LabelSelector {
                match_labels: Some(pairs),
                match_expressions: None,
            })
        }
        ("apps/v1", "ReplicaSet") => {
            let found = informers.replica_sets.get(namespace, &owner.name)?;
            Some(found.spec.as_ref()?.selector.clone())
        }
        ("apps/v1", "StatefulSet") => {
            let found = informers.stateful_sets.get(namespace, &owner.name)?;
            Some(found.spec.as_ref()?.selector.clone())
        }
        _ => None,
    });
    let mut all = of_owner.unwrap_or_default();
    let expressions = all.match_expressions.get_or_insert_default();
    expressions.extend(pairs.into_iter().map(|(key, value)| LabelSelectorRequirement {
        key,
        operator: "In".to_owned(),
        values: Some(vec![value]),
    }));
    let selector = Selector::from_api(&all).ok()?;
    (!selector.is_everything()).then_some(selector)
}
