//! Which chains this node's pods have, and which their addresses lead to: brought up to what has been told. Pure.
//!
//! A pod whose rules there is no room for (see [`super::shares`]) has a chain without rules, which lets nothing through.

use client::ordered::CollectOrdered;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::net::IpAddr;

use super::concern::Concerning;
use super::maker::{Finding, Maker, Making, most_allows};
use super::shares::{Cut, parts, until_shared};
use super::{ASKED_POLICIES, Everybody, NO_LABELS, Slots, World, first_of};
use crate::change::{Allow, Chain, ChainId};
use crate::facts::{Facts, NamedPort, PodId};
use crate::spec::{Direction, Policy, Port, PortChoice, Rule};

/// What pods have in common that get the same chain: found again without making its rules once more.
#[derive(PartialEq, Eq, Hash)]
struct Alike {
    direction: Direction,
    v4: bool,
    /// The policies that isolate them, by where they are kept; while this is used, none of them moves.
    policies: Vec<usize>,
    /// What the names of their ports mean, as far as these policies ask for them.
    ports: Vec<NamedPort>,
}

/// A chain that was made, and what there was no room for, of which it has nothing then.
#[derive(Clone, Copy)]
struct Made {
    chain: ChainId,
    cut: Option<Cut>,
}

/// Chains made in one go.
#[derive(Default)]
struct Going<'p> {
    /// Each is in use until it ends.
    made: HashMap<Alike, Made>,
    /// The protocols and names of ports that policies for what comes to a pod ask for, by where those are kept.
    names: HashMap<Vec<usize>, BTreeSet<(u8, &'p str)>>,
    /// What each namespace may have of rules; anybody as many as there is room for, if absent.
    parts: Option<BTreeMap<String, usize>>,
    /// What each has of it.
    spent: BTreeMap<String, usize>,
    counted: BTreeSet<ChainId>,
}

impl<'p> Going<'p> {
    /// A pod's ports that make a difference to its chain. In rules for what it sends, names are others' ports.
    fn asked_ports(&mut self, places: &[usize], policies: &[&'p Policy], ports: &[NamedPort]) -> Vec<NamedPort> {
        if ports.is_empty() {
            return Vec::new();
        }
        let names = self.names.entry(places.to_vec()).or_insert_with(|| {
            let rules = policies.iter().filter_map(|policy| policy.rules(Direction::Ingress));
            let ports = rules.flatten().flat_map(|rule| rule.ports.iter().flatten());
            let name = |port: &'p Port| match &port.choice {
                PortChoice::Named(name) => Some((port.protocol, name.as_str())),
                PortChoice::Range(..) => None,
            };
            ports.filter_map(name).collect_ordered()
        });
        let is_asked = |port: &&NamedPort| names.contains(&(port.protocol, port.name.as_str()));
        ports.iter().filter(is_asked).cloned().collect()
    }

    /// Notes that a namespace has a chain of so many rules.
    fn count(&mut self, namespace: &str, chain: ChainId, rules: usize) {
        if self.parts.is_some() && self.counted.insert(chain) {
            *self.spent.entry(namespace.to_owned()).or_default() += rules;
        }
    }
}

impl World {
    /// Brings chains and addresses up to what has been told.
    pub(super) fn settle(&mut self) {
        self.find_concerned();
        let concerned = std::mem::take(&mut self.unsettled_pods);
        self.give_chains(&concerned, None);
        if let Some(again) = self.share_rules(&concerned) {
            self.give_chains(&again, Some(self.parts.clone()));
        }
        self.note_cut();
        let everybody = Everybody {
            pods: &self.pods,
            namespaces: &self.namespaces,
        };
        self.sets.balance(everybody);
        for addr in std::mem::take(&mut self.unsettled_addresses) {
            let slots = self.owner(&addr).and_then(|owner| self.slots.get(owner)).copied();
            for direction in Direction::ALL {
                let chain = slots.and_then(|slots| slots[direction as usize][usize::from(!addr.is_ipv4())]);
                self.lead(direction, addr, chain);
            }
            self.sets.know(addr, self.owners.contains_key(&addr));
        }
    }

    /// The local pods that changed policies are, or were, about.
    fn find_concerned(&mut self) {
        for (namespace, selectors) in std::mem::take(&mut self.unsettled_policies) {
            let local = self.local.range(first_of(&namespace)..);
            let local = local.take_while(|id| id.key.namespace == namespace);
            let is_concerned = |id: &&PodId| {
                let labels = self.pods.get(*id).map_or(&NO_LABELS, |entry| &entry.facts.labels);
                selectors.len() >= ASKED_POLICIES || selectors.iter().any(|pods| pods.selects(labels))
            };
            self.unsettled_pods.extend(local.filter(is_concerned).cloned());
        }
    }

