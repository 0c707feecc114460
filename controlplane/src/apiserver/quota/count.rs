//! What the stored objects of a namespace use of what a quota bounds.

use super::below;
use crate::apiserver::served::{Resource, Served};
use crate::held::Pod;
use crate::quota::{Evaluator, Measured, Quota, Usage};
use crate::resource::field::set;
use crate::store::StoreError;
use crate::store::window::Stored;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ResourceQuota, Service};
use k8s_openapi::api::resource::v1::ResourceClaim;
use proto::api::quantity::{Format, Quantity};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

/// Objects that are read before others have a turn.
const CHUNK: usize = 64;

/// Raises `status.used` where it says less than what is stored. Only what is lowered is read: `old` covers what was charged.
pub(super) async fn raise(
    served: &Served,
    namespace: &str,
    (object, old): (&mut Value, &Value),
    now: Timestamp,
) -> Result<(), StoreError> {
    let Ok(typed) = ResourceQuota::deserialize(&*object) else {
        return Ok(());
    };
    let before = ResourceQuota::deserialize(old).map_or_else(|_| Quota::default(), |old| Quota::of(&old));
    let mut quota = Quota::of(&typed);
    quota.used = quota.unproven(&before);
    let mut there = Usage::new();
    there.extend(sum::<Pod>(served, namespace, &quota, &Evaluator::Pods, now).await?);
    there.extend(sum::<Service>(served, namespace, &quota, &Evaluator::Services, now).await?);
    let claims = &Evaluator::Claims;
    there.extend(sum::<PersistentVolumeClaim>(served, namespace, &quota, claims, now).await?);
    let devices = &Evaluator::DeviceClaims;
    there.extend(sum::<ResourceClaim>(served, namespace, &quota, devices, now).await?);
    for name in quota.used.keys() {
        if let Some(count) = count(served, namespace, &quota, name).await? {
            there.insert(name.clone(), count);
        }
    }
    for (name, amount) in there {
        if quota.used.get(&name).is_some_and(|used| *used < amount) {
            set(object, &["status", "used", &name], amount.to_string());
        }
    }
    Ok(())
}

/// The objects of the resource that objects are counted of under this name.
async fn count(served: &Served, namespace: &str, quota: &Quota, name: &str) -> Result<Option<Quantity>, StoreError> {
    let Some(Evaluator::Objects { group, plural }) = Evaluator::of_name(name) else {
        return Ok(None);
    };
    let Some(resource) = served.resource(&group, &plural).filter(|_| !quota.is_scoped()) else {
        return Ok(None);
    };
    resource.window.latest().await?;
    let number = i64::try_from(below(resource, namespace).len()).unwrap_or(i64::MAX);
    Ok(Some(Quantity::from_units(number, Format::DecimalSi)))
}

/// What the objects of a resource use; nothing where the quota says nothing of them.
async fn sum<M: DeserializeOwned + Measured>(
    served: &Served,
    namespace: &str,
    quota: &Quota,
    evaluator: &Evaluator,
    now: Timestamp,
) -> Result<Usage, StoreError> {
    let (group, plural) = match evaluator {
        Evaluator::Pods => ("", "pods"),
        Evaluator::Services => ("", "services"),
        Evaluator::DeviceClaims => ("resource.k8s.io", "resourceclaims"),
        _ => ("", "persistentvolumeclaims"),
    };
    let is_bounded = quota.used.keys().any(|name| evaluator.measures(name));
    let Some(resource) = served.resource(group, plural).filter(|_| is_bounded) else {
        return Ok(Usage::new());
    };
    let mut total = Usage::new();
    for chunk in latest(resource, namespace).await?.chunks(CHUNK) {
        let objects: Vec<M> = chunk.iter().filter_map(|stored| object(stored)).collect();
        proto::api::resources::add(&mut total, &quota.sum(evaluator, objects.iter(), &quota.used, now));
        tokio::task::yield_now().await;
    }
    Ok(total)
}

async fn latest(resource: &Resource, namespace: &str) -> Result<Vec<Arc<Stored>>, StoreError> {
    resource.window.latest().await?;
    Ok(below(resource, namespace))
}

/// What is no object of its type uses nothing; its key is told wherever it is read.
fn object<M: DeserializeOwned>(stored: &Stored) -> Option<M> {
    serde_json::from_slice(&stored.raw()).ok()
}
