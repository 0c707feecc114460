//! Making the Node object, or adopting the one that is there.

use super::status::Facts;
use super::{NodeError, call};
use crate::admission::placement::NodeView;
use crate::config::NodeConfig;
use crate::eviction::Conditions;
use client::ordered::CollectOrdered;
use client::{AsTree, Backoff};
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use proto::api::names::is_extended_resource;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// What an external cloud provider looks for.
const PROVIDED: &str = "alpha.kubernetes.io/provided-node-ip";
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(7);

/// What this kubelet wants its Node object to carry.
pub(super) struct Registration {
    name: String,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    provider_id: Option<String>,
    /// The addresses an external cloud provider is to look for, if it is to.
    provided: Option<String>,
    /// The machine, by its id and its system's.
    machine: (String, String),
    /// Nobody here knows of the extended resources its object may have.
    new_devices: bool,
}

impl Registration {
    pub(super) fn new(config: &NodeConfig, facts: &Facts) -> Self {
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let mut labels: BTreeMap<String, String> = [
            ("kubernetes.io/hostname", facts.host_name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", arch),
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", arch),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect_ordered();
        labels.extend(config.labels.clone());
        Self {
            name: facts.name.clone(),
            labels,
            taints: config.taints.clone(),
            provider_id: config.provider_id.clone(),
            provided: provided(config),
            machine: (facts.machine.machine_id.clone(), facts.machine.system_uuid.clone()),
            new_devices: false,
        }
    }

    /// What pods are judged by as long as nobody says otherwise.
    pub(super) fn description(&self) -> NodeView {
        NodeView {
            looked: 0,
            labels: self.labels.clone(),
            taints: self.taints.clone(),
            extended: BTreeMap::new(),
            groups_policy: false,
            pressure: Conditions::new(),
            shutting_down: false,
            known: false,
        }
    }

    /// Whether what is known of the node was told by a kubelet of another machine.
    fn is_of_another_machine(&self, node: &Node) -> bool {
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        info.is_some_and(|info| {
            let differs = |theirs: &str, ours: &str| !theirs.is_empty() && !ours.is_empty() && theirs != ours;
            differs(&info.machine_id, &self.machine.0) && differs(&info.system_uuid, &self.machine.1)
        })
    }

    fn object(&self, status: NodeStatus) -> Node {
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(self.labels.clone()),
                annotations: Some(self.annotations()),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: Some(self.taints.clone()).filter(|t| !t.is_empty()),
                provider_id: self.provider_id.clone(),
                ..NodeSpec::default()
            }),
            status: Some(status),
        }
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let provided = self.provided.iter().map(|ips| (PROVIDED.to_owned(), ips.clone()));
        provided
            .chain([(ATTACH_DETACH.to_owned(), "true".to_owned())])
            .collect_ordered()
    }

    /// The patch that brings an existing node's labels and annotation to what they should be; `None` when they are. Taints are the
    /// operator's once the node exists.
    fn adoption(&self, node: &Node) -> Option<Value> {
        let have = node.metadata.labels.clone().unwrap_or_default();
        let labels: BTreeMap<_, _> = self
            .labels
            .iter()
            .filter(|(k, v)| have.get(*k) != Some(*v))
            .collect_ordered();
        let have = node.metadata.annotations.clone().unwrap_or_default();
        let mut annotations: BTreeMap<&str, Option<String>> = BTreeMap::new();
        let wanted = self.annotations();
        for key in [ATTACH_DETACH, PROVIDED] {
            if have.get(key) != wanted.get(key) {
                annotations.insert(key, wanted.get(key).cloned());
            }
        }
        if labels.is_empty() && annotations.is_empty() {
            return None;
        }
        Some(json!({ "metadata": { "labels": labels, "annotations": annotations } }))
    }
}

/// `--node-ip` where an external cloud provider says what the node's addresses are.
fn provided(config: &NodeConfig) -> Option<String> {
    let ips: Vec<String> = config.ips.iter().map(ToString::to_string).collect();
    (config.external_cloud && !ips.is_empty()).then(|| ips.join(","))
}

impl Registration {
    /// Also sets what the object says of extended resources to zero, if it is there: nobody here knows of them.
    pub(super) fn with_new_devices(mut self, new: bool) -> Self {
        self.new_devices = new;
        self
    }

    /// The patch that does.
    fn reset(&self, node: &Node) -> Option<Value> {
        let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
        let extended = capacity
            .into_iter()
            .flatten()
            .filter(|(name, _)| is_extended_resource(name));
        let zeros: BTreeMap<&String, &str> = extended.map(|(name, _)| (name, "0")).collect_ordered();
        let any = self.new_devices && !zeros.is_empty();
        any.then(|| json!({ "status": { "capacity": zeros, "allocatable": zeros } }))
    }
}

