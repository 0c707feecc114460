//! From a question and the index to an answer: the specification of cluster DNS, 1.1.0 (network.md §2, controlplane.md §13). Pure:
//! what is not the cluster's is handed back to be asked elsewhere, never asked here.
//!
//! | name below the zone | answer |
//! |---|---|
//! | (the zone) | SOA, NS |
//! | `dns-version` | TXT `1.1.0` |
//! | `ns.dns` | our addresses |
//! | `NS.svc`, `NS.pod` | there, without data, if the namespace is |
//! | `SERVICE.NS.svc` | its addresses, or its ready endpoints', or CNAME; SRV of all its named ports, as CoreDNS has it |
//! | `NAME.SERVICE.NS.svc` | the ready endpoints of this name, given or their address with dashes |
//! | `_PORT._PROTOCOL.SERVICE.NS.svc` | SRV, with the targets' addresses beside |
//! | `A-B-C-D.NS.pod` | as the setting says |
//! | an address below `in-addr.arpa` or `ip6.arpa` | PTR, if it is ours |
//!
//! A headless service without a ready endpoint is not there (NXDOMAIN), and neither is anything below it.

use crate::index::{Index, PodNames, Spec, undashed};
use crate::wire::{Name, Query, Section, Writer, flag, kind, name, rcode, reply};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

mod endpoint;

/// The version of the specification.
const VERSION: &[u8] = b"\x051.1.0";
/// How many names are followed from one to the next.
const CHAIN_MAX: usize = 8;
/// The most labels a name of ours has below the zone.
const LABELS_MAX: usize = 5;
/// SOA: refresh, retry and expire, in seconds; CoreDNS's.
const SOA_TIMES: [u32; 3] = [7200, 1800, 86400];
const SVC: &[u8] = b"\x03svc";
const POD: &[u8] = b"\x03pod";
/// The namespace of what belongs to the cluster itself. (No label of a service ends like it: the byte in front is no letter.)
const SYSTEM: &[u8] = b"\x0bkube-system";

/// What became of a question.
#[derive(Debug)]
pub enum Verdict {
    /// The answer is written.
    Done,
    /// Others are to be asked.
    Onward(Box<Onward>),
}

/// What others are to be asked.
#[derive(Debug)]
pub struct Onward {
    /// The question.
    pub question: reply::Question,
    /// The names that led to it from what the client asked, each with its target, in wire form.
    pub chain: Vec<(Name, Name)>,
}

/// What one name comes to.
enum Step {
    /// Records are written, or it is said that there are none.
    Done,
    /// Go on with this name.
    Alias(Box<Name>),
    /// It is not ours.
    Outside,
}

/// Whether there is a name, where no record was written.
enum Missing {
    /// It is there, without data of this type.
    Data,
    /// It is not there.
    Name,
}

/// What an answer needs room for beside its message; kept from one to the next.
#[derive(Debug, Default)]
pub struct Room {
    addresses: Vec<IpAddr>,
}

/// Answers from the index, or says what others are to be asked. Then nothing counts of what is written.
pub fn answer(index: &Index, query: &Query, writer: &mut Writer<'_>, room: &mut Room) -> Verdict {
    answer_as(index, query, None, writer, room)
}

/// The same, as if what is asked for were another name for this one.
pub fn answer_as(
    index: &Index,
    query: &Query,
    target: Option<&Name>,
    writer: &mut Writer<'_>,
    room: &mut Room,
) -> Verdict {
    if let Some(code) = refusal(query) {
        writer.code(code);
        return Verdict::Done;
    }
    let mut turn = Turn {
        index,
        query,
        writer,
        room,
    };
    let mut chain: Vec<(Name, Name)> = Vec::new();
    let mut name = query.lower.clone();
    if let Some(target) = target {
        turn.writer.flag(flag::AUTHORITATIVE);
        turn.record(Section::Answer, name.wire(), kind::CNAME, target.wire());
        let next = target.lower();
        chain.push((name, target.clone()));
        name = next;
    }
    loop {
        match turn.step(&name) {
            Step::Done => return Verdict::Done,
            Step::Outside if query.kind == kind::ANY => {
                turn.minimal(&name);
                return Verdict::Done;
            }
            Step::Outside => {
                let question = reply::question(query, name);
                return Verdict::Onward(Box::new(Onward { question, chain }));
            }
            Step::Alias(target) => {
                turn.writer.flag(flag::AUTHORITATIVE);
                turn.record(Section::Answer, name.wire(), kind::CNAME, target.wire());
                let next = target.lower();
                let is_loop = chain.iter().any(|(owner, _)| owner.wire() == next.wire());
                if query.kind == kind::CNAME || is_loop || name.wire() == next.wire() || chain.len() + 1 == CHAIN_MAX {
                    return Verdict::Done;
                }
                chain.push((name, *target));
                name = next;
            }
        }
    }
}

