//! The rules and sets, walked by packets, say what the specification says: random Services, read here once more and directly.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use netlink::cidr::Cidr;
use proptest::prelude::*;

use super::Writer;
use crate::choose::{Here, choose};
use crate::desired::Set;
use crate::ledger::{Changes, Ledger};
use crate::model::{Endpoint, PortName, Protocol, Served, ServiceName, ServicePort};
use crate::settings::{DetectLocal, NodePortAddresses, Settings};
use machine::{Machine, Outcome, Packet};

mod machine;

/// The node, a second address of it, a pod here, one elsewhere, somebody outside.
fn ip(v4: bool, which: u16) -> IpAddr {
    if v4 {
        IpAddr::from([10, 1, (which >> 8) as u8, which as u8])
    } else {
        IpAddr::from([0xfd00, 1, 0, 0, 0, 0, 0, which])
    }
}

const NODE: u16 = 0x0001;
const NODE_TOO: u16 = 0x0002;
const POD: u16 = 0x0110;
const OUTSIDE: u16 = 0x0900;

fn net(v4: bool, text: [&str; 2]) -> Cidr {
    Cidr::parse(text[usize::from(!v4)]).unwrap()
}

fn pods(v4: bool) -> Cidr {
    net(v4, ["10.1.1.0/24", "fd00:1::100/120"])
}

fn address(v4: bool, kind: u8, service: u8) -> IpAddr {
    if v4 {
        IpAddr::from([198, 18, kind, service])
    } else {
        IpAddr::from([0xfd00, 96, 0, 0, 0, 0, u16::from(kind), u16::from(service)])
    }
}

fn endpoints(v4: bool) -> impl Strategy<Value = Vec<Endpoint>> {
    let one = (0u16..6, 0u8..8, 0u8..3);
    prop::collection::vec(one, 0..5).prop_map(move |list| {
        let made = list.into_iter().map(|(which, state, hint)| Endpoint {
            address: SocketAddr::new(ip(v4, POD + which), 8080),
            ready: state > 2,
            serving: state > 0,
            terminating: state < 2,
            // A pod is on one node, whatever Service it belongs to.
            local: which % 2 == 0,
            zone_hints: if hint > 0 { vec![format!("z{hint}")] } else { Vec::new() },
            node_hints: if hint > 1 { vec![format!("n{hint}")] } else { Vec::new() },
        });
        made.collect()
    })
}

/// Source ranges of a Service: half of all have none.
fn source_ranges(v4: bool, which: u8) -> Option<Arc<[Cidr]>> {
    let outside = |v4| net(v4, ["10.1.9.0/24", "fd00:1::900/120"]);
    let inside = |v4| net(v4, ["10.1.0.0/23", "fd00:1::/119"]);
    match which {
        0 => Some([outside(v4)].into()),
        1 => Some([inside(v4)].into()),
        // Nobody, as nothing of it could be read.
        2 => Some([].into()),
        // Of the other family alone.
        3 => Some([outside(!v4), inside(!v4)].into()),
        _ => None,
    }
}

prop_compose! {
    fn served_port(service: u8, v4: bool)(
        flags in any::<[bool; 5]>(), ranges in 0u8..8, endpoints in endpoints(v4), protocol in 0usize..3,
        affinity in 0u32..3,
    ) -> Served {
        let port = ServicePort {
            name: PortName {
                namespace: "ns".into(),
                service: format!("s{service}"),
                port: String::new(),
                protocol: [Protocol::Tcp, Protocol::Udp, Protocol::Sctp][protocol],
            },
            cluster_ips: vec![address(v4, 0, service)],
            port: 80,
            node_port: if flags[0] { 30_000 + u16::from(service) } else { 0 },
            external_ips: if flags[1] { [address(v4, 1, service)].into() } else { [].into() },
            load_balancer_ips: if flags[2] { [address(v4, 2, service)].into() } else { [].into() },
            source_ranges: source_ranges(v4, ranges),
            internal_local: flags[3],
            external_local: flags[4],
            affinity_seconds: affinity.saturating_sub(1) * 60,
            health_check_node_port: 0,
        };
        choose(port, endpoints.iter(), Here { node: "n2", zone: "z1" })
    }
}

