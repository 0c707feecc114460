//! A NetworkPolicy as it is meant: defaults filled in, selectors compiled, blocks and ports as numbers. Pure.
//!
//! Semantics are those of networking.k8s.io/v1's documentation of its fields. What cannot be read makes a rule or a peer
//! allow nothing, and a [`Flaw`] says so.

use client::ordered::Arrange;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use netlink::cidr::Cidr;

use crate::range::{Ranges, of_network};
use crate::selector::{Labels, Selector};

/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// IP protocol number of SCTP.
pub const SCTP: u8 = 132;

/// Most blocks and exceptions of one rule, and most ports of one: the kernel's sets of ranges grow faster than what is put into them.
pub const MOST_RANGES: usize = 2000;
/// Most rules of one policy, both directions together.
pub const MOST_RULES: usize = 1000;
/// Most peers by selector of one policy, all rules together: each is asked about each pod of the cluster.
pub const MOST_SELECTIONS: usize = 1000;

/// Which way traffic goes, seen from the pod a policy is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// To the pod.
    Ingress,
    /// From the pod.
    Egress,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];
}

/// Which namespaces a peer's pods are in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The policy's own.
    Own(String),
    /// Those with such labels.
    Selected(Selector),
}

/// Pods that are peers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selection {
    /// In which namespaces.
    pub scope: Scope,
    /// Which pods there.
    pub pods: Selector,
}

impl Selection {
    /// Whether a pod of this namespace, which has these labels, is selected.
    pub fn selects(&self, namespace: &str, of_namespace: &Labels, of_pod: &Labels) -> bool {
        let in_scope = match &self.scope {
            Scope::Own(own) => own == namespace,
            Scope::Selected(selector) => selector.selects(of_namespace),
        };
        in_scope && self.pods.selects(of_pod)
    }

    /// How much asking it is.
    pub(crate) fn weight(&self) -> usize {
        let of_scope = match &self.scope {
            Scope::Own(_) => 0,
            Scope::Selected(selector) => selector.weight(),
        };
        1 + of_scope + self.pods.weight()
    }
}

/// Whom a rule is about: any of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Peers {
    /// Pods.
    pub selections: Arc<Vec<Selection>>,
    /// Addresses.
    pub blocks: Arc<Ranges>,
}

/// Which port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortChoice {
    /// First and last.
    Range(u16, u16),
    /// The destination pod's port of that name.
    Named(String),
}

/// A protocol and ports of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// IP protocol number.
    pub protocol: u8,
    /// Which port.
    pub choice: PortChoice,
}

/// One rule: traffic with any of the peers at any of the ports is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Absent: everybody.
    pub peers: Option<Peers>,
    /// Absent: every protocol and port.
    pub ports: Option<Vec<Port>>,
}

/// A policy, ready to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its namespace.
    pub namespace: String,
    /// The pods it is about; absent when the selector cannot be read, then it is about none.
    pub pods: Option<Selector>,
    /// Rules for what reaches the pods; absent: the policy does not concern it.
    pub ingress: Option<Vec<Rule>>,
    /// Rules for what they send.
    pub egress: Option<Vec<Rule>>,
    /// What of it cannot be enforced.
    pub flaws: Vec<Flaw>,
}

/// Something in a policy that cannot be enforced as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The field.
    pub field: String,
    /// What is wrong, and what is done instead.
    pub text: String,
}

impl fmt::Display for Flaw {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.text)
    }
}

/// The number of a protocol by its name in the API; TCP is the default.
pub fn protocol_number(name: Option<&str>) -> Option<u8> {
    match name.unwrap_or("TCP") {
        "TCP" => Some(TCP),
        "UDP" => Some(UDP),
        "SCTP" => Some(SCTP),
        _ => None,
    }
}

/// The name in the API of a protocol.
pub fn protocol_name(number: u8) -> Option<&'static str> {
    let names = ["TCP", "UDP", "SCTP"].into_iter();
    names
        .into_iter()
        .find(|name| protocol_number(Some(name)) == Some(number))
}

/// A rule of either direction, as the API has it.
struct RawRule<'a> {
    peers: &'a [NetworkPolicyPeer],
    ports: &'a [NetworkPolicyPort],
    field: String,
    peers_field: &'static str,
}

