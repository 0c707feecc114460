//! Policies' rules, made into what the kernel is to ask of a connection.

use std::collections::BTreeMap;

use super::sets::{SetKey, Sets};
use super::{Entry, NO_LABELS, first_of};
use crate::change::{Allow, SetId};
use crate::facts::{Facts, PodId};
use crate::range::{merge_ports, split_ports};
use crate::selector::Labels;
use crate::spec::{Direction, Rule};

/// Makes rules into what the kernel asks.
pub(super) struct Maker<'a> {
    pub(super) sets: &'a mut Sets,
    pub(super) pods: &'a BTreeMap<PodId, Entry>,
    pub(super) namespaces: &'a BTreeMap<String, Labels>,
    pub(super) direction: Direction,
    pub(super) v4: bool,
}

impl Maker<'_> {
    /// What these rules let a pod have, sorted, each once; every set in it has one more user.
    pub(super) fn allows(&mut self, rules: &[&Rule], facts: &Facts) -> Vec<Allow> {
        if rules.iter().any(|rule| rule.peers.is_none() && rule.ports.is_none()) {
            return vec![Allow::default()];
        }
        let mut allows = Vec::new();
        for rule in rules {
            self.rule(rule, facts, &mut allows);
        }
        allows.sort();
        let mut last = None;
        allows.retain(|allow| {
            let is_first = last != Some(*allow);
            if !is_first {
                allow.sets().for_each(|set| self.sets.release(set));
            }
            last = Some(*allow);
            is_first
        });
        allows
    }

    fn rule(&mut self, rule: &Rule, facts: &Facts, allows: &mut Vec<Allow>) {
        let ports = match &rule.ports {
            None => None,
            Some(ports) => {
                let (mut numbers, names) = split_ports(ports);
                if self.direction == Direction::Ingress {
                    // A name is the destination pod's, which is this one.
                    for (protocol, name) in &names {
                        let own = facts.numbers(*protocol, name);
                        numbers.extend(own.map(|number| (*protocol, number, number)));
                    }
                    numbers = merge_ports(numbers);
                } else if !names.is_empty() {
                    let places = self.set(SetKey::Places(rule.peers.clone(), names, self.v4));
                    allows.push(Allow {
                        places: Some(places),
                        ..Allow::default()
                    });
                }
                if numbers.is_empty() {
                    return;
                }
                Some(numbers)
            }
        };
        for peers in self.peers(rule) {
            let ports = ports.clone().map(|numbers| self.set(SetKey::Ports(numbers)));
            let mut allow = Allow {
                ports,
                ..Allow::default()
            };
            match peers {
                Some(SetKey::Blocks(blocks, v4)) => allow.blocks = Some(self.set(SetKey::Blocks(blocks, v4))),
                Some(pods) => allow.peers = Some(self.set(pods)),
                None => {}
            }
            allows.push(allow);
        }
    }

    /// The sets any of which the other side must be in; one absent one: it need be in none.
    fn peers(&self, rule: &Rule) -> Vec<Option<SetKey>> {
        let Some(peers) = &rule.peers else {
            return vec![None];
        };
        let mut keys = Vec::new();
        if !peers.selections.is_empty() {
            keys.push(Some(SetKey::Pods(peers.selections.clone(), self.v4)));
        }
        if peers.blocks.of_family(self.v4).next().is_some() {
            keys.push(Some(SetKey::Blocks(peers.blocks.clone(), self.v4)));
        }
        keys
    }

    fn set(&mut self, key: SetKey) -> SetId {
        let (pods, namespaces) = (self.pods, self.namespaces);
        self.sets.use_or_make(key, |key| {
            let only = key.only_namespace().map(str::to_owned);
            pods.range(first_of(only.as_deref().unwrap_or_default())..)
                .take_while(move |(id, _)| only.as_deref().is_none_or(|only| id.key.namespace == only))
                .map(move |(id, entry)| {
                    let labels = namespaces.get(&id.key.namespace).unwrap_or(&NO_LABELS);
                    (id.key.namespace.as_str(), labels, &entry.facts)
                })
        })
    }
}
