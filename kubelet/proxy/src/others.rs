//! What another proxy of Services left on the node, or keeps there: a node that goes from one proxy to the next leads connections by
//! the rules of both, and those nobody keeps any more lead to endpoints that are gone. Looked for by upstream's names, told, and
//! left alone: who runs it says when it goes.

use netlink::link::Target;
use netlink::nft::{Chain, Connection, Family};
use netlink::socket::{Protocol, Socket};

/// Where connections to Services enter upstream's rules: table and chain, of its modes nftables and iptables.
const ENTRIES: [(&str, &str); 2] = [("kube-proxy", "services"), ("nat", "KUBE-SERVICES")];
/// The link that upstream's mode ipvs puts Services' addresses on.
const IPVS: &str = "kube-ipvs0";

/// What there is in the calling thread's network namespace, in words; none where there is nothing. Rules of the older iptables, which
/// nf_tables does not know of, are not seen.
///
/// # Errors
/// The kernel does not tell; in words, too.
pub fn found() -> Result<Option<String>, String> {
    let mut connection = Connection::open().map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for (family, word) in [(Family::Ipv4, "ip"), (Family::Ipv6, "ip6")] {
        for (table, name) in ENTRIES {
            let chain = Chain { family, table, name };
            if connection.has_chain(chain).map_err(|error| error.to_string())? {
                found.push(format!("chain {name} of table {word} {table}"));
            }
        }
    }
    let mut links = Socket::open(Protocol::Route).map_err(|error| error.to_string())?;
    let ipvs = links.link(Target::Name(IPVS)).map_err(|error| error.to_string())?;
    found.extend(ipvs.map(|link| format!("link {}", link.name)));
    Ok((!found.is_empty()).then(|| {
        format!(
            "another proxy's rules are on this node ({}): connections to Services go by both, and to endpoints that are gone by those \
             nobody keeps any more (end that proxy and take its rules away: kube-proxy --cleanup)",
            found.join(", ")
        )
    }))
}
