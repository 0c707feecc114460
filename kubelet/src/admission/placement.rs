//! Whether the node is one the pod may be on: operating system, labels, taints, AppArmor (kubelet contract §14, handlers 5 and
//! 6). Pure.

use super::decide::{Rejection, rejection};
use crate::eviction::Conditions;
use crate::eviction::threshold::Condition;
use crate::pod::spec;
use crate::pod_object;
use crate::reason::admission;
use client::ordered::CollectOrdered;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use proto::api::names::is_extended_resource;
use proto::api::qos::{QosClass, qos_class};
use proto::api::quantity::Quantity;
use proto::api::resources::ResourceList;
use proto::api::{affinity, taint};
use std::collections::BTreeMap;

const OS_LABEL: &str = "kubernetes.io/os";
const OS: &str = "linux";

/// The node's object as far as pods are judged by it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// What it has to give of extended resources, as somebody wrote it: what device plugins give is judged by who keeps that, and not among
    /// it where pods are judged.
    pub extended: ResourceList,
    /// Whether its runtime obeys `supplementalGroupsPolicy`: that is known of the runtime, not of the object.
    pub groups_policy: bool,
    /// What it runs short of: that is known of the machine.
    pub pressure: Conditions,
    /// Whether it is going down: that is known of the machine, too.
    pub shutting_down: bool,
    /// Whether that is what the API server has (or there is none to ask), not just what this kubelet would register.
    pub known: bool,
    /// The question this answers, of those whether the description is still true; 0 before the first.
    pub looked: u64,
}

impl NodeView {
    /// What an object says.
    pub fn of(node: &Node) -> Self {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
        let told = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let extended = told
            .into_iter()
            .flatten()
            .filter(|(name, _)| is_extended_resource(name));
        Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: taints.unwrap_or_default(),
            extended: extended
                .map(|(name, amount)| (name.clone(), Quantity::of(amount)))
                .collect_ordered(),
            groups_policy: false,
            pressure: Conditions::new(),
            shutting_down: false,
            known: true,
            looked: 0,
        }
    }
}

/// Refuses every new pod while the machine goes down.
pub(super) fn judge_shutdown(view: &NodeView) -> Result<(), Rejection> {
    match view.shutting_down {
        true => Err(rejection(
            admission::NODE_SHUTDOWN,
            "Pod was rejected as the node is shutting down.",
        )),
        false => Ok(()),
    }
}

/// The taint of a node that runs short of memory.
const MEMORY_TAINT: &str = "node.kubernetes.io/memory-pressure";

/// Refuses new pods while the node runs short: all but critical ones, but where it is memory alone only those that asked for nothing and do
/// not tolerate it.
pub(super) fn judge_pressure(view: &NodeView, pod: &Pod) -> Result<(), Rejection> {
    if view.pressure.is_empty() || pod_object::is_critical(pod) {
        return Ok(());
    }
    if view.pressure.iter().eq([&Condition::Memory]) {
        let spec = pod_object::spec(pod);
        let taint = Taint {
            key: MEMORY_TAINT.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        let tolerated = taint::tolerated(&taint, spec.tolerations.as_deref().unwrap_or_default());
        if qos_class(spec) != QosClass::BestEffort || tolerated {
            return Ok(());
        }
    }
    let conditions: Vec<String> = view.pressure.iter().map(ToString::to_string).collect();
    let message = format!("The node had condition: [{}]. ", conditions.join(" "));
    Err(rejection(admission::EVICTED, &message))
}

/// Refuses pods for another operating system.
pub(super) fn judge_os(pod: &Pod) -> Result<(), Rejection> {
    // Upstream looks at the pod's own label here; its node selector is judged with every other.
    let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(OS_LABEL));
    if label.is_some_and(|os| os != OS) {
        return Err(rejection(
            admission::POD_OS_SELECTOR_NODE_LABEL_DOES_NOT_MATCH,
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ));
    }
    let os = pod_object::spec(pod).os.as_ref();
    if os.is_some_and(|os| os.name != OS) {
        return Err(rejection(
            admission::POD_OS_NOT_SUPPORTED,
            "Failed to admit pod as the OS field doesn't match node OS",
        ));
    }
    Ok(())
}

/// Refuses pods that must not have the groups of their images where the runtime gives them all the same.
pub(super) fn judge_groups(view: &NodeView, pod: &Pod) -> Result<(), Rejection> {
    let context = pod_object::spec(pod).security_context.as_ref();
    let policy = context.and_then(|context| context.supplemental_groups_policy.as_deref());
    if policy == Some("Strict") && !view.groups_policy {
        let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
        return Err(rejection(admission::SUPPLEMENTAL_GROUPS_POLICY_NOT_SUPPORTED, message));
    }
    Ok(())
}

/// Refuses pods whose selector or required affinity the node does not match.
pub(super) fn judge_affinity(name: &str, view: &NodeView, pod: &Pod) -> Result<(), Rejection> {
    if affinity::pod_allows(pod_object::spec(pod), name, &view.labels) {
        return Ok(());
    }
    let message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    Err(rejection(admission::NODE_AFFINITY, message))
}

/// Refuses pods that would be evicted at once; static pods never are.
pub(super) fn judge_taints(view: &NodeView, pod: &Pod) -> Result<(), Rejection> {
    let tolerations = pod_object::spec(pod).tolerations.as_deref().unwrap_or_default();
    if pod_object::is_static(pod) || taint::find_untolerated(&view.taints, tolerations, &["NoExecute"]).is_none() {
        return Ok(());
    }
    let message = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    Err(rejection(admission::TAINT_TOLERATION, message))
}

