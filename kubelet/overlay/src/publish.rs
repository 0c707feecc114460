//! What other nodes are told of this one: flannel's annotations and the Node's condition, as one patch of its status. Pure.

use crate::peer::{PREFIX, annotation};
use crate::plan::Own;
use crate::settings::{Backend, Settings};
use crate::state::Family;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The condition whose `True` keeps pods away.
const CONDITION: &str = "NetworkUnavailable";
/// Why it is `False`; flannel's is `FlannelIsUp`.
pub const REASON: &str = "PodNetworkIsUp";
const MESSAGE: &str = "The pod network is running on this node";

/// An annotation without its prefix; one that is to go has no value.
pub type Annotation = (&'static str, Option<String>);

/// The annotations of a node. Of families in which nothing could be decided (`held`) what others go by stays; if these are all
/// it has, there is nothing to say.
pub fn annotations(settings: &Settings, own: &Own, held: &BTreeSet<Family>) -> Vec<Annotation> {
    let is_held = |family: &Family| held.contains(family);
    if Family::ALL
        .iter()
        .all(|family| own.peer.range(*family).is_none() || is_held(family))
    {
        return Vec::new();
    }
    let data = |family: Family| {
        own.peer.range(family)?;
        own.underlay.of(family).as_ref()?;
        Some(match settings.backend {
            Backend::Vxlan => format!("{{\"VNI\":{},\"VtepMAC\":\"{}\"}}", settings.vni, own.macs.of(family)),
            Backend::HostGw => "null".to_owned(),
        })
    };
    let address = |family: Family| {
        own.peer.range(family)?;
        let local = own.underlay.of(family).as_ref()?.address;
        Some(own.peer.ends.of(family).overwrite.unwrap_or(local).to_string())
    };
    let mut all = vec![
        ("backend-type", Some(settings.backend.name().to_owned())),
        ("kube-subnet-manager", Some("true".to_owned())),
    ];
    let names = [("backend-data", "public-ip"), ("backend-v6-data", "public-ipv6")];
    for (family, (data_name, address_name)) in Family::ALL.into_iter().zip(names) {
        if !is_held(&family) {
            all.extend([(data_name, data(family)), (address_name, address(family))]);
        }
    }
    all
}

/// The strategic merge patch of the Node's status that makes it say so; `None` when it does.
pub fn patch(node: &Node, wanted: &[Annotation], now: Timestamp) -> Option<Value> {
    if wanted.is_empty() {
        return None;
    }
    let mut changed = Map::new();
    for (name, value) in wanted {
        if annotation(node, name) != value.as_deref() {
            changed.insert(format!("{PREFIX}{name}"), json!(value));
        }
    }
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let condition = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == CONDITION);
    let is_up = condition.is_some_and(|condition| condition.status == "False");
    let mut patch = json!({});
    if !changed.is_empty() {
        patch["metadata"] = json!({ "annotations": changed });
    }
    if !is_up {
        let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        patch["status"] = json!({ "conditions": [{
            "type": CONDITION, "status": "False", "reason": REASON, "message": MESSAGE,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }] });
    }
    (patch != json!({})).then_some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Peer;
    use crate::plan::Underlay;
    use crate::state::Each;
    use netlink::cidr::Cidr;
    use netlink::link::Mac;

    fn own(node: &Node) -> Own {
        let underlay = Underlay {
            address: "192.0.2.1".parse().unwrap(),
            index: 2,
            mtu: 1500,
            networks: Vec::new(),
        };
        Own {
            peer: Peer::of(node),
            underlay: Each {
                v4: Some(underlay),
                v6: None,
            },
            macs: Each {
                v4: Mac([2, 0, 0, 0, 0, 1]),
                v6: Mac([2, 0, 0, 0, 0, 2]),
            },
            addresses: BTreeSet::new(),
        }
    }

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_node_says_what_flannel_would() {
        let cluster = vec![Cidr::parse("10.244.0.0/16").unwrap()];
        let settings = Settings::new("a", Backend::Vxlan, cluster.clone());
        let mut node = node(json!({
            "metadata": {"name": "a", "annotations": {"flannel.alpha.coreos.com/backend-v6-data": "null", "mine": "1"}},
            "spec": {"podCIDRs": ["10.244.0.0/24", "fd00::/64"]},
        }));
        let wanted = annotations(&settings, &own(&node), &BTreeSet::new());
        let patch_of = |node: &Node| patch(node, &wanted, Timestamp::UNIX_EPOCH);
        let written = patch_of(&node).unwrap();
        assert_eq!(
            written["metadata"]["annotations"],
            json!({
                "flannel.alpha.coreos.com/backend-data": "{\"VNI\":1,\"VtepMAC\":\"02:00:00:00:00:01\"}",
                "flannel.alpha.coreos.com/backend-type": "vxlan",
                "flannel.alpha.coreos.com/backend-v6-data": null,
                "flannel.alpha.coreos.com/kube-subnet-manager": "true",
                "flannel.alpha.coreos.com/public-ip": "192.0.2.1",
            })
        );
        assert_eq!(
            written["status"]["conditions"][0]["lastTransitionTime"],
            "1970-01-01T00:00:00Z"
        );
        // What it says is what we read.
        let Value::Object(all) = &written["metadata"]["annotations"] else {
            panic!()
        };
        let text = all
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        node.metadata.annotations = Some(text.collect());
        assert_eq!(Peer::of(&node).ends.v4.mac, Some(Mac([2, 0, 0, 0, 0, 1])));
        assert_eq!(patch_of(&node).unwrap().get("metadata"), None, "it says so already");
        node.status = serde_json::from_value(
            json!({"conditions": [{"type": CONDITION, "status": "False", "reason": "FlannelIsUp"}]}),
        )
        .unwrap();
        assert_eq!(patch_of(&node), None);
        let settings = Settings::new("a", Backend::HostGw, cluster);
        assert_eq!(value(&settings, &node, "backend-data").as_deref(), Some("null"));
    }

    fn value(settings: &Settings, node: &Node, name: &str) -> Option<String> {
        let all = annotations(settings, &own(node), &BTreeSet::new());
        all.into_iter().find(|(found, _)| *found == name)?.1
    }

    #[test]
    fn of_what_could_not_be_decided_nothing_is_said() {
        let settings = Settings::new("a", Backend::Vxlan, vec![Cidr::parse("10.244.0.0/16").unwrap()]);
        let node = node(json!({"spec": {"podCIDRs": ["10.244.0.0/24", "fd00::/64"]}}));
        let said = |held: &[Family]| {
            let all = annotations(&settings, &own(&node), &held.iter().copied().collect());
            all.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(
            said(&[Family::V6]),
            ["backend-type", "kube-subnet-manager", "backend-data", "public-ip"]
        );
        assert_eq!(said(&Family::ALL), [""; 0]);
        assert_eq!(patch(&node, &[], Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn an_address_that_is_to_be_published_in_place_is() {
        let settings = Settings::new("a", Backend::Vxlan, vec![Cidr::parse("10.244.0.0/16").unwrap()]);
        let node = node(json!({
            "metadata": {"name": "a", "annotations": {"flannel.alpha.coreos.com/public-ip-overwrite": "203.0.113.9"}},
            "spec": {"podCIDRs": ["10.244.0.0/24"]},
        }));
        assert_eq!(value(&settings, &node, "public-ip").as_deref(), Some("203.0.113.9"));
    }
}
