use super::*;
use serde_json::{Value, json};

fn read(spec: Value) -> Policy {
    let object = json!({"metadata": {"namespace": "d", "name": "p"}, "spec": spec});
    Policy::read(&serde_json::from_value(object).unwrap())
}

#[test]
fn which_way_a_policy_is_about() {
    for (spec, ingress, egress) in [
        (json!({"podSelector": {}}), true, false),
        (json!({}), true, false),
        (json!({"podSelector": {}, "egress": []}), true, false),
        (json!({"podSelector": {}, "egress": [{}]}), true, true),
        (
            json!({"podSelector": {}, "policyTypes": [], "egress": [{}]}),
            true,
            true,
        ),
        (json!({"podSelector": {}, "policyTypes": ["Egress"]}), false, true),
        (
            json!({"podSelector": {}, "policyTypes": ["Egress"], "ingress": [{}]}),
            false,
            true,
        ),
        (
            json!({"podSelector": {}, "policyTypes": ["Ingress"], "egress": [{}]}),
            true,
            false,
        ),
    ] {
        let policy = read(spec.clone());
        assert_eq!(
            (policy.ingress.is_some(), policy.egress.is_some()),
            (ingress, egress),
            "{spec}"
        );
        assert!(policy.concerns(&Labels::new()), "{spec}");
    }
}

#[test]
fn empty_lists_are_everything() {
    let policy = read(json!({"podSelector": {}, "ingress": [{"from": [], "ports": []}, {}]}));
    let everything = Rule {
        peers: None,
        ports: None,
    };
    assert_eq!(policy.ingress.unwrap(), [everything.clone(), everything]);
}

#[test]
fn what_cannot_be_enforced_is_named_and_allows_nothing() {
    let rule = |from: Value, ports: Value| json!({"podSelector": {}, "ingress": [{"from": from, "ports": ports}]});
    let block = |cidr: &str, except: &[&str]| json!([{"ipBlock": {"cidr": cidr, "except": except}}]);
    for (spec, flaw) in [
        (
            rule(json!([{}]), json!([])),
            "spec.ingress[0].from[0]: it names no peer; it allows nobody",
        ),
        (
            rule(block("10.0.0.0", &[]), json!([])),
            "spec.ingress[0].from[0].ipBlock.cidr: invalid CIDR address: 10.0.0.0; it allows nobody",
        ),
        (
            rule(block("10.0.0.0/8", &["x"]), json!([])),
            "spec.ingress[0].from[0].ipBlock.except[0]: invalid CIDR address: x; the whole block allows nobody",
        ),
        (
            rule(json!([]), json!([{"protocol": "QUIC"}])),
            "spec.ingress[0].ports[0]: \"QUIC\" is no protocol of policies; it allows nothing",
        ),
        (
            rule(json!([]), json!([{"port": 9, "endPort": 8}])),
            "spec.ingress[0].ports[0]: it is no port and no range of ports; it allows nothing",
        ),
        (
            rule(json!([]), json!([{"port": "web", "endPort": 8}])),
            "spec.ingress[0].ports[0]: it is no port and no range of ports; it allows nothing",
        ),
    ] {
        let policy = read(spec.clone());
        let flaws: Vec<String> = policy.flaws.iter().map(ToString::to_string).collect();
        assert_eq!(flaws, [flaw], "{spec}");
        let rule = &policy.ingress.unwrap()[0];
        let nobody = rule.peers.as_ref().is_some_and(|peers| *peers == Peers::default());
        let nothing = rule.ports.as_ref().is_some_and(Vec::is_empty);
        assert!(nobody || nothing, "{spec}: {rule:?}");
    }
    let unreadable = json!({"matchExpressions": [{"key": "a", "operator": "Like"}]});
    let policy = read(json!({"podSelector": unreadable}));
    assert_eq!(policy.flaws[0].field, "spec.podSelector");
    assert!(!policy.concerns(&Labels::new()));
}

#[test]
fn which_protocols_are_named() {
    let policy = read(json!({"podSelector": {}, "egress": [{"ports": [{"protocol": "SCTP", "port": 1}]}]}));
    assert!(policy.names_protocol(SCTP) && !policy.names_protocol(TCP));
}

#[test]
fn what_is_too_much_allows_nobody_and_is_told_once() {
    let flaws = |policy: &Policy| -> Vec<String> { policy.flaws.iter().map(ToString::to_string).collect() };
    let blocks = |count: usize| -> Value {
        let all = (1..count).map(|at| format!("10.{}.{}.0/25", at / 256, at % 256));
        json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": all.collect::<Vec<_>>()}}]})
    };
    let policy = read(json!({"ingress": [blocks(MOST_RANGES), blocks(MOST_RANGES + 1)]}));
    assert_eq!(
        flaws(&policy),
        [
            "spec.ingress[1].from: it has 2001 blocks and exceptions, more than 2000 are not enforced; the rule allows nobody"
        ]
    );
    let rules = policy.ingress.unwrap();
    assert_eq!(
        rules[0].peers.as_ref().unwrap().blocks.of_family(true).count(),
        MOST_RANGES
    );
    assert_eq!(rules[1].peers, Some(Peers::default()));

    let ports = |count: usize| json!({"ports": (1..=count).map(|port| json!({"port": 2 * port})).collect::<Vec<_>>()});
    let policy = read(json!({"ingress": [ports(MOST_RANGES), ports(MOST_RANGES + 1)]}));
    assert_eq!(
        flaws(&policy),
        ["spec.ingress[1].ports: it has 2001 ports, more than 2000 are not enforced; the rule allows nothing"]
    );
    let counts = policy
        .ingress
        .unwrap()
        .into_iter()
        .map(|rule| rule.ports.map(|ports| ports.len()));
    assert_eq!(counts.collect::<Vec<_>>(), [Some(MOST_RANGES), Some(0)]);

    let selected = |count: usize| json!({"to": vec![json!({"podSelector": {}}); count]});
    let policy = read(json!({"egress": [selected(MOST_SELECTIONS - 1), selected(2), selected(1)]}));
    assert_eq!(
        flaws(&policy),
        [
            "spec.egress[1].to: the policy has more than 1000 peers by selector, which are not enforced; the rule allows nobody"
        ]
    );
    let allowed = policy
        .egress
        .unwrap()
        .iter()
        .map(|rule| rule.peers != Some(Peers::default()))
        .collect::<Vec<_>>();
    assert_eq!(allowed, [true, false, true]);

    let policy = read(json!({"ingress": vec![json!({}); 3], "egress": vec![json!({}); MOST_RULES]}));
    assert_eq!(
        flaws(&policy),
        ["spec.egress: a policy's rules beyond 1000 are not enforced; those from [997] on allow nobody"]
    );
    assert_eq!((policy.ingress.unwrap().len(), policy.egress.unwrap().len()), (3, 997));
}
