//! Ranges of Service addresses: held by a finalizer, said to be ready, and kept as long as an address would be left without a range.
//!
//! Source: control-plane contract §12, KEP-1880. Which addresses there are is asked only when a range is to go: they are as many as
//! Services, and no informer reads them.

use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::write::{self, PatchKind, Plan, Write};
use crate::resource::service::{ALLOCATOR, MANAGED_BY, Range};
use client::Key;
use futures::future::BoxFuture;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR, ServiceCIDRStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const READY: &str = "Ready";
const IS_READY: &str = "Kubernetes Service CIDR is ready";
const IS_USED: &str =
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
/// How long nothing more is given of a range that goes before it is gone.
const GRACE: Duration = Duration::from_secs(10);
/// How often the addresses of a range that cannot go yet are looked at.
const LOOK: Duration = Duration::from_secs(10);
/// Addresses of one answer.
const PAGE: u32 = 500;

/// The controller. Its keys are ServiceCIDRs.
pub struct ServiceCidrs {
    /// The shared informers.
    pub informers: Informers,
    /// Whether an address is left that no other range has, by the names of ranges that go.
    pub used: Mutex<HashMap<String, bool>>,
}

impl Controller for ServiceCidrs {
    const NAME: &'static str = "service-cidrs-controller";

    fn wire(&self, wiring: &mut Wiring) {
        let all = self.informers.service_cidrs.clone();
        // Another range may be the one that an address is left in.
        wiring.on(&self.informers.service_cidrs, move |change| {
            let going = all
                .list()
                .into_iter()
                .filter(|cidr| cidr.metadata.deletion_timestamp.is_some());
            let mut keys: Vec<Key> = going.map(|cidr| Key::of(&*cidr)).collect();
            keys.push(change.key.clone());
            keys
        });
    }

    fn look_up<'a>(&'a self, key: &Key, client: &'a kube::Client) -> Option<BoxFuture<'a, ()>> {
        let cidr = self.informers.service_cidrs.get_key(key)?;
        if !is_going(&cidr) {
            self.used().remove(&key.name);
            return None;
        }
        let others = self.others(key);
        let name = key.name.clone();
        Some(Box::pin(async move {
            let found = match is_covered(&cidr, &others) {
                true => Ok(false),
                false => is_used(client, &cidr, &others).await,
            };
            match found {
                Ok(used) => drop(self.used().insert(name, used)),
                Err(error) => {
                    tracing::debug!(%error, range = name, "the addresses of a range cannot be asked for");
                    self.used().remove(&name);
                }
            }
        }))
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(cidr) = self.informers.service_cidrs.get_key(key) else {
            self.used().remove(&key.name);
            return Plan::default();
        };
        let used = self.used().get(&key.name).copied();
        plan(&cidr, used, now)
    }
}

impl ServiceCidrs {
    fn used(&self) -> std::sync::MutexGuard<'_, HashMap<String, bool>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn others(&self, key: &Key) -> Vec<Arc<ServiceCIDR>> {
        let mut all = self.informers.service_cidrs.list();
        all.retain(|cidr| cidr.name_any() != key.name);
        all
    }
}

fn is_going(cidr: &ServiceCIDR) -> bool {
    cidr.metadata.deletion_timestamp.is_some()
}

