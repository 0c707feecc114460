//! Masquerading of a container's outgoing traffic (contract §2.3): rules in the nftables table upstream's plugins use, or by
//! iptables, as upstream's.
//!
//! Rules are found again by the hash pair in their comment, never by address, so they go even when the namespace is gone.

use crate::plugin::iptables;
use crate::plugin::rule_note::{self, RuleNote, hash};
use crate::protocol;
use crate::protocol::dispatch::Request;
use crate::protocol::error::chain;
use crate::protocol::json::{DecodeError, Fields};
use netlink::cidr::Cidr;
use netlink::nft::expression::{Comparison, Expression, Side, Verdict, address_in, only_family};
use netlink::nft::{BaseChain, Batch, Chain, Connection, Error, Family, Rule};

const TABLE: &str = "cni_plugins_masquerade";
const TABLE_COMMENT: &str = "Masquerading for plugins from github.com/containernetworking/plugins";
const CHECKS: Chain<'_> = Chain {
    family: Family::Inet,
    table: TABLE,
    name: "masq_checks",
};
const CHECKS_COMMENT: &str = "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet";
const POSTROUTING: Chain<'_> = Chain {
    family: Family::Inet,
    table: TABLE,
    name: "postrouting",
};
const POSTROUTING_BASE: BaseChain<'_> = BaseChain {
    kind: "nat",
    hook: 4,
    priority: 100,
};

/// How many rules the base chain has, and the mark they carry; a new mark makes the next ADD replace them.
const BASE_RULES: usize = 3;
const BASE_MARK: u8 = 1;

/// What masquerades.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// As upstream's plugins when nothing is said: iptables where its programs are there, else nftables. Older ones of theirs
    /// end a DEL with an error where they find iptables without a chain of the attachment.
    #[default]
    Auto,
    /// nftables, without a child process.
    Nftables,
    /// iptables.
    Iptables,
}

impl Backend {
    /// Reads `ipMasqBackend`.
    pub fn read(fields: &Fields<'_>) -> Result<Self, DecodeError> {
        Ok(match fields.string("ipMasqBackend")? {
            "" | "auto" => Self::Auto,
            "nftables" => Self::Nftables,
            "iptables" => Self::Iptables,
            other => return Err(DecodeError::Content(format!("unknown ipmasq backend {other:?}"))),
        })
    }
}

/// The attachment rules belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment<'a> {
    /// Name of the network.
    pub network: &'a str,
    /// Container ID.
    pub container_id: &'a str,
    /// Interface name.
    pub ifname: &'a str,
}

impl Attachment<'_> {
    /// The attachment a request is about.
    pub fn of(request: &Request) -> Attachment<'_> {
        Attachment {
            network: &request.network,
            container_id: &request.env.container_id,
            ifname: &request.env.ifname,
        }
    }

    /// What identifies its rules: `<hash of network>-<hash of interface and container>`.
    pub fn key(&self) -> String {
        format!(
            "{}-{}",
            hash(self.network),
            hash(&format!("{}:{}", self.ifname, self.container_id))
        )
    }

    fn comment(&self) -> String {
        format!(
            "{}, net: {}, if: {}, id: {}",
            self.key(),
            self.network,
            self.ifname,
            self.container_id
        )
    }

    fn note(&self) -> RuleNote {
        RuleNote::new("masquerade", &self.key())
    }
}

/// Masquerades what `addresses` send beyond their own networks, by either backend.
pub fn set_up(attachment: &Attachment<'_>, backend: Backend, addresses: &[Cidr]) -> Result<(), protocol::Error> {
    let native = || add(attachment, addresses).map_err(|error| chain(&error));
    let legacy =
        || iptables::masquerade(attachment.network, attachment.container_id, addresses).map_err(|error| chain(&error));
    let done = match backend {
        Backend::Nftables => native(),
        Backend::Iptables => legacy(),
        Backend::Auto if iptables::works(addresses) => legacy(),
        Backend::Auto => native(),
    };
    done.map_err(|text| protocol::Error::internal(format!("failed to set up masquerading: {text}")))
}

/// Removes the rules of an attachment by whichever backend they were made; goes on past errors and returns the first.
pub fn tear_down(attachment: &Attachment<'_>, backend: Backend) -> Result<(), String> {
    let native = remove(attachment).map_err(|error| chain(error.as_ref()));
    let legacy = match backend {
        Backend::Nftables => Ok(()),
        Backend::Iptables | Backend::Auto => {
            let name = iptables::chain_name("", attachment.network, attachment.container_id);
            iptables::remove_legacy_chain(&name).map_err(|error| chain(&error))
        }
    };
    native.and(legacy)
}

/// Masquerades what `addresses` send beyond their own networks.
pub fn add(attachment: &Attachment<'_>, addresses: &[Cidr]) -> Result<(), Error> {
    let mut connection = Connection::open()?;
    let note = attachment.note();
    if note.exists() {
        remove_with(&mut connection, attachment)?;
    }
    let handles = add_rules(&mut connection, attachment, addresses)?;
    let handles: Vec<(usize, u64)> = handles.into_iter().map(|handle| (0, handle)).collect();
    note.write(&attachment.comment(), &handles);
    connection.close_later();
    Ok(())
}

