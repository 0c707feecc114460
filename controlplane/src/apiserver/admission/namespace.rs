//! NamespaceLifecycle: nothing is made in a namespace that is missing or going, and some namespaces stay. Pure.

use super::{Attributes, Operation};
use crate::apiserver::status::{ApiError, Cause};
use serde_json::Value;

/// Namespaces nobody may delete.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Whether the plugin has anything to say: it guards creations inside namespaces.
pub(super) fn applies(attributes: &Attributes<'_>) -> bool {
    let review = attributes.kind.plural == "localsubjectaccessreviews";
    attributes.operation == Operation::Create
        && attributes.kind.namespaced
        && !attributes.namespace.is_empty()
        && !review
}

/// Refuses a creation if the namespace is missing or terminating.
pub(super) fn check(attributes: &Attributes<'_>, namespace: Option<&Value>) -> Result<(), ApiError> {
    let name = attributes.namespace;
    let Some(namespace) = namespace else {
        return Err(ApiError::not_found("", "namespaces", name));
    };
    let deleted = namespace
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|at| !at.is_null());
    let terminating = namespace
        .pointer("/status/phase")
        .is_some_and(|phase| phase == "Terminating");
    if !deleted && !terminating {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {name} because it is being terminated");
    let mut error = attributes.forbid(&why);
    error.causes.push(Cause {
        kind: "NamespaceTerminating".to_owned(),
        message: format!("namespace {name} is being terminated"),
        field: "metadata.namespace".to_owned(),
    });
    Err(error)
}

/// Refuses to delete the namespaces the cluster stands on.
pub(super) fn check_delete(attributes: &Attributes<'_>) -> Result<(), ApiError> {
    if attributes.is("", "namespaces") && IMMORTAL.contains(&attributes.name) {
        return Err(attributes.forbid("this namespace may not be deleted"));
    }
    Ok(())
}
