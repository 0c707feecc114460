//! The nftables rules of port mappings, in upstream's tables (contract §4.2). A rule's comment is the bare container ID.
//!
//! Unlike upstream's, conditions stand in the rules of the mappings they were configured for, not in the base chains, where
//! the last network's conditions would govern all.

use super::config::{Config, Mapping, Targets};
use crate::plugin::iptables;
use crate::plugin::rule_note::{RuleNote, hash};
use crate::protocol;
use crate::protocol::dispatch::Request;
use crate::protocol::error::internal;
use netlink::cidr::Cidr;
use netlink::nft::expression::{
    Comparison, Expression, Header, MetaKey, Side, Verdict, address_in, translate_destination,
};
use netlink::nft::wire::MAX_COMMENT_BYTES;
use netlink::nft::{BaseChain, Batch, Chain, Connection, Error, Family, Place, Rule, Words};

const TABLE: &str = "cni_hostport";
const TABLE_COMMENT: &str = "CNI portmap plugin";
/// `RTN_LOCAL`: an address of this host.
const LOCAL: u32 = 2;
/// `IPS_DST_NAT`: the connection's destination was translated.
const DESTINATION_TRANSLATED: u32 = 1 << 5;
/// The mark of rules in chains all containers share; a new one makes the next ADD replace them.
const BASE_MARK: u8 = 1;

/// The chains of one family's table.
#[derive(Clone, Copy)]
struct Chains(Family);

impl Chains {
    const fn chain(self, name: &'static str) -> Chain<'static> {
        Chain {
            family: self.0,
            table: TABLE,
            name,
        }
    }

    const fn all(self) -> Chain<'static> {
        self.chain("hostports_all")
    }

    const fn with_host_ip(self) -> Chain<'static> {
        self.chain("hostip_hostports")
    }

    const fn ports(self) -> Chain<'static> {
        self.chain("hostports")
    }

    const fn masquerading(self) -> Chain<'static> {
        self.chain("masquerading")
    }
}

const V4: Chains = Chains(Family::Ipv4);
const V6: Chains = Chains(Family::Ipv6);

/// Every chain with rules of containers. Notes refer to positions in this list.
const CONTAINER_CHAINS: [Chain<'static>; 6] = [
    V4.ports(),
    V4.masquerading(),
    V4.with_host_ip(),
    V6.ports(),
    V6.masquerading(),
    V6.with_host_ip(),
];

fn chains_of(v4: bool) -> Chains {
    if v4 { V4 } else { V6 }
}

/// The comment of a container's rules; nft keeps no longer one.
fn comment(container_id: &str) -> &str {
    container_id.get(..MAX_COMMENT_BYTES).unwrap_or(container_id)
}

/// The invisible label of a container's rules.
fn key(network: &str, container_id: &str) -> String {
    format!("{}-{}", hash(network), hash(container_id))
}

fn note(network: &str, container_id: &str) -> RuleNote {
    RuleNote::new("portmap", &key(network, container_id))
}

fn is_of(container_id: &str) -> impl Fn(&Rule) -> bool {
    let comment = comment(container_id).to_owned();
    move |rule| rule.comment == comment
}

/// Makes the rules of a container's mappings, all or none. Rules it has already are replaced.
pub fn add(request: &Request, config: &Config, targets: &Targets) -> Result<(), Error> {
    let id = &request.env.container_id;
    let note = note(&request.network, id);
    let mut connection = Connection::open()?;
    if note.exists() {
        note.remove_rules(&mut connection, &CONTAINER_CHAINS, is_of(id))?;
    }
    let mut prepared = true;
    for chains in [V4, V6] {
        prepared &= !uses(targets, chains) || is_prepared(&mut connection, chains)?;
    }
    let label = key(&request.network, id);
    let words = Words {
        comment: comment(id),
        label: &label,
    };
    let mut positions = Vec::new();
    let handles = loop {
        let mut batch = Batch::new();
        positions.clear();
        for target in [targets.v4, targets.v6].into_iter().flatten() {
            let chains = chains_of(target.is_v4());
            if !prepared {
                prepare(&mut batch, chains);
            }
            positions.extend(add_container(&mut batch, chains, config, target, words));
        }
        match connection.commit(&batch) {
            // Somebody deleted a table after the look.
            Err(Error::Commit(error)) if prepared && error.is_missing() => prepared = false,
            outcome => break outcome?,
        }
    };
    let noted: Vec<(usize, u64)> = positions.into_iter().zip(handles).collect();
    note.write(id, &noted);
    connection.close_later();
    Ok(())
}