    /// Gives these pods their chains, each namespace within its part of the rules if there are parts.
    fn give_chains(&mut self, pods: &BTreeSet<PodId>, parts: Option<BTreeMap<String, usize>>) {
        let mut going = Going {
            parts,
            ..Going::default()
        };
        let mut released = Vec::new();
        let policies = std::mem::take(&mut self.policies);
        let mut concerning = Concerning::new(&policies);
        for id in pods {
            self.cut.remove(id);
            let old = match self.chains_for(id, &mut concerning, &mut going) {
                Some(slots) => self.slots.insert(id.clone(), slots),
                None => self.slots.remove(id),
            };
            let namespace = id.key.namespace.as_str();
            released.extend(
                old.into_iter()
                    .flatten()
                    .flatten()
                    .flatten()
                    .map(|chain| (namespace, chain)),
            );
            let addresses = self.pods.get(id).map(|entry| entry.facts.addresses.clone());
            self.unsettled_addresses.extend(addresses.into_iter().flatten());
        }
        self.policies = policies;
        // Last: what old and new share stays.
        for (namespace, chain) in released {
            for set in self.chains.release(chain) {
                self.sets.release(set, namespace);
            }
        }
    }

    /// Shares out the rules, where there is not room for all; returns whose chains are to be made again.
    fn share_rules(&mut self, concerned: &BTreeSet<PodId>) -> Option<BTreeSet<PodId>> {
        if self.cut.is_empty() && self.chains.all_rules() <= self.limits.rules {
            self.parts.clear();
            return None;
        }
        let rules = self.chains.rules();
        let mut wanted: BTreeMap<&str, usize> = rules
            .iter()
            .map(|(name, count)| (name.as_str(), *count))
            .collect_ordered();
        // Pods that are alike have one chain: a namespace that counted it for each would be left room it has no use for.
        let mut counted = BTreeSet::new();
        for (id, cut) in &self.cut {
            let namespace = id.key.namespace.as_str();
            let new = cut
                .iter()
                .flatten()
                .filter(|cut| counted.insert((namespace, cut.likeness)));
            *wanted.entry(namespace).or_default() += new.map(|cut| cut.rules).sum::<usize>();
        }
        let of = |pods: &BTreeSet<PodId>, name: &str| -> Vec<PodId> {
            let pods = pods.range(first_of(name)..).take_while(|id| id.key.namespace == name);
            pods.cloned().collect()
        };
        let has_cut = |name: &str| {
            let mut cut = self.cut.range(first_of(name)..);
            cut.next().is_some_and(|(id, _)| id.key.namespace == name)
        };
        let mut new = BTreeMap::new();
        let mut again = BTreeSet::new();
        for (name, part) in parts(self.limits.rules, &wanted) {
            let is_over = rules.get(name).is_some_and(|count| *count > part);
            let is_other = || self.parts.get(name) != Some(&part) || !of(concerned, name).is_empty();
            if (is_over || has_cut(name)) && is_other() {
                again.extend(of(&self.local, name));
            }
            new.insert(name.to_owned(), part);
        }
        self.parts = new;
        Some(again)
    }

    /// Notes whose rules there is no room for now.
    fn note_cut(&mut self) {
        if self.cut.is_empty() && self.told_cut.is_empty() {
            return;
        }
        let cut = self.cut.iter().flat_map(|(id, cut)| {
            let directions = Direction::ALL
                .into_iter()
                .filter(|direction| !cut[*direction as usize].is_empty());
            directions.map(|direction| (id.clone(), direction))
        });
        let cut: BTreeSet<_> = cut.collect_ordered();
        self.untold_cut.extend(cut.difference(&self.told_cut).cloned());
        self.told_cut = cut;
    }

    /// Whose an address is: the pod this node told of it (only one has it, the one told last), else the last in order.
    fn owner(&self, addr: &IpAddr) -> Option<&PodId> {
        let is_told = |id: &&PodId| self.pods.get(*id).is_some_and(|entry| entry.node.is_some());
        self.owners.get(addr)?.iter().max_by_key(|id| (is_told(id), *id))
    }

    fn lead(&mut self, direction: Direction, addr: IpAddr, chain: Option<ChainId>) {
        let place = (direction, addr);
        let old = match chain {
            Some(chain) => self.dispatch.insert(place, chain),
            None => self.dispatch.remove(&place),
        };
        if old != chain {
            self.pending.entry(place).or_insert(old);
        }
    }

