//! What is served and has no effect yet: the one table of it. Whoever writes such a thing is told in a `Warning` header
//! ([`warnings`]), and README lists the same rows ([`listing`]; a test compares). Pure.
//!
//! A row leaves the table with the change that makes its subject work.

use super::Kind;
use super::field::{at, list, text};
use serde_json::Value;

mod pod;

/// One row: a kind, or a field of it, that is stored and not obeyed.
struct Row {
    /// `plural`, or `plural.group`.
    resource: &'static str,
    /// What of it, as a person would write it; empty for all of it.
    part: &'static str,
    /// Whether an object (for pods: a pod's spec, wherever it stands) has it.
    applies: fn(&Value) -> bool,
    /// What does not happen, or happens instead.
    effect: &'static str,
}

const fn kind(resource: &'static str, effect: &'static str) -> Row {
    part(resource, "", |_| true, effect)
}

const fn part(resource: &'static str, part: &'static str, applies: fn(&Value) -> bool, effect: &'static str) -> Row {
    Row {
        resource,
        part,
        applies,
        effect,
    }
}

const NO_DRA: &str = "devices are not allocated, and pods with resource claims stay pending";
const NO_STORAGE: &str = "volumes are neither provisioned nor bound nor attached, and pods with claims stay pending";
const NO_WEBHOOK: &str = "no webhook is called";
const NO_POLICY: &str = "no admission policy is evaluated";

/// Everything but pods' fields, in the order of discovery.
const ROWS: &[Row] = &[
    part(
        "namespaces",
        "labels pod-security.kubernetes.io/*",
        |object| {
            let labels = at(object, &["metadata", "labels"]).as_object();
            labels.is_some_and(|labels| labels.keys().any(|key| key.starts_with("pod-security.kubernetes.io/")))
        },
        "pods are not checked against the Pod Security Standards",
    ),
    kind("persistentvolumeclaims", NO_STORAGE),
    kind("persistentvolumes", NO_STORAGE),
    part(
        "secrets",
        "type kubernetes.io/service-account-token",
        |object| text(object, &["type"]) == "kubernetes.io/service-account-token",
        "no token is put into it: use kubectl create token",
    ),
    part(
        "serviceaccounts",
        "annotation kubernetes.io/enforce-mountable-secrets",
        |object| {
            let annotation = at(
                object,
                &["metadata", "annotations", "kubernetes.io/enforce-mountable-secrets"],
            );
            annotation == "true"
        },
        "pods may mount Secrets that the account does not list",
    ),
    part(
        "services",
        "spec.type LoadBalancer",
        |object| text(object, &["spec", "type"]) == "LoadBalancer",
        "no load balancer is made unless --controllers names service-lb-controller (then they get addresses of nodes) or a controller from outside does",
    ),
    part(
        "statefulsets.apps",
        "volumeClaimTemplates",
        |object| !list(object, &["spec", "volumeClaimTemplates"]).is_empty(),
        "claims are made and nothing binds them, so pods stay pending",
    ),
    kind(
        "ingresses.networking.k8s.io",
        "no controller of ours leads traffic by them (another one may)",
    ),
    kind("csidrivers.storage.k8s.io", NO_STORAGE),
    kind("csinodes.storage.k8s.io", NO_STORAGE),
    kind("csistoragecapacities.storage.k8s.io", NO_STORAGE),
    kind("storageclasses.storage.k8s.io", NO_STORAGE),
    kind("volumeattachments.storage.k8s.io", NO_STORAGE),
    kind("volumeattributesclasses.storage.k8s.io", NO_STORAGE),
    kind("mutatingadmissionpolicies.admissionregistration.k8s.io", NO_POLICY),
    kind(
        "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        NO_POLICY,
    ),
    kind("mutatingwebhookconfigurations.admissionregistration.k8s.io", NO_WEBHOOK),
    kind("validatingadmissionpolicies.admissionregistration.k8s.io", NO_POLICY),
    kind(
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        NO_POLICY,
    ),
    kind(
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        NO_WEBHOOK,
    ),
    kind("deviceclasses.resource.k8s.io", NO_DRA),
    kind("resourceclaims.resource.k8s.io", NO_DRA),
    kind("resourceclaimtemplates.resource.k8s.io", NO_DRA),
    kind("resourceslices.resource.k8s.io", NO_DRA),
];

/// What a written object asks for that has no effect yet, for the writer.
pub(crate) fn warnings(kind: &Kind, object: &Value) -> Vec<String> {
    let is_about = |row: &&Row| match row.resource.split_once('.') {
        Some((plural, group)) => kind.plural == plural && kind.group == group,
        None => kind.plural == row.resource && kind.group.is_empty(),
    };
    let own = ROWS.iter().filter(is_about).filter(|row| (row.applies)(object));
    let mut all: Vec<String> = own
        .map(|row| match row.part {
            "" => format!("{}: {}", row.resource, row.effect),
            part => format!("{} ({part}): {}", row.resource, row.effect),
        })
        .collect();
    if let Some(path) = pod_spec_path(kind) {
        let spec = at(object, path);
        let rows = pod::ROWS.iter().filter(|row| spec.is_object() && (row.applies)(spec));
        all.extend(rows.map(|row| format!("{}: {}: {}", path.join("."), row.part, row.effect)));
    }
    all
}

/// Where objects of the kind hold a pod's spec.
pub(super) fn pod_spec_path(kind: &Kind) -> Option<&'static [&'static str]> {
    Some(match (&*kind.group, &*kind.plural) {
        ("", "pods") => &["spec"],
        ("", "podtemplates") => &["template", "spec"],
        ("batch", "cronjobs") => &["spec", "jobTemplate", "spec", "template", "spec"],
        ("", "replicationcontrollers")
        | ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets")
        | ("batch", "jobs") => &["spec", "template", "spec"],
        _ => return None,
    })
}

/// The table as README has it: rows of one effect share a line.
#[cfg(test)]
fn listing() -> String {
    let name = |row: &Row| match row.part {
        "" => format!("`{}`", row.resource),
        part => format!("`{}` ({part})", row.resource),
    };
    let mut lines: Vec<(String, &str)> = Vec::new();
    for row in ROWS.iter().chain(pod::ROWS) {
        match lines.iter_mut().find(|(_, effect)| *effect == row.effect) {
            Some((names, _)) => *names = format!("{names}, {}", name(row)),
            None => lines.push((name(row), row.effect)),
        }
    }
    lines
        .iter()
        .map(|(names, effect)| format!("- {names}: {effect}.\n"))
        .collect()
}

#[cfg(test)]
mod tests;
