//! Nodes as they are held: see [`super`].

use super::{Text, metadata};
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::core::v1::{ContainerImage, NodeAddress, NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default)]
pub struct Node {
    /// `metadata`
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// `spec`
    pub spec: Option<NodeSpec>,
    /// `status`
    pub status: Option<NodeStatus>,
    /// See [`Node::whole`].
    #[serde(skip)]
    pub(crate) text: Text,
}

/// A node's spec.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSpec {
    /// `podCIDR`
    #[serde(rename = "podCIDR")]
    pub pod_cidr: Option<String>,
    /// `podCIDRs`
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Option<Vec<String>>,
    /// `taints`
    pub taints: Option<Vec<Taint>>,
    /// `unschedulable`
    pub unschedulable: Option<bool>,
}

/// A node's status.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, rename_all = "camelCase")]
pub struct NodeStatus {
    /// `addresses`
    pub addresses: Option<Vec<NodeAddress>>,
    /// `allocatable`
    pub allocatable: Option<BTreeMap<String, Quantity>>,
    /// `capacity`
    pub capacity: Option<BTreeMap<String, Quantity>>,
    /// `conditions`
    pub conditions: Option<Vec<NodeCondition>>,
    /// `declaredFeatures`
    pub declared_features: Option<Vec<String>>,
    /// `images`
    pub images: Option<Vec<ContainerImage>>,
}

impl Node {
    /// With all of it beside what is held, for who shows it to others.
    ///
    /// # Errors
    /// If it is no node.
    pub fn whole(tree: Value) -> Result<Self, serde_json::Error> {
        let (node, text) = super::beside_text::<Self>(tree)?;
        Ok(Self { text, ..node })
    }

    /// All of it as a tree. Of one that was not read as a whole, its metadata: nobody shows those.
    pub fn shown(&self) -> Value {
        super::shown(&self.text, &self.metadata)
    }
}

impl kube::Resource for Node {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Node".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "nodes".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
