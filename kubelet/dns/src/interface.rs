//! The link that holds the cluster's DNS addresses, and the rules around them: no connection tracking, nothing but DNS. Owns both; never
//! touches another link or table.
//!
//! Pods' packets to an address of this link are delivered here by the kernel's own routing, as with NodeLocal DNSCache (KEP-1024):
//! no translation, and, because they are untracked, no race between two questions for one entry, no entry for every question, and no
//! rule of a service proxy beside, for those translate what is tracked. A kernel without dummy links gets a bridge without ports,
//! which is as good a place for an address: ours by name, and gone with its name.

use netlink::cidr::Cidr;
use netlink::link::{self, Target};
use netlink::nft::{self, Batch, Family};
use netlink::wire::IFF_UP;
use netlink::{Protocol, Socket, address};
use nix::errno::Errno;
use std::net::IpAddr;

mod rules;

/// The link's name.
pub const LINK: &str = "skiff-dns";
/// The table's name.
pub const TABLE: &str = "skiff_dns";
/// What a link of our name may be.
const KINDS: [&str; 2] = ["dummy", "bridge"];
const PORT: u16 = crate::resolvers::PORT;

/// What cannot be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A socket cannot be opened, or a link or an address cannot be read.
    #[error("cluster DNS: reading links")]
    Read(#[source] netlink::Error),
    /// A link of our name is something else.
    #[error("cluster DNS: link {LINK} is there and is of kind {0:?}, not ours: remove or rename it")]
    Foreign(String),
    /// An address is the node's own: with our rules around it, the node would be reached there by nothing but DNS.
    #[error(
        "cluster DNS: clusterDNS {address} is an address this node has already, on link {link}: choose one nobody has"
    )]
    Held {
        /// The address.
        address: IpAddr,
        /// The link's name.
        link: String,
    },
    /// The kernel has neither dummy links nor bridges, or refuses both.
    #[error("cluster DNS: making link {LINK}")]
    Make(#[source] netlink::Error),
    /// An address cannot be put on it.
    #[error("cluster DNS: putting {address} on link {LINK}")]
    Address {
        /// The address.
        address: IpAddr,
        /// Why.
        #[source]
        source: netlink::Error,
    },
    /// The rules cannot be made: the kernel has no nf_tables, or not all of it.
    #[error("cluster DNS: making table inet {TABLE} (nf_tables with notrack)")]
    Rules(#[source] nft::Error),
    /// The link cannot be removed.
    #[error("cluster DNS: removing link {LINK}")]
    Remove(#[source] netlink::Error),
}

/// Keeps the link, its addresses and the rules around them as they should be.
pub struct Keeper {
    addresses: Vec<IpAddr>,
    rules: Seen,
}

/// Whether rules need to be listed: of which generations of the kernel's rules ours were as they should be, once and twice in a row.
///
/// The kernel may tell the next generation a moment before it lists that generation's rules: one listing is not enough.
#[derive(Default)]
struct Seen {
    once: Option<u32>,
    twice: Option<u32>,
}

impl Seen {
    fn is_known(&self, generation: u32) -> bool {
        self.twice == Some(generation)
    }

    /// Rules that were listed after that generation was told were as they should be. Nought is no generation.
    fn as_should_be(&mut self, generation: u32) {
        let told = Some(generation).filter(|generation| *generation != 0);
        self.twice = told.filter(|_| self.once == told);
        self.once = told;
    }
}

impl Keeper {
    /// One that keeps these addresses.
    pub fn new(addresses: Vec<IpAddr>) -> Self {
        Self {
            addresses,
            rules: Seen::default(),
        }
    }

    /// Makes what is missing; what is there and as it should be stays. True when anything was missing. Where another link has one of the
    /// addresses, link and rules are removed: they would cut off the node. Blocks for a few messages to the kernel.
    pub fn ensure(&mut self) -> Result<bool, Error> {
        let mut socket = Socket::open(Protocol::Route).map_err(Error::Read)?;
        let own = own_link(&mut socket)?;
        let all = socket.all_addresses().map_err(Error::Read)?;
        if let Some((address, link)) = held(&mut socket, own.as_ref(), &all, &self.addresses)? {
            remove()?;
            self.rules = Seen::default();
            return Err(Error::Held { address, link });
        }
        let linked = ensure_link(&mut socket, own, &all, &self.addresses)?;
        let ruled = self.ensure_rules().map_err(Error::Rules)?;
        Ok(linked || ruled)
    }

    /// Rules are listed when anybody changed any since they were known to be as they should be ([`Seen`]).
    fn ensure_rules(&mut self) -> Result<bool, nft::Error> {
        let mut connection = nft::Connection::open()?;
        let generation = connection.current_generation()?;
        if self.rules.is_known(generation) {
            return Ok(false);
        }
        let missing = ensure_rules(&mut connection, &self.addresses)?;
        match missing {
            true => self.rules = Seen::default(),
            false => self.rules.as_should_be(generation),
        }
        Ok(missing)
    }
}

/// Removes the link and the rules, if they are there.
pub fn remove() -> Result<(), Error> {
    let mut batch = Batch::new();
    // What is not there cannot be deleted, and a batch is all or nothing.
    batch.add_table(Family::Inet, TABLE, None);
    batch.delete_table(Family::Inet, TABLE);
    let rules = nft::Connection::open().and_then(|mut connection| connection.commit(&batch));
    let mut socket = Socket::open(Protocol::Route).map_err(Error::Read)?;
    if let Some(link) = own_link(&mut socket)? {
        match socket.request(link::delete(Target::Index(link.index))) {
            Err(error) if !error.is_missing() => return Err(Error::Remove(error)),
            _ => {}
        }
    }
    rules.map(drop).map_err(Error::Rules)
}

fn own_link(socket: &mut Socket) -> Result<Option<link::Link>, Error> {
    match socket.link(Target::Name(LINK)).map_err(Error::Read)? {
        Some(link) if !KINDS.contains(&link.kind.as_str()) => Err(Error::Foreign(link.kind)),
        link => Ok(link),
    }
}

/// Which of the addresses a link has that is not ours, and which link.
fn held(
    socket: &mut Socket,
    own: Option<&link::Link>,
    all: &[address::Address],
    addresses: &[IpAddr],
) -> Result<Option<(IpAddr, String)>, Error> {
    let own = own.map(|link| link.index);
    let is_held = |there: &&address::Address| Some(there.index) != own && addresses.contains(&there.cidr.addr);
    let Some(there) = all.iter().find(is_held) else {
        return Ok(None);
    };
    let link = socket.link(Target::Index(there.index)).map_err(Error::Read)?;
    // One that has gone meanwhile has nothing any more; ours may have been made anew.
    let link = link.filter(|link| link.name != LINK);
    Ok(link.map(|link| (there.cidr.addr, link.name)))
}

fn ensure_link(
    socket: &mut Socket,
    own: Option<link::Link>,
    all: &[address::Address],
    addresses: &[IpAddr],
) -> Result<bool, Error> {
    let mut changed = false;
    let link = match own {
        Some(link) => link,
        None => {
            changed = true;
            make_link(socket).map_err(Error::Make)?;
            let made = own_link(socket)?;
            made.ok_or(Error::Make(netlink::Error::Refused(Errno::ENODEV)))?
        }
    };
    if !link.is_up() {
        changed = true;
        let up = link::set_flags(Target::Index(link.index), IFF_UP, IFF_UP);
        socket.request(up).map_err(Error::Make)?;
    }
    let of_link = |there: &&address::Address| there.index == link.index;
    for address in addresses {
        let cidr = Cidr::host(*address);
        if all.iter().filter(of_link).any(|there| there.cidr == cidr) {
            continue;
        }
        changed = true;
        match socket.request(address::add(link.index, cidr, false)) {
            Err(source) if !source.is_exists() => {
                let address = *address;
                return Err(Error::Address { address, source });
            }
            _ => {}
        }
    }
    // Addresses of other settings; what the kernel gave the link itself has another scope.
    let other = |there: &&address::Address| there.scope == 0 && !addresses.contains(&there.cidr.addr);
    for there in all.iter().filter(of_link).filter(other) {
        changed = true;
        let _ = socket.request(address::delete(link.index, there.cidr));
    }
    Ok(changed)
}

fn make_link(socket: &mut Socket) -> Result<(), netlink::Error> {
    match socket.request(link::create_dummy(LINK)) {
        Err(error) if error.errno() == Some(Errno::EOPNOTSUPP) => {
            tracing::info!(
                link = LINK,
                "the kernel has no dummy links: a bridge without ports holds the DNS addresses"
            );
            socket.request(link::create_bridge(LINK, false)).map(drop)
        }
        other => other.map(drop),
    }
}

/// True when they were not as they should be.
fn ensure_rules(connection: &mut nft::Connection, addresses: &[IpAddr]) -> Result<bool, nft::Error> {
    let chains = rules::chains(addresses);
    let is_there = chains.iter().all(|base| {
        let listed = connection.rules(rules::chain(base.name)).unwrap_or_default();
        let listed = listed.into_iter().map(|rule| rule.compared);
        listed.eq(base.rules.iter().map(rules::Rule::compared))
    });
    if is_there {
        return Ok(false);
    }
    let mut batch = Batch::new();
    rules::make(&mut batch, &chains);
    connection.commit(&batch)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_listed_until_they_were_as_they_should_be_twice_of_one_generation() {
        let mut seen = Seen::default();
        for (generation, known) in [
            (7, false),
            (7, false),
            (7, true),
            (8, false),
            (9, false),
            (9, false),
            (9, true),
        ] {
            assert_eq!(seen.is_known(generation), known, "{generation}");
            if !known {
                seen.as_should_be(generation);
            }
        }
        assert!(!seen.is_known(7));
        for _ in 0..3 {
            assert!(!seen.is_known(0));
            seen.as_should_be(0);
        }
    }
}
