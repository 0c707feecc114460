//! What a set is of: two that are of the same are one. Pure.

use std::net::IpAddr;
use std::sync::Arc;

use crate::change::{Member, SetKind};
use crate::facts::Facts;
use crate::range::{PortRange, Ranges, SplitPorts};
use crate::selector::Labels;
use crate::spec::{Peers, Rule, Selection};

/// What a set costs beside what is in it. A rule that looks into one is the dearer the more of them there are.
const SET_COST: usize = 4;

/// What makes two sets equal: what is in them, not what is in them now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::world) enum SetKey {
    /// Addresses of this node's pods.
    Known(bool),
    /// Addresses of the pods of any of these.
    Pods(Arc<Vec<Selection>>, bool),
    /// Addresses of a policy's blocks.
    Blocks(Arc<Ranges>, bool),
    /// Protocols and ports.
    Ports(Vec<PortRange>),
    /// Where pods that are peers (absent: all pods) have ports of these names.
    Places(Option<Peers>, Vec<(u8, String)>, bool),
}

impl SetKey {
    pub(super) fn kind(&self) -> SetKind {
        match self {
            Self::Known(_) | Self::Pods(..) => SetKind::Addresses,
            Self::Blocks(..) => SetKind::AddressRanges,
            // Nearly always so, and much less work for the kernel.
            Self::Ports(ports) if ports.iter().all(|(_, first, last)| first == last) => SetKind::Ports,
            Self::Ports(_) => SetKind::PortRanges,
            Self::Places(..) => SetKind::AddressPorts,
        }
    }

    /// Whether what is in it changes with the cluster's pods.
    pub(super) fn follows(&self) -> bool {
        matches!(self, Self::Pods(..) | Self::Places(..))
    }

    /// What it takes of what a node has: each pod's change asks so much of a set that follows pods, so much more than nothing is
    /// in the kernel because of any other.
    pub(super) fn cost(&self) -> usize {
        let asked = |selections: &[Selection]| selections.iter().map(Selection::weight).sum::<usize>();
        SET_COST
            + match self {
                Self::Known(_) => 0,
                Self::Pods(selections, _) => asked(selections),
                Self::Places(peers, names, _) => {
                    names.len() + peers.as_ref().map_or(0, |peers| asked(&peers.selections))
                }
                Self::Blocks(blocks, v4) => blocks.of_family(*v4).count(),
                Self::Ports(ports) => ports.len(),
            }
    }

    pub(super) fn v4(&self) -> bool {
        match self {
            Self::Known(v4) | Self::Pods(_, v4) | Self::Blocks(_, v4) | Self::Places(_, _, v4) => *v4,
            Self::Ports(_) => true,
        }
    }

    /// Whether a rule looks into it; its ports count for sets of ports alone.
    pub(in crate::world) fn is_of(&self, rule: &Rule, ports: Option<&SplitPorts>) -> bool {
        match self {
            Self::Pods(selections, _) => rule.peers.as_ref().is_some_and(|peers| peers.selections == *selections),
            Self::Places(peers, ..) => rule.peers == *peers && rule.ports.is_some(),
            Self::Blocks(blocks, _) => rule.peers.as_ref().is_some_and(|peers| peers.blocks == *blocks),
            Self::Ports(all) => ports.is_some_and(|(numbers, names)| {
                // A name is more numbers, which are its pod's.
                let is_in = |(protocol, first, last): &PortRange| {
                    // Both are sorted and merged: only the last one that does not begin behind it can hold it.
                    let behind = all.partition_point(|(of, from, _)| (of, from) <= (protocol, first));
                    let before = behind.checked_sub(1).map(|at| all[at]);
                    before.is_some_and(|(of, _, to)| of == *protocol && *last <= to)
                };
                numbers == all || (!names.is_empty() && numbers.iter().all(is_in))
            }),
            Self::Known(_) => false,
        }
    }

    /// The one namespace all pods in it are of, if that is known.
    pub(in crate::world) fn only_namespace(&self) -> Option<&str> {
        use crate::spec::Scope;
        let Self::Pods(selections, _) = self else {
            return None;
        };
        let mut names = selections.iter().map(|selection| match &selection.scope {
            Scope::Own(name) => Some(name.as_str()),
            Scope::Selected(_) => None,
        });
        let first = names.next()??;
        names.all(|name| name == Some(first)).then_some(first)
    }

    /// What a pod contributes.
    pub(super) fn members(&self, namespace: &str, of_namespace: &Labels, facts: &Facts) -> Vec<Member> {
        let selected = |selections: &[Selection]| {
            selections
                .iter()
                .any(|selection| selection.selects(namespace, of_namespace, &facts.labels))
        };
        let of_family = |v4: bool| facts.addresses.iter().copied().filter(move |addr| addr.is_ipv4() == v4);
        if !facts.is_subject {
            return Vec::new();
        }
        match self {
            Self::Pods(selections, v4) if selected(selections) => of_family(*v4).map(Member::address).collect(),
            Self::Places(peers, names, v4) => {
                let is_peer = |addr: &IpAddr| {
                    let Some(peers) = peers else {
                        return true;
                    };
                    peers.blocks.contains(addr) || selected(&peers.selections)
                };
                let places = of_family(*v4).filter(is_peer).flat_map(|addr| {
                    let numbers = names
                        .iter()
                        .flat_map(|(protocol, name)| facts.numbers(*protocol, name).map(|number| (*protocol, number)));
                    numbers.map(move |port| Member { addr, port: Some(port) })
                });
                let mut all: Vec<Member> = places.collect();
                all.sort_unstable();
                all.dedup();
                all
            }
            _ => Vec::new(),
        }
    }
}
