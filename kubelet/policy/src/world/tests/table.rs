//! A stand-in for the kernel's table. It refuses what the kernel refuses.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::change::{Allow, Chain, ChainId, Change, Content, Member, SetId};
use crate::range::{Range, number};
use crate::spec::Direction;

/// The first packet of a connection, behind the translation of its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) initiator: IpAddr,
    pub(super) responder: IpAddr,
    pub(super) protocol: u8,
    pub(super) port: u16,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    sets: BTreeMap<SetId, Content>,
    chains: BTreeMap<ChainId, Chain>,
    maps: BTreeMap<(Direction, IpAddr), ChainId>,
}

impl Table {
    pub(super) fn apply(&mut self, change: &Change) {
        for set in &change.new_sets {
            let before = self.sets.insert(set.id, set.content.clone());
            assert_eq!(before, None, "a set is made twice");
        }
        for (id, chain) in &change.new_chains {
            let before = self.chains.insert(*id, chain.clone());
            assert_eq!(before, None, "a chain is made twice");
        }
        for revision in &change.revisions {
            let Some(Content::Members(members)) = self.sets.get_mut(&revision.id) else {
                panic!("no set of members {:?}", revision.id);
            };
            for gone in &revision.removed {
                let at = members.iter().position(|member| member == gone);
                members.remove(at.expect("an element that is not there is deleted"));
            }
            for new in &revision.added {
                assert!(!members.contains(new), "an element is added twice");
                members.push(*new);
            }
            members.sort();
        }
        for refill in &change.refills {
            let held = self.sets.get_mut(&refill.id).expect("a set is there");
            let empty = match refill.content {
                Content::Members(_) => panic!("a set of members is revised"),
                Content::Ranges(_) => Content::Ranges(Vec::new()),
                Content::Ports(_) => Content::Ports(Vec::new()),
            };
            let (old, new) = match refill.is_in {
                true => (empty, refill.content.clone()),
                false => (refill.content.clone(), empty),
            };
            assert_eq!(*held, old, "what is there is added, or what is not is deleted");
            *held = new;
        }
        for dispatch in &change.dispatches {
            let place = (dispatch.direction, dispatch.addr);
            assert_eq!(self.maps.get(&place).copied(), dispatch.old);
            match dispatch.new {
                Some(chain) => self.maps.insert(place, chain),
                None => self.maps.remove(&place),
            };
        }
        for id in &change.gone_chains {
            assert!(
                !self.maps.values().any(|chain| chain == id),
                "a chain in use is deleted"
            );
            assert!(self.chains.remove(id).is_some());
        }
        for id in &change.gone_sets {
            let mut users = self.chains.values().flat_map(|chain| &chain.allows);
            assert!(
                !users.any(|allow| allow.sets().any(|set| set == *id)),
                "a set in use is deleted"
            );
            assert!(self.sets.remove(id).is_some());
        }
        self.check();
    }

    /// Nothing leads nowhere, and nothing is there that nothing leads to.
    fn check(&self) {
        assert!(self.maps.values().all(|chain| self.chains.contains_key(chain)));
        let is_used = |id: &ChainId| self.maps.values().any(|chain| chain == id);
        assert!(self.chains.keys().all(is_used), "a chain nobody uses");
        for (id, content) in &self.sets {
            if matches!(id, SetId::Numbered(_)) {
                let mut users = self.chains.values().flat_map(|chain| &chain.allows);
                assert!(
                    users.any(|allow| allow.sets().any(|set| set == *id)),
                    "a set nobody uses: {content:?}"
                );
            }
        }
        let mut used = self
            .chains
            .values()
            .flat_map(|chain| &chain.allows)
            .flat_map(Allow::sets);
        assert!(
            used.all(|id| self.sets.contains_key(&id)),
            "a set that is used is missing"
        );
    }

    pub(super) fn passes(&self, packet: Packet) -> bool {
        if packet.initiator == packet.responder {
            return true;
        }
        let sides = [
            (Direction::Egress, packet.initiator),
            (Direction::Ingress, packet.responder),
        ];
        sides
            .iter()
            .filter_map(|side| self.maps.get(side))
            .all(|chain| self.lets(&self.chains[chain], packet))
    }

    fn lets(&self, chain: &Chain, packet: Packet) -> bool {
        let other = match chain.direction {
            Direction::Ingress => packet.initiator,
            Direction::Egress => packet.responder,
        };
        assert_eq!(chain.v4, packet.initiator.is_ipv4());
        let port = Some((packet.protocol, packet.port));
        chain.allows.iter().any(|allow| {
            let place = Member {
                addr: packet.responder,
                port,
            };
            let holds =
                |set: Option<SetId>, found: &dyn Fn(&Content) -> bool| set.is_none_or(|id| found(&self.sets[&id]));
            holds(allow.peers, &|set| contains(set, Member::address(other)))
                && holds(allow.blocks, &|set| contains(set, Member::address(other)))
                && allow.within.is_none_or(|range| is_within(&range, &other))
                && holds(allow.ports, &|set| contains(set, place))
                && holds(allow.places, &|set| contains(set, place))
        })
    }

    /// Whether an address is one of this node's known pods'.
    pub(super) fn knows(&self, addr: &str) -> bool {
        let addr: IpAddr = addr.parse().unwrap();
        contains(&self.sets[&SetId::Known(addr.is_ipv4())], Member::address(addr))
    }

    /// The same with everything called by what it is, so that two tables can be compared.
    pub(super) fn by_meaning(&self) -> BTreeMap<(Direction, IpAddr), Vec<String>> {
        let set = |id: Option<SetId>| id.map(|id| format!("{:?}", self.sets[&id])).unwrap_or_default();
        let meaning = |chain: &ChainId| {
            let each = self.chains[chain].allows.iter().map(|allow| {
                let sets = [allow.peers, allow.blocks, allow.ports, allow.places]
                    .map(set)
                    .join(" & ");
                format!("{sets} & {:?}", allow.within)
            });
            let mut all: Vec<String> = each.collect();
            all.sort();
            all
        };
        self.maps
            .iter()
            .map(|(place, chain)| (*place, meaning(chain)))
            .collect()
    }
}

fn is_within(range: &Range, addr: &IpAddr) -> bool {
    range.v4 == addr.is_ipv4() && range.first <= number(addr) && number(addr) <= range.last
}

fn contains(set: &Content, wanted: Member) -> bool {
    match (set, wanted.port) {
        (Content::Members(members), _) => members.contains(&wanted),
        (Content::Ranges(ranges), _) => ranges.iter().any(|range| is_within(range, &wanted.addr)),
        (Content::Ports(ports), Some((protocol, port))) => ports
            .iter()
            .any(|(of, first, last)| *of == protocol && *first <= port && port <= *last),
        (Content::Ports(_), None) => false,
    }
}
