use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::resource::Strategy as _;

mod families;

fn service(spec: Value) -> Value {
    let mut service = json!({"metadata": {"name": "s", "namespace": "n"}, "spec": spec});
    Service.default(&mut service);
    service
}

#[test]
fn defaults_by_type() {
    let plain = service(json!({"ports": [{"port": 80}]}));
    assert_eq!(
        plain["spec"],
        json!({"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]})
    );
    let balanced = service(json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP", "ports": [{"port": 1}]}));
    assert_eq!(balanced["spec"]["externalTrafficPolicy"], "Cluster");
    assert_eq!(balanced["spec"]["allocateLoadBalancerNodePorts"], true);
    assert_eq!(
        balanced["spec"]["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"],
        10_800
    );
}

#[test]
fn validation_texts() {
    for (spec, text) in [
        (json!({"ports": [{"port": 80}]}), ""),
        (json!({"clusterIP": "None"}), ""),
        (json!({}), "spec.ports: Required value"),
        (
            json!({"ports": [{"port": 80}, {"port": 81, "name": "b"}]}),
            "spec.ports[0].name: Required value",
        ),
        (
            json!({"ports": [{"port": 0, "targetPort": 1}]}),
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
        (
            json!({"type": "Odd", "ports": [{"port": 80}]}),
            "spec.type: Unsupported value: \"Odd\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \
             \"NodePort\"",
        ),
        (json!({"type": "ExternalName"}), "spec.externalName: Required value"),
        (
            json!({"ports": [{"port": 80, "nodePort": 30000}]}),
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ),
        (
            json!({"type": "LoadBalancer", "ports": [{"port": 80, "name": "a"}, {"port": 10_250, "name": "b"}]}),
            "spec.ports[1]: Invalid value: 10250: may not expose port 10250 externally since it is used by kubelet",
        ),
        (json!({"type": "NodePort", "ports": [{"port": 10_250}]}), ""),
    ] {
        let texts: Vec<String> = Service
            .validate(&service(spec.clone()))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(texts.join("; "), text, "{spec}");
    }
}

#[test]
fn annotations_of_hints_agree() {
    let (new, old) = (
        "service.kubernetes.io/topology-mode",
        "service.kubernetes.io/topology-aware-hints",
    );
    for (mode, hints, text) in [
        ("Auto", "Auto", ""),
        (
            "Auto",
            "Disabled",
            "metadata.annotations[service.kubernetes.io/topology-mode]: Invalid value: \"Auto\": must match \
             annotations[service.kubernetes.io/topology-aware-hints] when both are specified",
        ),
    ] {
        let mut made = service(json!({"ports": [{"port": 80}]}));
        made["metadata"]["annotations"] = json!({new: mode, old: hints});
        assert_eq!(problems(&made).join("; "), text);
    }
}

#[test]
fn a_service_that_is_balanced_no_more_shows_no_balancer() {
    let mut old = service(
        json!({"type": "LoadBalancer", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"],
        "ports": [{"port": 80}]}),
    );
    old["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}, "conditions": []});
    let mut stays = old.clone();
    Service.prepare_update(&mut stays, &old, "");
    assert_eq!(stays["status"], old["status"]);
    for kind in ["ClusterIP", "NodePort", "ExternalName"] {
        let mut new = old.clone();
        new["spec"]["type"] = json!(kind);
        // Who writes the specification has no say in the status.
        new["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.2", "ipMode": "VIP"}]}});
        Service.prepare_update(&mut new, &old, "");
        assert_eq!(new["status"], json!({"loadBalancer": {}, "conditions": []}), "{kind}");
    }
}

#[test]
fn the_status_is_judged_when_it_is_written() {
    let old = service(json!({"type": "LoadBalancer", "ports": [{"port": 80}]}));
    let mut new = old.clone();
    new["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    // Whoever leaves the mode out gets the usual one.
    Service.default(&mut new);
    assert_eq!(Service.validate_update(&new, &old, "status"), []);
    let mut wrong = new.clone();
    wrong["status"]["loadBalancer"]["ingress"][0]["ip"] = json!("nowhere");
    assert_eq!(Service.validate_update(&wrong, &new, "status").len(), 1);
    // What is stored already may be written again.
    assert_eq!(Service.validate_update(&wrong, &wrong, "status"), []);
}

#[test]
fn an_update_keeps_what_was_allocated() {
    let old = service(
        json!({"type": "NodePort", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"],
        "ports": [{"port": 80, "nodePort": 30123}]}),
    );
    let mut new = service(json!({"type": "NodePort", "ports": [{"port": 80}]}));
    Service.prepare_update(&mut new, &old, "");
    assert_eq!(new["spec"]["clusterIP"], "10.0.0.9");
    assert_eq!(new["spec"]["ports"][0]["nodePort"], 30123);
    assert_eq!(Service.validate_update(&new, &old, ""), []);
    let mut back = old.clone();
    back["spec"]["type"] = json!("ClusterIP");
    Service.prepare_update(&mut back, &old, "");
    assert_eq!(back["spec"]["ports"][0].get("nodePort"), None);
    assert_eq!(back["spec"].get("externalTrafficPolicy"), None);
    let mut moved = old.clone();
    moved["spec"]["clusterIP"] = json!("10.0.0.10");
    moved["spec"]["clusterIPs"] = json!(["10.0.0.10"]);
    assert_eq!(
        Service.validate_update(&moved, &old, "")[0].to_string(),
        "spec.clusterIPs[0]: Invalid value: [\"10.0.0.10\"]: may not change once set"
    );
}

/// What a Service is given of one or two ranges while `used` are taken.
fn given(ranges: &str, used: &BTreeSet<IpAddr>, start: u64, service: &mut Value) -> Result<Value, String> {
    let ranges: Ranges = ranges.parse().expect("ranges");
    let pool = Pool {
        families: &ranges.families(),
        ranges: ranges.all(),
        reserved: &[Reserved {
            address: "10.96.0.1".parse().expect("an address"),
            namespace: "default",
            name: Some("kubernetes"),
        }],
        is_taken: &|ip| used.contains(&ip),
    };
    pair_addresses(service);
    let told = |error: AllocateError| error.to_string();
    fill_families(&ranges.families(), service, None).map_err(|errors| told(AllocateError::Invalid(errors)))?;
    allocate(&pool, start, service, None).map_err(told)?;
    Ok(service["spec"]["clusterIPs"].clone())
}

#[test]
fn addresses_asked_for_are_checked() {
    let used = BTreeSet::from(["10.96.0.7".parse().expect("an address")]);
    let ask = |ip: &str| {
        let mut service = service(json!({"clusterIP": ip, "ports": [{"port": 80}]}));
        given("10.96.0.0/24", &used, 0, &mut service)
    };
    assert_eq!(ask("10.96.0.8"), Ok(json!(["10.96.0.8"])));
    assert_eq!(ask("None"), Ok(json!(["None"])));
    let refused = |ip: &str, why: &str| {
        Err(format!(
            "spec.clusterIPs: Invalid value: [\"{ip}\"]: failed to allocate IP {ip}: {why}"
        ))
    };
    let outside = "The range of valid IPs is 10.96.0.0/24";
    for (ip, why) in [
        ("10.96.0.7", "provided IP is already allocated"),
        ("10.96.0.1", "provided IP is already allocated"),
        ("10.96.1.1", "the provided network does not match the current range"),
        (
            "10.96.0.0",
            &format!("the provided IP (10.96.0.0) is not in the valid range. {outside}"),
        ),
        (
            "10.96.0.255",
            &format!("the provided IP (10.96.0.255) is not in the valid range. {outside}"),
        ),
    ] {
        assert_eq!(ask(ip), refused(ip, why));
    }
    assert_eq!(
        ask("fd00::1").expect_err("another family"),
        "spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on this cluster"
    );
    let mut first = service(json!({"clusterIP": "10.96.0.1", "ports": [{"port": 443}]}));
    first["metadata"] = json!({"name": "kubernetes", "namespace": "default"});
    assert_eq!(given("10.96.0.0/24", &used, 0, &mut first), Ok(json!(["10.96.0.1"])));
    assert!("10.96.0.0/33".parse::<Range>().is_err());
    let range: Range = "10.96.0.0/24".parse().expect("a range");
    assert_eq!(range.nth(1), "10.96.0.1".parse().ok());
}

#[test]
fn addresses_nobody_asked_for_are_behind_the_band_as_long_as_there_are_any() {
    for (range, first) in [
        ("10.96.0.0/16", "10.96.1.0"),
        ("10.96.0.0/24", "10.96.0.16"),
        ("10.96.0.0/28", "10.96.0.2"),
        ("fd00::/112", "fd00::100"),
        ("fd00::/48", "fd00::100"),
    ] {
        let mut service = service(json!({"ports": [{"port": 80}]}));
        assert_eq!(
            given(
                range,
                &BTreeSet::from(["10.96.0.1".parse().expect("an address")]),
                0,
                &mut service
            ),
            Ok(json!([first])),
            "{range}"
        );
    }
    let upper: BTreeSet<IpAddr> = (16..255u8).map(|last| IpAddr::from([10, 96, 0, last])).collect();
    let mut service = service(json!({"ports": [{"port": 80}]}));
    assert_eq!(
        given("10.96.0.0/24", &upper, 0, &mut service),
        Ok(json!(["10.96.0.2"])),
        "the band, and not what is kept"
    );
}

#[test]
fn ranges_know_what_lies_in_them() {
    let range = |text: &str| text.parse::<Range>().expect("a range");
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    for (one, other, covers) in [
        ("10.0.0.0/8", "10.96.0.0/16", true),
        ("10.96.0.0/16", "10.96.0.0/16", true),
        ("10.96.0.0/16", "10.0.0.0/8", false),
        ("10.96.0.0/16", "10.97.0.0/24", false),
        ("0.0.0.0/0", "fd00::/64", false),
        ("::/0", "fd00::/64", true),
    ] {
        assert_eq!(range(one).covers(range(other)), covers, "{one} {other}");
    }
    assert!(range("fd00::/64").contains(ip("fd00::ffff:ffff:ffff:ffff")));
    assert!(!range("fd00::/64").contains(ip("fd00::")));
    assert!(range("10.0.0.0/8").contains(ip("10.200.0.1")), "all of a large range");
}

#[test]
fn a_port_for_health_checks_comes_and_goes_with_what_needs_it() {
    let local = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "allocateLoadBalancerNodePorts": false,
        "ports": [{"port": 80}]});
    let mut old = service(local.clone());
    allocate_node_ports(NodePorts::default(), &|_| false, 3, true, &mut old).expect("room");
    assert_eq!(old["spec"]["healthCheckNodePort"], 30_089);
    assert_eq!(held_ports(&old), BTreeSet::from([30_089]));
    let mut new = service(local.clone());
    Service.prepare_update(&mut new, &old, "");
    assert_eq!(new["spec"]["healthCheckNodePort"], 30_089, "it stays");
    let mut cluster = old.clone();
    cluster["spec"]["externalTrafficPolicy"] = json!("Cluster");
    Service.prepare_update(&mut cluster, &old, "");
    assert!(cluster["spec"]["healthCheckNodePort"].is_null());
    let mut asked = service(local);
    asked["spec"]["healthCheckNodePort"] = json!(30_001);
    let why = allocate_node_ports(NodePorts::default(), &|port| port == 30_001, 0, true, &mut asked)
        .expect_err("taken")
        .to_string();
    assert!(
        why.ends_with("failed to allocate requested HealthCheck NodePort 30001: provided port is already allocated"),
        "{why}"
    );
}

