//! Looking at the kernel: where this node's addresses are, and what there is of the overlay's. Changing it is [`crate::apply`]'s.
//!
//! A [`Kernel`] belongs to the network namespace of the thread that opened it. What it found, and made of it, it remembers: a
//! node that comes or goes costs its own steps, not a look at everything.

use crate::apply;
use crate::diff::{conflicts, diff};
use crate::forward;
use crate::masquerade;
use crate::own::{self, SCOPE_GLOBAL, Way};
use crate::peer::Peer;
use crate::plan::{Own, Plan, Problem, Reason, Underlay, mac, plan};
use crate::probe::Verdict;
use crate::run::Notice;
use crate::settings::{Backend, Settings};
use crate::state::{ALIAS, Device, Each, Family, Hop, PROTOCOL, Port, State};
use crate::trial::{Tested, Trial, Trials, Tried};
use netlink::address::Address;
use netlink::cidr::Cidr;
use netlink::link::{Link, Mac, Target};
use netlink::marked_route::{self, MarkedRoute};
use netlink::neighbour::Table;
use netlink::wire::RTPROT_KERNEL;
use netlink::{Protocol, Socket, sysctl};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a tunnel is tested before it is told, and believed, that something does not arrive: a moment's loss looks the same.
const BAD_MAX: u32 = 3;
/// How often chains of others are looked at: that reads the rules of all tables.
const CHAINS_EVERY: Duration = Duration::from_secs(600);

/// The kernel's network.
pub struct Kernel {
    socket: Socket,
    settings: Arc<Settings>,
    /// Hardware addresses for tunnels that never had one.
    spare: Each<Mac>,
    known: Option<Known>,
    /// Whether a hardware address was given up because an older node has it.
    gave_way: Each<bool>,
    /// What was found out of the way through the tunnels.
    found: BTreeMap<Family, Found>,
    /// The tunnels a test is under way of.
    tried: BTreeSet<Family>,
    /// Chains of others that drop what they do not accept, in words, and when they were looked at.
    closed: (Vec<String>, Option<Instant>),
}

/// What was found out of a way.
#[derive(Clone, Copy)]
struct Found {
    way: Way,
    verdict: Verdict,
    /// How often the verdict was bad.
    bad: u32,
}

impl Found {
    /// Whether it is not asked again.
    fn is_settled(&self) -> bool {
        self.verdict.is_good() || self.bad >= BAD_MAX
    }
}

/// What is remembered.
struct Known {
    own: Own,
    state: State,
    /// Indices of the tunnel devices.
    devices: BTreeMap<Family, u32>,
    rules: Vec<String>,
}

/// What became of a turn.
#[derive(Debug)]
pub struct Turn {
    /// This node as it was found.
    pub own: Own,
    /// What was to be.
    pub plan: Plan,
    /// What could not be done, in words; to be tried again.
    pub failures: Vec<String>,
    /// How many steps were taken.
    pub steps: usize,
    /// Indices of the tunnel devices.
    pub tunnels: Vec<u32>,
    /// By what the tunnels' packets go. Where that changes they are to be tested again.
    pub ways: BTreeMap<Family, Way>,
    /// What the operator is to know though nothing is refused.
    pub notices: BTreeSet<Notice>,
}

impl Kernel {
    /// Opens the calling thread's namespace. `spare` are hardware addresses nobody else has.
    ///
    /// # Errors
    /// There is no netlink socket to be had.
    pub fn open(settings: Arc<Settings>, spare: Each<Mac>) -> Result<Self, netlink::Error> {
        Ok(Self {
            socket: Socket::open(Protocol::Route)?,
            settings,
            spare,
            known: None,
            gave_way: Each::default(),
            found: BTreeMap::new(),
            tried: BTreeSet::new(),
            closed: (Vec::new(), None),
        })
    }