fn settings() -> impl Strategy<Value = Settings> {
    (any::<[bool; 4]>(), 0u8..4).prop_map(|(flags, detect)| Settings {
        node_name: "n2".into(),
        node_ips: vec![ip(true, NODE), ip(false, NODE)],
        detect_local: match detect {
            0 => DetectLocal::Nothing,
            1 => DetectLocal::Networks(vec![pods(true), pods(false)]),
            2 => DetectLocal::Interface("cni0".into()),
            _ => DetectLocal::InterfacePrefix("cni".into()),
        },
        masquerade_all: flags[0],
        service_cidrs: if flags[1] {
            vec![net(true, ["198.18.0.0/24", ""]), net(false, ["", "fd00:60::/112"])]
        } else {
            Vec::new()
        },
        node_port_addresses: if flags[2] {
            NodePortAddresses::Primary
        } else {
            NodePortAddresses::All
        },
        localhost_node_ports: flags[3],
        ..Settings::default()
    })
}

/// Every packet worth sending to these Services.
fn packets(v4: bool, services: u8) -> Vec<Packet> {
    let mut made = Vec::new();
    let senders = [
        (ip(v4, NODE), None),
        (ip(v4, POD), Some("cni0")),
        (ip(v4, POD + 1), Some("cni0")),
        (ip(v4, OUTSIDE), Some("eth0")),
        // Which nobody may say of himself.
        (IpAddr::from([127, 0, 0, 9]), Some("cni0")),
    ];
    for (source, input) in senders.into_iter().filter(|(source, _)| source.is_ipv4() == v4) {
        for service in 0..=services {
            let fronts = (0..3).map(|kind| SocketAddr::new(address(v4, kind, service), 80));
            let node_ports = [NODE, NODE_TOO].map(|own| SocketAddr::new(ip(v4, own), 30_000 + u16::from(service)));
            let odd = SocketAddr::new(address(v4, 0, service), 81);
            let loopback: SocketAddr = if v4 { "127.0.0.1:30000" } else { "[::1]:30000" }.parse().unwrap();
            for target in fronts.chain(node_ports).chain([odd, loopback]) {
                for protocol in [6, 17, 132] {
                    made.push(Packet {
                        source,
                        target,
                        protocol,
                        input,
                    });
                }
            }
        }
    }
    made
}

/// What the specification says, read directly.
fn expected(ports: &[Served], settings: &Settings, v4: bool, packet: &Packet) -> BTreeSet<Outcome> {
    let of = |outcome| BTreeSet::from([outcome]);
    let target = packet.target;
    let is_martian = target.ip().is_loopback() || packet.source.is_loopback();
    if settings.localhost_node_ports && v4 && is_martian && packet.input.is_some_and(|name| name != "lo") {
        return of(Outcome::Dropped);
    }
    let from_node = packet.input.is_none();
    let from_pod = match settings.detect_local {
        DetectLocal::Nothing => false,
        DetectLocal::Networks(_) => pods(v4).contains(&packet.source),
        _ => packet.input == Some("cni0"),
    };
    let own_ips: &[IpAddr] = &[ip(v4, NODE), ip(v4, NODE_TOO)];
    let at_node = own_ips.contains(&target.ip()) || target.ip().is_loopback();
    let serves_node_ports = match settings.node_port_addresses {
        _ if target.ip().is_loopback() && !(v4 && settings.localhost_node_ports) => false,
        NodePortAddresses::All => at_node,
        _ => target.ip() == ip(v4, NODE),
    };
    let sent = |list: &[crate::model::Chosen], masqueraded: bool| -> BTreeSet<Outcome> {
        let each = list.iter().map(|chosen| Outcome::Sent {
            to: chosen.address,
            masqueraded: masqueraded || (chosen.local && chosen.address.ip() == packet.source),
        });
        each.collect()
    };
    for served in ports
        .iter()
        .filter(|served| served.port.name.protocol as u8 == packet.protocol)
    {
        let (port, choice) = (&served.port, served.choice(v4));
        let is_balancer = port.load_balancer_ips.contains(&target.ip()) && target.port() == port.port;
        let written = port.source_ranges.as_deref();
        let of_family = written
            .iter()
            .flat_map(|list| list.iter())
            .filter(|range| range.is_v4() == v4);
        let mut ranges: Vec<Cidr> = of_family.copied().collect();
        // What is written of one family says nothing of the other.
        let is_guarded = written.is_some_and(|list| list.is_empty() || !ranges.is_empty());
        if ranges.iter().any(|range| range.contains(&ip(v4, NODE))) {
            ranges.extend(port.load_balancer_ips.iter().map(|ip| Cidr::host(*ip)));
        }
        if is_balancer && is_guarded && !ranges.iter().any(|range| range.contains(&packet.source)) {
            return of(Outcome::Dropped);
        }
        if port.cluster_ips.contains(&target.ip()) && target.port() == port.port {
            let list = if port.internal_local {
                &choice.local
            } else {
                &choice.cluster
            };
            let knows_pods = settings.detect_local != DetectLocal::Nothing;
            return match list.is_empty() {
                true if port.internal_local && choice.has_any => of(Outcome::Dropped),
                true => of(Outcome::Rejected),
                false => sent(list, settings.masquerade_all || (knows_pods && !from_pod)),
            };
        }
        let external = (is_balancer || port.external_ips.contains(&target.ip())) && target.port() == port.port;
        let by_node_port = port.node_port != 0 && port.node_port == target.port() && serves_node_ports;
        if external || by_node_port {
            return match port.external_local {
                _ if choice.cluster.is_empty() => of(Outcome::Rejected),
                false => sent(&choice.cluster, true),
                true if from_pod => sent(&choice.cluster, false),
                true if from_node => sent(&choice.cluster, true),
                true if choice.local.is_empty() => of(Outcome::Dropped),
                true => sent(&choice.local, false),
            };
        }
    }
    let is_cluster_ip = ports
        .iter()
        .any(|served| served.port.cluster_ips.contains(&target.ip()));
    let in_range = settings.service_cidrs.iter().any(|range| range.contains(&target.ip()));
    match (is_cluster_ip, in_range) {
        (true, _) => of(Outcome::Rejected),
        (false, true) => of(Outcome::Dropped),
        (false, false) => of(Outcome::Sent {
            to: target,
            masqueraded: false,
        }),
    }
}