#[test]
fn node_ports_are_free_and_in_range() {
    let mut service = service(
        json!({"type": "NodePort", "ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "b",
        "nodePort": 30001}, {"port": 3, "name": "c"}]}),
    );
    allocate_node_ports(NodePorts::default(), &|port| port == 30_086, 0, true, &mut service).expect("room");
    let ports: Vec<&Value> = list(&service, &["spec", "ports"])
        .iter()
        .map(|port| &port["nodePort"])
        .collect();
    assert_eq!(ports, [30_087, 30_001, 30_088]);
    service["spec"]["ports"][0]["nodePort"] = json!(80);
    assert!(allocate_node_ports(NodePorts::default(), &|_| false, 0, true, &mut service).is_err());
}

#[test]
fn node_ports_end_with_the_band_of_those_who_choose() {
    let one = |is_taken: &dyn Fn(u16) -> bool| {
        let mut service = service(json!({"type": "NodePort", "ports": [{"port": 1}]}));
        allocate_node_ports(NodePorts::default(), is_taken, 0, true, &mut service)
            .map(|()| service["spec"]["ports"][0]["nodePort"].clone())
    };
    assert_eq!(one(&|port| port >= 30_086), Ok(json!(30_000)));
    let full = AllocateError::Exhausted("failed to allocate a nodePort: range is full");
    assert_eq!(one(&|_| true), Err(full));
}

