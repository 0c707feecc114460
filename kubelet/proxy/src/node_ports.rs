//! Node ports and ports the kernel chooses for connections of the node's own (`ip_local_port_range`): where both are of one range, a connection
//! takes a node port away from the answers it gets. The overlap is told; by setting, node ports are reserved
//! (`ip_local_reserved_ports`), beside what others reserved, and only what was added is taken back.
//!
//! What was added is remembered in the kernel, beside the switch it is about and for as long: a chain nothing leads to, with a rule for each
//! range. Who empties the rule set takes that along; a running proxy puts it back ([`Memory`]). [`Ports`] and what is to be done are pure.

use netlink::nft::expression::Verdict;
use netlink::nft::{Batch, Chain, Connection, Error as NftError, Expression, Family, Place, Words};
use netlink::sysctl;
use std::fmt;
use std::io::ErrorKind;
use std::str::FromStr;

/// Upstream's node ports.
const NODE_PORTS: (u16, u16) = (30_000, 32_767);
/// Below `/proc/sys/net`; both are of IPv4 and IPv6.
const RESERVED: &str = "ipv4/ip_local_reserved_ports";
const EPHEMERAL: &str = "ipv4/ip_local_port_range";
/// Where it is remembered what was added.
const TABLE: &str = "skiff-node-ports";
const COMMENT: &str = "Node ports that were added to net.ipv4.ip_local_reserved_ports";
const CHAIN: Chain<'_> = Chain {
    family: Family::Inet,
    table: TABLE,
    name: "reserved",
};

/// Ranges of ports, the lowest first; none touches the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports(Vec<(u16, u16)>);

