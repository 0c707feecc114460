use super::*;
use crate::choose::{Here, choose};
use crate::model::{Protocol, read_service};
use serde_json::json;

/// The fronts that are guarded in a family, and how many ranges may reach them, of a dual-stack load balancer with these source ranges.
fn guarded(ranges: Option<&[&str]>, v4: bool) -> (usize, usize) {
    let ranges = ranges.map(|texts| texts.iter().map(|text| Cidr::parse(text).unwrap()).collect());
    let ip = |text: &str| text.parse().unwrap();
    let port = ServicePort {
        name: PortName {
            namespace: "shop".into(),
            service: "web".into(),
            port: String::new(),
            protocol: Protocol::Tcp,
        },
        cluster_ips: vec![ip("10.96.0.1"), ip("fd00:96::1")],
        port: 80,
        node_port: 30_080,
        external_ips: [].into(),
        load_balancer_ips: [ip("203.0.113.1"), ip("2001:db8::1")].into(),
        source_ranges: ranges,
        internal_local: false,
        external_local: false,
        affinity_seconds: 0,
        health_check_node_port: 0,
    };
    let served = choose(port, [].into_iter(), Here { node: "n1", zone: "" });
    let elements = elements(&served, 7, &[], v4);
    let count = |set| elements.iter().filter(|element| element.set == set).count();
    (count(Set::Guarded), count(Set::Allowed))
}

#[test]
fn source_ranges_of_one_family_leave_the_other_open() {
    for (ranges, v4, v6) in [
        (None, (0, 0), (0, 0)),
        (Some(&["198.51.100.0/24", "192.0.2.0/24"][..]), (1, 2), (0, 0)),
        (Some(&["2001:db8:1::/48"]), (0, 0), (1, 1)),
        (Some(&["192.0.2.0/24", "2001:db8:1::/48"]), (1, 1), (1, 1)),
        // None of what was written could be read: nobody.
        (Some(&[]), (1, 0), (1, 0)),
    ] {
        assert_eq!((guarded(ranges, true), guarded(ranges, false)), (v4, v6), "{ranges:?}");
    }
}

#[test]
fn a_family_of_which_nothing_that_was_written_can_be_read_lets_nobody_in() {
    // What is in front of either family's balancer: nothing, nobody, or so many ranges.
    let fronts = |ranges: &[&str]| {
        let service = json!({"metadata": {"namespace": "shop", "name": "web"},
            "spec": {"type": "LoadBalancer", "clusterIPs": ["10.96.0.1", "fd00:96::1"], "ports": [{"port": 80}],
                "loadBalancerSourceRanges": ranges},
            "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}, {"ip": "2001:db8::1"}]}}});
        let read = read_service(&serde_json::from_value(service).unwrap());
        let served = choose(read.ports[0].clone(), [].into_iter(), Here { node: "n1", zone: "" });
        [true, false].map(|v4| {
            let elements = elements(&served, 7, &[], v4);
            let keys = |set| {
                elements
                    .iter()
                    .filter(move |element| element.set == set)
                    .map(|element| &element.key[..])
            };
            let width = if v4 { 4 } else { 16 };
            // The first and the last key: a front and an address each.
            let is_nobody = |key: &&[u8]| {
                let (first, last) = key.split_at(key.len() / 2);
                [first, last]
                    .iter()
                    .all(|key| key[key.len() - width..].iter().all(|byte| *byte == 0))
            };
            let somebody = keys(Set::Allowed).filter(|key| !is_nobody(key)).count();
            (keys(Set::Guarded).count(), somebody)
        })
    };
    for (ranges, expected) in [
        (&["10.0.0.0/33", "2001:db8::/32"][..], [(1, 0), (1, 1)]),
        (&["2001:db8::/129", "10.0.0.0/8"], [(1, 1), (1, 0)]),
        (&["x", "2001:db8::/32"], [(1, 0), (1, 1)]),
        (&["::ffff:010.0.0.0/104", "2001:db8::/32"], [(1, 0), (1, 1)]),
        (&["::ffff:010.0.0.0/104", "10.0.0.0/8"], [(1, 1), (1, 0)]),
        // What can be read does for its family, and what is not written leaves the other open.
        (&["010.0.0.0/8", "2001:db8::/32"], [(1, 1), (1, 1)]),
        (&["10.0.0.0/33", "10.0.0.0/8"], [(1, 1), (0, 0)]),
        (&["2001:db8::/129", "2001:db8::/32"], [(0, 0), (1, 1)]),
        (&["10.0.0.0/33", "2001:db8::/129"], [(1, 0), (1, 0)]),
    ] {
        assert_eq!(fronts(ranges), expected, "{ranges:?}");
    }
}
