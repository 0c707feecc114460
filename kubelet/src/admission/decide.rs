//! Whether the node can take a pod (kubelet contract §14, the predicates). Pure.

use super::placement::{self, NodeView};
use super::preemption::Missing;
use super::sysctl;
use crate::pod_object;
use crate::reason::admission;
use client::ordered::{Arrange, CollectOrdered};
use k8s_openapi::api::core::v1::Pod;
use proto::api::names::is_extended_resource;
use proto::api::quantity::{Format, Quantity};
use proto::api::resources::{ResourceList, pod_requests};
use std::collections::BTreeSet;

/// What the node has to give.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Allocatable amounts by resource, `pods` among them. An extended resource is judged by what the node's object has of it
    /// ([`NodeView::extended`]); one that is listed nowhere is not judged.
    pub allocatable: ResourceList,
    /// Which sysctls its pods may set.
    pub sysctls: sysctl::Rules,
    /// Whether its kernel enforces AppArmor profiles.
    pub apparmor: bool,
}

/// What one pod holds.
#[derive(Clone, Debug, Default)]
pub struct Holding {
    requests: ResourceList,
    /// Host ports as (address, protocol, port).
    ports: BTreeSet<(String, String, i32)>,
}

/// Why a pod is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Rejection {
    /// The pod-level reason, upstream's string.
    pub reason: String,
    /// The message.
    pub message: String,
}

impl Holding {
    /// What a pod asks for.
    pub fn of(pod: &Pod) -> Self {
        let spec = pod_object::spec(pod);
        let containers = pod_object::containers(pod).filter(|(kind, _)| *kind != pod_object::Kind::Init);
        let ports = containers
            .flat_map(|(_, container)| container.ports.iter().flatten())
            .filter_map(|port| {
                let number = port
                    .host_port
                    .or_else(|| spec.host_network?.then_some(port.container_port))?;
                let address = port
                    .host_ip
                    .clone()
                    .filter(|ip| !ip.is_empty())
                    .unwrap_or_else(|| "0.0.0.0".to_owned());
                let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
                (number > 0).then_some((address, protocol, number))
            })
            .collect_ordered();
        let mut requests = pod_requests(spec);
        // What a claim stands for (KEP-5004) is nothing the node counts.
        let claimed = pod
            .status
            .as_ref()
            .and_then(|status| status.extended_resource_claim_status.as_ref());
        for mapped in claimed.iter().flat_map(|claimed| &claimed.request_mappings) {
            requests.remove(&mapped.resource_name);
        }
        Self { requests, ports }
    }

    fn collides(&self, other: &Self) -> bool {
        let any = |address: &str| address == "0.0.0.0" || address == "::";
        self.ports.iter().any(|(address, protocol, port)| {
            other.ports.iter().any(|(theirs, their_protocol, their_port)| {
                port == their_port && protocol == their_protocol && (address == theirs || any(address) || any(theirs))
            })
        })
    }
}

/// Judges a pod against what the node is and what the others hold; the first rule that refuses it names the reason.
pub fn decide<'a>(
    node: &Node,
    view: &NodeView,
    others: impl Iterator<Item = &'a Holding> + Clone,
    pod: &Pod,
) -> Result<(), Rejection> {
    let wanted = Holding::of(pod);
    judge_first(node, view, pod)?;
    placement::judge_os(pod)?;
    placement::judge_groups(view, pod)?;
    enough((node, view), others.clone(), &wanted)?;
    elsewhere(node, view, others, pod, &wanted)
}

/// The rules that come before what a pod is to have alone.
pub fn judge_first(node: &Node, view: &NodeView, pod: &Pod) -> Result<(), Rejection> {
    placement::judge_pressure(view, pod)?;
    node.sysctls.judge(pod_object::spec(pod))
}

/// The rules that come after resources.
fn elsewhere<'a>(
    node: &Node,
    view: &NodeView,
    others: impl Iterator<Item = &'a Holding> + Clone,
    pod: &Pod,
    wanted: &Holding,
) -> Result<(), Rejection> {
    placement::judge_affinity(&node.name, view, pod)?;
    let named = pod_object::spec(pod).node_name.as_deref();
    if named.is_some_and(|name| name != node.name) {
        return Err(rejection(
            admission::NODE_NAME,
            "Predicate NodeName failed: node(s) didn't match the requested node name",
        ));
    }
    if others.clone().any(|other| other.collides(wanted)) {
        let message = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        return Err(rejection(admission::NODE_PORTS, message));
    }
    placement::judge_taints(view, pod)?;
    placement::judge_apparmor(node.apparmor, pod)?;
    placement::judge_features(pod)?;
    placement::judge_shutdown(view)
}