fn uses(targets: &Targets, chains: Chains) -> bool {
    targets.families().any(|v4| chains_of(v4).0 == chains.0)
}

/// Adds one container's rules; returns the positions of their chains in [`CONTAINER_CHAINS`], in the same order.
fn add_container(batch: &mut Batch, chains: Chains, config: &Config, target: Cidr, words: Words<'_>) -> Vec<usize> {
    let conditions = if target.is_v4() {
        &config.conditions_v4
    } else {
        &config.conditions_v6
    };
    let conditions: Vec<Expression> = conditions
        .iter()
        .flat_map(|condition| condition.expressions())
        .collect();
    let offset = if target.is_v4() { 0 } else { CONTAINER_CHAINS.len() / 2 };
    let mut positions = Vec::new();
    for mapping in config.mappings.iter().filter(|mapping| mapping.leads_to(&target.addr)) {
        let steps = mapping_rule(&conditions, mapping, target);
        let place = match mapping.host_ip.filter(|addr| !addr.is_unspecified()) {
            // The more special one goes before those for any address.
            Some(_) => Place::First,
            None => Place::Last,
        };
        batch.add_labelled_rule(chains.ports(), place, &steps, words);
        positions.push(offset);
    }
    if config.snat && !positions.is_empty() {
        for steps in masquerade_rules(config.masq_all, target) {
            batch.add_labelled_rule(chains.masquerading(), Place::Last, &steps, words);
            positions.push(offset + 1);
        }
    }
    positions
}

/// Destination port, and address if one is named, lead to the container.
fn mapping_rule(conditions: &[Expression], mapping: &Mapping, target: Cidr) -> Vec<Expression> {
    let mut steps = conditions.to_vec();
    if let Some(addr) = mapping.host_ip.filter(|addr| !addr.is_unspecified()) {
        steps.extend(address_in(Side::Destination, Comparison::Equal, Cidr::host(addr)));
    }
    steps.extend([
        Expression::Meta(MetaKey::TransportProtocol),
        Expression::Compare(Comparison::Equal, vec![mapping.protocol.number()]),
        Expression::Payload {
            header: Header::Transport,
            offset: 2,
            length: 2,
        },
        Expression::Compare(Comparison::Equal, mapping.host_port.to_be_bytes().to_vec()),
    ]);
    steps.extend(translate_destination(target.addr, mapping.container_port));
    steps
}

/// Where answers would not come back by this host: the container reaching itself, and localhost reaching it.
fn masquerade_rules(all: bool, target: Cidr) -> Vec<Vec<Expression>> {
    let container = Cidr::host(target.addr);
    let to_container = address_in(Side::Destination, Comparison::Equal, container);
    let from = |source: Cidr| {
        let mut steps = address_in(Side::Source, Comparison::Equal, source);
        steps.extend(to_container.clone());
        steps.push(Expression::Masquerade);
        steps
    };
    let mut rules = Vec::new();
    if all {
        let mask = DESTINATION_TRANSLATED.to_ne_bytes().to_vec();
        let mut steps = to_container.clone();
        steps.extend([
            Expression::ConnectionStatus,
            Expression::Mask { mask, xor: vec![0; 4] },
            Expression::Compare(Comparison::NotEqual, vec![0; 4]),
            Expression::Masquerade,
        ]);
        rules.push(steps);
    } else {
        rules.push(from(container));
    }
    if target.is_v4() {
        rules.push(from(Cidr::host([127, 0, 0, 1].into())));
    }
    rules
}

/// The chains all containers share, and how many rules each has.
const SHARED: [(&str, usize); 3] = [("hostports_all", 2), ("prerouting", 1), ("output", 1)];

