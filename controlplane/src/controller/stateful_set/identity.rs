//! Who a stateful set's pods are: names, ordinals, labels, and the pod of an ordinal. Pure.

use super::View;
use super::claim;
use crate::controller::history::{REVISION_LABEL, Revision};
use crate::controller::pod;
use crate::controller::write;
use crate::held::Pod;
use k8s_openapi::api::apps::v1::StatefulSetSpec;
use k8s_openapi::api::core::v1::Pod as NewPod;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pod's number.
pub type Ordinal = i64;

/// The label with the pod's name.
pub const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
/// The label with the pod's ordinal.
pub const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The ordinal in a pod's name: digits without a sign. A first ordinal and a number of replicas together fit 33 bits.
pub fn ordinal(name: &str) -> Option<Ordinal> {
    let (_, digits) = name.rsplit_once('-')?;
    let ordinal: u32 = digits.parse().ok().filter(|_| digits.as_bytes()[0].is_ascii_digit())?;
    Some(Ordinal::from(ordinal))
}

/// Whether a pod of that name may be the set's: its name is the one its ordinal gives it.
pub fn is_member(set: &str, name: &str) -> bool {
    ordinal(name).is_some_and(|ordinal| self::name(set, ordinal) == name)
}

/// A pod's name.
pub fn name(set: &str, ordinal: Ordinal) -> String {
    format!("{set}-{ordinal}")
}

/// `spec.ordinals.start`.
pub fn start(spec: &StatefulSetSpec) -> Ordinal {
    spec.ordinals.as_ref().and_then(|o| o.start).map_or(0, Ordinal::from)
}

/// The ordinals there should be.
pub fn wanted(spec: &StatefulSetSpec) -> std::ops::Range<Ordinal> {
    let replicas = Ordinal::from(spec.replicas.unwrap_or(1)).max(0);
    start(spec)..start(spec) + replicas
}

/// The labels of a pod's identity.
pub fn labels(set: &str, ordinal: Ordinal) -> [(&'static str, String); 2] {
    [(NAME_LABEL, name(set, ordinal)), (INDEX_LABEL, ordinal.to_string())]
}

/// Whether the pod says who it is. Its index label is younger than pods that upstream made: only its name is asked for, as upstream.
pub fn is_labelled(pod: &Pod) -> bool {
    pod::label(pod, NAME_LABEL) == pod.name_any()
}

/// The revision that a new pod of that ordinal is made from: below the partition pods stay with the current one.
fn revision<'a>(view: &'a View<'_>, ordinal: Ordinal) -> &'a Arc<Revision> {
    let strategy = view.spec.update_strategy.as_ref();
    let kept = match strategy.and_then(|s| s.rolling_update.as_ref()) {
        Some(rolling) => rolling.partition.unwrap_or(0),
        None if strategy.and_then(|s| s.type_.as_deref()) == Some("RollingUpdate") => {
            view.set.status.as_ref().and_then(|s| s.current_replicas).unwrap_or(0)
        }
        None => 0,
    };
    match ordinal < view.start() + Ordinal::from(kept) {
        true => &view.current,
        false => &view.update,
    }
}

/// The pod of an ordinal. A revision whose data cannot be read is as good as the set's own template.
pub fn pod(view: &View<'_>, ordinal: Ordinal) -> NewPod {
    let revision = revision(view, ordinal);
    let is_update = Arc::ptr_eq(revision, &view.update);
    let template = revision.template().filter(|_| !is_update);
    let (template, revision) = match &template {
        Some(template) => (template, revision),
        None => (&view.spec.template, &view.update),
    };
    let mut pod = pod::from_template(template, &write::STATEFUL_SETS, view.set);
    let set = view.set.name_any();
    let name = name(&set, ordinal);
    let own: &mut BTreeMap<_, _> = pod.metadata.labels.get_or_insert_default();
    own.extend(labels(&set, ordinal).map(|(key, value)| (key.to_owned(), value)));
    own.insert(REVISION_LABEL.to_owned(), revision.name().to_owned());
    pod.metadata.name = Some(name.clone());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name);
    spec.subdomain = view.spec.service_name.clone().filter(|service| !service.is_empty());
    claim::mount(view.spec, &set, ordinal, spec);
    pod
}