/// The code of what is not answered whatever its name is.
fn refusal(query: &Query) -> Option<u16> {
    if query.edns.is_some_and(|edns| edns.version > 0) {
        return Some(rcode::BAD_VERS);
    }
    match query.kind {
        0 | kind::OPT => Some(rcode::FORM_ERR),
        _ if query.class != crate::wire::CLASS_IN => Some(rcode::REFUSED),
        // Keys, signatures of transactions, transfers of zones, questions for any kind of mailbox.
        249..=254 => Some(rcode::REFUSED),
        _ => None,
    }
}

struct Turn<'t, 'w> {
    index: &'t Index,
    query: &'t Query,
    writer: &'t mut Writer<'w>,
    room: &'t mut Room,
}

impl Turn<'_, '_> {
    fn step(&mut self, name: &Name) -> Step {
        let zone = &self.index.shape.zone;
        if let Some(below) = below(name.wire(), zone.wire()) {
            return self.finish(zone, self.index.synced, |turn| turn.in_zone(name, below));
        }
        let Some(address) = reverse(name.wire()) else {
            return Step::Outside;
        };
        let ranges = &self.index.shape.ranges;
        let is_ours = ranges.iter().any(|range| range.contains(&address));
        // Endpoints are whatever somebody wrote, services' own addresses are the API server's to give.
        let by_endpoints = is_ours || ranges.is_empty();
        let is_held = !self.index.holders(&address).is_empty();
        let is_known = || is_held || (by_endpoints && !self.index.owners(&address).is_empty());
        let is_claimed = || self.index.synced && is_known();
        if !is_ours && !is_claimed() {
            return Step::Outside;
        }
        let zone = Name::parse(if address.is_ipv4() { "in-addr.arpa" } else { "ip6.arpa" });
        let zone = zone.unwrap_or(Name::ROOT);
        self.finish(&zone, self.index.synced, |turn| {
            turn.pointers(name, address, by_endpoints)
        })
    }

    /// Says of whom the answer is, and what is missing.
    fn finish(
        &mut self,
        zone: &Name,
        synced: bool,
        records: impl FnOnce(&mut Self) -> Result<Option<Name>, Missing>,
    ) -> Step {
        if !synced {
            self.writer.clear(self.query);
            self.writer.code(rcode::SERV_FAIL);
            return Step::Done;
        }
        let missing = match records(self) {
            Ok(None) => {
                self.writer.flag(flag::AUTHORITATIVE);
                return Step::Done;
            }
            Ok(Some(target)) => return Step::Alias(Box::new(target)),
            Err(missing) => missing,
        };
        self.writer.flag(flag::AUTHORITATIVE);
        if let Missing::Name = missing {
            self.writer.code(rcode::NX_DOMAIN);
        }
        self.soa(Section::Authority, zone);
        Step::Done
    }

    fn in_zone(&mut self, name: &Name, below: &[u8]) -> Result<Option<Name>, Missing> {
        let (pieces, count) = pieces(below).ok_or(Missing::Name)?;
        let index = self.index;
        match &pieces[..count] {
            [] => self.apex(name),
            [b"\x0bdns-version"] => self.one(name, kind::TXT, VERSION),
            [b"\x03dns"] | [SVC] => self.existing(name),
            [b"\x02ns", b"\x03dns"] => self.addresses(name, &index.shape.addresses),
            [POD] if index.shape.pods != PodNames::Disabled => self.existing(name),
            [namespace, SVC] if index.has_namespace(namespace) => self.existing(name),
            [namespace, POD] if index.shape.pods != PodNames::Disabled && index.has_namespace(namespace) => {
                self.existing(name)
            }
            [label, namespace, POD] => self.pod(name, &label[1..], namespace),
            [.., service, namespace, SVC] => {
                let end = below.len() - SVC.len();
                let key = &below[end - service.len() - namespace.len()..end];
                self.service(name, &pieces[..count - 3], key)
            }
            _ => Err(Missing::Name),
        }
    }

