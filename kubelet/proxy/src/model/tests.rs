use super::*;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;

fn service(spec: serde_json::Value) -> Service {
    serde_json::from_value(json!({"metadata": {"namespace": "ns", "name": "web"}, "spec": spec})).unwrap()
}

#[test]
fn a_service_is_read_whole() {
    let mut service = service(json!({
        "type": "LoadBalancer", "clusterIPs": ["10.96.0.7", "fd00:96::7"], "externalIPs": ["192.0.2.1", "127.0.0.1"],
        "externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local", "healthCheckNodePort": 31000,
        "loadBalancerSourceRanges": [" 198.51.100.9/24 ", "x"], "sessionAffinity": "ClientIP",
        "ports": [{"name": "http", "port": 80, "nodePort": 30080}, {"name": "dns", "port": 53, "protocol": "UDP"},
                  {"name": "odd", "port": 7, "protocol": "DCCP"}],
    }));
    service.status = serde_json::from_value(json!({"loadBalancer": {"ingress": [
        {"ip": "203.0.113.1"}, {"ip": "203.0.113.2", "ipMode": "Proxy"}, {"hostname": "x.example"}]}}))
    .unwrap();
    let read = read_service(&service);
    let names: Vec<String> = read.ports.iter().map(|port| port.name.to_string()).collect();
    assert_eq!(names, ["ns/web:http", "ns/web:dns"]);
    let port = &read.ports[0];
    assert_eq!(
        (port.port, port.node_port, port.name.protocol),
        (80, 30080, Protocol::Tcp)
    );
    assert_eq!(port.cluster_ips.len(), 2);
    assert_eq!(*port.external_ips, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
    assert_eq!(*port.load_balancer_ips, ["203.0.113.1".parse::<IpAddr>().unwrap()]);
    assert_eq!(
        port.source_ranges,
        Some([Cidr::parse("198.51.100.0/24").unwrap()].into())
    );
    assert!(port.internal_local && port.external_local);
    assert_eq!((port.affinity_seconds, port.health_check_node_port), (10_800, 31_000));
    let left: Vec<(&str, &str)> = read
        .left_out
        .first
        .iter()
        .map(|left| (left.field, left.value.as_str()))
        .collect();
    assert_eq!(
        left,
        [
            ("spec.externalIPs", "127.0.0.1"),
            ("spec.loadBalancerSourceRanges", "x"),
            ("spec.ports", "7/DCCP")
        ]
    );
}

#[test]
fn at_an_address_of_the_load_balancer_only_the_ports_it_names_are_led() {
    let ports = json!([{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53}, {"name": "later", "port": 6443}]);
    let led = |ingress: serde_json::Value| {
        let mut made = service(json!({"type": "LoadBalancer", "clusterIP": "10.0.0.1", "ports": ports}));
        made.status = serde_json::from_value(json!({"loadBalancer": {"ingress": ingress}})).unwrap();
        let read = read_service(&made).ports.into_iter();
        let led = read.flat_map(|port| {
            let ips = port.load_balancer_ips.to_vec();
            ips.into_iter().map(move |ip| format!("{}@{ip}", port.name.port))
        });
        led.collect::<Vec<String>>().join(" ")
    };
    let (all, one) = (
        "http@192.0.2.1 dns@192.0.2.1 dns-tcp@192.0.2.1 later@192.0.2.1",
        "http@192.0.2.1",
    );
    let http = json!({"port": 80, "protocol": "TCP"});
    for (ingress, expected) in [
        (json!([{"ip": "192.0.2.1"}]), all),
        (json!([{"ip": "192.0.2.1", "ports": []}]), all),
        (json!([{"ip": "192.0.2.1", "ports": [http]}]), one),
        // What the balancer could not do is not led; nor does a list of nothing else say "all".
        (
            json!([{"ip": "192.0.2.1", "ports": [{"port": 80, "protocol": "TCP", "error": "Taken"}]}]),
            "",
        ),
        (
            json!([{"ip": "192.0.2.1", "ports": [http, {"port": 6443, "protocol": "TCP", "error": "Taken"}]}]),
            one,
        ),
        // Number and protocol, both.
        (
            json!([{"ip": "192.0.2.1", "ports": [{"port": 53, "protocol": "UDP"}]}]),
            "dns@192.0.2.1",
        ),
        // Each address by itself; two entries of one address are both true.
        (
            json!([{"ip": "192.0.2.1", "ports": [http]}, {"ip": "192.0.2.2", "ports": [{"port": 6443, "protocol": "TCP"}]}]),
            "http@192.0.2.1 later@192.0.2.2",
        ),
        (json!([{"ip": "192.0.2.1", "ports": [http]}, {"ip": "192.0.2.1"}]), all),
    ] {
        assert_eq!(led(ingress.clone()), expected, "{ingress}");
    }
}

#[test]
fn what_one_service_may_ask_for_is_bounded() {
    let many = |count: usize, text: &dyn Fn(usize) -> String| -> Vec<String> { (0..count).map(text).collect() };
    let host = |number: usize| format!("192.0.{}.{}", number / 200, number % 200 + 1);
    let ports: Vec<_> = (1..=3_000)
        .map(|port| json!({"name": format!("p{port}"), "port": port}))
        .collect();
    let spec = |addresses: usize, ranges: usize| {
        let mut made = service(
            json!({"type": "LoadBalancer", "clusterIP": "10.0.0.1", "externalIPs": many(addresses, &host),
            "loadBalancerSourceRanges": many(ranges, &|number| host(number) + "/32"), "ports": ports}),
        );
        let ingress: Vec<_> = many(addresses, &host).into_iter().map(|ip| json!({"ip": ip})).collect();
        made.status = serde_json::from_value(json!({"loadBalancer": {"ingress": ingress}})).unwrap();
        read_service(&made)
    };
    for (addresses, ranges, ports) in [(1, 0, 2_500), (300, 0, 19), (1, 1_100, 100), (300, 1_100, 1)] {
        let read = spec(addresses, ranges);
        let port = &read.ports[0];
        assert_eq!(read.ports.len(), ports, "{addresses} {ranges}");
        assert!(port.external_ips.len() <= 256 && port.load_balancer_ips.len() <= 256);
        assert!(port.source_ranges.as_ref().map_or(0, |list| list.len()) <= 1_000);
        let left = 3_000 - ports + 2 * addresses.saturating_sub(256) + ranges.saturating_sub(1_000);
        assert_eq!((read.left_out.first.len(), read.left_out.more), (16, left - 16));
    }
}

#[test]
fn source_ranges_that_cannot_be_read_let_nobody_in() {
    for (ranges, expected) in [
        (json!([]), None),
        (json!(null), None),
        (json!(["x"]), Some(0)),
        (json!(["x", "10.0.0.0/8"]), Some(1)),
    ] {
        let spec = json!({"clusterIP": "10.0.0.1", "loadBalancerSourceRanges": ranges, "ports": [{"port": 80}]});
        let read = read_service(&service(spec));
        assert_eq!(
            read.ports[0].source_ranges.as_ref().map(|list| list.len()),
            expected,
            "{ranges}"
        );
    }
}

#[test]
fn source_ranges_are_read_as_upstream_reads_them() {
    for (text, expected) in [
        ("198.51.100.9/24", Some("198.51.100.0/24")),
        ("010.000.0.1/008", Some("10.0.0.0/8")),
        ("0.0.0.0/0", Some("0.0.0.0/0")),
        ("2001:db8::1/032", Some("2001:db8::/32")),
        ("::ffff:10.1.2.3/104", Some("10.0.0.0/8")),
        ("::ffff:10.1.2.3/96", Some("0.0.0.0/0")),
        ("::ffff:10.1.2.3/8", Some("::/8")),
        ("010.0.0.0/33", None),
        ("0256.0.0.0/8", None),
        ("10..0.0/8", None),
        ("10.0.0/8", None),
        ("10.0.0.0/", None),
        ("10.0.0.0/+8", None),
        ("10.0.0.+0/8", None),
        ("10.0.0.0", None),
        ("", None),
    ] {
        let spec = json!({"clusterIP": "10.0.0.1", "loadBalancerSourceRanges": [text], "ports": [{"port": 80}]});
        let read = read_service(&service(spec));
        let found: Vec<String> = read.ports[0]
            .source_ranges
            .iter()
            .flat_map(|list| list.iter())
            .map(Cidr::to_string)
            .collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{text}");
        assert_eq!(read.left_out.first.len(), usize::from(expected.is_none()), "{text}");
    }
}

#[test]
fn ranges_of_one_family_leave_the_other_its_own() {
    let ranges: Vec<String> = (0..2000u32)
        .map(|number| format!("10.{}.{}.0/24", number / 256, number % 256))
        .chain(["2001:db8::/32".to_owned()])
        .collect();
    let spec = json!({"clusterIP": "10.0.0.1", "loadBalancerSourceRanges": ranges, "ports": [{"port": 80}]});
    let read = read_service(&service(spec));
    let found = read.ports[0].source_ranges.as_ref().unwrap();
    let count = |v4: bool| found.iter().filter(|range| range.is_v4() == v4).count();
    assert_eq!((count(true), count(false)), (1000, 1));
}

#[test]
fn who_is_not_served_has_no_ports() {
    let ports = json!([{"port": 80}]);
    for spec in [
        json!({"clusterIP": "None", "clusterIPs": ["None"], "ports": ports}),
        json!({"type": "ExternalName", "clusterIP": "10.0.0.1", "externalName": "x", "ports": ports}),
        json!({"ports": ports}),
        json!({"clusterIP": "169.254.0.1", "ports": ports}),
    ] {
        assert_eq!(read_service(&service(spec.clone())).ports, [], "{spec}");
    }
    let mut foreign = service(json!({"clusterIP": "10.0.0.1", "ports": ports}));
    assert_eq!(read_service(&foreign).ports.len(), 1);
    for label in [
        "service.kubernetes.io/service-proxy-name",
        "service.kubernetes.io/headless",
    ] {
        foreign.metadata.labels = Some([(label.into(), String::new())].into());
        assert_eq!(read_service(&foreign).ports, [], "{label}");
    }
}

#[test]
fn local_policy_counts_only_where_the_service_is_reached_from_outside() {
    let local = json!({"clusterIP": "10.0.0.1", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
    assert!(!read_service(&service(local)).ports[0].external_local);
}

fn slice(value: serde_json::Value) -> EndpointSlice {
    let mut whole = json!({"metadata": {"namespace": "ns", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": []});
    for (key, part) in value.as_object().unwrap() {
        whole[key] = part.clone();
    }
    serde_json::from_value(whole).unwrap()
}

#[test]
fn endpoints_are_read_with_conditions_and_hints() {
    let read = read_slice(
        &slice(json!({"endpoints": [
            {"addresses": ["10.1.0.1"], "nodeName": "n1", "hints": {"forZones": [{"name": "z"}], "forNodes": [{"name": "n1"}]}},
            {"addresses": ["10.1.0.2"], "conditions": {"ready": false, "serving": true, "terminating": true}},
            {"addresses": ["10.1.0.3"], "conditions": {"ready": false}},
            {"addresses": ["127.0.0.1"]}, {"addresses": ["fd00::1"]}, {"addresses": ["pod.example"]},
        ]})),
        "n1",
    );
    assert_eq!(read.service, Some(ServiceName::new("ns", "web")));
    assert_eq!(read.ports, [("http".to_owned(), Protocol::Tcp, 8080)]);
    let endpoints = &read.endpoints;
    let states: Vec<_> = endpoints
        .iter()
        .map(|e| (e.address.to_string(), e.ready, e.serving, e.terminating, e.local))
        .collect();
    assert_eq!(
        states,
        [
            ("10.1.0.1:0".into(), true, true, false, true),
            ("10.1.0.2:0".into(), false, true, true, false),
            ("10.1.0.3:0".into(), false, true, false, false),
        ]
    );
    assert_eq!(
        (&endpoints[0].zone_hints[..], &endpoints[0].node_hints[..]),
        (&["z".to_owned()][..], &["n1".to_owned()][..])
    );
    let left: Vec<&str> = read.left_out.first.iter().map(|left| left.value.as_str()).collect();
    assert_eq!(left, ["127.0.0.1", "fd00::1", "pod.example"]);
}

#[test]
fn the_endpoints_of_a_slice_are_made_once_and_its_flaws_are_counted() {
    let endpoints: Vec<_> = (0..1_000)
        .map(|number| json!({"addresses": [format!("{}.1.{}.{}", if number < 900 { 10 } else { 127 }, number / 250, number % 250)]}))
        .collect();
    let ports: Vec<_> = (1..=20_000)
        .map(|port| json!({"name": format!("p{port}"), "port": port}))
        .collect();
    let slice = slice(json!({"endpoints": endpoints, "ports": ports}));
    let read = read_slice(&slice, "n1");
    assert_eq!((read.endpoints.len(), read.ports.len()), (900, 20_000));
    assert_eq!((read.left_out.first.len(), read.left_out.more), (16, 84));
    assert_eq!(look_at_slice(&slice), (read.service, read.left_out));
}

#[test]
fn slices_of_nobody_and_of_others_are_not_read() {
    let with = |key: &str| {
        let mut made = slice(json!({"endpoints": [{"addresses": ["10.1.0.1"]}]}));
        made.metadata
            .labels
            .get_or_insert_default()
            .insert(key.into(), "x".into());
        read_slice(&made, "n1").service
    };
    assert!(with("other").is_some());
    assert_eq!(with("service.kubernetes.io/headless"), None);
    assert_eq!(with("service.kubernetes.io/service-proxy-name"), None);
    assert_eq!(read_slice(&slice(json!({"addressType": "FQDN"})), "n1").service, None);
    assert_eq!(
        read_slice(&slice(json!({"metadata": {"namespace": "ns", "name": "x"}})), "n1").service,
        None
    );
}
