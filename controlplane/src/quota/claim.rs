//! What a PersistentVolumeClaim uses: its place and its storage, altogether and of its class. Pure.

use super::{Measured, Usage, one, selects};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ScopedResourceSelectorRequirement};
use k8s_openapi::jiff::Timestamp;
use proto::api::quantity::{Format, Quantity};
use std::collections::BTreeSet;

const CLAIMS: &str = "persistentvolumeclaims";
const STORAGE: &str = "requests.storage";
/// Between the name of a class and what of it is bounded.
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
/// The class of claims made before it was a field.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) fn measures(name: &str) -> bool {
    let of_class = name.split_once(OF_CLASS).map_or("", |(_, what)| what);
    name == "count/persistentvolumeclaims" || [name, of_class].iter().any(|name| [CLAIMS, STORAGE].contains(name))
}

/// The class a claim names; empty for none.
fn class(claim: &PersistentVolumeClaim) -> &str {
    let annotations = claim.metadata.annotations.as_ref();
    let named = annotations.and_then(|annotations| annotations.get(CLASS_ANNOTATION));
    let spec = claim.spec.as_ref();
    named
        .or(spec.and_then(|spec| spec.storage_class_name.as_ref()))
        .map_or("", String::as_str)
}

/// What it asks for, or was given if that is more; in whole bytes, as quotas are.
fn storage(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    let asked = claim
        .spec
        .as_ref()?
        .resources
        .as_ref()?
        .requests
        .as_ref()?
        .get("storage")?;
    let given = claim
        .status
        .as_ref()
        .and_then(|status| status.allocated_resources.as_ref());
    let given = given.and_then(|given| given.get("storage")).map(Quantity::of);
    let most = given.map_or(Quantity::of(asked), |given| Quantity::of(asked).or_larger(given));
    let whole = Quantity::from_units(most.value(), most.format());
    Some(if whole == most { most } else { whole })
}

/// The VolumeAttributesClasses that a claim has, had, or is to have.
fn attributes_classes(claim: &PersistentVolumeClaim) -> BTreeSet<&str> {
    let (spec, status) = (claim.spec.as_ref(), claim.status.as_ref());
    let target = status.and_then(|status| status.modify_volume_status.as_ref());
    [
        spec.and_then(|spec| spec.volume_attributes_class_name.as_deref()),
        status.and_then(|status| status.current_volume_attributes_class_name.as_deref()),
        target.and_then(|target| target.target_volume_attributes_class_name.as_deref()),
    ]
    .into_iter()
    .flatten()
    .filter(|name| !name.is_empty())
    .collect()
}

impl Measured for PersistentVolumeClaim {
    fn usage(&self, _now: Timestamp) -> Usage {
        let mut usage = Usage::from([
            (CLAIMS.to_owned(), one()),
            ("count/persistentvolumeclaims".to_owned(), one()),
        ]);
        let (class, storage) = (class(self), storage(self));
        if let Some(storage) = storage {
            usage.insert(STORAGE.to_owned(), storage);
        }
        if !class.is_empty() {
            usage.insert(
                format!("{class}{OF_CLASS}{CLAIMS}"),
                Quantity::from_units(1, Format::DecimalSi),
            );
            if let Some(storage) = storage {
                usage.insert(format!("{class}{OF_CLASS}{STORAGE}"), storage);
            }
        }
        usage
    }

    fn is_in(&self, scope: &ScopedResourceSelectorRequirement) -> bool {
        if scope.scope_name != "VolumeAttributesClass" {
            return false;
        }
        let classes = attributes_classes(self);
        match classes.is_empty() {
            true => selects(scope, None),
            false => classes.into_iter().any(|class| selects(scope, Some(class))),
        }
    }
}