    fn apex(&mut self, name: &Name) -> Result<Option<Name>, Missing> {
        match self.query.kind {
            kind::SOA => {
                self.soa(Section::Answer, name);
                Ok(None)
            }
            kind::NS => self.name_server(name),
            _ => self.existing(name),
        }
    }

    /// The system's service whose own address ours is, as the zone's server; `ns.dns` while there is none. (A service of anybody else's
    /// may have the address, or endpoints at it: its name is not the zone's to give.)
    fn name_server(&mut self, name: &Name) -> Result<Option<Name>, Missing> {
        let zone = &self.index.shape.zone;
        let own = self.index.shape.addresses.iter();
        let mut holders = own.flat_map(|address| self.index.holders(address));
        let server = match holders.find(|key| key.ends_with(SYSTEM)) {
            Some(key) => Name::of(&[key, SVC, zone.wire()]),
            None => Name::of(&[b"\x02ns\x03dns", zone.wire()]),
        };
        let server = server.ok_or(Missing::Data)?;
        self.record(Section::Answer, name.wire(), kind::NS, server.wire());
        for address in &self.index.shape.addresses {
            self.address(Section::Additional, server.wire(), *address);
        }
        Ok(None)
    }

    fn pod(&mut self, name: &Name, label: &[u8], namespace: &[u8]) -> Result<Option<Name>, Missing> {
        let address = undashed(label).ok_or(Missing::Name)?;
        let exists = match self.index.shape.pods {
            PodNames::Disabled => false,
            PodNames::Insecure => self.index.has_namespace(namespace),
            PodNames::Verified => self.index.has_pod(&address, namespace),
        };
        match exists {
            true => self.addresses(name, &[address]),
            false => Err(Missing::Name),
        }
    }

    fn service(&mut self, name: &Name, before: &[&[u8]], key: &[u8]) -> Result<Option<Name>, Missing> {
        let index = self.index;
        let entry = index.service(key).ok_or(Missing::Name)?;
        let spec = entry.spec.as_ref().ok_or(Missing::Name)?;
        match (spec, before) {
            (Spec::External(target), []) => Name::read(target, 0).map(|(name, _)| Some(name)).ok_or(Missing::Name),
            (Spec::Cluster { addresses, .. }, []) if self.query.kind != kind::SRV => self.addresses(name, addresses),
            (_, []) if self.query.kind == kind::SRV => {
                self.ports(name, (key, entry), None).or_else(|_| self.nothing_of(entry))
            }
            (_, []) => self.endpoints(name, entry, None),
            (_, [label]) if label[1..].starts_with(b"_") => self.protocol(name, entry, &label[1..]),
            (_, [label]) => self.endpoints(name, entry, Some(&label[1..])),
            (_, [port, protocol]) => self.port(name, (key, entry), &port[1..], &protocol[1..]),
            _ => Err(Missing::Name),
        }
    }

    /// A name that has nothing of its own.
    fn existing(&mut self, name: &Name) -> Result<Option<Name>, Missing> {
        if self.query.kind == kind::ANY {
            self.minimal(name);
            return Ok(None);
        }
        Err(Missing::Data)
    }

    /// A name with one record.
    fn one(&mut self, name: &Name, kind: u16, data: &[u8]) -> Result<Option<Name>, Missing> {
        if self.query.kind != kind {
            return self.existing(name);
        }
        self.record(Section::Answer, name.wire(), kind, data);
        Ok(None)
    }

    /// Those of the addresses that were asked for, beginning with another each time.
    fn addresses(&mut self, name: &Name, addresses: &[IpAddr]) -> Result<Option<Name>, Missing> {
        let wanted = self.query.kind;
        if !matches!(wanted, kind::A | kind::AAAA) {
            return self.existing(name);
        }
        let first = usize::from(self.query.id) % addresses.len().max(1);
        let (before, from) = addresses.split_at(first);
        let mut any = false;
        for address in from.iter().chain(before).filter(|address| kind_of(address) == wanted) {
            any = true;
            if !self.address(Section::Answer, name.wire(), *address) {
                break;
            }
        }
        if any { Ok(None) } else { Err(Missing::Data) }
    }

