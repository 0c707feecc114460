//! How rules are written short here. Data and one conversion.

use serde_json::{Value, json};

/// One rule, written short.
#[derive(Clone, Copy, Debug)]
pub(super) enum R {
    /// verbs, API groups, resources.
    On(&'static str, &'static str, &'static str),
    /// As `On`, limited to names.
    Named(&'static str, &'static str, &'static str, &'static str),
    /// verbs, paths.
    Url(&'static str, &'static str),
}

pub(super) const READ: &str = "get,list,watch";
pub(super) const WRITE: &str = "create,delete,deletecollection,patch,update";
pub(super) const READ_WRITE: &str = "create,delete,deletecollection,get,list,patch,update,watch";
pub(super) const EVENTS: R = R::On("create,patch,update", ",events.k8s.io", "events");

pub(super) const APPS: &str = "apps";
pub(super) const BATCH: &str = "batch";
pub(super) const CERTIFICATES: &str = "certificates.k8s.io";
pub(super) const COORDINATION: &str = "coordination.k8s.io";
pub(super) const DISCOVERY: &str = "discovery.k8s.io";
pub(super) const NETWORKING: &str = "networking.k8s.io";
pub(super) const RBAC: &str = "rbac.authorization.k8s.io";
pub(super) const RESOURCE: &str = "resource.k8s.io";
pub(super) const STORAGE: &str = "storage.k8s.io";

fn list(text: &str) -> Vec<&str> {
    text.split(',').collect()
}

impl R {
    /// The rule as stored.
    pub(super) fn value(&self) -> Value {
        match self {
            Self::On(verbs, groups, resources) => {
                json!({"verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources)})
            }
            Self::Named(verbs, groups, resources, names) => json!({"verbs": list(verbs), "apiGroups": list(groups),
                "resources": list(resources), "resourceNames": list(names)}),
            Self::Url(verbs, urls) => json!({"verbs": list(verbs), "nonResourceURLs": list(urls)}),
        }
    }
}
