//! A model of the kernel's rule machine: walks a packet through hooks, chains and sets, as strict as the kernel about what may
//! be read, added and deleted. Knows nothing of Services.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use netlink::cidr;
use netlink::nft::expression::{Comparison, Header, MetaKey, Verdict};
use netlink::nft::set::Kind;
use netlink::nft::step::{Change, ConnectionKey, Step, Word};

use crate::desired::Class;
use crate::diff::Delta;
use crate::rules::{AFFINITY, Writer, dispatch_map};

/// A packet that begins a connection.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) source: IpAddr,
    pub(super) target: SocketAddr,
    pub(super) protocol: u8,
    /// The interface it comes by; `None` for what the node itself sends.
    pub(super) input: Option<&'static str>,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Dropped,
    Rejected,
    Sent { to: SocketAddr, masqueraded: bool },
}

/// One family's tables.
pub(super) struct Machine {
    chains: BTreeMap<String, Arc<Vec<Vec<Step>>>>,
    hooks: BTreeMap<(u32, i32), String>,
    sets: BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<u8>>>,
    key_bytes: BTreeMap<&'static str, usize>,
    ranges: BTreeSet<&'static str>,
    dispatch: BTreeMap<(&'static str, Vec<u8>), String>,
    /// Addresses of the node.
    local: Vec<IpAddr>,
    v4: bool,
}

enum End {
    Accept,
    Drop,
    Reject,
    Return,
    Translated,
}

struct Run<'a> {
    machine: &'a mut Machine,
    packet: Packet,
    mark: u32,
    translated: bool,
    masqueraded: bool,
    random: u32,
}

impl Machine {
    pub(super) fn new(writer: &Writer<'_>, local: Vec<IpAddr>) -> Self {
        let mut made = Self {
            chains: BTreeMap::new(),
            hooks: BTreeMap::new(),
            sets: BTreeMap::new(),
            key_bytes: BTreeMap::new(),
            ranges: BTreeSet::new(),
            dispatch: BTreeMap::new(),
            local,
            v4: writer.v4,
        };
        for set in writer.sets() {
            let address = if writer.v4 { 4 } else { 16 };
            let bytes = set.key.iter().map(|part| match *part as u32 {
                7 | 8 => address,
                _ => 4,
            });
            made.key_bytes.insert(set.name, bytes.sum());
            made.sets.insert(set.name, BTreeMap::new());
            if set.kind == Kind::Ranges {
                made.ranges.insert(set.name);
            }
        }
        for chain in writer.chains() {
            if let Some(base) = chain.base {
                made.hooks.insert((base.hook, base.priority), chain.name.clone());
            }
            made.chains.insert(chain.name, Arc::new(chain.rules));
        }
        made
    }

    /// Applies changes, as strict as the kernel.
    pub(super) fn apply(&mut self, writer: &Writer<'_>, delta: &Delta) {
        let entry = |class: &Class| (dispatch_map(*class), class.number().to_ne_bytes().to_vec());
        for (set, pairs) in &delta.gone {
            for (key, data) in pairs.iter() {
                let old = self.sets.get_mut(set.name()).unwrap().remove(key);
                assert_eq!(old.as_deref(), Some(data), "deleted from {set:?}");
            }
        }
        for class in &delta.classes_gone {
            assert!(self.dispatch.remove(&entry(class)).is_some());
            assert!(self.chains.remove(&class.chain()).is_some());
        }
        for class in &delta.classes_come {
            let chain = writer.class(*class);
            assert!(self.dispatch.insert(entry(class), chain.name.clone()).is_none());
            assert!(self.chains.insert(chain.name, Arc::new(chain.rules)).is_none());
        }
        for (set, pairs) in &delta.come {
            for (key, data) in pairs.iter() {
                let old = self
                    .sets
                    .get_mut(set.name())
                    .unwrap()
                    .insert(key.to_vec(), data.to_vec());
                assert_eq!(old, None, "added to {set:?}");
            }
        }
        // A chain must not lead to one that is not there.
        for steps in self.chains.values().flat_map(|rules| rules.iter()) {
            for step in steps {
                if let Step::Verdict(Verdict::Goto(chain) | Verdict::Jump(chain)) = step {
                    assert!(self.chains.contains_key(chain), "{chain}");
                }
            }
        }
    }

    /// What the sets hold.
    pub(super) fn contents(&self) -> &BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<u8>>> {
        &self.sets
    }