/// Refuses pods that are to be confined by AppArmor where the kernel has none. What runs already is let alone.
pub(super) fn judge_apparmor(is_enabled: bool, pod: &Pod) -> Result<(), Rejection> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if is_enabled || !matches!(phase, None | Some("" | "Pending")) || !wants_apparmor(pod) {
        return Ok(());
    }
    let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
    Err(rejection(admission::APP_ARMOR, message))
}

/// Refuses pods that need what nodes have to declare and this one does not (KEP-5328); of what scheduling goes by that is one thing.
pub(super) fn judge_features(pod: &Pod) -> Result<(), Rejection> {
    if !pod_object::host_network(pod) || pod_object::spec(pod).host_users != Some(false) {
        return Ok(());
    }
    let message = "Pod requires node features that are not available: UserNamespacesHostNetworkSupport";
    Err(rejection(admission::POD_FEATURE_UNSUPPORTED, message))
}

fn wants_apparmor(pod: &Pod) -> bool {
    pod_object::containers(pod).any(|(_, container)| {
        let profile = spec::apparmor_profile(pod, container);
        profile.is_some_and(|profile| profile.type_ != "Unconfined")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(metadata: Value, spec: Value) -> Pod {
        let mut spec = spec;
        if spec["containers"].is_null() {
            spec["containers"] = json!([{"name": "c"}]);
        }
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod")
    }

    fn reason(judged: Result<(), Rejection>) -> String {
        judged.err().map(|why| why.reason).unwrap_or_default()
    }

    #[test]
    fn pods_for_other_systems_are_refused() {
        let judge = |metadata, spec| reason(judge_os(&pod(metadata, spec)));
        assert_eq!(judge(json!({}), json!({"os": {"name": "linux"}})), "");
        assert_eq!(
            judge(json!({}), json!({"os": {"name": "windows"}})),
            "PodOSNotSupported"
        );
        let labels = json!({"labels": {"kubernetes.io/os": "windows"}});
        assert_eq!(judge(labels, json!({})), "PodOSSelectorNodeLabelDoesNotMatch");
    }

    #[test]
    fn labels_and_taints_are_the_nodes() {
        let node: Node = serde_json::from_value(json!({"metadata": {"labels": {"disk": "ssd"}}, "spec": {"taints": [
            {"key": "soft", "effect": "NoSchedule"}, {"key": "hard", "effect": "NoExecute"}]},
            "status": {"allocatable": {"cpu": "4", "hugepages-2Mi": "0", "example.com/dongle": "3"}}}))
        .expect("a node");
        let view = NodeView::of(&node);
        assert!(view.extended.keys().eq(["example.com/dongle"]), "{:?}", view.extended);
        let select = |value: &str| pod(json!({}), json!({"nodeSelector": {"disk": value}}));
        assert_eq!(reason(judge_affinity("n", &view, &select("ssd"))), "");
        assert_eq!(reason(judge_affinity("n", &view, &select("hdd"))), "NodeAffinity");
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [term]}}});
        let elsewhere = pod(json!({}), json!({"affinity": affinity}));
        assert_eq!(reason(judge_affinity("n", &view, &elsewhere)), "NodeAffinity");

        let tolerating = |key: &str| json!({"tolerations": [{"key": key, "operator": "Exists"}]});
        assert_eq!(reason(judge_taints(&view, &pod(json!({}), tolerating("hard")))), "");
        assert_eq!(
            reason(judge_taints(&view, &pod(json!({}), tolerating("soft")))),
            "TaintToleration"
        );
        let of_file = json!({"annotations": {"kubernetes.io/config.source": "file"}});
        assert_eq!(reason(judge_taints(&view, &pod(of_file, json!({})))), "");
    }

    #[test]
    fn users_of_its_own_in_the_nodes_network_are_not_to_be_had() {
        let judge = |spec| reason(judge_features(&pod(json!({}), spec)));
        assert_eq!(judge(json!({"hostNetwork": true})), "");
        assert_eq!(judge(json!({"hostUsers": false})), "");
        assert_eq!(judge(json!({"hostNetwork": true, "hostUsers": true})), "");
        let both = pod(json!({}), json!({"hostNetwork": true, "hostUsers": false}));
        let refused = judge_features(&both).expect_err("refused");
        assert_eq!(refused.reason, "PodFeatureUnsupported");
        let message = "Pod requires node features that are not available: UserNamespacesHostNetworkSupport";
        assert_eq!(refused.message, message);
    }

    #[test]
    fn a_profile_needs_a_kernel_that_enforces_it() {
        let profile = |kind: &str| json!({"securityContext": {"appArmorProfile": {"type": kind}}});
        let judge = |enabled, pod: &Pod| reason(judge_apparmor(enabled, pod));
        let confined = pod(json!({}), profile("RuntimeDefault"));
        assert_eq!(
            (judge(false, &confined), judge(true, &confined)),
            ("AppArmor".into(), String::new())
        );
        assert_eq!(judge(false, &pod(json!({}), profile("Unconfined"))), "");
        assert_eq!(judge(false, &pod(json!({}), json!({}))), "");
        let container = json!({"name": "c", "securityContext": {"appArmorProfile": {"type": "Unconfined"}}});
        let mut own = profile("RuntimeDefault");
        own["containers"] = json!([container]);
        assert_eq!(judge(false, &pod(json!({}), own)), "", "a container's own profile wins");
        let mut running = confined.clone();
        running.status.get_or_insert_default().phase = Some("Running".into());
        assert_eq!(judge(false, &running), "");
        let annotations = json!({"kubernetes.io/config.source": "file",
            "container.apparmor.security.beta.kubernetes.io/c": "runtime/default"});
        assert_eq!(
            judge(false, &pod(json!({"annotations": annotations}), json!({}))),
            "AppArmor"
        );
    }
}