fn is_prepared(connection: &mut Connection, chains: Chains) -> Result<bool, Error> {
    for (name, count) in SHARED {
        let rules = connection.rules(chains.chain(name))?;
        if rules.len() != count || rules.iter().any(|rule| rule.mark != Some(BASE_MARK)) {
            return Ok(false);
        }
    }
    connection.has_chain(chains.masquerading())
}

/// The table, its chains, and the way from the hooks to the mappings.
fn prepare(batch: &mut Batch, chains: Chains) {
    batch.add_table(chains.0, TABLE, Some(TABLE_COMMENT));
    for chain in [chains.ports(), chains.with_host_ip(), chains.all()] {
        batch.add_chain(chain, None, None);
    }
    batch.flush_chain(chains.all());
    for target in ["hostip_hostports", "hostports"] {
        let jump = Expression::Verdict(Verdict::Jump(target.into()));
        batch.add_marked_rule(chains.all(), &[jump], BASE_MARK);
    }
    for (name, hook) in [("prerouting", 0), ("output", 3)] {
        let chain = chains.chain(name);
        batch.add_chain(
            chain,
            Some(BaseChain {
                kind: "nat",
                hook,
                priority: -100,
            }),
            None,
        );
        batch.flush_chain(chain);
        let steps = [
            Expression::DestinationType,
            Expression::Compare(Comparison::Equal, LOCAL.to_ne_bytes().to_vec()),
            Expression::Verdict(Verdict::Jump(chains.all().name.into())),
        ];
        batch.add_marked_rule(chain, &steps, BASE_MARK);
    }
    batch.add_chain(
        chains.masquerading(),
        Some(BaseChain {
            kind: "nat",
            hook: 4,
            priority: 100,
        }),
        None,
    );
}

/// Removes a container's rules, also those upstream's plugin made with iptables; none is fine.
pub fn remove(request: &Request) -> Result<(), Box<dyn std::error::Error>> {
    let id = &request.env.container_id;
    let mut connection = Connection::open()?;
    let removed = note(&request.network, id).remove_rules(&mut connection, &CONTAINER_CHAINS, is_of(id));
    let chain = iptables::chain_name("DN-", &request.network, id);
    let leftovers = iptables::remove_chain(&mut connection, "CNI-HOSTPORT-DNAT", &chain);
    connection.close_later();
    removed?;
    Ok(leftovers?)
}

/// Each mapping has its rule.
pub fn check(request: &Request, config: &Config, targets: &Targets) -> Result<(), protocol::Error> {
    let mut connection = Connection::open().map_err(|error| internal(&error))?;
    let is_ours = is_of(&request.env.container_id);
    for target in [targets.v4, targets.v6].into_iter().flatten() {
        let chains = chains_of(target.is_v4());
        let wanted = config
            .mappings
            .iter()
            .filter(|mapping| mapping.leads_to(&target.addr))
            .count();
        let rules = connection.rules(chains.ports()).map_err(|error| internal(&error))?;
        let found = rules.iter().filter(|rule| is_ours(rule)).count();
        if found < wanted {
            let text = format!(
                "found {found} of {wanted} port mapping rules of container {}",
                request.env.container_id
            );
            return Err(protocol::Error::internal(text));
        }
    }
    Ok(())
}

/// Removes the rules of this network's containers that have no valid attachment, by the labels they carry.
pub fn collect(request: &Request, valid: &[(String, String)]) -> Result<(), Error> {
    let keep: Vec<String> = valid.iter().map(|(id, _)| key(&request.network, id)).collect();
    let ours = format!("{}-", hash(&request.network));
    let is_stale = |label: &str| label.starts_with(&ours) && !keep.iter().any(|kept| kept == label);
    let mut connection = Connection::open()?;
    for chain in CONTAINER_CHAINS {
        connection.delete_rules(chain, |rule| is_stale(&rule.label))?;
    }
    connection.close_later();
    for (note, id) in RuleNote::all("portmap", &ours) {
        if is_stale(&key(&request.network, &id)) {
            note.forget();
        }
    }
    Ok(())
}