    /// Makes the kernel hold what the nodes ask for. Looks at everything first if `look`, or where it does not know.
    ///
    /// # Errors
    /// The kernel could not be looked at; nothing was changed.
    pub fn turn(&mut self, own: &Peer, peers: &BTreeMap<String, Peer>, look: bool) -> Result<Turn, netlink::Error> {
        let known = self.known.take().filter(|known| !look && known.own.peer == *own);
        let (known, looked) = match known {
            Some(known) => (known, false),
            None => (self.look(own)?, true),
        };
        let Known {
            mut own,
            state: found,
            mut devices,
            rules: had_rules,
        } = known;
        let mut notices = self.take_macs(&mut own, &found, peers);
        let ways = Way::all(&own, &devices);
        self.found.retain(|family, found| ways.get(family) == Some(&found.way));
        let is_old = |at: Instant| at.elapsed() >= CHAINS_EVERY;
        if looked
            && self.closed.1.is_none_or(is_old)
            && let Ok(closed) = forward::closed(&self.settings, &own.peer)
        {
            self.closed = (closed, Some(Instant::now()));
        }
        notices.extend(self.closed.0.iter().cloned().map(forward::notice));
        let settled = self.found.iter().filter(|(_, found)| found.is_settled());
        notices.extend(settled.filter_map(|(family, found)| found.verdict.notice(*family)));
        let mut plan = plan(&self.settings, &own, peers.values());
        self.offload(&mut plan.state, &found);
        for family in &plan.held {
            plan.state.adopt(*family, &found);
        }
        for range in conflicts(&plan.state, &found) {
            plan.state.routes.remove(&range);
            let node = plan.owners.get(&range).cloned().unwrap_or_default();
            let reason = Reason::ForeignRoute(range);
            plan.problems.insert(Problem { node, reason });
        }
        let changes = diff(&plan.state, &found);
        let mut failures = apply::apply(&mut self.socket, self.settings.vni, &mut devices, &changes);
        let ranges: Vec<Cidr> = Family::ALL
            .into_iter()
            .filter_map(|family| own.peer.range(family))
            .collect();
        let rules = masquerade::rules(&self.settings, &ranges);
        let texts: Vec<String> = rules.iter().map(|rule| rule.comment.clone()).collect();
        if looked || texts != had_rules {
            failures.extend(switches(&ranges));
            failures.extend(
                masquerade::ensure(&rules)
                    .err()
                    .map(|error| crate::apply::chain(&error)),
            );
        }
        let tunnels = devices.values().copied().collect();
        let ways = Way::all(&own, &devices);
        if failures.is_empty() {
            let foreign = found.foreign;
            let state = State {
                foreign,
                ..plan.state.clone()
            };
            self.known = Some(Known {
                own: own.clone(),
                state,
                devices,
                rules: texts,
            });
        }
        let steps = changes.len();
        Ok(Turn {
            own,
            plan,
            failures,
            steps,
            tunnels,
            ways,
            notices,
        })
    }

    /// Decides the hardware addresses of the tunnels; tells of those that are taken.
    fn take_macs(&mut self, own: &mut Own, found: &State, peers: &BTreeMap<String, Peer>) -> BTreeSet<Notice> {
        let mut notices = BTreeSet::new();
        for family in Family::ALL {
            let present = found.devices.get(&family).map(|device| device.mac);
            let (spare, gave_way) = (*self.spare.of(family), *self.gave_way.of(family));
            let chosen = mac(peers, &own.peer, family, present, spare, gave_way);
            *own.macs.of_mut(family) = chosen;
            let told = own.peer.ends.of(family).mac;
            if self.settings.backend == Backend::Vxlan
                && own.peer.range(family).is_some()
                && let Some(told) = told.filter(|told| *told != chosen)
            {
                *self.gave_way.of_mut(family) = true;
                let device = family.device(self.settings.vni);
                notices.insert(Notice {
                    reason: "PodNetworkAddressChanged",
                    message: format!(
                        "Another node has the hardware address {told} of {device}, too, and is older: it is {chosen} now"
                    ),
                    is_warning: true,
                });
            }
        }
        notices
    }

    /// Says of each tunnel whether checksums are left to the network card: as it is set, or as the test has shown. What a
    /// run before this left on, it had tested. The switch of one that is tested now is the test's.
    fn offload(&self, wanted: &mut State, found: &State) {
        for (family, device) in &mut wanted.devices {
            let tested = self.found.get(family).map(|found| found.verdict.offload);
            let was = found
                .devices
                .get(family)
                .is_some_and(|found| found.ours && found.offload);
            let tested = tested.filter(|_| !self.tried.contains(family));
            device.offload = self.settings.checksum_offload.or(tested).unwrap_or(was);
        }
    }

