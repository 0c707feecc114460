//! `macspoofchk` (contract §2.4): frames of a container must carry its own hardware address. Rules in the table `nat` of the
//! bridge family, two chains per attachment, with upstream's names and comments.

use crate::nft::expression::{Comparison, Expression, Header, MetaKey, Verdict};
use crate::nft::{BaseChain, Batch, Chain, Connection, Error, Family};
use crate::plugin::masquerade::Attachment;
use crate::plugin::rule_note::{RuleNote, hash};

const TABLE: &str = "nat";
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

fn note(attachment: &Attachment<'_>) -> RuleNote {
    let names = format!("{}-{}", attachment.container_id, attachment.ifname);
    RuleNote::new("spoof", &format!("{}-{}", hash(attachment.network), hash(&names)))
}

impl Names {
    fn of(attachment: &Attachment<'_>) -> Self {
        Self::new(attachment.container_id, attachment.ifname)
    }

    fn new(container_id: &str, ifname: &str) -> Self {
        let id = format!("{container_id}-{ifname}");
        let interface = format!("cni-br-iface-{id}");
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
    // Before the rules, so that garbage collection knows of whatever a kill leaves.
    note(attachment).write(&format!("{} {}", attachment.container_id, attachment.ifname), &[]);
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
    batch.add_rule(PREROUTING, &arrives, comment);
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
    if removed.is_ok() {
        note(attachment).forget();
    }
    removed
}

/// Removes what attachments of `network` left that are not valid (container ID, interface name). Chains do not say their
/// network, so only attachments with a note are looked at.
pub fn collect(network: &str, valid: &[(String, String)]) -> Result<(), Error> {
    let notes = RuleNote::all("spoof", &format!("{}-", hash(network)));
    if notes.is_empty() {
        return Ok(());
    }
    let mut connection = Connection::open()?;
    for (note, label) in notes {
        let Some((id, ifname)) = label.split_once(' ') else {
            continue;
        };
        if !valid
            .iter()
            .any(|(valid_id, valid_ifname)| valid_id == id && valid_ifname == ifname)
        {
            remove_with(&mut connection, &Names::new(id, ifname))?;
            note.forget();
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