/// Adds the rules of an attachment and returns their handles. The base chain is written anew only when it is not as we
/// left it: whoever deletes a rule waits for the kernel to free it, some ten milliseconds.
fn add_rules(connection: &mut Connection, attachment: &Attachment<'_>, addresses: &[Cidr]) -> Result<Vec<u64>, Error> {
    let mut prepared = is_prepared(&connection.rules(POSTROUTING)?);
    let comment = attachment.comment();
    loop {
        let mut batch = Batch::new();
        if !prepared {
            prepare(&mut batch);
        }
        for address in addresses {
            batch.add_rule(CHECKS, &rule(*address), Some(&comment));
        }
        match connection.commit(&batch) {
            // Somebody deleted the table after the look.
            Err(Error::Commit(error)) if prepared && error.is_missing() => prepared = false,
            outcome => return outcome,
        }
    }
}

/// Whether the base chain holds exactly the rules [`prepare`] writes.
fn is_prepared(rules: &[Rule]) -> bool {
    rules.len() == BASE_RULES && rules.iter().all(|rule| rule.mark == Some(BASE_MARK))
}

/// The table, its chains, and the contents of the base chain.
fn prepare(batch: &mut Batch) {
    batch.add_table(Family::Inet, TABLE, Some(TABLE_COMMENT));
    batch.add_chain(CHECKS, None, Some(CHECKS_COMMENT));
    batch.add_chain(POSTROUTING, Some(POSTROUTING_BASE), None);
    batch.flush_chain(POSTROUTING);
    for multicast in ["224.0.0.0/4", "ff00::/8"] {
        let network = Cidr::parse(multicast).expect("a constant");
        let mut steps = only_family(network.is_v4());
        steps.extend(address_in(Side::Destination, Comparison::Equal, network));
        steps.push(Expression::Verdict(Verdict::Return));
        batch.add_marked_rule(POSTROUTING, &steps, BASE_MARK);
    }
    let goto = Expression::Verdict(Verdict::Goto(CHECKS.name.into()));
    batch.add_marked_rule(POSTROUTING, &[goto], BASE_MARK);
}

fn rule(address: Cidr) -> Vec<Expression> {
    let mut steps = only_family(address.is_v4());
    steps.extend(address_in(Side::Source, Comparison::Equal, Cidr::host(address.addr)));
    steps.extend(address_in(Side::Destination, Comparison::NotEqual, address));
    steps.push(Expression::Masquerade);
    steps
}

/// Removes the rules of an attachment, also those upstream's plugins made with iptables; none is fine.
pub fn remove(attachment: &Attachment<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let mut connection = Connection::open()?;
    let removed = remove_with(&mut connection, attachment);
    let chain = iptables::chain_name("", attachment.network, attachment.container_id);
    let leftovers = iptables::remove_chain(&mut connection, "POSTROUTING", &chain);
    connection.close_later();
    removed?;
    Ok(leftovers?)
}

fn remove_with(connection: &mut Connection, attachment: &Attachment<'_>) -> Result<(), Error> {
    let key = attachment.key();
    attachment
        .note()
        .remove_rules(connection, &[CHECKS], |rule| rule.comment.starts_with(&key))
}

/// Removes the rules of all attachments of `network` but the valid ones (container ID, interface name), by whichever backend they
/// were made; goes on past errors and returns the first. Where nftables is named, or no masquerading, no program runs.
pub fn collect(network: &str, valid: &[(String, String)], backend: Option<Backend>) -> Result<(), String> {
    let native = collect_native(network, valid).map_err(|error| chain(&error));
    let legacy = match backend {
        None | Some(Backend::Nftables) => Ok(()),
        Some(Backend::Iptables | Backend::Auto) => {
            iptables::collect_masquerade(network, valid).map_err(|error| chain(&error))
        }
    };
    native.and(legacy)
}

fn collect_native(network: &str, valid: &[(String, String)]) -> Result<(), Error> {
    let keep: Vec<String> = valid
        .iter()
        .map(|(container_id, ifname)| {
            Attachment {
                network,
                container_id,
                ifname,
            }
            .key()
        })
        .collect();
    let ours = format!("{}-", hash(network));
    let is_stale = |text: &str| text.starts_with(&ours) && !keep.iter().any(|key| text.starts_with(key));
    let mut connection = Connection::open()?;
    connection.delete_rules(CHECKS, |rule| is_stale(&rule.comment))?;
    rule_note::sweep();
    for (note, label) in RuleNote::all("masquerade", &ours) {
        if is_stale(&label) {
            note.forget();
        }
    }
    connection.close_later();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_upstreams() {
        let attachment = Attachment {
            network: "unit-test",
            container_id: "c",
            ifname: "eth0",
        };
        assert!(attachment.comment().starts_with("6fd94d501e58f0aa-"));
        assert!(attachment.comment().ends_with(", net: unit-test, if: eth0, id: c"));
    }
}