fn ranges(cidr: &ServiceCIDR) -> Vec<Range> {
    let texts = cidr.spec.iter().flat_map(|spec| spec.cidrs.iter().flatten());
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// Whether each range of a ServiceCIDR lies in one of another.
pub fn is_covered(cidr: &ServiceCIDR, others: &[Arc<ServiceCIDR>]) -> bool {
    let others: Vec<Range> = others.iter().flat_map(|other| ranges(other)).collect();
    ranges(cidr)
        .iter()
        .all(|own| others.iter().any(|other| other.covers(*own)))
}

/// Whether the address would be in no range without this ServiceCIDR.
pub fn needs(cidr: &ServiceCIDR, others: &[Arc<ServiceCIDR>], ip: IpAddr) -> bool {
    let spans = |cidr: &ServiceCIDR| ranges(cidr).iter().any(|range| range.spans(ip));
    spans(cidr) && !others.iter().any(|other| spans(other))
}

async fn is_used(client: &kube::Client, cidr: &ServiceCIDR, others: &[Arc<ServiceCIDR>]) -> kube::Result<bool> {
    let addresses: Api<IPAddress> = Api::all(client.clone());
    let mut params = ListParams::default()
        .labels(&format!("{MANAGED_BY}={ALLOCATOR}"))
        .limit(PAGE);
    loop {
        let page = addresses.list_metadata(&params).await?;
        let mut ips = page.items.iter().filter_map(|address| address.name_any().parse().ok());
        if ips.any(|ip| needs(cidr, others, ip)) {
            return Ok(true);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(false),
        }
    }
}

/// What a range wants. `used` is whether an address is left that no other range has; `None` where that is not known.
pub fn plan(cidr: &ServiceCIDR, used: Option<bool>, now: Timestamp) -> Plan {
    let finalizers = cidr.finalizers();
    let is_held = finalizers.iter().any(|name| name == FINALIZER);
    if !is_going(cidr) {
        let mut writes = Vec::new();
        if !is_held {
            let with = finalizers.iter().cloned().chain([FINALIZER.to_owned()]).collect();
            writes.push(finalize(cidr, with));
        } else if status(cidr) != Some("True") {
            writes.push(judge(cidr, "True", "", IS_READY, now));
        }
        return Plan::of(writes);
    }
    match used {
        _ if !is_held => Plan::default(),
        Some(false) => {
            let since = cidr.metadata.deletion_timestamp.as_ref();
            let gone = since.map_or(Duration::MAX, |since| {
                now.duration_since(since.0).try_into().unwrap_or_default()
            });
            match GRACE.checked_sub(gone).filter(|left| !left.is_zero()) {
                Some(left) => again(Vec::new(), left),
                None => {
                    let without = finalizers.iter().filter(|name| *name != FINALIZER).cloned().collect();
                    Plan::of(vec![finalize(cidr, without)])
                }
            }
        }
        Some(true) if status(cidr) != Some("False") => {
            again(vec![judge(cidr, "False", "Terminating", IS_USED, now)], LOOK)
        }
        Some(true) | None => again(Vec::new(), LOOK),
    }
}

fn again(writes: Vec<Write>, after: Duration) -> Plan {
    Plan {
        writes,
        again_in: Some(after),
        ..Plan::default()
    }
}

fn conditions(cidr: &ServiceCIDR) -> Vec<Condition> {
    let status = cidr.status.as_ref();
    status.and_then(|status| status.conditions.clone()).unwrap_or_default()
}

fn status(cidr: &ServiceCIDR) -> Option<&str> {
    let all = cidr.status.as_ref()?.conditions.as_ref()?;
    all.iter()
        .find(|known| known.type_ == READY)
        .map(|known| known.status.as_str())
}

fn finalize(cidr: &ServiceCIDR, finalizers: Vec<String>) -> Write {
    let revision = cidr.resource_version();
    let body = json!({"metadata": {"finalizers": finalizers, "resourceVersion": revision}});
    Write::patch(write::SERVICE_CIDRS, Key::of(cidr), PatchKind::Merge, body)
}

fn judge(cidr: &ServiceCIDR, status: &str, reason: &str, message: &str, now: Timestamp) -> Write {
    let mut all = conditions(cidr);
    all.retain(|known| known.type_ != READY);
    all.push(Condition {
        type_: READY.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(now),
        observed_generation: None,
    });
    let mut new = cidr.clone();
    new.status = Some(ServiceCIDRStatus { conditions: Some(all) });
    Write::replace_part(write::SERVICE_CIDRS, "status", &new)
}

#[cfg(test)]
mod tests;
