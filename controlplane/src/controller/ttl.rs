//! How long kubelets may take what they know of Secrets and ConfigMaps for what is there: an annotation on every node, by how many
//! nodes there are.
//!
//! Source: control-plane contract §12. Only kubelets read it that neither watch nor ask (upstream's `configMapAndSecretChangeDetectionStrategy:
//! Cache`). A size between two steps leaves the step as it is, so that one node that comes and goes changes nothing of the others.

use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::write::{self, PatchKind, Plan, Write};
use crate::held::Node;
use client::Key;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;
use std::sync::{Arc, Mutex};

/// Upstream's annotation; its value is in seconds.
const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// Fewest and most nodes of each step, and its seconds: upstream's.
const STEPS: [(usize, usize, u32); 5] = [
    (0, 100, 0),
    (90, 500, 15),
    (450, 1000, 30),
    (900, 2000, 60),
    (1800, usize::MAX, 300),
];

/// How many nodes there are, and the step they are on.
#[derive(Debug, Default)]
pub struct Size {
    nodes: usize,
    step: usize,
}

impl Size {
    /// Takes in whether a node was there, and is; tells whether the seconds are others now.
    fn change(&mut self, was: bool, is: bool) -> bool {
        let before = self.step;
        match (was, is) {
            (false, true) => self.nodes += 1,
            (true, false) => self.nodes = self.nodes.saturating_sub(1),
            _ => return false,
        }
        while self.nodes > STEPS[self.step].1 {
            self.step += 1;
        }
        while self.nodes < STEPS[self.step].0 {
            self.step -= 1;
        }
        self.step != before
    }

    fn seconds(&self) -> u32 {
        STEPS[self.step].2
    }
}

/// The controller. Its keys are nodes.
pub struct Ttl {
    /// The shared informers.
    pub informers: Informers,
    /// Of the cluster.
    pub size: Arc<Mutex<Size>>,
}

fn told(node: &Node) -> Option<&str> {
    node.annotations().get(ANNOTATION).map(String::as_str)
}

/// What a node lacks.
fn plan(node: &Node, seconds: u32) -> Plan {
    // Somebody may write the same number in another way.
    if told(node).and_then(|told| told.parse().ok()) == Some(seconds) {
        return Plan::default();
    }
    let body = json!({"metadata": {"uid": node.metadata.uid, "annotations": {ANNOTATION: seconds.to_string()}}});
    Plan::of(vec![Write::patch(
        write::NODES,
        Key::of(node),
        PatchKind::Strategic,
        body,
    )])
}

impl Controller for Ttl {
    const NAME: &'static str = "ttl-controller";

    fn wire(&self, wiring: &mut Wiring) {
        let (size, nodes) = (Arc::clone(&self.size), self.informers.nodes.clone());
        wiring.on(&self.informers.nodes, move |change| {
            let (old, new) = (change.old.as_deref(), change.new.as_deref());
            let mut size = size.lock().expect("no holder of this lock panics");
            if size.change(old.is_some(), new.is_some()) {
                return nodes.list().iter().map(|node| Key::of(&**node)).collect();
            }
            let is_other = new.is_some() && (old.is_none() || old.and_then(told) != new.and_then(told));
            is_other.then(|| change.key.clone()).into_iter().collect()
        });
    }

    fn plan(&self, key: &Key, _now: Timestamp) -> Plan {
        let Some(node) = self.informers.nodes.get_key(key) else {
            return Plan::default();
        };
        let seconds = self.size.lock().expect("no holder of this lock panics").seconds();
        plan(&node, seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::write::Verb;

    #[test]
    fn seconds_follow_the_size_and_not_one_node_that_comes_and_goes() {
        let mut size = Size::default();
        let mut changes = Vec::new();
        let up = |size: &mut Size, changes: &mut Vec<(usize, u32)>, to: usize| {
            while size.nodes < to {
                if size.change(false, true) {
                    changes.push((size.nodes, size.seconds()));
                }
            }
        };
        up(&mut size, &mut changes, 2500);
        assert_eq!(changes, [(101, 15), (501, 30), (1001, 60), (2001, 300)]);
        changes.clear();
        while size.nodes > 0 {
            if size.change(true, false) {
                changes.push((size.nodes, size.seconds()));
            }
        }
        assert_eq!(changes, [(1799, 60), (899, 30), (449, 15), (89, 0)]);
        up(&mut size, &mut changes, 101);
        assert!(!size.change(true, false) && !size.change(false, true) && !size.change(true, true));
        assert_eq!(size.seconds(), 15);
    }

    #[test]
    fn a_node_is_told_what_it_does_not_say() {
        let planned = |annotations: serde_json::Value| {
            let node = json!({"metadata": {"name": "n", "uid": "u", "annotations": annotations}});
            let plan = plan(&serde_json::from_value(node).unwrap(), 15);
            let write = plan.writes.into_iter().next()?;
            let Verb::Patch(PatchKind::Strategic, "", body) = write.verb else {
                panic!("{:?}", write.verb)
            };
            Some((write.key.name, body["metadata"]["annotations"][ANNOTATION].clone()))
        };
        let told = Some(("n".to_owned(), json!("15")));
        assert_eq!(planned(json!(null)), told);
        assert_eq!(planned(json!({ANNOTATION: "0"})), told);
        assert_eq!(planned(json!({ANNOTATION: "soon"})), told);
        assert_eq!(planned(json!({ANNOTATION: "15"})), None);
    }
}