fn changes(ports: &[Served], gone: &[Served]) -> Changes {
    let name = |served: &Served| ServiceName::new("ns", served.port.name.service.clone());
    let mut made: Changes = gone.iter().map(|served| (name(served), None)).collect();
    made.extend(
        ports
            .iter()
            .map(|served| (name(served), Some(vec![served.clone()].into()))),
    );
    made
}

fn check(ports: &[Served], settings: &Settings, v4: bool, machine: &mut Machine) -> Result<(), TestCaseError> {
    let most = ports
        .iter()
        .map(|served| served.choice(v4).cluster.len())
        .max()
        .unwrap_or(0)
        .max(12);
    // Without NodePorts on 127.0.0.1 the kernel itself lets no packet through that says it is from there.
    let gets_here = |packet: &Packet| settings.localhost_node_ports || !packet.source.is_loopback();
    for packet in packets(v4, ports.len() as u8).into_iter().filter(gets_here) {
        let mut seen = BTreeSet::new();
        for random in 0..most as u32 {
            // Nobody is remembered.
            machine.forget_clients();
            seen.insert(machine.send(&packet, random));
            let sticky = machine.send(&packet, random + 1);
            if machine.remembers() {
                prop_assert!(seen.contains(&sticky), "not served by the same again: {:?}", packet);
            }
        }
        prop_assert_eq!(seen, expected(ports, settings, v4, &packet), "{:?}", packet);
    }
    Ok(())
}

fn all_ports(v4: bool) -> impl Strategy<Value = Vec<Served>> {
    (served_port(0, v4), served_port(1, v4), served_port(2, v4)).prop_map(|(a, b, c)| vec![a, b, c])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn packets_go_where_the_specification_says(
        (v4, before, after) in any::<bool>().prop_flat_map(|v4| (Just(v4), all_ports(v4), all_ports(v4))),
        settings in settings(),
    ) {
        let writer = Writer { v4, settings: &settings };
        let mut machine = Machine::new(&writer, vec![ip(v4, NODE), ip(v4, NODE_TOO)]);
        let mut ledger = Ledger::new(&settings);
        let deltas = ledger.enter(changes(&before, &[]), &settings);
        machine.apply(&writer, &deltas[&v4]);
        check(&before, &settings, v4, &mut machine)?;
        // By changes, and with a Service gone, the sets are as if written anew.
        let after = &after[..2];
        let deltas = ledger.enter(changes(after, &before[2..]), &settings);
        machine.apply(&writer, &deltas[&v4]);
        let mut anew = Machine::new(&writer, Vec::new());
        let deltas = Ledger::new(&settings).enter(changes(after, &[]), &settings);
        anew.apply(&writer, &deltas[&v4]);
        machine.forget_clients();
        prop_assert_eq!(machine.contents(), anew.contents());
        check(after, &settings, v4, &mut machine)?;
        // And back to nothing.
        let deltas = ledger.enter(changes(&[], after), &settings);
        machine.apply(&writer, &deltas[&v4]);
        machine.forget_clients();
        prop_assert!(machine.contents().values().all(|set| set.is_empty()));
    }
}

