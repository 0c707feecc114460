//! Chains of others that drop what is forwarded: a packet one base chain accepts is dropped by the next all the same, so the
//! overlay cannot let pods' packets through there. It says so.
//!
//! Only what nf_tables knows is seen, iptables on it included; tables of the older iptables are not.

use crate::peer::Peer;
use crate::run::Notice;
use crate::settings::Settings;
use netlink::nft::connection::{Connection, Error};
use netlink::nft::wire::Family;

/// Chains that forwarded packets of this node's families pass and whose policy is to drop, in words.
pub(crate) fn closed(settings: &Settings, own: &Peer) -> Result<Vec<String>, Error> {
    let mut words = Vec::new();
    for chain in Connection::open()?.dropping_forward_chains()? {
        let (family, concerned): (_, &[bool]) = match chain.family {
            Family::Ipv4 => ("ip", &[true]),
            Family::Ipv6 => ("ip6", &[false]),
            _ => ("inet", &[true, false]),
        };
        let concerns = |v4: bool| own.ranges.iter().any(|range| range.is_v4() == v4) && concerned.contains(&v4);
        let ranges = settings.cluster_cidrs.iter().filter(|cidr| concerns(cidr.is_v4()));
        let ranges: Vec<String> = ranges.map(ToString::to_string).collect();
        if !ranges.is_empty() {
            let (table, name) = (chain.table, chain.name);
            words.push(format!(
                "chain {name} of table {family} {table} drops forwarded packets it has no rule for: pods reach those of other \
                 nodes only if a rule there accepts {} (a container engine of its own on this machine sets that policy)",
                ranges.join(", ")
            ));
        }
    }
    Ok(words)
}

/// The notice of one.
pub(crate) fn notice(words: String) -> Notice {
    Notice {
        reason: "PodNetworkBlocked",
        message: format!("Pod network: {words}"),
        is_warning: true,
    }
}