    /// The chains of a pod, which gain a user each. Absent: it is no local pod policies concern.
    fn chains_for<'p>(&mut self, id: &PodId, concerning: &mut Concerning<'p>, going: &mut Going<'p>) -> Option<Slots> {
        let facts = &self.pods.get(id).filter(|_| self.local.contains(id))?.facts;
        let policies = concerning.of(&id.key.namespace, &facts.labels);
        let families = [true, false].map(|v4| facts.addresses.iter().any(|addr| addr.is_ipv4() == v4));
        let ports = facts.ports.clone();
        let mut slots = Slots::default();
        for direction in Direction::ALL {
            let isolating = policies.iter().copied();
            let isolating: Vec<&Policy> = isolating.filter(|policy| policy.rules(direction).is_some()).collect();
            let places = isolating.iter().map(|policy| std::ptr::from_ref(*policy) as usize);
            let places: Vec<usize> = places.collect();
            let ports = match direction {
                Direction::Ingress => going.asked_ports(&places, &isolating, &ports),
                Direction::Egress => Vec::new(),
            };
            for (family, v4) in [true, false].into_iter().enumerate() {
                if isolating.is_empty() || !families[family] {
                    continue;
                }
                let alike = Alike {
                    direction,
                    v4,
                    policies: places.clone(),
                    ports: ports.clone(),
                };
                let made = match going.made.get(&alike).copied() {
                    Some(made) => {
                        self.chains.use_again(made.chain);
                        made
                    }
                    None => {
                        let made = self.make_chain(id, &isolating, &alike, going)?;
                        going.made.insert(alike, made);
                        made
                    }
                };
                slots[direction as usize][family] = Some(made.chain);
                if let Some(cut) = made.cut {
                    self.cut.entry(id.clone()).or_default()[direction as usize].push(cut);
                }
            }
        }
        Some(slots)
    }

    /// The chain of one direction and family of a pod, which gains a user.
    fn make_chain(&mut self, id: &PodId, isolating: &[&Policy], alike: &Alike, going: &mut Going<'_>) -> Option<Made> {
        let namespace = id.key.namespace.as_str();
        let (direction, v4) = (alike.direction, alike.v4);
        let facts: &Facts = &self.pods.get(id)?.facts;
        let rules = isolating.iter().filter_map(|policy| policy.rules(direction));
        let rules: Vec<&Rule> = rules.flatten().collect();
        let wanted = most_allows(&rules, direction, v4);
        let has_room = match &going.parts {
            // It is shared out behind this.
            None => self.chains.all_rules() + wanted <= until_shared(self.limits.rules),
            Some(parts) => {
                let spent = going.spent.get(namespace).copied().unwrap_or_default();
                spent + wanted <= parts.get(namespace).copied().unwrap_or_default()
            }
        };
        if wanted > 0 && !has_room {
            if let Some(chain) = self.counted_chain(namespace, &rules, facts, alike, going) {
                self.chains.use_again(chain);
                return Some(Made { chain, cut: None });
            }
            let allows = Vec::new();
            let (chain, _) = self.chains.use_or_make(namespace, Chain { direction, v4, allows });
            let likeness = self.likeness_of(&rules, alike);
            let cut = Some(Cut {
                likeness,
                rules: wanted,
            });
            return Some(Made { chain, cut });
        }
        let mut maker = Maker {
            source: Making {
                sets: &mut self.sets,
                everybody: Everybody {
                    pods: &self.pods,
                    namespaces: &self.namespaces,
                },
                namespace,
            },
            direction,
            v4,
        };
        let allows = maker.allows(&rules, facts)?;
        let held: Vec<_> = allows.iter().flat_map(Allow::sets).collect();
        let (chain, is_new) = self.chains.use_or_make(namespace, Chain { direction, v4, allows });
        if !is_new {
            // The chain uses them already.
            held.into_iter().for_each(|set| self.sets.release(set, namespace));
        }
        going.count(namespace, chain, self.chains.rules_of(chain));
        Some(Made { chain, cut: None })
    }

    /// The chain of other pods that is the same, though other policies say so: it takes no room that was not counted.
    fn counted_chain(
        &self,
        namespace: &str,
        rules: &[&Rule],
        facts: &Facts,
        alike: &Alike,
        going: &Going<'_>,
    ) -> Option<ChainId> {
        let (direction, v4) = (alike.direction, alike.v4);
        let mut maker = Maker {
            source: Finding(&self.sets),
            direction,
            v4,
        };
        let allows = maker.allows(rules, facts)?;
        let chain = self.chains.find(namespace, Chain { direction, v4, allows })?;
        // Where parts are given out anew, one that is of pods that have not had theirs yet may go.
        (going.parts.is_none() || going.counted.contains(&chain)).then_some(chain)
    }

    /// The same for pods whose rules are, whichever policies they are of.
    fn likeness_of(&self, rules: &[&Rule], alike: &Alike) -> u64 {
        let each: BTreeSet<u64> = rules.iter().map(|rule| self.likeness.hash_one(rule)).collect_ordered();
        self.likeness.hash_one((alike.direction, alike.v4, each, &alike.ports))
    }
}
