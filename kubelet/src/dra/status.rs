//! `allocatedResourcesStatus`: how well the devices are that containers have by claims (KEP-4680). Pure.

use super::claim;
use super::health::State;
use super::state::{Claims, Device};
use crate::pod_object;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus, ResourceHealth, ResourceStatus};
use std::collections::BTreeSet;

/// How well a device is, by driver, pool and name, and what is said about it.
type Look<'a> = &'a dyn Fn(&str, &str, &str) -> (State, Option<String>);

/// Tells it of every regular container, as upstream does.
pub(super) fn tell(
    pod: &Pod,
    status: &mut PodStatus,
    claims: &Claims,
    look: impl Fn(&str, &str, &str) -> (State, Option<String>),
) {
    for told in status.container_statuses.iter_mut().flatten() {
        of_container(pod, told, claims, &look);
    }
}

fn of_container(pod: &Pod, told: &mut ContainerStatus, claims: &Claims, look: Look<'_>) {
    let Some(container) = pod_object::regulars(pod)
        .iter()
        .find(|container| container.name == told.name)
    else {
        return;
    };
    let named = container
        .resources
        .as_ref()
        .and_then(|resources| resources.claims.as_ref());
    for named in named.into_iter().flatten() {
        let Some(object) = claim::object(pod, &named.name) else {
            continue;
        };
        let key = (pod_object::namespace(pod).to_owned(), object);
        let Some(prepared) = claims.0.get(&key) else { continue };
        let request = named.request.as_deref().unwrap_or_default();
        let mut resources: Vec<ResourceHealth> = Vec::new();
        let mut seen = BTreeSet::new();
        for (driver, device) in prepared
            .drivers
            .iter()
            .flat_map(|(name, all)| all.iter().map(move |d| (name, d)))
        {
            // A device stands for a request, whichever of its alternatives was chosen.
            if !device.serves(request.split('/').next().unwrap_or_default()) {
                continue;
            }
            let resource_id = id(driver, device);
            if seen.insert(resource_id.clone()) {
                let (state, message) = look(driver, &device.pool_name, &device.device_name);
                resources.push(ResourceHealth {
                    health: Some(state.as_str().to_owned()),
                    message,
                    resource_id,
                });
            }
        }
        let name = match request {
            "" => format!("claim:{}", named.name),
            request => format!("claim:{}/{request}", named.name),
        };
        let all = told.allocated_resources_status.get_or_insert_default();
        all.retain(|other| other.name != name);
        if !resources.is_empty() {
            all.push(ResourceStatus {
                name,
                resources: Some(resources),
            });
        }
    }
    if told.allocated_resources_status.as_ref().is_some_and(Vec::is_empty) {
        told.allocated_resources_status = None;
    }
}

fn id(driver: &str, device: &Device) -> String {
    match device.cdi_device_ids.as_deref().unwrap_or_default().first() {
        Some(id) => id.clone(),
        None => format!("{driver}/{}/{}", device.pool_name, device.device_name),
    }
}
