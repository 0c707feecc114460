//! The rules by which what pods send out of the cluster gets this node's address, and nothing else does: between pods of two
//! nodes the source stays. One table of our own, written whole; its rules are known by their comments.
//!
//! Rules of others stand beside it. A pod whose own rules masquerade (`ipMasq` of its network configuration) keeps them until
//! it ends.

use crate::settings::{Backend, Settings};
use crate::state::Family;
use netlink::cidr::Cidr;
use netlink::nft::expression::{Comparison, MetaKey, Side, Verdict, address_in, only_family};
use netlink::nft::{BaseChain, Batch, Chain, Connection, Error, Expression, Family as Table, Place, Words};

/// Our table, of family `inet`.
pub const TABLE: &str = "skiff_overlay";
const TABLE_COMMENT: &str = "pods of several nodes: what leaves the cluster gets the node's address";
const CHAIN: Chain<'_> = Chain {
    family: Table::Inet,
    table: TABLE,
    name: "postrouting",
};
const HOOK_POSTROUTING: u32 = 4;
const PRIORITY_SOURCE_NAT: i32 = 100;

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it says, for people; and by which it is known.
    pub comment: String,
    /// What it does.
    pub steps: Vec<Expression>,
}

/// The rules for a node of these ranges, in order.
pub fn rules(settings: &Settings, own: &[Cidr]) -> Vec<Rule> {
    let mut rules = Vec::new();
    for multicast in ["224.0.0.0/4", "ff00::/8"]
        .into_iter()
        .filter_map(|text| Cidr::parse(text).ok())
    {
        if own.iter().any(|range| range.is_v4() == multicast.is_v4()) {
            rules.push(between(None, Some(multicast), Verdict::Return));
        }
    }
    for range in own {
        for cluster in settings.cluster(range.is_v4()) {
            rules.push(between(Some(*range), Some(*cluster), Verdict::Return));
        }
        let mut steps = parts(Some(*range), None);
        steps.push(Expression::MasqueradeRandomly);
        let comment = format!("from {range} out of the cluster: masquerade, ports at random");
        rules.push(Rule { comment, steps });
    }
    if settings.backend == Backend::Vxlan {
        for range in own {
            rules.extend(into_tunnel(settings, Family::of(&range.addr)));
        }
    }
    rules
}

/// What enters the tunnel with an address from outside of the cluster would be answered past it, and be dropped there as coming
/// the wrong way: it gets the tunnel's address.
fn into_tunnel(settings: &Settings, family: Family) -> Vec<Rule> {
    let cluster = settings.cluster(family.is_v4());
    let mut rules: Vec<Rule> = cluster
        .map(|cidr| between(Some(*cidr), None, Verdict::Return))
        .collect();
    let device = family.device(settings.vni);
    let mut name = device.clone().into_bytes();
    name.resize(16, 0);
    let steps = [
        Expression::Meta(MetaKey::OutputName),
        Expression::Compare(Comparison::Equal, name),
        Expression::MasqueradeRandomly,
    ];
    let comment = format!("from elsewhere into {device}: masquerade, ports at random");
    rules.push(Rule {
        comment,
        steps: [only_family(family.is_v4()), steps.to_vec()].concat(),
    });
    rules
}

fn between(from: Option<Cidr>, to: Option<Cidr>, verdict: Verdict) -> Rule {
    let mut comment = String::new();
    for (word, cidr) in [("from", from), ("to", to)] {
        if let Some(cidr) = cidr {
            comment += &format!("{word} {cidr} ");
        }
    }
    let mut steps = parts(from, to);
    steps.push(Expression::Verdict(verdict));
    Rule {
        comment: comment.trim_end().to_owned() + ": as it is",
        steps,
    }
}