    /// What is to be found out of the tunnels, of those it is not known of yet. Until [`Self::tried`] turns leave their switches
    /// of checksums alone.
    pub fn trials(&mut self) -> Trials {
        let mut trials = Trials::default();
        let Some(known) = &self.known else { return trials };
        let ways = Way::all(&known.own, &known.devices);
        for (family, device) in &known.state.devices {
            let is_settled = self.found.get(family).is_some_and(Found::is_settled);
            let (Some(way), Some(underlay)) = (ways.get(family), known.own.underlay.of(*family)) else {
                continue;
            };
            if is_settled {
                continue;
            }
            // The far ends of tunnels answer by their first address.
            let tunnelled = known.state.neighbours.keys().filter(|(of, _)| of == family);
            let ends: Vec<IpAddr> = tunnelled.map(|(_, end)| *end).collect();
            if ends.is_empty() {
                trials.is_alone = true;
                continue;
            }
            self.tried.insert(*family);
            trials.trials.push(Trial {
                family: *family,
                device: family.device(self.settings.vni),
                way: *way,
                ends,
                underlay: underlay.address,
                mtu: device.mtu,
                asked: self.settings.checksum_offload,
                is_on: device.offload,
            });
        }
        trials
    }

    /// Takes what was found out. What is of a way that is no more counts for nothing.
    pub fn tried(&mut self, tried: Tried) -> Tested {
        self.tried.clear();
        let mut tested = if tried.is_alone { Tested::Alone } else { Tested::Done };
        let known = self.known.as_mut();
        let ways = known.as_ref().map(|known| Way::all(&known.own, &known.devices));
        let mut devices = known.map(|known| &mut known.state.devices);
        for (family, way, verdict) in tried.outcomes {
            let Some(verdict) = verdict else {
                tested = tested.max(Tested::Silent);
                continue;
            };
            // Where nothing is remembered the next turn looks, and forgets what is of another way.
            if ways.as_ref().is_some_and(|ways| ways.get(&family) != Some(&way)) {
                continue;
            }
            if let Some(device) = devices.as_mut().and_then(|devices| devices.get_mut(&family)) {
                device.offload = verdict.offload;
            }
            let before = self.found.get(&family).map_or(0, |before| before.bad);
            let bad = before + u32::from(!verdict.is_good());
            let found = Found { way, verdict, bad };
            if !found.is_settled() {
                tested = Tested::Doubtful;
            }
            self.found.insert(family, found);
        }
        tested
    }

    fn look(&mut self, peer: &Peer) -> Result<Known, netlink::Error> {
        let links = self.socket.links()?;
        let addresses = self.socket.all_addresses()?;
        let (state, devices) = self.found(&links, &addresses)?;
        let mut own = Own {
            peer: peer.clone(),
            underlay: Each::default(),
            macs: self.spare,
            addresses: BTreeSet::new(),
        };
        for family in Family::ALL {
            let set = self.settings.underlay.iter().find(|addr| Family::of(addr) == family);
            let address = set.copied().or(peer.ends.of(family).internal);
            *own.underlay.of_mut(family) = address.and_then(|address| underlay(address, &links, &addresses, &devices));
        }
        let tunnels: Vec<u32> = devices.values().copied().collect();
        let underlays = Family::ALL
            .into_iter()
            .filter_map(|family| own.underlay.of(family).as_ref());
        let underlays: Vec<u32> = underlays.map(|underlay| underlay.index).collect();
        own.addresses = own::addresses(&addresses, &tunnels, &underlays, &self.settings.cluster_cidrs);
        own.addresses
            .retain(|addr| !peer.ranges.iter().any(|range| range.contains(addr)));
        Ok(Known {
            own,
            state,
            devices,
            rules: Vec::new(),
        })
    }

    /// What there is of the overlay's.
    fn found(
        &mut self,
        links: &[Link],
        addresses: &[Address],
    ) -> Result<(State, BTreeMap<Family, u32>), netlink::Error> {
        let mut state = State::default();
        let mut devices = BTreeMap::new();
        for family in Family::ALL {
            let name = family.device(self.settings.vni);
            let Some(link) = links.iter().find(|link| link.name == name) else {
                continue;
            };
            let Some(vxlan) = self.socket.vxlan(&name)? else {
                continue;
            };
            let device = Device {
                vxlan,
                mac: Mac(link.mac.unwrap_or_default()),
                mtu: link.mtu,
                // What cannot tell has none.
                offload: self.socket.transmit_checksum_offload(&name).unwrap_or(false),
                up: link.is_up(),
                ours: link.alias == ALIAS,
            };
            state.devices.insert(family, device);
            devices.insert(family, link.index);
            let on_device = addresses
                .iter()
                .filter(|a| a.index == link.index && a.scope == SCOPE_GLOBAL);
            state.addresses.extend(on_device.map(|address| (family, address.cidr)));
            for entry in self
                .socket
                .neighbours(Table::Neighbours { v4: family.is_v4() }, link.index)?
            {
                state.neighbours.insert((family, entry.addr), entry.mac);
            }
            for entry in self.socket.neighbours(Table::Forwarding, link.index)? {
                let hosts = state.forwarding.entry((family, entry.mac.0)).or_default();
                hosts.insert(entry.addr);
            }
        }
        for family in Family::ALL {
            for route in self.socket.marked_routes(family.is_v4())? {
                self.sort_route(route, &devices, &mut state);
            }
        }
        Ok((state, devices))
    }

