//! The Node authorizer: a kubelet reads what the pods of its node refer to and nothing else (control-plane contract §6).
//!
//! Says yes or has no opinion; RBAC is asked next. What a node may write is limited further by NodeRestriction, which sees the
//! objects. Who refers to what is in [`Graph`].

mod graph;

use self::graph::Graph;
use super::{Decision, Rule};
use crate::apiserver::reader::Reader;
use crate::apiserver::request::RequestInfo;
use crate::apiserver::user::User;
use crate::resource::pod::reference::Referent;
use proto::api::selector::FieldSelector;
use serde_json::Value;
use std::sync::{Mutex, PoisonError};

const LEASE_NAMESPACE: &str = "kube-node-lease";

/// The node a user is: `system:node:<name>` of group `system:nodes`. The name may be empty.
pub fn node_of(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix("system:node:")?;
    user.is_in("system:nodes").then_some(name)
}

/// Authorizes nodes.
pub(super) struct Nodes {
    /// What every node may do, where nothing below says more.
    rules: Vec<Rule>,
    graph: Mutex<Graph>,
}

/// Yes, or why there is no opinion.
type Opinion = Result<(), String>;

fn no(why: &str) -> Opinion {
    Err(why.to_owned())
}

impl Nodes {
    pub(super) fn new(rules: Vec<Rule>) -> Self {
        Self {
            rules,
            graph: Mutex::default(),
        }
    }

    /// Whether this user is a node that may do that; the reason says why there is no opinion.
    pub(super) fn authorize(&self, user: &User, info: &RequestInfo, reader: &Reader) -> Decision {
        let Some(node) = node_of(user) else {
            return Decision::default();
        };
        let opinion = match node {
            "" => Err(format!("unknown node for user \"{}\"", user.name)),
            node => self.judge(node, info, reader),
        };
        Decision {
            allowed: opinion.is_ok(),
            reason: opinion.err().unwrap_or_default(),
        }
    }

    fn judge(&self, node: &str, info: &RequestInfo, reader: &Reader) -> Opinion {
        if info.is_resource {
            match (info.group.as_str(), info.resource.as_str()) {
                ("", "secrets") => return self.read(node, Referent::Secret, info, reader),
                ("", "configmaps") => return self.read(node, Referent::ConfigMap, info, reader),
                ("", "persistentvolumeclaims") if info.subresource == "status" => {
                    if !matches!(info.verb.as_str(), "update" | "patch") {
                        return no("can only get/update/patch this type");
                    }
                    return self.related(node, Referent::Claim, info, reader);
                }
                ("", "persistentvolumeclaims") => {
                    return get_only(info).and_then(|()| self.related(node, Referent::Claim, info, reader));
                }
                ("resource.k8s.io", "resourceclaims") => {
                    return get_only(info).and_then(|()| self.related(node, Referent::ResourceClaim, info, reader));
                }
                ("", "persistentvolumes") => return get_only(info).and_then(|()| self.volume(node, info, reader)),
                ("storage.k8s.io", "volumeattachments") => {
                    return get_only(info).and_then(|()| on_node(node, info, reader));
                }
                ("", "serviceaccounts") => return self.service_account(node, info, reader),
                ("coordination.k8s.io", "leases") => return lease(node, info),
                ("storage.k8s.io", "csinodes") => return csi_node(node, info),
                ("resource.k8s.io", "resourceslices") => return slice(node, info, reader),
                ("", "nodes") => return own_node(node, info),
                ("", "pods") => return pod(node, info, reader),
                _ => {}
            }
        }
        let allowed = self.rules.iter().any(|rule| rule.allows(info));
        if allowed { Ok(()) } else { no("") }
    }

    fn read(&self, node: &str, referent: Referent, info: &RequestInfo, reader: &Reader) -> Opinion {
        if !matches!(info.verb.as_str(), "get" | "list" | "watch") {
            return no("can only read resources of this type");
        }
        if !info.subresource.is_empty() {
            return no("cannot read subresource");
        }
        if info.namespace.is_empty() {
            return no("can only read namespaced object of this type");
        }
        self.related(node, referent, info, reader)
    }

    fn related(&self, node: &str, referent: Referent, info: &RequestInfo, reader: &Reader) -> Opinion {
        if info.name.is_empty() {
            return no("No Object name found");
        }
        let found = self.with_graph(reader, |graph| {
            graph.reaches(node, referent, &info.namespace, &info.name)
        });
        if found { Ok(()) } else { unrelated(node) }
    }

    /// A volume belongs to the nodes of the pods that use its claim.
    fn volume(&self, node: &str, info: &RequestInfo, reader: &Reader) -> Opinion {
        if info.name.is_empty() {
            return no("No Object name found");
        }
        let volume = reader.get("", "persistentvolumes", "", &info.name);
        let claim = volume.as_ref().map(|volume| &volume["spec"]["claimRef"]);
        let text = |field: &str| claim.and_then(|claim| claim[field].as_str()).unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        if self.with_graph(reader, |graph| graph.reaches(node, Referent::Claim, namespace, name)) {
            Ok(())
        } else {
            unrelated(node)
        }
    }

