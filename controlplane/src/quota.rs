//! What ResourceQuotas count and what they refuse (control-plane contract §7, §12). Pure.
//!
//! Owns the names a quota may bound, what one object uses of them, and the texts of refusals; they are upstream's. The API server charges
//! by it before a write, the controller counts by it anew. Never knows who else is being charged, and writes nothing.

use k8s_openapi::api::core::v1::{ResourceQuota, ScopedResourceSelectorRequirement};
use k8s_openapi::jiff::Timestamp;
use proto::api::quantity::{Format, Quantity};
use proto::api::resources::{ResourceList, parse_list};
use std::collections::BTreeSet;

mod claim;
mod demand;
mod device;
mod pod;
mod service;

#[cfg(test)]
mod tests;

pub use demand::{Demand, Item};
pub(crate) use pod::overdue_at;

/// Amounts by resource name, such as `requests.cpu` or `count/jobs.batch`.
pub type Usage = ResourceList;

/// What begins the name under which the objects of a resource are counted.
const COUNT: &str = "count/";

/// Resources of the core group that are counted under their plain name, too.
const ALIASES: &[&str] = &["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

/// Who measures the objects of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evaluator {
    /// pods
    Pods,
    /// services
    Services,
    /// persistentvolumeclaims
    Claims,
    /// resourceclaims.resource.k8s.io
    DeviceClaims,
    /// Any other resource: its objects are counted.
    Objects {
        /// API group; empty for core.
        group: String,
        /// Plural name.
        plural: String,
    },
}

impl Evaluator {
    /// The one for a resource; `None` for events, which no quota counts.
    pub fn of(group: &str, plural: &str) -> Option<Self> {
        match (group, plural) {
            ("" | "events.k8s.io", "events") => None,
            ("", "pods") => Some(Self::Pods),
            ("", "services") => Some(Self::Services),
            ("", "persistentvolumeclaims") => Some(Self::Claims),
            ("resource.k8s.io", "resourceclaims") => Some(Self::DeviceClaims),
            _ => Some(Self::Objects {
                group: group.to_owned(),
                plural: plural.to_owned(),
            }),
        }
    }

    /// The one that measures what a quota bounds under this name, if any does.
    pub fn of_name(name: &str) -> Option<Self> {
        if let Some(found) = [Self::Pods, Self::Services, Self::Claims, Self::DeviceClaims]
            .into_iter()
            .find(|evaluator| evaluator.measures(name))
        {
            return Some(found);
        }
        if ALIASES.contains(&name) {
            return Self::of("", name);
        }
        let (plural, group) = resource(name.strip_prefix(COUNT)?);
        Self::of(group, plural)
    }

    /// Whether it measures what a quota bounds under this name.
    pub fn measures(&self, name: &str) -> bool {
        match self {
            Self::Pods => pod::measures(name),
            Self::Services => service::measures(name),
            Self::Claims => claim::measures(name),
            Self::DeviceClaims => device::measures(name),
            Self::Objects { group, plural } => {
                let counted = name.strip_prefix(COUNT).map(resource);
                let is_alias = group.is_empty() && name == plural && ALIASES.contains(&name);
                is_alias || counted == Some((plural, group))
            }
        }
    }

    /// What one object uses of which nothing but its being there counts.
    fn counted(&self) -> Usage {
        let Self::Objects { group, plural } = self else {
            return Usage::new();
        };
        let mut usage = Usage::from([(count_name(group, plural), one())]);
        if group.is_empty() && ALIASES.contains(&plural.as_str()) {
            usage.insert(plural.clone(), one());
        }
        usage
    }
}

/// Plural and group of `PLURAL.GROUP`.
fn resource(counted: &str) -> (&str, &str) {
    counted.split_once('.').unwrap_or((counted, ""))
}

/// The name under which the objects of a resource are counted.
pub fn count_name(group: &str, plural: &str) -> String {
    match group {
        "" => format!("{COUNT}{plural}"),
        group => format!("{COUNT}{plural}.{group}"),
    }
}

fn units(number: usize) -> Quantity {
    Quantity::from_units(i64::try_from(number).unwrap_or(i64::MAX), Format::DecimalSi)
}

fn one() -> Quantity {
    units(1)
}

/// An object that uses more than its place.
pub trait Measured {
    /// What it uses at this time.
    fn usage(&self, now: Timestamp) -> Usage;

    /// Whether one scope of a quota is about it.
    fn is_in(&self, scope: &ScopedResourceSelectorRequirement) -> bool;
}

