//! The rules of one family's table, which depend on settings alone, and those of a class. Pure.
//!
//! Words of a rule: the front of a packet begins at word 0 (address, protocol, port). Once its pool is known that takes its
//! place, and what makes a longer key of it (number, endpoint's name, client) follows at once. A map's single word goes to word
//! 10, an endpoint's address and port to the words that end with 15.
//!
//! | chain | hook | does |
//! |---|---|---|
//! | `guard` | before translation | source ranges of load balancers; strangers' packets to 127.0.0.0/8 |
//! | `services` | translation | finds the address, goes to the chain of its class |
//! | `pick-N`, `mark-N`, `short-N`, `local-N`, `inner-N` | | one of N endpoints; see [`Route`] |
//! | `unserved` | filter | rejects and drops what has no endpoint |
//! | `masquerading` | after routing | marked packets, and endpoints that reach themselves |

use netlink::cidr::Cidr;
use netlink::nft::expression::{Comparison, Header, MetaKey, Verdict};
use netlink::nft::step::{Change, ConnectionKey, Step, Word};
use netlink::nft::{BaseChain, Family};
use std::net::IpAddr;

use crate::desired::{Class, Route, Set};
use crate::settings::{DetectLocal, NodePortAddresses, Settings};

/// The dynamic map pool . client : endpoint's name. A client is served by the same endpoint wherever it comes to: by the ClusterIP, by
/// a NodePort, under either policy.
pub const AFFINITY: &str = "affinity";
/// The maps class : chain, of `services` and of `local-services`. They are two, because chains that go on by the second must
/// not lead to themselves.
const DISPATCH: [&str; 2] = ["classes", "local-classes"];
const FRONT: Word = Word(0);
const POOL: Word = Word(0);
/// Behind the pool.
const IN_POOL: Word = Word(1);
const FOUND: Word = Word(10);
const SAVED: Word = Word(11);
const ENDPOINT_PORT: Word = Word(15);
/// Connection state `new`, as a bit.
const STATE_NEW: u32 = 8;
/// Connection status: the destination was translated.
const STATUS_DNAT: u32 = 0x20;
/// Address type: local.
const TYPE_LOCAL: u32 = 2;

mod sets;

pub use sets::AFFINITY_MAX;

/// A chain with its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainRules {
    /// Its name.
    pub name: String,
    /// Its hook, for base chains.
    pub base: Option<BaseChain<'static>>,
    /// Its rules, in order.
    pub rules: Vec<Vec<Step>>,
}

/// Writes the rules of one family.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// Whether it is IPv4's table, or IPv6's.
    pub v4: bool,
    /// The settings.
    pub settings: &'a Settings,
}

fn goto(chain: impl Into<String>) -> Step {
    Step::Verdict(Verdict::Goto(chain.into()))
}

fn jump(chain: &str) -> Step {
    Step::Verdict(Verdict::Jump(chain.into()))
}

fn equals(word: Word, bytes: &[u8]) -> Step {
    Step::Compare(word, Comparison::Equal, bytes.to_vec())
}

/// The map that leads to a class's chain.
pub fn dispatch_map(class: Class) -> &'static str {
    DISPATCH[usize::from(class.route == Route::Local)]
}

/// Makes what a map gave in [`FOUND`] fit to be a key, or data to remember: takes it through the packet's mark, which has its
/// own value again afterwards. A register would do for the kernel, but nft before 1.1 aborts when it lists a rule with a key
/// made of what a map gave.
fn carry(to: Word) -> [Step; 4] {
    [
        Step::Meta(MetaKey::Mark, SAVED),
        Step::SetMark(FOUND),
        Step::Meta(MetaKey::Mark, to),
        Step::SetMark(SAVED),
    ]
}

