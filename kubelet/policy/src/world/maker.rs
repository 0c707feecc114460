//! Policies' rules, made into what the kernel is to ask of a connection.

use client::ordered::Arrange;

use super::Everybody;
use super::sets::{SetKey, Sets};
use crate::change::{Allow, SetId};
use crate::facts::Facts;
use crate::range::{PortRange, Range, Ranges, merge_ports, split_ports};
use crate::spec::{Direction, Port, PortChoice, Rule};

/// So many ranges of addresses are compared with one after the other, each by a rule of its own. A set costs the kernel more than these, and
/// every rule that looks into any set more for each set there is: it finds sets by going through all their names.
const FEW_RANGES: usize = 2;

/// A rule's ports.
enum PortSet {
    New(Vec<PortRange>),
    Found(SetId),
}

/// What the other side must be.
enum Other {
    Anybody,
    Within(Range),
    Blocks(SetKey),
    Pods(SetKey),
}

/// Where the sets are from that rules look into.
pub(super) trait Source {
    /// The set that is equal to this; absent where there is none, and none is made.
    fn set(&mut self, key: SetKey) -> Option<SetId>;
    /// The same set once more.
    fn again(&mut self, set: SetId);
    /// It was not needed.
    fn give_back(&mut self, set: SetId);
}

/// Sets that are made where they are not there; each has one more user, of this namespace.
pub(super) struct Making<'a> {
    pub(super) sets: &'a mut Sets,
    pub(super) everybody: Everybody<'a>,
    /// The pods'.
    pub(super) namespace: &'a str,
}

impl Source for Making<'_> {
    fn set(&mut self, key: SetKey) -> Option<SetId> {
        Some(self.sets.use_or_make(key, self.namespace, self.everybody))
    }

    fn again(&mut self, set: SetId) {
        self.sets.use_again(set, self.namespace);
    }

    fn give_back(&mut self, set: SetId) {
        self.sets.release(set, self.namespace);
    }
}

/// Sets that are there, which stay as they are.
pub(super) struct Finding<'a>(pub(super) &'a Sets);

impl Source for Finding<'_> {
    fn set(&mut self, key: SetKey) -> Option<SetId> {
        self.0.find(&key)
    }

    fn again(&mut self, _: SetId) {}

    fn give_back(&mut self, _: SetId) {}
}

/// Makes rules into what the kernel asks.
pub(super) struct Maker<S> {
    pub(super) source: S,
    pub(super) direction: Direction,
    pub(super) v4: bool,
}

impl<S: Source> Maker<S> {
    /// What these rules let a pod have, sorted, each once. Absent where a set for it is.
    pub(super) fn allows(&mut self, rules: &[&Rule], facts: &Facts) -> Option<Vec<Allow>> {
        if rules.iter().any(|rule| rule.peers.is_none() && rule.ports.is_none()) {
            return Some(vec![Allow::default()]);
        }
        let mut allows = Vec::new();
        for rule in rules {
            self.rule(rule, facts, &mut allows)?;
        }
        allows.arrange();
        let mut last = None;
        allows.retain(|allow| {
            let is_first = last != Some(*allow);
            if !is_first {
                allow.sets().for_each(|set| self.source.give_back(set));
            }
            last = Some(*allow);
            is_first
        });
        Some(allows)
    }

    fn rule(&mut self, rule: &Rule, facts: &Facts, allows: &mut Vec<Allow>) -> Option<()> {
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
                    let key = SetKey::Places(rule.peers.clone(), names, self.v4);
                    let places = self.source.set(key)?;
                    allows.push(Allow {
                        places: Some(places),
                        ..Allow::default()
                    });
                }
                if numbers.is_empty() {
                    return Some(());
                }
                Some(numbers)
            }
        };
        let mut ports = ports.map(PortSet::New);
        for other in self.others(rule) {
            let mut allow = Allow::default();
            if let Some(ports) = &mut ports {
                allow.ports = Some(self.port_set(ports)?);
            }
            match other {
                Other::Anybody => {}
                Other::Within(range) => allow.within = Some(range),
                Other::Blocks(key) => allow.blocks = Some(self.source.set(key)?),
                Other::Pods(key) => allow.peers = Some(self.source.set(key)?),
            }
            allows.push(allow);
        }
        Some(())
    }

    /// The set of a rule's ports, looked for once.
    fn port_set(&mut self, ports: &mut PortSet) -> Option<SetId> {
        match ports {
            PortSet::New(numbers) => {
                let set = self.source.set(SetKey::Ports(std::mem::take(numbers)))?;
                *ports = PortSet::Found(set);
                Some(set)
            }
            PortSet::Found(set) => {
                self.source.again(*set);
                Some(*set)
            }
        }
    }

    /// What the other side must be one of.
    fn others(&self, rule: &Rule) -> Vec<Other> {
        let Some(peers) = &rule.peers else {
            return vec![Other::Anybody];
        };
        let mut all = Vec::new();
        if !peers.selections.is_empty() {
            all.push(Other::Pods(SetKey::Pods(peers.selections.clone(), self.v4)));
        }
        let few = peers.blocks.of_family(self.v4).take(FEW_RANGES + 1);
        let few: Vec<Other> = few.copied().map(Other::Within).collect();
        match few.len() <= FEW_RANGES {
            true => all.extend(few),
            false => all.push(Other::Blocks(SetKey::Blocks(peers.blocks.clone(), self.v4))),
        }
        all
    }
}

/// Whether blocks are more than are compared with one after the other, in either family.
pub(super) fn has_block_set(blocks: &Ranges) -> bool {
    [true, false]
        .into_iter()
        .any(|v4| blocks.of_family(v4).nth(FEW_RANGES).is_some())
}

/// How many rules of the kernel's [`Maker::allows`] makes of these at most.
pub(super) fn most_allows(rules: &[&Rule], direction: Direction, v4: bool) -> usize {
    let of = |rule: &&Rule| {
        let others = rule.peers.as_ref().map_or(1, |peers| {
            let blocks = peers.blocks.of_family(v4).take(FEW_RANGES + 1).count();
            usize::from(!peers.selections.is_empty()) + if blocks > FEW_RANGES { 1 } else { blocks }
        });
        let is_named = |port: &Port| matches!(port.choice, PortChoice::Named(_));
        // Others' names are one more.
        let has_names = direction == Direction::Egress && rule.ports.iter().flatten().any(is_named);
        others + usize::from(has_names)
    };
    if rules.iter().any(|rule| rule.peers.is_none() && rule.ports.is_none()) {
        return 1;
    }
    rules.iter().map(of).sum()
}