    pub(super) fn forget_clients(&mut self) {
        self.sets.get_mut(AFFINITY).unwrap().clear();
    }

    /// Whether any client is remembered.
    pub(super) fn remembers(&self) -> bool {
        !self.sets[AFFINITY].is_empty()
    }

    /// Sends a packet; `random` decides every choice of chance.
    pub(super) fn send(&mut self, packet: &Packet, random: u32) -> Outcome {
        let outgoing = packet.input.is_none();
        let mut run = Run {
            packet: packet.clone(),
            mark: 0,
            translated: false,
            masqueraded: false,
            random,
            machine: self,
        };
        let first: &[(u32, i32)] = if outgoing {
            &[(3, -110), (3, -100)]
        } else {
            &[(0, -110), (0, -100)]
        };
        for hook in first {
            if let Some(outcome) = run.hook(*hook) {
                return outcome;
            }
        }
        let to_node = run.machine.local.contains(&run.packet.target.ip()) || run.packet.target.ip().is_loopback();
        let hooks: &[(u32, i32)] = match (outgoing, to_node) {
            (true, true) => &[(3, 0), (4, 100), (1, 0)],
            (true, false) => &[(3, 0), (4, 100)],
            (false, true) => &[(1, 0)],
            (false, false) => &[(2, 0), (4, 100)],
        };
        for hook in hooks {
            if let Some(outcome) = run.hook(*hook) {
                return outcome;
            }
        }
        assert_eq!(run.mark & !0x4000, 0, "a rule left its own mark");
        Outcome::Sent {
            to: run.packet.target,
            masqueraded: run.masqueraded,
        }
    }
}

fn bytes(ip: IpAddr) -> Vec<u8> {
    cidr::octets(&ip)
}