/// What is missing for a pod that is refused for want of resources alone; the refusal it gets if there is another reason.
pub fn missing<'a>(
    node: &Node,
    view: &NodeView,
    others: impl Iterator<Item = &'a Holding> + Clone,
    pod: &Pod,
) -> Result<Vec<Missing>, Rejection> {
    let wanted = Holding::of(pod);
    elsewhere(node, view, others.clone(), pod, &wanted)?;
    let short = shortages((node, view), others, &wanted);
    let missing = short.into_iter().map(|short| Missing {
        // More may be used than there is, and as much asked for as there are numbers.
        amount: short
            .requested
            .saturating_sub(short.capacity.saturating_sub(short.used)),
        resource: short.resource,
    });
    Ok(missing.collect())
}

/// A resource of which there is too little.
struct Shortage {
    resource: String,
    requested: i64,
    used: i64,
    capacity: i64,
}

/// Refuses what there is not enough of.
fn enough<'a>(
    node: (&Node, &NodeView),
    others: impl Iterator<Item = &'a Holding> + Clone,
    wanted: &Holding,
) -> Result<(), Rejection> {
    match shortages(node, others, wanted).into_iter().next() {
        None => Ok(()),
        Some(short) => Err(too_little(&short.resource, short.requested, short.used, short.capacity)),
    }
}

/// Everything of which there is not enough, the gravest first.
fn shortages<'a>(
    (node, view): (&Node, &NodeView),
    others: impl Iterator<Item = &'a Holding> + Clone,
    wanted: &Holding,
) -> Vec<Shortage> {
    let mut short = Vec::new();
    let count = i64::try_from(others.clone().count()).unwrap_or(i64::MAX);
    if let Some(slots) = node.allocatable.get("pods") {
        let one_more = Quantity::from_units(count.saturating_add(1), Format::DecimalSi);
        if one_more > *slots {
            short.push(Shortage {
                resource: "pods".to_owned(),
                requested: 1,
                used: count,
                capacity: amount("pods", slots),
            });
        }
    }
    let mut requests: Vec<_> = wanted.requests.iter().filter(|(_, amount)| !amount.is_zero()).collect();
    requests.arrange_by_key(|(name, _)| rank(name));
    for (name, requested) in requests {
        let capacity = match node.allocatable.get(name).or_else(|| view.extended.get(name)) {
            Some(capacity) => capacity,
            None if is_judged_anyway(name) => &Quantity::ZERO,
            None => continue,
        };
        let used = others
            .clone()
            .filter_map(|other| other.requests.get(name))
            .fold(Quantity::ZERO, |a, b| a.plus(*b));
        if used.plus(*requested) > *capacity {
            short.push(Shortage {
                resource: name.clone(),
                requested: amount(name, requested),
                used: amount(name, &used),
                capacity: amount(name, capacity),
            });
        }
    }
    short
}

/// Which of several shortages is told: CPU, memory and storage come first.
fn rank(name: &str) -> usize {
    let first = ["cpu", "memory", "ephemeral-storage"];
    first.iter().position(|known| *known == name).unwrap_or(first.len())
}

/// Whether a pod is refused by what the node's object says, which somebody may just have changed.
pub fn is_by_object(refused: &Rejection) -> bool {
    let by_place = [admission::NODE_AFFINITY, admission::TAINT_TOLERATION].contains(&refused.reason.as_str());
    by_place
        || refused
            .reason
            .strip_prefix(admission::OUT_OF)
            .is_some_and(is_extended_resource)
}