impl Policy {
    /// Reads a policy.
    pub fn read(policy: &NetworkPolicy) -> Self {
        let mut reader = Reader {
            namespace: policy.metadata.namespace.clone().unwrap_or_default(),
            selectors_left: MOST_SELECTIONS,
            rules_left: MOST_RULES,
            flaws: Vec::new(),
        };
        let spec = policy.spec.clone().unwrap_or_default();
        let ingress = spec.ingress.unwrap_or_default();
        let egress = spec.egress.unwrap_or_default();
        let (about_ingress, about_egress) = match spec.policy_types.as_deref() {
            // As the API server fills it in (defaults of networking/v1).
            None | Some([]) => (true, !egress.is_empty()),
            Some(types) => (
                types.iter().any(|kind| kind == "Ingress"),
                types.iter().any(|kind| kind == "Egress"),
            ),
        };
        let pods = reader.selector(spec.pod_selector.as_ref(), "spec.podSelector");
        let ingress = about_ingress.then(|| reader.ingress(&ingress));
        let egress = about_egress.then(|| reader.egress(&egress));
        Self {
            pods,
            ingress,
            egress,
            namespace: reader.namespace,
            flaws: reader.flaws,
        }
    }

    /// Whether it is about a pod of its namespace with these labels.
    pub fn concerns(&self, labels: &Labels) -> bool {
        self.pods.as_ref().is_some_and(|pods| pods.selects(labels))
    }

    /// Its rules of a direction, if it is about it.
    pub fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        match direction {
            Direction::Ingress => self.ingress.as_deref(),
            Direction::Egress => self.egress.as_deref(),
        }
    }

    /// Whether one of its ports is of this protocol.
    pub fn names_protocol(&self, protocol: u8) -> bool {
        let rules = self.ingress.iter().chain(&self.egress).flatten();
        let mut ports = rules.flat_map(|rule| rule.ports.iter().flatten());
        ports.any(|port| port.protocol == protocol)
    }
}

struct Reader {
    namespace: String,
    /// How many peers by selector, and rules, may still come.
    selectors_left: usize,
    rules_left: usize,
    flaws: Vec<Flaw>,
}

impl Reader {
    fn flaw(&mut self, field: &str, text: String) {
        self.flaws.push(Flaw {
            field: field.to_owned(),
            text,
        });
    }

    /// An absent selector selects everything: it is one without requirements.
    fn selector(&mut self, selector: Option<&LabelSelector>, field: &str) -> Option<Selector> {
        match selector.map_or_else(|| Ok(Selector::default()), Selector::compile) {
            Ok(selector) => Some(selector),
            Err(text) => {
                self.flaw(field, format!("{text}; it selects nothing"));
                None
            }
        }
    }

    fn ingress(&mut self, rules: &[NetworkPolicyIngressRule]) -> Vec<Rule> {
        let taken = self.take_rules(rules.len(), "spec.ingress");
        let rules = rules.iter().take(taken).enumerate().map(|(at, rule)| RawRule {
            peers: rule.from.as_deref().unwrap_or_default(),
            ports: rule.ports.as_deref().unwrap_or_default(),
            field: format!("spec.ingress[{at}]"),
            peers_field: "from",
        });
        rules.map(|rule| self.rule(&rule)).collect()
    }

    fn egress(&mut self, rules: &[NetworkPolicyEgressRule]) -> Vec<Rule> {
        let taken = self.take_rules(rules.len(), "spec.egress");
        let rules = rules.iter().take(taken).enumerate().map(|(at, rule)| RawRule {
            peers: rule.to.as_deref().unwrap_or_default(),
            ports: rule.ports.as_deref().unwrap_or_default(),
            field: format!("spec.egress[{at}]"),
            peers_field: "to",
        });
        rules.map(|rule| self.rule(&rule)).collect()
    }

    /// How many of so many rules are enforced; a rule that is not allows nobody.
    fn take_rules(&mut self, count: usize, field: &str) -> usize {
        let taken = count.min(self.rules_left);
        self.rules_left -= taken;
        if taken < count {
            let text =
                format!("a policy's rules beyond {MOST_RULES} are not enforced; those from [{taken}] on allow nobody");
            self.flaw(field, text);
        }
        taken
    }

    fn rule(&mut self, rule: &RawRule<'_>) -> Rule {
        // An empty list is no list: everybody, everything.
        let peers = (!rule.peers.is_empty()).then(|| self.peers(rule));
        let ports = (!rule.ports.is_empty()).then(|| {
            let mut ports = Vec::new();
            let count = rule.ports.len();
            if count > MOST_RANGES {
                let text =
                    format!("it has {count} ports, more than {MOST_RANGES} are not enforced; the rule allows nothing");
                self.flaw(&format!("{}.ports", rule.field), text);
                return ports;
            }
            for (at, port) in rule.ports.iter().enumerate() {
                ports.extend(self.port(port, &format!("{}.ports[{at}]", rule.field)));
            }
            ports.arrange();
            ports.dedup();
            ports
        });
        Rule { peers, ports }
    }

