use super::*;
use crate::choose::{Here, choose};
use crate::model::Protocol;

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