/// Whether a resource the node does not list is one it has nothing of. Extended resources may be somebody else's to give, and names nobody
/// knows are nobody's; every node lists its CPUs, memory and storage.
fn is_judged_anyway(name: &str) -> bool {
    name.contains("kubernetes.io/")
        || ["hugepages-", "attachable-volumes-"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// An amount as messages tell it: CPU in thousandths, everything else in units.
fn amount(name: &str, quantity: &Quantity) -> i64 {
    if name == "cpu" {
        quantity.milli_value()
    } else {
        quantity.value()
    }
}

fn too_little(resource: &str, requested: i64, used: i64, capacity: i64) -> Rejection {
    Rejection {
        reason: format!("{}{resource}", admission::OUT_OF),
        message: format!(
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        ),
    }
}

pub(super) fn rejection(reason: &str, message: &str) -> Rejection {
    Rejection {
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{container, pod};
    use k8s_openapi::api::core::v1::{Container, ContainerPort, ResourceRequirements};
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

    fn node() -> Node {
        let amounts = [
            ("cpu", "1"),
            ("memory", "1Gi"),
            ("ephemeral-storage", "1Gi"),
            ("pods", "2"),
        ];
        let parse = |text: &str| Quantity::of(&Text(text.into()));
        Node {
            name: "n".into(),
            allocatable: amounts
                .iter()
                .map(|(name, text)| ((*name).to_owned(), parse(text)))
                .collect(),
            ..Node::default()
        }
    }

    fn asking(cpu: &str, port: Option<i32>) -> Pod {
        let requests = [("cpu".to_owned(), Text(cpu.into()))].into_iter().collect();
        let ports = port.map(|port| {
            vec![ContainerPort {
                host_port: Some(port),
                ..ContainerPort::default()
            }]
        });
        pod("p")
            .with(Container {
                resources: Some(ResourceRequirements {
                    requests: Some(requests),
                    ..ResourceRequirements::default()
                }),
                ports,
                ..container("c")
            })
            .build()
    }

    #[test]
    fn the_first_rule_that_refuses_names_the_reason() {
        let view = NodeView::default();
        let reason = |pod: &Pod| decide(&node(), &view, [].iter(), pod).err().map(|r| r.reason);
        let mut pod = asking("2", None);
        let spec = pod.spec.as_mut().expect("spec");
        spec.node_selector = Some([("disk".to_owned(), "ssd".to_owned())].into());
        assert_eq!(reason(&pod).as_deref(), Some("OutOfcpu"));
        let sysctls: k8s_openapi::api::core::v1::PodSecurityContext =
            serde_json::from_value(serde_json::json!({"sysctls": [{"name": "vm.swappiness", "value": "1"}]}))
                .expect("a context");
        pod.spec.as_mut().expect("spec").security_context = Some(sysctls);
        assert_eq!(reason(&pod).as_deref(), Some("SysctlForbidden"));
        let mut strict = asking("1", None);
        let context = serde_json::from_value(serde_json::json!({"supplementalGroupsPolicy": "Strict"}));
        strict.spec.as_mut().expect("spec").security_context = Some(context.expect("a context"));
        assert_eq!(reason(&strict).as_deref(), Some("SupplementalGroupsPolicyNotSupported"));
        let obeying = NodeView {
            groups_policy: true,
            ..NodeView::default()
        };
        assert_eq!(decide(&node(), &obeying, [].iter(), &strict), Ok(()));
        let mut selects = asking("1", None);
        selects.spec.as_mut().expect("spec").node_selector = Some([("disk".to_owned(), "ssd".to_owned())].into());
        assert_eq!(reason(&selects).as_deref(), Some("NodeAffinity"));
    }

    #[test]
    fn a_node_that_goes_down_takes_nobody_and_nobody_makes_room() {
        let going_down = NodeView {
            shutting_down: true,
            ..NodeView::default()
        };
        let refused = decide(&node(), &going_down, [].iter(), &asking("1", None)).expect_err("refused");
        let expected = ("NodeShutdown", "Pod was rejected as the node is shutting down.");
        assert_eq!((refused.reason.as_str(), refused.message.as_str()), expected);
        let large = asking("1000", None);
        let first = decide(&node(), &going_down, [].iter(), &large).expect_err("refused");
        assert_eq!(first.reason, "OutOfcpu", "what else is wrong is told first");
        let room = missing(&node(), &going_down, [].iter(), &large).map(|missing| missing.len());
        assert_eq!(room.map_err(|refused| refused.reason), Err("NodeShutdown".to_owned()));
    }

    #[test]
    fn what_somebody_says_the_node_has_is_given_once() {
        let dongles = |count: i64| NodeView {
            extended: [(
                "example.com/dongle".to_owned(),
                Quantity::from_units(count, Format::DecimalSi),
            )]
            .into(),
            ..NodeView::default()
        };
        let wanting = |count: &str| {
            let mut pod = asking("0", None);
            let resources = pod.spec.as_mut().expect("spec").containers[0].resources.as_mut();
            let requests = resources.expect("resources").requests.get_or_insert_default();
            requests.insert("example.com/dongle".to_owned(), Text(count.into()));
            pod
        };
        let held = [Holding::of(&wanting("2"))];
        let judge = |view: &NodeView, pod: &Pod| decide(&node(), view, held.iter(), pod);
        assert_eq!(judge(&dongles(3), &wanting("1")), Ok(()));
        let refused = judge(&dongles(3), &wanting("2")).expect_err("too many");
        let message = "Node didn't have enough resource: example.com/dongle, requested: 2, used: 2, capacity: 3";
        assert_eq!(
            (refused.reason.as_str(), refused.message.as_str()),
            ("OutOfexample.com/dongle", message)
        );
        assert!(is_by_object(&refused), "somebody may just have said otherwise");
        assert!(!is_by_object(&too_little("cpu", 1, 1, 1)));
        assert_eq!(
            judge(&NodeView::default(), &wanting("9")),
            Ok(()),
            "nobody says how many there are"
        );
        let short = missing(&node(), &dongles(3), held.iter(), &wanting("2")).expect("resources alone");
        assert_eq!((short[0].resource.as_str(), short[0].amount), ("example.com/dongle", 1));
        let mut claimed = wanting("2");
        let mapping = serde_json::json!({"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": [
            {"containerName": "c", "requestName": "r", "resourceName": "example.com/dongle"}]}});
        claimed.status = Some(serde_json::from_value(mapping).expect("a status"));
        assert_eq!(judge(&dongles(3), &claimed), Ok(()), "a claim has it");
    }

    #[test]
    fn what_is_missing_has_no_more_than_there_are_numbers() {
        let held = [Holding::of(&asking("2", None)), Holding::of(&asking("1", None))];
        let all = asking("9223372036854775807", None);
        let missing = missing(&node(), &NodeView::default(), held.iter(), &all).expect("resources alone");
        let cpu = missing.iter().find(|missing| missing.resource == "cpu").expect("short");
        assert_eq!(cpu.amount, i64::MAX);
    }

    #[test]
    fn of_several_shortages_the_gravest_is_told_and_what_the_node_has_none_of_is_short() {
        let verdict = |requests: &[(&str, &str)]| {
            let mut pod = asking("0", None);
            let list = requests
                .iter()
                .map(|(name, text)| ((*name).to_owned(), Text((*text).into())));
            let resources = pod.spec.as_mut().expect("spec").containers[0].resources.as_mut();
            resources.expect("resources").requests = Some(list.collect());
            let view = NodeView::default();
            decide(&node(), &view, [].iter(), &pod).err().map(|r| r.reason)
        };
        let told = |requests: &[(&str, &str)]| verdict(requests).unwrap_or_default();
        assert_eq!(told(&[("ephemeral-storage", "2Gi"), ("memory", "2Gi")]), "OutOfmemory");
        assert_eq!(told(&[("hugepages-1Gi", "1Gi")]), "OutOfhugepages-1Gi");
        assert_eq!(told(&[("hugepages-1Gi", "0")]), "");
        assert_eq!(told(&[("example.com/gpu", "1")]), "", "somebody else's to give");
    }

    #[test]
    fn pods_are_rejected_for_what_is_missing() {
        let held = |pods: &[Pod]| pods.iter().map(Holding::of).collect::<Vec<_>>();
        let judge = |others: &[Pod], pod: &Pod| {
            let held = held(others);
            decide(&node(), &NodeView::default(), held.iter(), pod).map_err(|r| (r.reason, r.message))
        };
        assert_eq!(judge(&[], &asking("1", None)), Ok(()));
        let (reason, message) = judge(&[asking("600m", None)], &asking("500m", None)).expect_err("too much");
        assert_eq!(reason, "OutOfcpu");
        assert_eq!(
            message,
            "Node didn't have enough resource: cpu, requested: 500, used: 600, capacity: 1000"
        );
        let two = [asking("1m", None), asking("1m", None)];
        assert_eq!(judge(&two, &asking("1m", None)).expect_err("full").0, "OutOfpods");
        assert_eq!(
            judge(&[asking("1m", Some(80))], &asking("1m", Some(80)))
                .expect_err("taken")
                .0,
            "NodePorts"
        );
        assert_eq!(judge(&[asking("1m", Some(80))], &asking("1m", Some(81))), Ok(()));
        let mut elsewhere = asking("1m", None);
        elsewhere.spec.as_mut().expect("spec").node_name = Some("other".into());
        assert_eq!(judge(&[], &elsewhere).expect_err("elsewhere").0, "NodeName");
    }
}