#[test]
fn node_ports_stay_with_their_names() {
    let old = service(json!({"type": "NodePort", "ports": [
        {"name": "a", "port": 80, "nodePort": 30_100}, {"name": "b", "port": 81, "nodePort": 30_101}]}));
    let mut new = service(json!({"type": "NodePort", "ports": [
        {"name": "b", "port": 90}, {"name": "c", "port": 91, "nodePort": 30_100}, {"name": "a", "port": 92}]}));
    Service.prepare_update(&mut new, &old, "");
    let ports: Vec<&Value> = list(&new, &["spec", "ports"])
        .iter()
        .map(|port| &port["nodePort"])
        .collect();
    assert_eq!(
        ports,
        [&json!(30_101), &json!(30_100), &Value::Null],
        "what another port took is not given twice"
    );
}

fn problems(service: &Value) -> Vec<String> {
    Service.validate(service).iter().map(ToString::to_string).collect()
}

/// Ports as (name, number, protocol, node port asked for).
fn node_ports(kind: &str, is_new: bool, used: &[u16], ports: &[(&str, u16, &str, u16)]) -> Result<Vec<u64>, String> {
    let ports: Vec<Value> = ports
        .iter()
        .map(|(name, port, protocol, asked)| {
            json!({"name": name, "port": port, "protocol": protocol, "nodePort": asked})
        })
        .collect();
    let mut service = service(json!({"type": kind, "ports": ports, "allocateLoadBalancerNodePorts": false}));
    allocate_node_ports(
        NodePorts::default(),
        &|port| used.contains(&port),
        0,
        is_new,
        &mut service,
    )
    .map_err(|error| error.to_string())?;
    let ports = list(&service, &["spec", "ports"]).iter();
    Ok(ports.map(|port| port["nodePort"].as_u64().unwrap_or(0)).collect())
}

