use proptest::prelude::*;

use super::*;
use crate::resource::Strategy as _;

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

#[test]
fn addresses_asked_for_are_checked() {
    let range: Range = "10.96.0.0/24".parse().expect("a range");
    let used = BTreeSet::from(["10.96.0.7".parse().expect("an address")]);
    let ask = |ip: &str| {
        let mut service = service(json!({"clusterIP": ip, "ports": [{"port": 80}]}));
        allocate(range, &used, 0, &mut service).map(|_| service["spec"]["clusterIPs"].clone())
    };
    assert_eq!(ask("10.96.0.8"), Ok(json!(["10.96.0.8"])));
    assert_eq!(ask("None"), Ok(json!(["None"])));
    for bad in ["10.96.0.7", "10.96.1.1", "10.96.0.0", "10.96.0.255", "fd00::1"] {
        assert!(ask(bad).is_err(), "{bad}");
    }
    assert_eq!(
        ask("10.96.0.7")
            .expect_err("taken")
            .field_error(&service(json!({})))
            .to_string(),
        "spec.clusterIPs: Invalid value: null: failed to allocate IP 10.96.0.7: provided IP is already allocated"
    );
    assert!("10.96.0.0/33".parse::<Range>().is_err());
    assert_eq!(range.nth(1), "10.96.0.1".parse().ok());
}

#[test]
fn node_ports_are_free_and_in_range() {
    let mut service = service(
        json!({"type": "NodePort", "ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "b",
        "nodePort": 30001}, {"port": 3, "name": "c"}]}),
    );
    allocate_node_ports(&BTreeSet::from([30_000]), 0, true, &mut service).expect("room");
    let ports: Vec<&Value> = list(&service, &["spec", "ports"])
        .iter()
        .map(|port| &port["nodePort"])
        .collect();
    assert_eq!(ports[1], &json!(30_001));
    assert_eq!(held(&service).1.len(), 3, "{ports:?}");
    service["spec"]["ports"][0]["nodePort"] = json!(80);
    assert!(allocate_node_ports(&BTreeSet::new(), 0, true, &mut service).is_err());
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
    let used = used.iter().copied().collect();
    allocate_node_ports(&used, 0, is_new, &mut service).map_err(|error| error.to_string())?;
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
        [30_053, 30_053, 30_000]
    );
    let none = [("t", 53, "TCP", 0), ("u", 53, "UDP", 0)];
    assert_eq!(node_ports("NodePort", true, &[], &none).unwrap(), [30_000, 30_000]);
    assert_eq!(node_ports("NodePort", false, &[], &none).unwrap(), [30_000, 30_001]);
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
        let range: Range = format!("10.5.0.0/{prefix}").parse().expect("a range");
        let mut used = BTreeSet::new();
        let mut count = 0;
        loop {
            let mut service = service(json!({"ports": [{"port": 80}]}));
            match allocate(range, &used, start, &mut service) {
                Ok(Some(ip)) => {
                    prop_assert!(range.contains(ip));
                    prop_assert!(used.insert(ip), "{} given twice", ip);
                    count += 1;
                }
                Err(AllocateError::Full) => break,
                other => return Err(TestCaseError::fail(format!("{other:?}"))),
            }
        }
        prop_assert_eq!(count, (1usize << (32 - prefix)) - 2);
    }
}
