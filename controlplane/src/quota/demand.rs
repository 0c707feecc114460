//! A write before it is charged: which quotas it falls under, what it adds to each, and why one refuses it. Pure.

use super::{Evaluator, Measured, Quota, Usage, masked, pod, shown};
use crate::held::Pod;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::jiff::Timestamp;
use proto::api::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeSet;

/// An object as quotas see it.
#[derive(Clone, Debug)]
pub enum Item {
    /// A pod.
    Pod(Box<Pod>),
    /// A Service.
    Service(Box<Service>),
    /// A claim.
    Claim(Box<PersistentVolumeClaim>),
    /// A ResourceClaim.
    DeviceClaim(Box<ResourceClaim>),
    /// Anything else.
    Object,
}

impl Item {
    /// Reads an object of the evaluator's resource.
    ///
    /// # Errors
    /// Where the object is not of its type.
    pub fn read(evaluator: &Evaluator, object: &Value) -> Result<Self, serde_json::Error> {
        use serde::Deserialize;
        Ok(match evaluator {
            Evaluator::Pods => Self::Pod(Box::new(Pod::deserialize(object)?)),
            Evaluator::Services => Self::Service(Box::new(Service::deserialize(object)?)),
            Evaluator::Claims => Self::Claim(Box::new(PersistentVolumeClaim::deserialize(object)?)),
            Evaluator::DeviceClaims => Self::DeviceClaim(Box::new(ResourceClaim::deserialize(object)?)),
            Evaluator::Objects { .. } => Self::Object,
        })
    }

    fn is_under(&self, quota: &Quota) -> bool {
        match self {
            Self::Pod(pod) => quota.covers(&**pod),
            Self::Service(service) => quota.covers(&**service),
            Self::Claim(claim) => quota.covers(&**claim),
            Self::DeviceClaim(claim) => quota.covers(&**claim),
            Self::Object => !quota.is_scoped(),
        }
    }

    fn usage(&self, evaluator: &Evaluator, now: Timestamp) -> Usage {
        match self {
            Self::Pod(pod) => pod.usage(now),
            Self::Service(service) => service.usage(now),
            Self::Claim(claim) => claim.usage(now),
            Self::DeviceClaim(claim) => claim.usage(now),
            Self::Object => evaluator.counted(),
        }
    }
}

/// What a write asks of the quotas of its namespace.
#[derive(Clone, Debug)]
pub struct Demand {
    /// Who measures it.
    pub evaluator: Evaluator,
    /// The object as it is to be.
    pub new: Item,
    /// The object as it is, for a change.
    pub old: Option<Item>,
    /// When it is asked.
    pub now: Timestamp,
}

impl Demand {
    /// What the write adds to what the quota bounds; nothing where the quota is not about it.
    ///
    /// # Errors
    /// Why the quota refuses it whatever room there is.
    pub fn on(&self, quota: &Quota) -> Result<Usage, String> {
        let evaluator = &self.evaluator;
        if quota.awaits_status(evaluator) && self.new.is_under(quota) {
            let names = quota.wanted.keys().filter(|name| evaluator.measures(name));
            return Err(unknown(&quota.name, names.map(String::as_str)));
        }
        let bounded: BTreeSet<&str> = quota
            .hard
            .keys()
            .map(String::as_str)
            .filter(|name| evaluator.measures(name))
            .collect();
        if bounded.is_empty() || !self.new.is_under(quota) {
            return Ok(Usage::new());
        }
        if let Item::Pod(pod) = &self.new {
            pod::check(pod, bounded.iter().copied()).map_err(|why| format!("failed quota: {}: {why}", quota.name))?;
        }
        if bounded.iter().any(|name| !quota.used.contains_key(*name)) {
            return Err(unknown(&quota.name, bounded.into_iter()));
        }
        let mut usage = self.new.usage(evaluator, self.now);
        let negative: Vec<&str> = usage
            .iter()
            .filter(|(_, amount)| amount.is_negative())
            .map(|(name, _)| name.as_str())
            .collect();
        if !negative.is_empty() {
            return Err(format!(
                "quota usage is negative for resource(s): {}",
                negative.join(",")
            ));
        }
        if let Some(old) = self.old.as_ref().filter(|old| old.is_under(quota)) {
            for (name, amount) in old.usage(evaluator, self.now) {
                if let Some(new) = usage.get_mut(&name) {
                    *new = new.minus(amount).or_larger(Quantity::ZERO);
                }
            }
        }
        usage.retain(|_, amount| !amount.is_zero());
        Ok(masked(&usage, &quota.hard))
    }
}

/// What a quota bounds has not been counted yet.
fn unknown<'n>(quota: &str, names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    format!("status unknown for quota: {quota}, resources: {}", names.join(","))
}

impl Quota {
    /// Charges what a write adds.
    ///
    /// # Errors
    /// What there is not enough of; nothing is charged then.
    pub fn charge(&mut self, added: &Usage) -> Result<(), String> {
        let mut used = self.used.clone();
        proto::api::resources::add(&mut used, added);
        let exceeded: BTreeSet<&str> = added
            .keys()
            .filter(|name| {
                let (used, hard) = (used.get(*name), self.hard.get(*name));
                used.zip(hard).is_some_and(|(used, hard)| used > hard)
            })
            .map(String::as_str)
            .collect();
        if !exceeded.is_empty() {
            return Err(format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                self.name,
                shown(added, &exceeded),
                shown(&self.used, &exceeded),
                shown(&self.hard, &exceeded)
            ));
        }
        self.used = used;
        Ok(())
    }

    /// Takes back what was charged for a write that was not done.
    pub fn give_back(&mut self, added: &Usage) {
        for (name, amount) in added {
            if let Some(used) = self.used.get_mut(name) {
                *used = used.minus(*amount).or_larger(Quantity::ZERO);
            }
        }
    }
}