impl Ports {
    fn of(mut ranges: Vec<(u16, u16)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::new();
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if u32::from(first) <= u32::from(before.1) + 1 => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    fn range(first: u16, last: u16) -> Self {
        Self(vec![(first, last)])
    }

    fn ranges(&self) -> impl Iterator<Item = (u16, u16)> {
        self.0.iter().copied()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn with(&self, other: &Self) -> Self {
        Self::of(self.ranges().chain(other.ranges()).collect())
    }

    fn without(&self, other: &Self) -> Self {
        let mut left: Vec<(u16, u16)> = self.ranges().collect();
        for (first, last) in other.ranges() {
            let cut = |(from, to): (u16, u16)| {
                let below = (from < first).then(|| (from, to.min(first - 1)));
                let above = (to > last).then(|| (from.max(last + 1), to));
                below.into_iter().chain(above)
            };
            left = left.into_iter().flat_map(cut).collect();
        }
        Self::of(left)
    }

    fn within(&self, other: &Self) -> Self {
        self.without(&self.without(other))
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (first, last)) in self.ranges().enumerate() {
            f.write_str(if i == 0 { "" } else { "," })?;
            match first == last {
                true => write!(f, "{first}")?,
                false => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Ports {
    type Err = String;

    /// As the kernel writes them: `1,5-7`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.trim().parse::<u16>().ok();
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = number(first).zip(number(last)).filter(|(first, last)| first <= last);
            range.ok_or_else(|| format!("{part:?} is no port and no range of ports such as 30000-32767"))
        };
        let parts = text.trim().split(',').filter(|part| !part.is_empty());
        Ok(Self::of(parts.map(range).collect::<Result<_, _>>()?))
    }
}

/// What `--reserve-node-ports` says: one range of ports above 0.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<Ports, String> {
    let ports: Ports = text.parse()?;
    match ports.0.as_slice() {
        [(1.., _)] => Ok(ports),
        _ => Err(format!("{text:?} must be one range of ports such as 30000-32767")),
    }
}

/// What is to be reserved, and remembered as ours.
#[derive(Debug, PartialEq, Eq)]
struct Decided {
    reserved: Ports,
    ours: Ports,
}

/// `reserved` is what is, `ours` what of it was added before, `wanted` what is to be: what others reserved stays theirs.
fn decide(reserved: &Ports, ours: &Ports, wanted: &Ports) -> Decided {
    let others = reserved.without(ours);
    Decided {
        reserved: others.with(wanted),
        ours: wanted.without(&others),
    }
}

/// The ports of both ranges that the kernel may choose for connections of the node's own.
fn overlap(node_ports: &Ports, ephemeral: &str, reserved: &Ports) -> Ports {
    let mut ends = ephemeral.split_whitespace().map_while(|text| text.parse::<u16>().ok());
    match (ends.next(), ends.next()) {
        (Some(first), Some(last)) if first <= last => node_ports.within(&Ports::range(first, last)).without(reserved),
        _ => Ports::default(),
    }
}

/// What is reserved now; what cannot be read whole is not written over.
fn reserved() -> Result<Ports, String> {
    match sysctl::read(RESERVED) {
        Ok(text) => text.parse(),
        // A kernel without the switch reserves nothing.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Ports::default()),
        Err(error) => Err(error.to_string()),
    }
}

/// What was added before.
fn remembered(connection: &mut Connection) -> Result<Ports, NftError> {
    if !connection.has_chain(CHAIN)? {
        return Ok(Ports::default());
    }
    let rules = connection.rules(CHAIN)?;
    let ranges = rules.iter().filter_map(|rule| rule.comment.parse().ok());
    Ok(ranges.fold(Ports::default(), |all, range: Ports| all.with(&range)))
}

fn remember(connection: &mut Connection, ours: &Ports) -> Result<(), NftError> {
    let mut batch = Batch::new();
    batch.add_table(Family::Inet, TABLE, Some(COMMENT));
    batch.delete_table(Family::Inet, TABLE);
    if !ours.is_empty() {
        batch.add_table(Family::Inet, TABLE, Some(COMMENT));
        batch.add_chain(CHAIN, None, None);
        for (first, last) in ours.ranges() {
            let comment = Ports::range(first, last).to_string();
            let words = Words {
                comment: &comment,
                label: "",
            };
            batch.add_labelled_rule(CHAIN, Place::Last, &[Expression::Verdict(Verdict::Return)], words);
        }
    }
    connection.commit(&batch).map(drop)
}

/// What a running proxy knows of what was added: a rule set that others emptied gets it again.
#[derive(Debug, Default)]
pub struct Memory(Ports);

impl Memory {
    /// Looks at what is remembered in the calling thread's network namespace, and puts back what was there before and is gone. Ports that
    /// are reserved no more were taken back meanwhile: they are nobody's.
    ///
    /// # Errors
    /// Why it could not, in words.
    pub fn refresh(&mut self) -> Result<(), String> {
        let mut connection = Connection::open().map_err(|error| chain(&error))?;
        let found = remembered(&mut connection).map_err(|error| chain(&error))?;
        if !found.is_empty() || self.0.is_empty() {
            self.0 = found;
            return Ok(());
        }
        self.0 = self.0.within(&reserved()?);
        remember(&mut connection, &self.0).map_err(|error| chain(&error))
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|cause| format!(": {}", chain(cause)));
    format!("{error}{}", cause.unwrap_or_default())
}

/// Reserves these ports in the calling thread's network namespace, and takes back what was reserved before and is not among them. What is
/// added is remembered before it is: a process that dies in between leaves no port reserved for ever.
fn reserve(wanted: &Ports) -> Result<(), String> {
    let mut connection = Connection::open().map_err(|error| chain(&error))?;
    let ours = remembered(&mut connection).map_err(|error| chain(&error))?;
    let now = reserved()?;
    let decided = decide(&now, &ours, wanted);
    // Nothing is written as an empty line: what has no bytes is no write.
    let write = |ports: &Ports| sysctl::set(RESERVED, &format!("{ports}\n")).map_err(|error| chain(&error));
    let is_less = decided.ours.without(&ours).is_empty();
    if is_less && decided.reserved != now {
        write(&decided.reserved)?;
    }
    if decided.ours != ours {
        remember(&mut connection, &decided.ours).map_err(|error| chain(&error))?;
    }
    if !is_less && decided.reserved != now {
        tracing::info!(ports = %decided.ours, "node ports reserved");
        write(&decided.reserved)?;
    }
    Ok(())
}

/// Reserves node ports, if that is asked for, in the calling thread's network namespace; returns what is to be told.
pub fn keep(asked: Option<&Ports>) -> Vec<String> {
    let none = Ports::default();
    let failed = reserve(asked.unwrap_or(&none)).err();
    let mut told: Vec<String> = failed
        .map(|why| format!("net.ipv4.ip_local_reserved_ports: {why}"))
        .into_iter()
        .collect();
    let ephemeral = sysctl::get(EPHEMERAL).unwrap_or_default();
    let usual = Ports::range(NODE_PORTS.0, NODE_PORTS.1);
    let both = overlap(asked.unwrap_or(&usual), &ephemeral, &reserved().unwrap_or_default());
    if !both.is_empty() {
        told.push(format!(
            "node ports {both} are in net.ipv4.ip_local_port_range and not in net.ipv4.ip_local_reserved_ports: a connection of the node's \
             own that gets one of them may lose its answers to a Service (--reserve-node-ports reserves them)"
        ));
    }
    told
}

/// Takes back what was reserved in the calling thread's network namespace, and what it is remembered by.
///
/// # Errors
/// Why it could not, in words.
pub fn remove() -> Result<(), String> {
    reserve(&Ports::default())
}

#[cfg(test)]
mod tests;
