//! `macspoofchk` (contract §2.4): frames of a container must carry its own hardware address. Rules in the table `nat` of the
//! bridge family, two chains per attachment, with upstream's names and comments.

use crate::plugin::masquerade::Attachment;
use crate::plugin::rule_note::hash;
use netlink::nft::expression::{Comparison, Expression, Header, MetaKey, Verdict};
use netlink::nft::{BaseChain, Batch, Chain, Connection, Error, Family, Place, Words};

const TABLE: &str = "nat";
const CHAIN_PREFIX: &str = "cni-br-iface-";
const PREROUTING: Chain<'static> = Chain {
    family: Family::Bridge,
    table: TABLE,
    name: "PREROUTING",
};
const PREROUTING_BASE: BaseChain<'static> = BaseChain {
    kind: "filter",
    hook: 0,
    priority: -300,
};

/// The names of an attachment.
struct Names {
    comment: String,
    interface: String,
    mac: String,
}

impl Names {
    fn of(attachment: &Attachment<'_>) -> Self {
        Self::new(&format!("{}-{}", attachment.container_id, attachment.ifname))
    }

    /// From the name of the chain with the interface's packets.
    fn of_chain(interface: &str) -> Self {
        Self::new(interface.strip_prefix(CHAIN_PREFIX).unwrap_or(interface))
    }

    fn new(id: &str) -> Self {
        let interface = format!("{CHAIN_PREFIX}{id}");
        Self {
            comment: format!("macspoofchk-{id}"),
            mac: format!("{interface}-mac"),
            interface,
        }
    }

    fn interface(&self) -> Chain<'_> {
        Chain {
            family: Family::Bridge,
            table: TABLE,
            name: &self.interface,
        }
    }

    fn mac(&self) -> Chain<'_> {
        Chain {
            family: Family::Bridge,
            table: TABLE,
            name: &self.mac,
        }
    }
}

/// Makes the rules for the host's end `port` of a container whose hardware address is `mac`.
pub fn add(attachment: &Attachment<'_>, port: &str, mac: Option<[u8; 6]>) -> Result<(), Error> {
    let names = Names::of(attachment);
    let mut connection = Connection::open()?;
    remove_with(&mut connection, &names)?;
    let mut batch = Batch::new();
    batch.add_table(Family::Bridge, TABLE, None);
    batch.add_chain(PREROUTING, Some(PREROUTING_BASE), None);
    batch.add_chain(names.interface(), None, None);
    batch.add_chain(names.mac(), None, None);
    let mut name = port.as_bytes().to_vec();
    name.resize(libc::IFNAMSIZ, 0);
    let jump = |chain: &str| Expression::Verdict(Verdict::Jump(chain.to_owned()));
    let comment = Some(names.comment.as_str());
    let arrives = [
        Expression::Meta(MetaKey::InputName),
        Expression::Compare(Comparison::Equal, name),
        jump(&names.interface),
    ];
    let label = attachment.key();
    let words = Words {
        comment: &names.comment,
        label: &label,
    };
    batch.add_labelled_rule(PREROUTING, Place::Last, &arrives, words);
    batch.add_rule(names.interface(), &[jump(&names.mac)], comment);
    if let Some(mac) = mac {
        let own = [
            Expression::Payload {
                header: Header::Link,
                offset: 6,
                length: 6,
            },
            Expression::Compare(Comparison::Equal, mac.to_vec()),
            Expression::Verdict(Verdict::Return),
        ];
        batch.add_rule(names.mac(), &own, comment);
    }
    batch.add_rule(names.mac(), &[Expression::Verdict(Verdict::Drop)], comment);
    let committed = connection.commit(&batch).map(drop);
    connection.close_later();
    committed
}

/// Removes the rules and chains of an attachment; none is fine.
pub fn remove(attachment: &Attachment<'_>) -> Result<(), Error> {
    let mut connection = Connection::open()?;
    let removed = remove_with(&mut connection, &Names::of(attachment));
    connection.close_later();
    removed
}

/// Removes what attachments of `network` left that are not valid (container ID, interface name), by the labels of the rules
/// that lead to their chains.
pub fn collect(network: &str, valid: &[(String, String)]) -> Result<(), Error> {
    let keep: Vec<String> = valid
        .iter()
        .map(|(container_id, ifname)| {
            let attachment = Attachment {
                network,
                container_id,
                ifname,
            };
            attachment.key()
        })
        .collect();
    let ours = format!("{}-", hash(network));
    let mut connection = Connection::open()?;
    for rule in connection.rules(PREROUTING)? {
        if !rule.label.starts_with(&ours) || keep.contains(&rule.label) {
            continue;
        }
        if let Some(interface) = rule.targets.first() {
            remove_with(&mut connection, &Names::of_chain(interface))?;
        }
    }
    connection.close_later();
    Ok(())
}

fn remove_with(connection: &mut Connection, names: &Names) -> Result<(), Error> {
    let mut chains = Vec::new();
    for chain in [names.interface(), names.mac()] {
        if connection.has_chain(chain)? {
            chains.push(chain);
        }
    }
    if chains.is_empty() {
        return Ok(());
    }
    connection.revise(PREROUTING, |rules| {
        let mut batch = Batch::new();
        for rule in rules.iter().filter(|rule| rule.targets.contains(&names.interface)) {
            batch.delete_rule(PREROUTING, rule.handle);
        }
        chains.iter().for_each(|chain| batch.flush_chain(*chain));
        chains.iter().for_each(|chain| batch.delete_chain(*chain));
        batch
    })
}
