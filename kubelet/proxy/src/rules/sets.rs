//! The sets and maps of a table. Pure.

use netlink::nft::set::{Data, Kind, NewSet, Part};

use super::{AFFINITY, DISPATCH, Writer};
use crate::desired::Set;

/// How many clients of all Services are remembered in each family; beyond, new ones are served without affinity. Some 200 bytes each.
pub const AFFINITY_MAX: u32 = 262_144;

impl Writer<'_> {
    /// All sets and maps of the table.
    pub fn sets(&self) -> Vec<NewSet<'static>> {
        let shapes = if self.v4 { &SHAPES_V4 } else { &SHAPES_V6 };
        let exact = |set: Set, key, data| (set.name(), key, data, Kind::Exact);
        let mut list = vec![
            exact(Set::ClusterIps, shapes.ip, Data::Nothing),
            exact(Set::Rejected, shapes.front, Data::Nothing),
            exact(Set::Dropped, shapes.front, Data::Nothing),
            exact(Set::Guarded, shapes.front, Data::Nothing),
            (Set::Allowed.name(), shapes.allowed, Data::Nothing, Kind::Ranges),
            exact(Set::Hairpin, shapes.pair, Data::Nothing),
            exact(Set::Pools, shapes.front, Data::Parts(WORD)),
            (AFFINITY, shapes.client, Data::Parts(WORD), Kind::Dynamic(AFFINITY_MAX)),
        ];
        for local in [false, true] {
            list.extend([
                (DISPATCH[usize::from(local)], WORD, Data::Verdict, Kind::Exact),
                exact(Set::Services(local), shapes.front, Data::Parts(WORD)),
                exact(Set::Endpoints(local), NUMBERED, Data::Parts(shapes.endpoint)),
                exact(Set::Numbers(local), NUMBERED, Data::Parts(WORD)),
                exact(Set::Members(local), NUMBERED, Data::Parts(shapes.endpoint)),
            ]);
        }
        let numbered = list.into_iter().zip(1u32..);
        numbered
            .map(|((name, key, data, kind), id)| NewSet {
                name,
                id,
                key,
                data,
                kind,
            })
            .collect()
    }
}

/// Keys and data of one family.
struct Shapes {
    ip: &'static [Part],
    pair: &'static [Part],
    front: &'static [Part],
    allowed: &'static [Part],
    client: &'static [Part],
    endpoint: &'static [Part],
}

const WORD: &[Part] = &[Part::Word];
/// A pool, and a number or a name.
const NUMBERED: &[Part] = &[Part::Word, Part::Word];
const SHAPES_V4: Shapes = Shapes {
    ip: &[Part::Ipv4],
    pair: &[Part::Ipv4, Part::Ipv4],
    front: &[Part::Ipv4, Part::Protocol, Part::Port],
    allowed: &[Part::Ipv4, Part::Protocol, Part::Port, Part::Ipv4],
    client: &[Part::Word, Part::Ipv4],
    endpoint: &[Part::Ipv4, Part::Port],
};
const SHAPES_V6: Shapes = Shapes {
    ip: &[Part::Ipv6],
    pair: &[Part::Ipv6, Part::Ipv6],
    front: &[Part::Ipv6, Part::Protocol, Part::Port],
    allowed: &[Part::Ipv6, Part::Protocol, Part::Port, Part::Ipv6],
    client: &[Part::Word, Part::Ipv6],
    endpoint: &[Part::Ipv6, Part::Port],
};