    fn pointers(&mut self, name: &Name, address: IpAddr, by_endpoints: bool) -> Result<Option<Name>, Missing> {
        let targets = self.targets(address, by_endpoints);
        if targets.is_empty() {
            return Err(Missing::Name);
        }
        if self.query.kind != kind::PTR {
            return self.existing(name);
        }
        for target in targets {
            if !self.record(Section::Answer, name.wire(), kind::PTR, target.wire()) {
                break;
            }
        }
        Ok(None)
    }

    /// What is said to who wants to know everything (RFC 8482 §4.2).
    fn minimal(&mut self, name: &Name) {
        self.record(Section::Answer, name.wire(), kind::HINFO, b"\x07RFC8482\x00");
    }

    fn soa(&mut self, section: Section, zone: &Name) {
        let own = &self.index.shape.zone;
        let mut data = Vec::with_capacity(2 * name::NAME_BYTES);
        for label in [b"\x02ns\x03dns".as_slice(), b"\x0ahostmaster"] {
            data.extend_from_slice(label);
            data.extend_from_slice(own.wire());
        }
        let times = SOA_TIMES.iter().chain([&self.index.shape.ttl]);
        for number in [&self.index.serial].into_iter().chain(times) {
            data.extend_from_slice(&number.to_be_bytes());
        }
        self.record(section, zone.wire(), kind::SOA, &data);
    }

    fn address(&mut self, section: Section, owner: &[u8], address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.record(section, owner, kind::A, &address.octets()),
            IpAddr::V6(address) => self.record(section, owner, kind::AAAA, &address.octets()),
        }
    }

    fn record(&mut self, section: Section, owner: &[u8], kind: u16, data: &[u8]) -> bool {
        self.writer.record(section, owner, kind, self.index.shape.ttl, data)
    }
}

fn kind_of(address: &IpAddr) -> u16 {
    if address.is_ipv4() { kind::A } else { kind::AAAA }
}

/// What stands before the zone in a name, if it ends with it.
fn below<'a>(name: &'a [u8], zone: &[u8]) -> Option<&'a [u8]> {
    let length = name.len().checked_sub(zone.len())?;
    let (below, end) = name.split_at(length);
    let mut at = 0;
    while at < length {
        at += usize::from(below[at]) + 1;
    }
    (at == length && end == zone).then_some(below)
}

/// The labels, each behind its length; nothing of more than any name of ours has.
fn pieces(mut below: &[u8]) -> Option<([&[u8]; LABELS_MAX], usize)> {
    let mut pieces: [&[u8]; LABELS_MAX] = [&[]; LABELS_MAX];
    let mut count = 0;
    while let Some(length) = below.first() {
        let (piece, rest) = below.split_at_checked(usize::from(*length) + 1)?;
        *pieces.get_mut(count)? = piece;
        count += 1;
        below = rest;
    }
    Some((pieces, count))
}

/// The address a name says below `in-addr.arpa` or `ip6.arpa`, if it says a whole one.
pub(crate) fn reverse(name: &[u8]) -> Option<IpAddr> {
    if let Some(below) = below(name, b"\x07in-addr\x04arpa\0") {
        let mut octets = [0; 4];
        let mut places = octets.iter_mut().rev();
        for label in name::labels(below) {
            let is_plain = label.iter().all(u8::is_ascii_digit) && (label.len() == 1 || label[0] != b'0');
            let number = std::str::from_utf8(label).ok().filter(|_| is_plain)?.parse().ok()?;
            *places.next()? = number;
        }
        return places.next().is_none().then(|| Ipv4Addr::from(octets).into());
    }
    let below = below(name, b"\x03ip6\x04arpa\0")?;
    let mut number = 0u128;
    let mut count = 0;
    for label in name::labels(below) {
        let [digit] = label else { return None };
        number |= u128::from(char::from(*digit).to_digit(16)?).checked_shl(4 * count)?;
        count += 1;
    }
    (count == 32).then(|| Ipv6Addr::from(number).into())
}

#[cfg(test)]
pub(crate) mod tests;
