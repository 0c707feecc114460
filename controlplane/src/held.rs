//! Pods and nodes as they are held by those who see all of a cluster's: the API's fields, by its names, of which somebody in this
//! process asks. Pure.
//!
//! The API's own types take 4.6 KB for a pod of one container in which nothing is set, 1.5 KB for such a node. What is not here is not
//! read from a text, so it costs no time either; what of the rest tells nothing is left out by [`crate::controller::kept`]. Nobody
//! writes one back: writes are patches and deletions, and what is created is made of templates.

mod mention;
mod node;

pub use mention::Volumes;
pub use node::{Node, NodeSpec, NodeStatus};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{
    Affinity, ContainerPort, ContainerRestartRule, ContainerStatus, PodCondition, PodIP, PodResourceClaim,
    PodResourceClaimStatus, PodSchedulingGate, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::api::ObjectMeta;
use proto::api::resources::{ContainerForm, SpecForm, StatusForm};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// All of an object as a text, where somebody shows it to others.
pub(crate) type Text = Option<Box<str>>;

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default)]
pub struct Pod {
    /// `metadata`
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// `spec`
    pub spec: Option<PodSpec>,
    /// `status`
    pub status: Option<PodStatus>,
    /// See [`Pod::whole`].
    #[serde(skip)]
    pub(crate) text: Text,
}

/// A pod's spec.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// `activeDeadlineSeconds`
    pub active_deadline_seconds: Option<i64>,
    /// `affinity`
    pub affinity: Option<Box<Affinity>>,
    /// `containers`
    #[serde(deserialize_with = "listed")]
    pub containers: Vec<Container>,
    /// `ephemeralContainers`
    pub ephemeral_containers: Option<Vec<Container>>,
    /// `hostNetwork`
    pub host_network: Option<bool>,
    /// `hostUsers`
    pub host_users: Option<bool>,
    /// `hostname`
    pub hostname: Option<String>,
    /// Names in `imagePullSecrets`.
    #[serde(rename = "imagePullSecrets", deserialize_with = "mention::pulling", skip_serializing)]
    pub pull_secrets: Vec<String>,
    /// `initContainers`
    pub init_containers: Option<Vec<Container>>,
    /// `nodeName`
    pub node_name: Option<String>,
    /// `nodeSelector`
    pub node_selector: Option<BTreeMap<String, String>>,
    /// `overhead`
    pub overhead: Option<BTreeMap<String, Quantity>>,
    /// `preemptionPolicy`
    pub preemption_policy: Option<String>,
    /// `priority`
    pub priority: Option<i32>,
    /// `priorityClassName`
    pub priority_class_name: Option<String>,
    /// `resourceClaims`
    pub resource_claims: Option<Vec<PodResourceClaim>>,
    /// `resources`
    pub resources: Option<Box<ResourceRequirements>>,
    /// `restartPolicy`
    pub restart_policy: Option<String>,
    /// `schedulerName`
    pub scheduler_name: Option<String>,
    /// `schedulingGates`
    pub scheduling_gates: Option<Vec<PodSchedulingGate>>,
    /// `subdomain`
    pub subdomain: Option<String>,
    /// `terminationGracePeriodSeconds`
    pub termination_grace_period_seconds: Option<i64>,
    /// `tolerations`
    pub tolerations: Option<Vec<Toleration>>,
    /// `topologySpreadConstraints`
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    /// What `volumes` need.
    #[serde(skip_serializing)]
    pub volumes: Volumes,
}

/// A pod's status.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// `allocatedResources`
    pub allocated_resources: Option<BTreeMap<String, Quantity>>,
    /// `conditions`
    pub conditions: Option<Vec<PodCondition>>,
    /// `containerStatuses`
    pub container_statuses: Option<Vec<ContainerStatus>>,
    /// `initContainerStatuses`
    pub init_container_statuses: Option<Vec<ContainerStatus>>,
    /// `message`
    pub message: Option<String>,
    /// `nominatedNodeName`
    pub nominated_node_name: Option<String>,
    /// `phase`
    pub phase: Option<String>,
    /// `podIP`
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    /// `podIPs`
    #[serde(rename = "podIPs")]
    pub pod_ips: Option<Vec<PodIP>>,
    /// `reason`
    pub reason: Option<String>,
    /// `resourceClaimStatuses`
    pub resource_claim_statuses: Option<Vec<PodResourceClaimStatus>>,
    /// `resources`
    pub resources: Option<Box<ResourceRequirements>>,
    /// `startTime`
    pub start_time: Option<Time>,
}

/// A container of any sort.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// `name`
    pub name: String,
    /// `image`
    pub image: Option<String>,
    /// Names of the Secrets in `env`.
    #[serde(rename = "env", deserialize_with = "mention::variables", skip_serializing)]
    pub variable_secrets: Vec<String>,
    /// Names of the Secrets in `envFrom`.
    #[serde(rename = "envFrom", deserialize_with = "mention::sources", skip_serializing)]
    pub source_secrets: Vec<String>,
    /// `ports`
    pub ports: Option<Vec<ContainerPort>>,
    /// `resources`
    pub resources: Option<ResourceRequirements>,
    /// `restartPolicy`
    pub restart_policy: Option<String>,
    /// `restartPolicyRules`
    pub restart_policy_rules: Option<Vec<ContainerRestartRule>>,
}