fn parts(from: Option<Cidr>, to: Option<Cidr>) -> Vec<Expression> {
    let mut steps = Vec::new();
    for (side, cidr) in [(Side::Source, from), (Side::Destination, to)] {
        let Some(cidr) = cidr else { continue };
        if steps.is_empty() {
            steps = only_family(cidr.is_v4());
        }
        steps.extend(address_in(side, Comparison::Equal, cidr));
    }
    steps
}

/// Writes the table unless it holds just these rules, in one step: there is no moment without them.
///
/// # Errors
/// nf_tables' own.
pub fn ensure(rules: &[Rule]) -> Result<(), Error> {
    let mut connection = Connection::open()?;
    let found = connection.rules(CHAIN)?;
    let same = found.len() == rules.len() && found.iter().zip(rules).all(|(have, want)| have.comment == want.comment);
    if same && (!rules.is_empty() || !connection.has_chain(CHAIN)?) {
        return Ok(());
    }
    let mut batch = Batch::new();
    batch.add_table(Table::Inet, TABLE, Some(TABLE_COMMENT));
    batch.delete_table(Table::Inet, TABLE);
    if !rules.is_empty() {
        batch.add_table(Table::Inet, TABLE, Some(TABLE_COMMENT));
        let base = BaseChain {
            kind: "nat",
            hook: HOOK_POSTROUTING,
            priority: PRIORITY_SOURCE_NAT,
        };
        batch.add_chain(CHAIN, Some(base), None);
        for rule in rules {
            let words = Words {
                comment: &rule.comment,
                label: "",
            };
            batch.add_labelled_rule(CHAIN, Place::Last, &rule.steps, words);
        }
    }
    let outcome = connection.commit(&batch).map(drop);
    connection.close_later();
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comments(backend: Backend, cluster: &[&str], own: &[&str]) -> Vec<String> {
        let parse = |texts: &[&str]| texts.iter().map(|text| Cidr::parse(text).unwrap()).collect::<Vec<_>>();
        let settings = Settings::new("a", backend, parse(cluster));
        rules(&settings, &parse(own))
            .into_iter()
            .map(|rule| rule.comment)
            .collect()
    }

    #[test]
    fn only_what_leaves_the_cluster_is_masqueraded() {
        assert_eq!(
            comments(
                Backend::HostGw,
                &["10.244.0.0/16", "10.250.0.0/16", "fd00::/48"],
                &["10.244.1.0/24"]
            ),
            [
                "to 224.0.0.0/4: as it is",
                "from 10.244.1.0/24 to 10.244.0.0/16: as it is",
                "from 10.244.1.0/24 to 10.250.0.0/16: as it is",
                "from 10.244.1.0/24 out of the cluster: masquerade, ports at random",
            ]
        );
        assert_eq!(
            comments(
                Backend::Vxlan,
                &["10.244.0.0/16", "fd00::/48"],
                &["10.244.1.0/24", "fd00:0:0:1::/64"]
            )[2..],
            [
                "from 10.244.1.0/24 to 10.244.0.0/16: as it is",
                "from 10.244.1.0/24 out of the cluster: masquerade, ports at random",
                "from fd00:0:0:1::/64 to fd00::/48: as it is",
                "from fd00:0:0:1::/64 out of the cluster: masquerade, ports at random",
                "from 10.244.0.0/16: as it is",
                "from elsewhere into flannel.1: masquerade, ports at random",
                "from fd00::/48: as it is",
                "from elsewhere into flannel-v6.1: masquerade, ports at random",
            ]
        );
        assert_eq!(comments(Backend::Vxlan, &["10.244.0.0/16"], &[]), [""; 0]);
    }

    #[test]
    fn comments_tell_rules_apart() {
        let all = comments(
            Backend::Vxlan,
            &["10.244.0.0/16", "fd00::/48"],
            &["10.244.1.0/24", "fd00:0:0:1::/64"],
        );
        let distinct: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert!(
            all.iter()
                .all(|comment| comment.len() <= netlink::nft::wire::MAX_COMMENT_BYTES)
        );
    }
}