/// Returns whether it made the object.
async fn attempt(api: &Api<AsTree<Node>>, wanted: &Registration, status: &NodeStatus) -> Result<bool, NodeError> {
    let created = call(
        "create node",
        api.create(&PostParams::default(), &AsTree(wanted.object(status.clone()))),
    )
    .await;
    match created {
        Ok(_) => {
            tracing::info!(node = wanted.name, "node registered");
            return Ok(true);
        }
        Err(NodeError::Call { source, .. }) if matches!(&*source, kube::Error::Api(s) if s.code == 409 || s.code == 403) =>
            {}
        Err(error) => return Err(error),
    }
    let node = call("get node", api.get(&wanted.name)).await?;
    if wanted.is_of_another_machine(&node) {
        tracing::error!(
            node = wanted.name,
            "the node was another machine's: if that one runs still, both write the same object; give one another --hostname-override"
        );
    }
    if let Some(patch) = wanted.adoption(&node) {
        let params = PatchParams::default();
        let body = Patch::Strategic(&patch);
        call("patch node", api.patch(&wanted.name, &params, &body)).await?;
    }
    if let Some(patch) = wanted.reset(&node) {
        let params = PatchParams::default();
        let body = Patch::Strategic(&patch);
        call("patch node status", api.patch_status(&wanted.name, &params, &body)).await?;
    }
    tracing::info!(node = wanted.name, "node was already registered");
    Ok(false)
}

/// Registers the node; tries until it succeeds. Returns whether there was no object before.
pub(super) async fn register(api: &Api<AsTree<Node>>, wanted: &Registration, status: NodeStatus, seed: u64) -> bool {
    let mut backoff = Backoff::new(BACKOFF_FIRST, BACKOFF_MAX, seed);
    loop {
        match attempt(api, wanted, &status).await {
            Ok(is_new) => return is_new,
            Err(error) => tracing::warn!(
                node = wanted.name,
                error = &error as &dyn std::error::Error,
                "node not registered, retrying"
            ),
        }
        tokio::time::sleep(backoff.fail()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::status::tests::{config, facts};
    use super::*;

    #[test]
    fn labels_of_a_new_node() {
        let mut config = config();
        config.node.labels.insert("a".into(), "b".into());
        let node = Registration::new(&config.node, &facts()).object(NodeStatus::default());
        let labels = node.metadata.labels.expect("labels");
        assert_eq!(labels.get("kubernetes.io/hostname").map(String::as_str), Some("host-a"));
        assert_eq!(labels.get("kubernetes.io/os").map(String::as_str), Some("linux"));
        assert_eq!(labels.get("a").map(String::as_str), Some("b"));
    }

    #[test]
    fn extended_resources_nobody_knows_of_are_set_to_zero() {
        let status = json!({"capacity": {"cpu": "2", "example.com/gpu": "3"}});
        let wanted = Registration::new(&config().node, &facts());
        let node = wanted.object(serde_json::from_value(status).expect("a status"));
        assert_eq!(wanted.reset(&node), None);
        let wanted = wanted.with_new_devices(true);
        let zero = json!({"example.com/gpu": "0"});
        assert_eq!(
            wanted.reset(&node),
            Some(json!({"status": {"capacity": zero, "allocatable": zero}}))
        );
        assert_eq!(wanted.reset(&wanted.object(NodeStatus::default())), None);
    }

    #[test]
    fn an_existing_node_is_patched_only_where_it_differs() {
        let wanted = Registration::new(&config().node, &facts());
        let mut node = wanted.object(NodeStatus::default());
        assert_eq!(wanted.adoption(&node), None);
        node.metadata
            .labels
            .get_or_insert_default()
            .insert("kubernetes.io/hostname".into(), "old".into());
        node.metadata
            .labels
            .get_or_insert_default()
            .insert("theirs".into(), "kept".into());
        assert!(!wanted.is_of_another_machine(&node), "it has told nothing of itself");
        let theirs = serde_json::json!({"nodeInfo": {"architecture": "", "bootID": "", "containerRuntimeVersion": "",
            "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "theirs", "operatingSystem": "",
            "osImage": "", "systemUUID": "theirs"}});
        node.status = serde_json::from_value(theirs).expect("a status");
        let ours = Registration {
            machine: ("ours".into(), "ours".into()),
            new_devices: false,
            ..Registration::new(&config().node, &facts())
        };
        assert!(ours.is_of_another_machine(&node));
        let patch = wanted.adoption(&node).expect("a patch");
        assert_eq!(patch["metadata"]["labels"], json!({"kubernetes.io/hostname": "host-a"}));
    }

    #[test]
    fn an_external_cloud_provider_is_told_where_to_look() {
        let of = |external: bool, ips: &[&str]| {
            let mut config = config();
            config.node.external_cloud = external;
            config.node.ips = ips.iter().map(|ip| ip.parse().expect("address")).collect();
            Registration::new(&config.node, &facts())
        };
        let both = of(true, &["192.0.2.1", "2001:db8::1"]).object(NodeStatus::default());
        let annotations = both.metadata.annotations.clone().expect("annotations");
        assert_eq!(
            annotations.get(PROVIDED).map(String::as_str),
            Some("192.0.2.1,2001:db8::1")
        );
        assert_eq!(of(true, &["192.0.2.1", "2001:db8::1"]).adoption(&both), None);
        let patch = |registration: Registration, node: &Node| {
            let patch = registration.adoption(node).expect("a patch");
            patch["metadata"]["annotations"].clone()
        };
        assert_eq!(patch(of(true, &["192.0.2.1"]), &both), json!({PROVIDED: "192.0.2.1"}));
        for stale in [of(true, &[]), of(false, &["192.0.2.1"])] {
            assert_eq!(patch(stale, &both), json!({PROVIDED: null}));
        }
        let plain = of(false, &[]).object(NodeStatus::default());
        assert_eq!(patch(of(true, &["192.0.2.1"]), &plain), json!({PROVIDED: "192.0.2.1"}));
    }
}