#[test]
fn protocols_of_one_service_share_a_node_port() {
    let asked = [("t", 53, "TCP", 30_053), ("u", 53, "UDP", 30_053)];
    for is_new in [true, false] {
        assert_eq!(node_ports("NodePort", is_new, &[], &asked).unwrap(), [30_053, 30_053]);
        let taken = node_ports("NodePort", is_new, &[30_053], &asked).unwrap_err();
        assert_eq!(
            taken,
            "spec.ports[0].nodePort: Invalid value: 30053: provided port is already allocated"
        );
    }
    let one = [("t", 53, "TCP", 0), ("u", 53, "UDP", 30_053), ("m", 9153, "TCP", 0)];
    assert_eq!(
        node_ports("NodePort", true, &[], &one).unwrap(),
        [30_053, 30_053, 30_086]
    );
    let none = [("t", 53, "TCP", 0), ("u", 53, "UDP", 0)];
    assert_eq!(node_ports("NodePort", true, &[], &none).unwrap(), [30_086, 30_086]);
    assert_eq!(node_ports("NodePort", false, &[], &none).unwrap(), [30_086, 30_087]);
    let other_numbers = [("t", 53, "TCP", 30_053), ("u", 54, "UDP", 30_053)];
    assert!(
        node_ports("NodePort", true, &[], &other_numbers).is_err(),
        "as upstream"
    );
    assert_eq!(
        node_ports("NodePort", false, &[], &other_numbers).unwrap(),
        [30_053, 30_053]
    );
}