/// Whether a scope's operator and values select a name that an object has or has not, as a label selector would.
fn selects(scope: &ScopedResourceSelectorRequirement, own: Option<&str>) -> bool {
    let named = || own.is_some_and(|own| scope.values.iter().flatten().any(|value| value == own));
    match scope.operator.as_str() {
        "In" => named(),
        "NotIn" => !named(),
        "Exists" => own.is_some(),
        "DoesNotExist" => own.is_none(),
        _ => false,
    }
}

/// A quota as admission and counting need it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quota {
    /// Its name.
    pub name: String,
    /// `spec.hard`.
    pub wanted: Usage,
    /// `status.hard`: what is enforced.
    pub hard: Usage,
    /// `status.used`.
    pub used: Usage,
    scopes: Vec<ScopedResourceSelectorRequirement>,
    has_status: bool,
}

impl Quota {
    /// What the object says.
    pub fn of(quota: &ResourceQuota) -> Self {
        let (spec, status) = (quota.spec.as_ref(), quota.status.as_ref());
        let plain = spec.and_then(|spec| spec.scopes.as_ref()).into_iter().flatten();
        let plain = plain.map(|scope| ScopedResourceSelectorRequirement {
            scope_name: scope.clone(),
            operator: "Exists".to_owned(),
            values: None,
        });
        let selected = spec.and_then(|spec| spec.scope_selector.as_ref());
        let selected = selected.and_then(|selector| selector.match_expressions.as_ref());
        let hard = status.and_then(|status| status.hard.as_ref());
        Self {
            name: quota.metadata.name.clone().unwrap_or_default(),
            wanted: parse_list(spec.and_then(|spec| spec.hard.as_ref())),
            hard: parse_list(hard),
            used: parse_list(status.and_then(|status| status.used.as_ref())),
            scopes: plain.chain(selected.into_iter().flatten().cloned()).collect(),
            has_status: hard.is_some(),
        }
    }

    /// Whether nobody has said yet what is enforced, though something of what this evaluator measures is to be.
    pub fn awaits_status(&self, evaluator: &Evaluator) -> bool {
        !self.has_status && self.wanted.keys().any(|name| evaluator.measures(name))
    }

    /// What it says is used and has to be proven: not what `before`, this quota as it was, said no less of. As long as something is
    /// enforced, what is said to be used covers all that was charged.
    pub fn unproven(&self, before: &Self) -> Usage {
        let is_covered = |name: &String, amount: &Quantity| {
            let told = before.used.get(name).filter(|_| before.hard.contains_key(name));
            told.is_some_and(|told| *told <= *amount)
        };
        let all = self.used.iter().filter(|(name, amount)| !is_covered(name, amount));
        all.map(|(name, amount)| (name.clone(), *amount)).collect()
    }

    /// Whether it has any scope: then it is about pods or claims alone.
    pub fn is_scoped(&self) -> bool {
        !self.scopes.is_empty()
    }

    /// Whether all its scopes are about the object.
    pub fn covers(&self, object: &impl Measured) -> bool {
        self.scopes.iter().all(|scope| object.is_in(scope))
    }

    /// What these objects use together of what the quota bounds and the evaluator measures; what none uses is zero.
    pub fn sum<'o, M: Measured + 'o>(
        &self,
        evaluator: &Evaluator,
        objects: impl Iterator<Item = &'o M>,
        bounds: &Usage,
        now: Timestamp,
    ) -> Usage {
        let names = bounds.keys().filter(|name| evaluator.measures(name));
        let mut total: Usage = names.map(|name| (name.clone(), Quantity::ZERO)).collect();
        if total.is_empty() {
            return total;
        }
        for object in objects.filter(|object| self.covers(*object)) {
            for (name, amount) in object.usage(now) {
                if let Some(sum) = total.get_mut(&name) {
                    *sum = sum.plus(amount);
                }
            }
        }
        total
    }
}

/// The part of `usage` under the names of `names`.
pub fn masked(usage: &Usage, names: &Usage) -> Usage {
    let kept = usage.iter().filter(|(name, _)| names.contains_key(*name));
    kept.map(|(name, amount)| (name.clone(), *amount)).collect()
}

/// `a=1,b=2`, as upstream writes amounts in refusals.
fn shown<'u>(usage: &'u Usage, names: &BTreeSet<&'u str>) -> String {
    let parts = usage.iter().filter(|(name, _)| names.contains(name.as_str()));
    parts
        .map(|(name, amount)| format!("{name}={amount}"))
        .collect::<Vec<_>>()
        .join(",")
}