impl Run<'_> {
    fn hook(&mut self, hook: (u32, i32)) -> Option<Outcome> {
        let chain = self.machine.hooks.get(&hook).unwrap().clone();
        match self.chain(&chain, 0) {
            End::Drop => Some(Outcome::Dropped),
            End::Reject => Some(Outcome::Rejected),
            End::Accept | End::Return | End::Translated => None,
        }
    }

    fn chain(&mut self, name: &str, depth: usize) -> End {
        assert!(depth < 16, "too deep");
        let rules = self.machine.chains.get(name).unwrap().clone();
        for rule in rules.iter() {
            match self.rule(rule, depth) {
                None | Some((End::Return, false)) => {}
                Some((end, _)) => return end,
            }
        }
        End::Return
    }

    /// The verdict of a rule, and whether a `return` ends the chain it stands in.
    fn rule(&mut self, steps: &[Step], depth: usize) -> Option<(End, bool)> {
        let mut words = Words::default();
        for step in steps {
            match step {
                Step::Payload(header, offset, length, to) => words.write(*to, &self.payload(*header, *offset, *length)),
                Step::Meta(MetaKey::Mark, to) => words.write(*to, &self.mark.to_ne_bytes()),
                Step::Meta(MetaKey::TransportProtocol, to) => words.write(*to, &[self.packet.protocol]),
                Step::Meta(MetaKey::InputName, to) => {
                    let mut name = self.packet.input?.as_bytes().to_vec();
                    name.resize(16, 0);
                    words.write(*to, &name);
                }
                Step::SetMark(from) => self.mark = u32::from_ne_bytes(words.read(*from, 4).try_into().unwrap()),
                Step::Connection(ConnectionKey::State, to) => words.write(*to, &8u32.to_ne_bytes()),
                Step::Connection(ConnectionKey::Status, to) => {
                    words.write(*to, &(u32::from(self.translated) << 5).to_ne_bytes());
                }
                Step::AddressType(source, to) => {
                    let ip = if *source {
                        self.packet.source
                    } else {
                        self.packet.target.ip()
                    };
                    let local = self.machine.local.contains(&ip) || ip.is_loopback();
                    words.write(*to, &(if local { 2u32 } else { 1 }).to_ne_bytes());
                }
                Step::Load(to, value) => words.write(*to, value),
                Step::Mask(word, mask, xor) => {
                    let masked: Vec<u8> = words
                        .read(*word, mask.len())
                        .iter()
                        .zip(mask.iter().zip(xor))
                        .map(|(byte, (mask, xor))| (byte & mask) ^ xor)
                        .collect();
                    words.write(*word, &masked);
                }
                Step::Compare(word, comparison, value) => {
                    let equal = words.read(*word, value.len()) == *value;
                    if equal != (*comparison == Comparison::Equal) {
                        return None;
                    }
                }
                Step::In(set, key, wanted) => {
                    if self.contains(set, &words.read(*key, self.machine.key_bytes[set.as_str()])) != *wanted {
                        return None;
                    }
                }
                Step::Map(set, key, to) => {
                    let key = words.read(*key, self.machine.key_bytes[set.as_str()]);
                    words.write(*to, &self.machine.sets[set.as_str()].get(&key)?.clone());
                }
                Step::Dispatch(set, key) => {
                    let found = self
                        .machine
                        .dispatch
                        .iter()
                        .find(|((map, number), _)| map == set && *number == words.read(*key, 4));
                    let chain = found?.1.clone();
                    return Some((self.chain(&chain, depth + 1), true));
                }
                Step::Random(modulus, to) => words.write(*to, &(self.random % modulus).to_ne_bytes()),
                Step::Remember(change, set, key, data, seconds) => {
                    assert!(*seconds > 0);
                    let key = words.read(*key, self.machine.key_bytes[set.as_str()]);
                    let data = words.read(*data, 4);
                    let map = self.machine.sets.get_mut(set.as_str()).unwrap();
                    match change {
                        Change::Update => drop(map.entry(key).or_insert(data)),
                        Change::Delete => drop(map.remove(&key)),
                    }
                }
                Step::DestinationNat(_, address, port) => {
                    let ip = cidr::from_octets(&words.read(*address, if self.machine.v4 { 4 } else { 16 })).unwrap();
                    let port = u16::from_be_bytes(words.read(*port, 2).try_into().unwrap());
                    self.packet.target = SocketAddr::new(ip, port);
                    self.translated = true;
                    return Some((End::Translated, true));
                }
                Step::Masquerade => {
                    self.masqueraded = true;
                    return Some((End::Accept, true));
                }
                Step::Reject(_) => return Some((End::Reject, true)),
                Step::Verdict(Verdict::Drop) => return Some((End::Drop, true)),
                Step::Verdict(Verdict::Return) => return Some((End::Return, true)),
                Step::Verdict(Verdict::Goto(chain)) => return Some((self.chain(chain, depth + 1), true)),
                Step::Verdict(Verdict::Jump(chain)) => match self.chain(chain, depth + 1) {
                    End::Return => return None,
                    end => return Some((end, true)),
                },
                other => panic!("{other:?}"),
            }
        }
        None
    }

    fn payload(&self, header: Header, offset: u32, length: u32) -> Vec<u8> {
        let (source, target) = (bytes(self.packet.source), bytes(self.packet.target.ip()));
        match (header, offset, length) {
            (Header::Network, 12, 4) | (Header::Network, 8, 16) => source,
            (Header::Network, 16, 4) | (Header::Network, 24, 16) => target,
            (Header::Transport, 2, 2) => self.packet.target.port().to_be_bytes().to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn contains(&self, set: &str, key: &[u8]) -> bool {
        let elements = &self.machine.sets[set];
        if !self.machine.ranges.contains(set) {
            return elements.contains_key(key);
        }
        let inside = |element: &Vec<u8>| {
            let (first, last) = element.split_at(element.len() / 2);
            let address = if self.machine.v4 { 4 } else { 16 };
            let at = key.len() - address;
            key[..at] == first[..at] && key[at..] >= first[at..] && key[at..] <= last[at..]
        };
        elements.keys().any(inside)
    }
}

/// The sixteen words, with what was written to them.
#[derive(Default)]
struct Words {
    bytes: [[u8; 4]; 16],
    written: [bool; 16],
}

impl Words {
    fn write(&mut self, word: Word, value: &[u8]) {
        for (number, chunk) in value.chunks(4).enumerate() {
            let at = usize::from(word.0) + number;
            self.bytes[at] = [0; 4];
            self.bytes[at][..chunk.len()].copy_from_slice(chunk);
            self.written[at] = true;
        }
    }

    fn read(&self, word: Word, length: usize) -> Vec<u8> {
        let at = usize::from(word.0);
        let words = at..at + length.div_ceil(4);
        assert!(
            words.clone().all(|word| self.written[word]),
            "reads what it has not written"
        );
        self.bytes[words].concat()[..length].to_vec()
    }
}