    fn sort_route(&self, route: MarkedRoute, devices: &BTreeMap<Family, u32>, state: &mut State) {
        if !route.has_default_priority() || route.protocol == RTPROT_KERNEL {
            return;
        }
        let tunnel = devices.iter().find(|(_, index)| **index == route.index);
        let hop = Hop {
            gateway: route.gateway,
            port: tunnel.map_or(Port::Link(route.index), |(family, _)| Port::Tunnel(*family)),
            onlink: route.onlink,
        };
        let is_ours = route.protocol == PROTOCOL || tunnel.is_some();
        let mut cluster = self.settings.cluster(route.dst.is_v4());
        if is_ours {
            state.routes.insert(route.dst, hop);
        } else if cluster.any(|cidr| cidr.overlaps(&route.dst)) {
            state.foreign.insert(route.dst, hop);
        }
    }
}

/// The interface that has the address.
fn underlay(
    address: IpAddr,
    links: &[Link],
    addresses: &[Address],
    tunnels: &BTreeMap<Family, u32>,
) -> Option<Underlay> {
    let is_tunnel = |index: u32| tunnels.values().any(|tunnel| *tunnel == index);
    let has = addresses
        .iter()
        .find(|a| a.cidr.addr == address && !is_tunnel(a.index))?;
    let link = links.iter().find(|link| link.index == has.index)?;
    let own = addresses
        .iter()
        .filter(|a| a.index == has.index && a.cidr.is_v4() == address.is_ipv4());
    Some(Underlay {
        address,
        index: has.index,
        mtu: link.mtu,
        networks: own.map(|a| a.cidr.network()).collect(),
    })
}

/// The kernel forwards between interfaces.
fn switches(ranges: &[Cidr]) -> Vec<String> {
    let families = [("ipv4/ip_forward", true), ("ipv6/conf/all/forwarding", false)];
    let switches = families
        .into_iter()
        .filter(|(_, v4)| ranges.iter().any(|range| range.is_v4() == *v4));
    let switches = switches.map(|(name, _)| name);
    let outcomes = switches.map(|name| sysctl::ensure(name, "1"));
    outcomes
        .filter_map(|outcome| outcome.err().map(|error| apply::chain(&error)))
        .collect()
}

/// Removes what the overlay made in the calling thread's namespace: its devices, routes and rules. Nothing there is fine.
///
/// # Errors
/// What could not be removed, in words; the rest is.
pub fn remove(vni: u32) -> Result<(), String> {
    let mut failures: Vec<String> = Vec::new();
    let mut socket = Socket::open(Protocol::Route).map_err(|error| apply::chain(&error))?;
    for family in Family::ALL {
        match socket.marked_routes(family.is_v4()) {
            Ok(routes) => {
                let ours = routes.iter().filter(|route| route.protocol == PROTOCOL);
                let outcomes = ours.map(|route| socket.request(marked_route::delete(route)));
                let refused = outcomes.filter_map(Result::err).filter(|error| !error.is_missing());
                failures.extend(refused.map(|error| apply::chain(&error)));
            }
            Err(error) => failures.push(apply::chain(&error)),
        }
        let name = family.device(vni);
        let link = socket.link(Target::Name(&name));
        let removed = match link {
            Ok(Some(link)) if link.alias == ALIAS => {
                socket.request(netlink::link::delete(Target::Name(&name))).map(drop)
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        failures.extend(
            removed
                .err()
                .filter(|error| !error.is_missing())
                .map(|error| apply::chain(&error)),
        );
    }
    failures.extend(masquerade::ensure(&[]).err().map(|error| apply::chain(&error)));
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("; "))
    }
}
