//! How many pods there should be of those a budget selects: by the scale of who owns them. Pure.

use crate::controller::amount::{Round, resolve};
use crate::controller::informers::Informers;
use crate::held::Pod;
use client::Key;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Finds who scales a pod's owner, in a namespace: its UID and replicas; `None` when there is nobody, an error when there cannot be.
pub type Scaler<'a> = dyn Fn(&OwnerReference, &str) -> Result<Option<(String, i32)>, String> + 'a;

/// What a budget is to be judged by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Pods there should be.
    pub pods: i32,
    /// Of them healthy.
    pub healthy: i32,
    /// Whether some have no owner to ask.
    pub some_unmanaged: bool,
}

fn controller(pod: &Pod) -> Option<&OwnerReference> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

/// Whether the owners have to be asked: a plain number of pods is one whoever owns them.
pub fn asks(budget: &PodDisruptionBudget) -> bool {
    let spec = budget.spec.as_ref();
    let share = spec.and_then(|s| s.min_available.as_ref());
    spec.is_some_and(|s| s.max_unavailable.is_some()) || matches!(share, Some(IntOrString::String(_)))
}

fn group(owner: &OwnerReference) -> &str {
    owner.api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Whether an informer knows the owner's kind.
pub fn is_known(owner: &OwnerReference) -> bool {
    matches!(
        (group(owner), owner.kind.as_str()),
        ("", "ReplicationController") | ("apps" | "extensions", "ReplicaSet") | ("apps", "StatefulSet")
    )
}

/// An owner whose scale no informer knows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unknown {
    /// Its UID.
    pub uid: String,
    /// Its apiVersion.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace and name.
    pub key: Key,
}

impl Unknown {
    /// What a reference in that namespace refers to.
    pub fn new(owner: &OwnerReference, namespace: &str) -> Self {
        Self {
            uid: owner.uid.clone(),
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            key: Key::new(namespace, owner.name.clone()),
        }
    }
}

/// The owners whose scales have to be asked for.
pub fn unknown(budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> Vec<Unknown> {
    if !asks(budget) {
        return vec![];
    }
    let namespace = budget.namespace().unwrap_or_default();
    let mut all: Vec<Unknown> = pods
        .iter()
        .filter_map(|pod| controller(pod).filter(|owner| !is_known(owner)))
        .map(|owner| Unknown::new(owner, &namespace))
        .collect();
    all.sort();
    all.dedup();
    all
}

/// Who scales an owner that an informer knows: a Deployment for its ReplicaSets, the others for themselves.
pub fn scaler(informers: &Informers, owner: &OwnerReference, namespace: &str) -> Option<(String, i32)> {
    let key = Key::new(namespace, owner.name.clone());
    let own = |uid: Option<String>, replicas: Option<i32>| {
        let uid = uid.filter(|uid| *uid == owner.uid)?;
        Some((uid, replicas.unwrap_or(1)))
    };
    match owner.kind.as_str() {
        "ReplicationController" => {
            let rc = informers.replication_controllers.get_key(&key)?;
            own(rc.uid(), rc.spec.as_ref().and_then(|s| s.replicas))
        }
        "StatefulSet" => {
            let set = informers.stateful_sets.get_key(&key)?;
            own(set.uid(), set.spec.as_ref().and_then(|s| s.replicas))
        }
        _ => {
            let set = informers.replica_sets.get_key(&key)?;
            let itself = own(set.uid(), set.spec.as_ref().and_then(|s| s.replicas))?;
            let mut above = set.metadata.owner_references.iter().flatten();
            let above = above.find(|o| o.controller == Some(true) && o.kind == "Deployment");
            let Some(above) = above else { return Some(itself) };
            let deployment = informers.deployments.get(namespace, &above.name)?;
            let is_it = deployment.metadata.uid.as_ref() == Some(&above.uid);
            let replicas = deployment.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1);
            is_it.then(|| (above.uid.clone(), replicas))
        }
    }
}

/// The sum of the owners' scales, and whether some pods have no owner.
fn scale(scaler: &Scaler<'_>, pods: &[Arc<Pod>]) -> Result<(i32, bool), String> {
    let (mut asked, mut scales) = (BTreeSet::new(), BTreeMap::new());
    let mut some_unmanaged = false;
    for pod in pods {
        let Some(owner) = controller(pod) else {
            some_unmanaged = true;
            continue;
        };
        // The whole reference: anybody may write another's UID into one.
        if !asked.insert((&owner.uid, &owner.api_version, &owner.kind, &owner.name)) {
            continue;
        }
        let namespace = pod.namespace().unwrap_or_default();
        let Some((uid, replicas)) = scaler(owner, &namespace)? else {
            return Err(format!("found no controllers for pod {:?}", pod.name_any()));
        };
        scales.insert(uid, replicas);
    }
    let sum = scales
        .values()
        .fold(0_i32, |sum, replicas| sum.saturating_add(*replicas));
    Ok((sum, some_unmanaged))
}

/// How many pods there should be, and how many of them healthy.
///
/// # Errors
/// Why they cannot be counted, in upstream's words.
pub fn expected(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], scaler: &Scaler<'_>) -> Result<Expected, String> {
    let spec = budget.spec.as_ref();
    let count = || i32::try_from(pods.len()).unwrap_or(i32::MAX);
    if let Some(max) = spec.and_then(|s| s.max_unavailable.as_ref()) {
        let (pods, some_unmanaged) = scale(scaler, pods)?;
        let healthy = pods.saturating_sub(resolve(Some(max), pods, Round::Up)).max(0);
        return Ok(Expected {
            pods,
            healthy,
            some_unmanaged,
        });
    }
    match spec.and_then(|s| s.min_available.as_ref()) {
        Some(IntOrString::Int(healthy)) => Ok(Expected {
            pods: count(),
            healthy: *healthy,
            some_unmanaged: false,
        }),
        Some(share) => {
            let (pods, some_unmanaged) = scale(scaler, pods)?;
            Ok(Expected {
                pods,
                healthy: resolve(Some(share), pods, Round::Up),
                some_unmanaged,
            })
        }
        None => Ok(Expected {
            pods: 0,
            healthy: 0,
            some_unmanaged: false,
        }),
    }
}