/// As upstream's chains of an endpoint, which all fronts of a port share: whichever way a client comes, it comes to the same.
#[test]
fn a_client_comes_to_the_same_endpoint_by_every_front() {
    let settings = Settings::default();
    for (v4, external_local) in [(true, false), (true, true), (false, false), (false, true)] {
        let endpoint = |which: u16| Endpoint {
            address: SocketAddr::new(ip(v4, POD + which), 8080),
            ready: true,
            serving: true,
            terminating: false,
            local: true,
            zone_hints: Vec::new(),
            node_hints: Vec::new(),
        };
        let port = |name: &str, number| ServicePort {
            name: PortName {
                namespace: "ns".into(),
                service: "web".into(),
                port: name.into(),
                protocol: Protocol::Tcp,
            },
            cluster_ips: vec![address(v4, 0, 0)],
            port: number,
            node_port: 30_000 + number,
            external_ips: [address(v4, 1, 0)].into(),
            load_balancer_ips: [address(v4, 2, 0)].into(),
            source_ranges: None,
            internal_local: false,
            external_local,
            affinity_seconds: 60,
            health_check_node_port: 0,
        };
        let endpoints: Vec<Endpoint> = (0..5).map(endpoint).collect();
        let served = |name, number| choose(port(name, number), endpoints.iter(), Here { node: "n2", zone: "" });
        let writer = Writer {
            v4,
            settings: &settings,
        };
        let mut machine = Machine::new(&writer, vec![ip(v4, NODE)]);
        let name = ServiceName::new("ns", "web");
        let ports = vec![served("a", 80), served("b", 81)];
        let deltas = Ledger::new(&settings).enter([(name, Some(ports.into()))].into(), &settings);
        machine.apply(&writer, &deltas[&v4]);
        let mut send = |target: SocketAddr, random| {
            let packet = Packet {
                source: ip(v4, OUTSIDE),
                target,
                protocol: 6,
                input: Some("eth0"),
            };
            match machine.send(&packet, random) {
                Outcome::Sent { to, .. } => to,
                other => panic!("{target}: {other:?}"),
            }
        };
        let fronts = [address(v4, 0, 0), address(v4, 1, 0), address(v4, 2, 0)];
        let first = send(SocketAddr::new(ip(v4, NODE), 30_080), 3);
        for (random, front) in (0..).zip(fronts) {
            assert_eq!(send(SocketAddr::new(front, 80), random), first, "{front}");
        }
        // Another port of the Service remembers for itself.
        let other = send(SocketAddr::new(fronts[1], 81), 4);
        assert_ne!(other, first);
        assert_eq!(send(SocketAddr::new(ip(v4, NODE), 30_081), 0), other);
    }
}

/// Endpoints are in the kernel once for each port, however many fronts lead to them.
#[test]
fn fronts_and_endpoints_are_no_product() {
    let mut served = crate::testing::nothing_served();
    served.port.cluster_ips = vec![address(true, 0, 0)];
    served.port.port = 80;
    served.port.external_ips = (0..200).map(|number| address(true, 1, number)).collect();
    let endpoints: Vec<crate::model::Chosen> = (0..1_000u16)
        .map(|number| crate::model::Chosen {
            address: SocketAddr::new(ip(true, number), 80),
            local: false,
        })
        .collect();
    served.v4.cluster = endpoints;
    for affinity_seconds in [0, 60] {
        served.port.affinity_seconds = affinity_seconds;
        let made = crate::desired::elements(&served, 1, &[], true);
        assert!(made.len() <= 1 + 2 * 201 + 2 * 1_000, "{}", made.len());
    }
}

#[test]
fn the_number_of_sets_and_chains_does_not_grow_with_services() {
    let settings = Settings::default();
    let writer = Writer {
        v4: true,
        settings: &settings,
    };
    assert_eq!((writer.sets().len(), writer.chains().len()), (18, 14));
    let names: BTreeSet<&str> = writer.sets().iter().map(|set| set.name).collect();
    assert_eq!(names.len(), 18);
    assert!(names.contains(Set::Hairpin.name()));
}