/// A list, which may be written as null.
fn listed<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Metadata but for who manages which field: that is most of its text, and no informer keeps it.
fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Wire {
        annotations: Option<BTreeMap<String, String>>,
        creation_timestamp: Option<Time>,
        deletion_grace_period_seconds: Option<i64>,
        deletion_timestamp: Option<Time>,
        finalizers: Option<Vec<String>>,
        generation: Option<i64>,
        labels: Option<BTreeMap<String, String>>,
        name: Option<String>,
        namespace: Option<String>,
        owner_references: Option<Vec<OwnerReference>>,
        resource_version: Option<String>,
        uid: Option<String>,
    }
    let wire = Wire::deserialize(deserializer)?;
    Ok(ObjectMeta {
        annotations: wire.annotations,
        creation_timestamp: wire.creation_timestamp,
        deletion_grace_period_seconds: wire.deletion_grace_period_seconds,
        deletion_timestamp: wire.deletion_timestamp,
        finalizers: wire.finalizers,
        generation: wire.generation,
        labels: wire.labels,
        name: wire.name,
        namespace: wire.namespace,
        owner_references: wire.owner_references,
        resource_version: wire.resource_version,
        uid: wire.uid,
        ..ObjectMeta::default()
    })
}

/// An object, and all of it but who manages which field.
fn beside_text<K: DeserializeOwned>(mut tree: Value) -> Result<(K, Text), serde_json::Error> {
    if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    let text = tree.to_string().into();
    Ok((serde_json::from_value(tree)?, Some(text)))
}

fn shown(text: &Text, metadata: &ObjectMeta) -> Value {
    let whole = text.as_deref().and_then(|text| serde_json::from_str(text).ok());
    whole.unwrap_or_else(|| json!({ "metadata": metadata }))
}

impl Pod {
    /// With all of it beside what is held, for who shows it to others.
    ///
    /// # Errors
    /// If it is no pod.
    pub fn whole(tree: Value) -> Result<Self, serde_json::Error> {
        let (pod, text) = beside_text::<Self>(tree)?;
        Ok(Self { text, ..pod })
    }

    /// Whether it refers to the Secret of its namespace.
    pub fn names_secret(&self, secret: &str) -> bool {
        let Some(spec) = &self.spec else { return false };
        let is_among = |names: &[String]| names.iter().any(|name| name == secret);
        let beside = [&spec.init_containers, &spec.ephemeral_containers];
        let mut containers = spec.containers.iter().chain(beside.into_iter().flatten().flatten());
        is_among(&spec.pull_secrets)
            || is_among(&spec.volumes.secrets)
            || containers.any(|c| is_among(&c.variable_secrets) || is_among(&c.source_secrets))
    }

    /// All of it as a tree. Of one that was not read as a whole, its metadata: nobody shows those.
    pub fn shown(&self) -> Value {
        shown(&self.text, &self.metadata)
    }
}

impl kube::Resource for Pod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl ContainerForm for Container {
    fn name(&self) -> &str {
        &self.name
    }

    fn resources(&self) -> Option<&ResourceRequirements> {
        self.resources.as_ref()
    }

    fn restart_policy(&self) -> Option<&str> {
        self.restart_policy.as_deref()
    }
}

impl SpecForm for PodSpec {
    type Container = Container;

    fn containers(&self) -> &[Container] {
        &self.containers
    }

    fn init_containers(&self) -> &[Container] {
        self.init_containers.as_deref().unwrap_or_default()
    }

    fn resources(&self) -> Option<&ResourceRequirements> {
        self.resources.as_deref()
    }

    fn overhead(&self) -> Option<&BTreeMap<String, Quantity>> {
        self.overhead.as_ref()
    }

    fn node_selector(&self) -> Option<&BTreeMap<String, String>> {
        self.node_selector.as_ref()
    }

    fn affinity(&self) -> Option<&Affinity> {
        self.affinity.as_deref()
    }
}

impl StatusForm for PodStatus {
    fn conditions(&self) -> &[PodCondition] {
        self.conditions.as_deref().unwrap_or_default()
    }

    fn containers(&self) -> [&[ContainerStatus]; 2] {
        [&self.container_statuses, &self.init_container_statuses].map(|all| all.as_deref().unwrap_or_default())
    }

    fn allocated_resources(&self) -> Option<&BTreeMap<String, Quantity>> {
        self.allocated_resources.as_ref()
    }

    fn resources(&self) -> Option<&ResourceRequirements> {
        self.resources.as_deref()
    }
}

#[cfg(test)]
mod tests;