    fn peers(&mut self, rule: &RawRule<'_>) -> Peers {
        let (mut selections, mut ranges) = (Vec::new(), Vec::new());
        if let Some(text) = self.count(rule.peers) {
            let field = format!("{}.{}", rule.field, rule.peers_field);
            self.flaw(&field, format!("{text}; the rule allows nobody"));
            return Peers::default();
        }
        for (at, peer) in rule.peers.iter().enumerate() {
            let field = format!("{}.{}[{at}]", rule.field, rule.peers_field);
            if let Some(block) = &peer.ip_block {
                ranges.extend(self.block(block, &format!("{field}.ipBlock")).iter());
            } else {
                selections.extend(self.selection(peer, &field));
            }
        }
        selections.arrange();
        selections.dedup();
        Peers {
            selections: Arc::new(selections),
            blocks: Arc::new(ranges.into_iter().collect()),
        }
    }

    /// Counts what a rule asks for; says what of it is too much.
    fn count(&mut self, peers: &[NetworkPolicyPeer]) -> Option<String> {
        let blocks = peers.iter().filter_map(|peer| peer.ip_block.as_ref());
        let ranges: usize = blocks.map(|block| 1 + block.except.as_ref().map_or(0, Vec::len)).sum();
        let selected = peers.iter().filter(|peer| peer.ip_block.is_none()).count();
        if ranges > MOST_RANGES {
            return Some(format!(
                "it has {ranges} blocks and exceptions, more than {MOST_RANGES} are not enforced"
            ));
        }
        if self.selectors_left < selected {
            return Some(format!(
                "the policy has more than {MOST_SELECTIONS} peers by selector, which are not enforced"
            ));
        }
        self.selectors_left -= selected;
        None
    }

    fn selection(&mut self, peer: &NetworkPolicyPeer, field: &str) -> Option<Selection> {
        if peer.pod_selector.is_none() && peer.namespace_selector.is_none() {
            self.flaw(field, "it names no peer; it allows nobody".to_owned());
            return None;
        }
        let pods = self.selector(peer.pod_selector.as_ref(), &format!("{field}.podSelector"))?;
        let scope = match &peer.namespace_selector {
            None => Scope::Own(self.namespace.clone()),
            selector => Scope::Selected(self.selector(selector.as_ref(), &format!("{field}.namespaceSelector"))?),
        };
        Some(Selection { scope, pods })
    }

    fn block(&mut self, block: &IPBlock, field: &str) -> Ranges {
        let mut read = |text: &str, field: &str, instead: &str| match Cidr::parse(text) {
            Ok(network) => Some(of_network(network)),
            Err(error) => {
                self.flaw(field, format!("{error}; {instead}"));
                None
            }
        };
        let Some(whole) = read(&block.cidr, &format!("{field}.cidr"), "it allows nobody") else {
            return Ranges::default();
        };
        let mut holes = Vec::new();
        for (at, except) in block.except.iter().flatten().enumerate() {
            match read(
                except,
                &format!("{field}.except[{at}]"),
                "the whole block allows nobody",
            ) {
                Some(hole) => holes.push(hole),
                None => return Ranges::default(),
            }
        }
        Ranges::around(whole, &holes.into_iter().collect())
    }

    fn port(&mut self, port: &NetworkPolicyPort, field: &str) -> Option<Port> {
        let Some(protocol) = protocol_number(port.protocol.as_deref()) else {
            let name = port.protocol.as_deref().unwrap_or_default();
            self.flaw(field, format!("{name:?} is no protocol of policies; it allows nothing"));
            return None;
        };
        let number = |value: i32| u16::try_from(value).ok();
        let choice = match (&port.port, port.end_port) {
            (None, None) => Some(PortChoice::Range(0, u16::MAX)),
            (Some(IntOrString::Int(first)), None) => number(*first).map(|only| PortChoice::Range(only, only)),
            (Some(IntOrString::Int(first)), Some(last)) => number(*first)
                .zip(number(last))
                .filter(|(first, last)| first <= last)
                .map(|(first, last)| PortChoice::Range(first, last)),
            (Some(IntOrString::String(name)), None) => Some(PortChoice::Named(name.clone())),
            (None | Some(IntOrString::String(_)), Some(_)) => None,
        };
        if choice.is_none() {
            self.flaw(
                field,
                "it is no port and no range of ports; it allows nothing".to_owned(),
            );
        }
        choice.map(|choice| Port { protocol, choice })
    }
}

#[cfg(test)]
mod tests;
