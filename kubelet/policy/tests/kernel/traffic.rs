use fixture::{Bridging, Node, arrives, is_stuck, passes};
use serde_json::{Value, json};

use super::fixture;

fn of(name: &str) -> Value {
    json!({"matchLabels": {"name": name}})
}

/// A case on nodes of both kinds.
fn on_both(names: &[&'static str], case: impl Fn(&mut Node)) {
    for bridging in [Bridging::Shown, Bridging::Hidden] {
        case(&mut Node::new(bridging, names));
    }
}

#[test]
fn denied_by_default_and_allowed_by_label() {
    on_both(&["a", "b", "c"], |node| {
        let deny = json!({"podSelector": of("b"), "policyTypes": ["Ingress"]});
        let allow = json!({"podSelector": of("b"), "ingress": [{"from": [{"podSelector": of("a")}]}]});
        for addr in node.pods[1].addresses() {
            let listener = node.pods[1].listen(addr, 80);
            node.pods[0].reaches(&listener);
            node.policy("deny", Some(deny.clone()));
            node.pods[0].misses(&listener);
            node.policy("allow", Some(allow.clone()));
            node.pods[0].reaches(&listener);
            node.pods[2].misses(&listener);
            node.label(2, json!({"name": "a"}), json!([]));
            node.apply();
            node.pods[2].reaches(&listener);
            node.label(2, json!({"name": "c"}), json!([]));
            node.policy("allow", None);
            node.pods[0].misses(&listener);
            node.policy("deny", None);
            node.pods[2].reaches(&listener);
        }
    });
}

#[test]
fn an_established_connection_is_cut_and_goes_on() {
    on_both(&["a", "b"], |node| {
        for addr in node.pods[1].addresses() {
            let listener = node.pods[1].listen(addr, 80);
            let (mut near, mut far) = node.pods[0].reaches(&listener);
            passes(&mut near, &mut far, 1);
            node.policy(
                "deny",
                Some(json!({"podSelector": of("b"), "policyTypes": ["Ingress"]})),
            );
            is_stuck(&mut near, &mut far, 2);
            is_stuck(&mut far, &mut near, 3);
            node.policy("deny", None);
            arrives(&mut far, 2);
            arrives(&mut near, 3);
            node.policy("deny", Some(json!({"podSelector": of("a"), "policyTypes": ["Egress"]})));
            is_stuck(&mut far, &mut near, 4);
            node.policy("deny", None);
            arrives(&mut near, 4);
        }
    });
}