    /// A node reads the accounts of its pods, for credential provider plugins, and makes tokens of them.
    fn service_account(&self, node: &str, info: &RequestInfo, reader: &Reader) -> Opinion {
        if info.verb == "get" && info.subresource.is_empty() {
            return self.related(node, Referent::ServiceAccount, info, reader);
        }
        if info.verb != "create" || info.name.is_empty() {
            return no("can only create tokens for individual service accounts");
        }
        if info.subresource != "token" {
            return no("can only create token subresource of serviceaccount");
        }
        self.related(node, Referent::ServiceAccount, info, reader)
    }

    fn with_graph<T>(&self, reader: &Reader, ask: impl FnOnce(&Graph) -> T) -> T {
        let mut graph = self.graph.lock().unwrap_or_else(PoisonError::into_inner);
        graph.follow(reader);
        ask(&graph)
    }
}

fn unrelated(node: &str) -> Opinion {
    Err(format!("no relationship found between node '{node}' and this object"))
}

fn get_only(info: &RequestInfo) -> Opinion {
    if info.verb != "get" {
        return no("can only get individual resources of this type");
    }
    if !info.subresource.is_empty() {
        return no("cannot get subresource");
    }
    Ok(())
}

/// Objects that carry their node's name themselves.
fn on_node(node: &str, info: &RequestInfo, reader: &Reader) -> Opinion {
    if info.name.is_empty() {
        return no("No Object name found");
    }
    let object = reader.get(&info.group, &info.resource, &info.namespace, &info.name);
    let named = object.is_some_and(|object: std::sync::Arc<Value>| object["spec"]["nodeName"] == node);
    if named { Ok(()) } else { unrelated(node) }
}

fn lease(node: &str, info: &RequestInfo) -> Opinion {
    if !matches!(info.verb.as_str(), "get" | "create" | "update" | "patch" | "delete") {
        return no("can only get, create, update, patch, or delete a node lease");
    }
    if info.namespace != LEASE_NAMESPACE {
        return no("can only access leases in the \"kube-node-lease\" system namespace");
    }
    if info.verb != "create" && info.name != node {
        return no("can only access node lease with the same name as the requesting node");
    }
    Ok(())
}

fn csi_node(node: &str, info: &RequestInfo) -> Opinion {
    if !matches!(info.verb.as_str(), "get" | "create" | "update" | "patch" | "delete") {
        return no("can only get, create, update, patch, or delete a CSINode");
    }
    if !info.subresource.is_empty() {
        return no("cannot authorize CSINode subresources");
    }
    if info.verb != "create" && info.name != node {
        return no("can only access CSINode with the same name as the requesting node");
    }
    Ok(())
}

/// Whether the request is narrowed to objects whose `field` is `value`.
fn selects(info: &RequestInfo, field: &str, value: &str) -> bool {
    let selector = FieldSelector::parse(&info.field_selector).ok();
    selector.as_ref().and_then(|selector| selector.required(field)) == Some(value)
}

fn slice(node: &str, info: &RequestInfo, reader: &Reader) -> Opinion {
    if !info.subresource.is_empty() {
        return no("cannot authorize ResourceSlice subresources");
    }
    match info.verb.as_str() {
        // NodeRestriction looks at the new object's node.
        "create" => Ok(()),
        "get" | "update" | "patch" | "delete" => on_node(node, info, reader),
        "watch" | "list" | "deletecollection" if selects(info, "spec.nodeName", node) => Ok(()),
        "watch" | "list" | "deletecollection" => {
            no("can only list/watch/deletecollection resourceslices with spec.nodeName field selector")
        }
        _ => no(
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
             delete, deletecollection",
        ),
    }
}

fn own_node(node: &str, info: &RequestInfo) -> Opinion {
    match (info.subresource.as_str(), info.verb.as_str()) {
        // NodeRestriction limits these to the node's own object.
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") if info.name == node => Ok(()),
        ("", "get" | "list" | "watch") if info.name.is_empty() => {
            Err(format!("node '{node}' cannot read all nodes, only its own Node object"))
        }
        ("", "get" | "list" | "watch") => Err(format!(
            "node '{node}' cannot read '{}', only its own Node object",
            info.name
        )),
        _ => no(""),
    }
}

fn pod(node: &str, info: &RequestInfo, reader: &Reader) -> Opinion {
    match (info.subresource.as_str(), info.verb.as_str()) {
        ("", "get") => on_node(node, info, reader),
        ("", "list" | "watch") if selects(info, "spec.nodeName", node) => Ok(()),
        ("", "list" | "watch") if !info.name.is_empty() && !info.namespace.is_empty() => on_node(node, info, reader),
        ("", "list" | "watch") => no("can only list/watch pods with spec.nodeName field selector"),
        // NodeRestriction limits these to the node's own pods, and new ones to mirror pods.
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
        _ => no(""),
    }
}

#[cfg(test)]
mod tests;