#[test]
fn a_load_balancer_that_allocates_no_node_ports_still_takes_those_it_names() {
    let ports = [("a", 80, "TCP", 30_080), ("b", 81, "TCP", 0)];
    assert_eq!(node_ports("LoadBalancer", true, &[], &ports).unwrap(), [30_080, 0]);
    assert!(node_ports("LoadBalancer", true, &[30_080], &ports).is_err());
}

#[test]
fn one_protocol_has_a_node_port_once() {
    let with = |protocol: &str| {
        service(
            json!({"type": "NodePort", "ports": [{"name": "a", "port": 53, "protocol": "TCP", "nodePort": 30_053},
            {"name": "b", "port": 54, "protocol": protocol, "nodePort": 30_053}]}),
        )
    };
    assert_eq!(problems(&with("UDP")), Vec::<String>::new());
    assert_eq!(
        problems(&with("TCP")),
        ["spec.ports[1].nodePort: Duplicate value: 30053"]
    );
}

proptest! {
    #[test]
    fn allocation_gives_each_address_once_until_full(prefix in 24u8..=29, start in any::<u64>()) {
        let cidr = format!("10.5.0.0/{prefix}");
        let range: Range = cidr.parse().expect("a range");
        let mut used = BTreeSet::new();
        let mut count = 0;
        loop {
            let mut service = service(json!({"ports": [{"port": 80}]}));
            match given(&cidr, &used, start, &mut service) {
                Ok(addresses) => {
                    let ip: IpAddr = addresses[0].as_str().expect("a text").parse().expect("an address");
                    prop_assert!(range.contains(ip));
                    prop_assert!(used.insert(ip), "{} given twice", ip);
                    count += 1;
                }
                Err(why) => {
                    prop_assert_eq!(why, "failed to allocate a serviceIP: range is full");
                    break;
                }
            }
        }
        prop_assert_eq!(count, (1usize << (32 - prefix)) - 2);
    }
}

#[test]
fn the_range_of_node_ports_is_read_as_upstream_reads_it() {
    for (text, range) in [
        ("30000-32767", "30000-32767"),
        (" 30000+100 ", "30000-30100"),
        ("8080", "8080-8080"),
        ("1-65535", "1-65535"),
    ] {
        assert_eq!(text.parse::<NodePorts>().expect("a range").to_string(), range);
    }
    for (text, why) in [
        ("", "is not a number"),
        ("x", "is not a number"),
        ("1-2-3", "is not a number"),
        ("+5", "is not a number"),
        ("30000--1", "is not a number"),
        ("0-100", "between 1 and 65535"),
        ("30000-65536", "between 1 and 65535"),
        ("1+4294967295", "between 1 and 65535"),
        ("30001-30000", "cannot be less than start port"),
    ] {
        let error = text.parse::<NodePorts>().expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn node_ports_are_given_of_the_range_that_is_configured() {
    let range: NodePorts = "8000-8001".parse().expect("a range");
    let given = |asked: u16, used: &[u16]| {
        let port = if asked == 0 {
            json!({"port": 80})
        } else {
            json!({"port": 80, "nodePort": asked})
        };
        let mut service = json!({"spec": {"type": "NodePort", "ports": [port]}});
        let given = allocate_node_ports(range, &|port| used.contains(&port), 7, true, &mut service);
        given
            .map(|()| service["spec"]["ports"][0]["nodePort"].clone())
            .map_err(|error| error.to_string())
    };
    assert_eq!(given(0, &[8001]), Ok(json!(8000)));
    assert_eq!(given(8001, &[]), Ok(json!(8001)));
    assert!(
        given(30_000, &[])
            .expect_err("out of it")
            .contains("The range of valid ports is 8000-8001")
    );
    assert!(given(0, &[8000, 8001]).expect_err("full").contains("range is full"));
}