/// Stops the rule unless the packet begins a connection.
fn is_new() -> Vec<Step> {
    let zero = vec![0; 4];
    vec![
        Step::Connection(ConnectionKey::State, Word(0)),
        Step::Mask(Word(0), STATE_NEW.to_ne_bytes().to_vec(), zero.clone()),
        Step::Compare(Word(0), Comparison::NotEqual, zero),
    ]
}

impl Writer<'_> {
    /// The table's family.
    pub fn family(&self) -> Family {
        if self.v4 { Family::Ipv4 } else { Family::Ipv6 }
    }

    fn address_words(&self) -> u8 {
        if self.v4 { 1 } else { 4 }
    }

    /// Where an endpoint's address begins; its port follows.
    fn endpoint(&self) -> Word {
        Word(ENDPOINT_PORT.0 - self.address_words())
    }

    /// All chains whatever the Services, the later ones going to earlier ones only.
    pub fn chains(&self) -> Vec<ChainRules> {
        let plain = |name: &str, rules| ChainRules {
            name: name.into(),
            base: None,
            rules,
        };
        let base = |name: &str, kind, hook, priority, rules| ChainRules {
            name: name.into(),
            base: Some(BaseChain { kind, hook, priority }),
            rules,
        };
        let when_new = |chains: &[&str]| -> Vec<Vec<Step>> {
            let rule = |chain: &&str| [is_new(), vec![jump(chain)]].concat();
            chains.iter().map(rule).collect()
        };
        let services = || vec![vec![jump("services")]];
        vec![
            plain("mark-foreign", self.mark_foreign()),
            plain("services", self.services()),
            plain("guard", self.guard()),
            plain("unserved", self.unserved()),
            plain("unknown", self.unknown()),
            plain("masquerading", self.masquerading()),
            base(
                "guard-prerouting",
                "filter",
                0,
                -110,
                [self.martians(), when_new(&["guard"])].concat(),
            ),
            base("guard-output", "filter", 3, -110, when_new(&["guard"])),
            base("nat-prerouting", "nat", 0, -100, services()),
            base("nat-output", "nat", 3, -100, services()),
            base("nat-postrouting", "nat", 4, 100, vec![vec![jump("masquerading")]]),
            base("filter-input", "filter", 1, 0, when_new(&["unserved"])),
            base("filter-forward", "filter", 2, 0, when_new(&["unserved", "unknown"])),
            base("filter-output", "filter", 3, 0, when_new(&["unserved", "unknown"])),
        ]
    }

    fn load_address(&self, source: bool, to: Word) -> Step {
        let (offset, length) = match (self.v4, source) {
            (true, true) => (12, 4),
            (true, false) => (16, 4),
            (false, true) => (8, 16),
            (false, false) => (24, 16),
        };
        Step::Payload(Header::Network, offset, length, to)
    }

    /// Loads the front of a packet: its destination address, or the unspecified one that stands for NodePorts.
    fn load_front(&self, node_port: bool) -> Vec<Step> {
        let words = self.address_words();
        let address = match node_port {
            true => Step::Load(FRONT, vec![0; usize::from(words) * 4]),
            false => self.load_address(false, FRONT),
        };
        vec![
            address,
            Step::Meta(MetaKey::TransportProtocol, Word(words)),
            Step::Payload(Header::Transport, 2, 2, Word(words + 1)),
        ]
    }

    /// The word behind the front.
    fn behind(&self) -> Word {
        Word(self.address_words() + 2)
    }

    /// Looks the front up, and goes to the chain of its class.
    fn dispatch(&self, node_port: bool, local: bool) -> Vec<Step> {
        let find = vec![Step::Map(Set::Services(local).name().into(), FRONT, FOUND)];
        let go = vec![Step::Dispatch(DISPATCH[usize::from(local)].into(), FOUND)];
        [self.load_front(node_port), find, carry(FOUND).into(), go].concat()
    }

    fn address_in(&self, source: bool, comparison: Comparison, network: &Cidr) -> Vec<Step> {
        let mut steps = vec![self.load_address(source, Word(0))];
        let mask = network.mask();
        if mask.iter().any(|byte| *byte != 0xff) {
            steps.push(Step::Mask(Word(0), mask.clone(), vec![0; mask.len()]));
        }
        steps.push(Step::Compare(Word(0), comparison, network.network().octets()));
        steps
    }

    fn own<'n>(&self, networks: &'n [Cidr]) -> Vec<&'n Cidr> {
        networks.iter().filter(|network| network.is_v4() == self.v4).collect()
    }

    /// One list of steps for each way a packet may be known as a pod's.
    fn pod_sources(&self) -> Vec<Vec<Step>> {
        let name = |name: &str, whole: bool| {
            let mut bytes = name.as_bytes().to_vec();
            if whole {
                bytes.resize(INTERFACE_BYTES, 0);
            }
            vec![
                Step::Meta(MetaKey::InputName, Word(0)),
                Step::Compare(Word(0), Comparison::Equal, bytes),
            ]
        };
        match &self.settings.detect_local {
            DetectLocal::Nothing => Vec::new(),
            DetectLocal::Networks(networks) => self
                .own(networks)
                .into_iter()
                .map(|network| self.address_in(true, Comparison::Equal, network))
                .collect(),
            DetectLocal::Interface(interface) => vec![name(interface, true)],
            DetectLocal::InterfacePrefix(prefix) => vec![name(prefix, false)],
        }
    }

    fn set_mark(&self) -> Vec<Step> {
        let mark = self.settings.masquerade_mark();
        vec![
            Step::Meta(MetaKey::Mark, Word(0)),
            Step::Mask(Word(0), (!mark).to_ne_bytes().to_vec(), mark.to_ne_bytes().to_vec()),
            Step::SetMark(Word(0)),
        ]
    }

    /// Traffic to ClusterIPs that is no pod's is masqueraded, where pods are known or all is wanted.
    fn mark_foreign(&self) -> Vec<Vec<Step>> {
        let pods = self.pod_sources();
        if self.settings.masquerade_all {
            return vec![self.set_mark()];
        }
        if pods.is_empty() {
            return Vec::new();
        }
        let mut rules: Vec<Vec<Step>> = pods
            .into_iter()
            .map(|steps| [steps, vec![Step::Verdict(Verdict::Return)]].concat())
            .collect();
        rules.push(self.set_mark());
        rules
    }

    fn services(&self) -> Vec<Vec<Step>> {
        let cluster = vec![
            self.load_address(false, Word(0)),
            Step::In(Set::ClusterIps.name().into(), Word(0), true),
            jump("mark-foreign"),
        ];
        let mut rules = vec![cluster, self.dispatch(false, false)];
        let node_targets = self.node_targets().into_iter();
        rules.extend(node_targets.map(|prefix| [prefix, self.dispatch(true, false)].concat()));
        rules
    }

    /// One list of steps for each way a packet may be for an address of the node that serves NodePorts.
    fn node_targets(&self) -> Vec<Vec<Step>> {
        let local = vec![
            Step::AddressType(false, Word(0)),
            equals(Word(0), &TYPE_LOCAL.to_ne_bytes()),
        ];
        let loopback = Cidr::parse(if self.v4 { "127.0.0.0/8" } else { "::1/128" }).ok();
        let not_loopback = match loopback {
            Some(_) if self.v4 && self.settings.localhost_node_ports => Vec::new(),
            Some(network) => self.address_in(false, Comparison::NotEqual, &network),
            None => Vec::new(),
        };
        let within: Vec<Cidr> = match &self.settings.node_port_addresses {
            NodePortAddresses::All => return vec![[not_loopback, local].concat()],
            NodePortAddresses::Primary => self.settings.node_ips.iter().copied().map(Cidr::host).collect(),
            NodePortAddresses::Networks(networks) => networks.clone(),
        };
        let rule = |network: &Cidr| {
            let inside = self.address_in(false, Comparison::Equal, network);
            [inside, not_loopback.clone(), local.clone()].concat()
        };
        self.own(&within).into_iter().map(rule).collect()
    }

    fn guard(&self) -> Vec<Vec<Step>> {
        let steps = vec![
            Step::In(Set::Guarded.name().into(), FRONT, true),
            self.load_address(true, self.behind()),
            Step::In(Set::Allowed.name().into(), FRONT, false),
            Step::Verdict(Verdict::Drop),
        ];
        vec![[self.load_front(false), steps].concat()]
    }

    /// With NodePorts on 127.0.0.1 the kernel routes such packets of other machines too, and takes 127.0.0.1 for whom they are from: both are
    /// dropped here.
    fn martians(&self) -> Vec<Vec<Step>> {
        let loopback = Cidr::new(IpAddr::from([127, 0, 0, 0]), 8);
        let Some(loopback) = loopback.filter(|_| self.v4 && self.settings.localhost_node_ports) else {
            return Vec::new();
        };
        let mut name = b"lo".to_vec();
        name.resize(INTERFACE_BYTES, 0);
        let of = |source: bool| {
            let mut steps = vec![
                Step::Meta(MetaKey::InputName, Word(0)),
                Step::Compare(Word(0), Comparison::NotEqual, name.clone()),
            ];
            steps.extend(self.address_in(source, Comparison::Equal, &loopback));
            steps.push(Step::Verdict(Verdict::Drop));
            steps
        };
        vec![of(false), of(true)]
    }

    fn unserved(&self) -> Vec<Vec<Step>> {
        let mut rules = Vec::new();
        for (set, decision) in [
            (Set::Rejected, Step::Reject(self.family())),
            (Set::Dropped, Step::Verdict(Verdict::Drop)),
        ] {
            let decide = || vec![Step::In(set.name().into(), FRONT, true), decision.clone()];
            rules.push([self.load_front(false), decide()].concat());
            for prefix in self.node_targets() {
                rules.push([prefix, self.load_front(true), decide()].concat());
            }
        }
        rules
    }

    /// What still has a ClusterIP here has no such port; other addresses of the range are nobody's.
    fn unknown(&self) -> Vec<Vec<Step>> {
        let mut rules = vec![vec![
            self.load_address(false, Word(0)),
            Step::In(Set::ClusterIps.name().into(), Word(0), true),
            Step::Reject(self.family()),
        ]];
        for network in self.own(&self.settings.service_cidrs) {
            let inside = self.address_in(false, Comparison::Equal, network);
            rules.push([inside, vec![Step::Verdict(Verdict::Drop)]].concat());
        }
        rules
    }

    fn masquerading(&self) -> Vec<Vec<Step>> {
        let mark = self.settings.masquerade_mark().to_ne_bytes().to_vec();
        let zero = vec![0; 4];
        let marked = vec![
            Step::Meta(MetaKey::Mark, Word(0)),
            Step::Mask(Word(0), mark.clone(), zero.clone()),
            Step::Compare(Word(0), Comparison::NotEqual, zero.clone()),
            Step::Meta(MetaKey::Mark, Word(0)),
            Step::Mask(Word(0), vec![0xff; 4], mark),
            Step::SetMark(Word(0)),
            Step::Masquerade,
        ];
        let hairpin = vec![
            Step::Connection(ConnectionKey::Status, Word(0)),
            Step::Mask(Word(0), STATUS_DNAT.to_ne_bytes().to_vec(), zero.clone()),
            Step::Compare(Word(0), Comparison::NotEqual, zero),
            self.load_address(true, Word(0)),
            self.load_address(false, Word(self.address_words())),
            Step::In(Set::Hairpin.name().into(), Word(0), true),
            Step::Masquerade,
        ];
        vec![marked, hairpin]
    }

    /// The chain of a class.
    pub fn class(&self, class: Class) -> ChainRules {
        let rules = match class.route {
            Route::Pick => self.pick(class, false),
            Route::Local => self.pick(class, true),
            Route::Mark => vec![self.set_mark(), vec![goto(class.with(Route::Pick).chain())]],
            Route::Short => self.short(class),
            Route::Inner => vec![vec![goto(class.with(Route::Local).chain())]],
        };
        ChainRules {
            name: class.chain(),
            base: None,
            rules,
        }
    }

    fn short(&self, class: Class) -> Vec<Vec<Step>> {
        let pick = || goto(class.with(Route::Pick).chain());
        let mut rules: Vec<Vec<Step>> = self.pod_sources();
        rules.iter_mut().for_each(|rule| rule.push(pick()));
        rules.push(vec![
            Step::AddressType(true, Word(0)),
            equals(Word(0), &TYPE_LOCAL.to_ne_bytes()),
            goto(class.with(Route::Mark).chain()),
        ]);
        rules.extend([false, true].map(|node_port| self.dispatch(node_port, true)));
        rules.push(vec![Step::Verdict(Verdict::Drop)]);
        rules
    }

    /// Picks an endpoint. A packet got here by one of the two fronts, so the other one's rules do not match. What finds no
    /// endpoint is dropped: the Service changed between two steps, and the packet will be sent again.
    fn pick(&self, class: Class, local: bool) -> Vec<Vec<Step>> {
        let rules = [false, true].into_iter().flat_map(|node_port| {
            let pool = self.load_pool(node_port);
            let rules = match class.affinity {
                0 => vec![self.pick_any(class, local)],
                _ => self.pick_same(class, local),
            };
            rules.into_iter().map(move |rule| [&pool[..], &rule].concat())
        });
        let mut rules: Vec<Vec<Step>> = rules.collect();
        rules.push(vec![Step::Verdict(Verdict::Drop)]);
        rules
    }

    /// Loads the pool of a packet's front.
    fn load_pool(&self, node_port: bool) -> Vec<Step> {
        let find = [Step::Map(Set::Pools.name().into(), FRONT, FOUND)];
        [&self.load_front(node_port)[..], &find, &carry(POOL)].concat()
    }

    fn translate(&self) -> Step {
        Step::DestinationNat(self.family(), self.endpoint(), ENDPOINT_PORT)
    }

    fn pick_any(&self, class: Class, local: bool) -> Vec<Step> {
        vec![
            Step::Random(class.count, IN_POOL),
            Step::Map(Set::Endpoints(local).name().into(), POOL, self.endpoint()),
            self.translate(),
        ]
    }

    /// The client's endpoint if it has one that is still there, or any, which is remembered. When no more clients can be
    /// remembered they are served nevertheless.
    fn pick_same(&self, class: Class, local: bool) -> Vec<Vec<Step>> {
        let client = self.load_address(true, IN_POOL);
        let remember = |change| Step::Remember(change, AFFINITY.into(), POOL, FOUND, class.affinity);
        let known = Step::Map(AFFINITY.into(), POOL, FOUND);
        let again = [&[client.clone(), known], &carry(FOUND)[..]].concat();
        let random = Step::Random(class.count, IN_POOL);
        let number = Step::Map(Set::Numbers(local).name().into(), POOL, FOUND);
        let any = [&[random, number], &carry(FOUND)[..]].concat();
        // The name goes behind the pool as it went to `FOUND`.
        let find = [Step::Map(Set::Members(local).name().into(), POOL, self.endpoint())];
        let member = [&carry(IN_POOL)[..], &find].concat();
        let refreshed = [client, remember(Change::Update), self.translate()];
        vec![
            [&again, &member, &refreshed[..]].concat(),
            // Its endpoint is gone: an update would keep it.
            [&again[..], &[remember(Change::Delete)]].concat(),
            [&any, &member, &refreshed[..]].concat(),
            [&any, &member, &[self.translate()][..]].concat(),
        ]
    }
}

/// Bytes of an interface's name in the kernel.
const INTERFACE_BYTES: usize = 16;

#[cfg(test)]
mod tests;
