//! Stateful sets and daemon sets come, grow, change and go.

use super::{DEFAULT, Kinds, OBJECTS_MAX};
use crate::workload::{SERVERS, Step, ask, create};
use rand::RngExt;
use serde_json::{Value, json};

/// Names of stateful sets are used again: what one left must not be taken for another's.
const NAMES: [&str; 2] = ["base0", "base1"];

pub(super) fn template(app: &str, image: &str, hurried: bool) -> Value {
    let mut spec = json!({"terminationGracePeriodSeconds": 5, "containers": [{"name": "main", "image": image,
        "resources": {"requests": {"cpu": "10m"}}}]});
    if hurried {
        let toleration = |key: &str| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 20});
        spec["tolerations"] = json!([toleration("not-ready"), toleration("unreachable")]);
    }
    json!({"metadata": {"labels": {"app": app}}, "spec": spec})
}

fn new_image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}})
}

impl Kinds {
    fn server(&mut self) -> &'static str {
        SERVERS[self.rng.random_range(0..SERVERS.len())]
    }

    pub(super) fn change_stateful(&mut self) -> Step {
        let name = NAMES[self.rng.random_range(0..NAMES.len())].to_owned();
        let path = format!("{DEFAULT}/statefulsets/{name}");
        let replicas = self.rng.random_range(0..4);
        if !self.stateful.contains_key(&name) {
            self.stateful.insert(name.clone(), replicas);
            let (image, hurried) = (self.server(), self.rng.random_bool(0.5));
            let policy = ["OrderedReady", "Parallel"][self.rng.random_range(0..2)];
            let start = self.rng.random_range(0..2);
            let set = json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "serviceName": name,
                "selector": {"matchLabels": {"app": name}}, "podManagementPolicy": policy,
                "ordinals": {"start": start}, "template": template(&name, image, hurried)}});
            return create(&format!("{DEFAULT}/statefulsets"), set);
        }
        match self.rng.random_range(0..10) {
            0..4 => {
                self.stateful.insert(name, replicas);
                ask(
                    "MERGE",
                    &format!("{path}/scale"),
                    json!({"spec": {"replicas": replicas}}),
                )
            }
            4..8 => ask("STRATEGIC", &path, new_image(self.server())),
            _ => {
                self.stateful.remove(&name);
                ask("DELETE", &path, json!({"propagationPolicy": "Background"}))
            }
        }
    }

    pub(super) fn change_daemon(&mut self) -> Step {
        let existing: Vec<String> = self.daemons.iter().cloned().collect();
        let choice = self.rng.random_range(0..10);
        match self
            .pick(&existing)
            .filter(|_| existing.len() >= OBJECTS_MAX || choice >= 3)
        {
            None => self.create_daemon(),
            Some(name) => {
                let path = format!("{DEFAULT}/daemonsets/{name}");
                if choice < 9 {
                    return ask("STRATEGIC", &path, new_image(self.server()));
                }
                self.daemons.remove(&name);
                let policy = ["Background", "Foreground"][self.rng.random_range(0..2)];
                ask("DELETE", &path, json!({"propagationPolicy": policy}))
            }
        }
    }

    fn create_daemon(&mut self) -> Step {
        let name = self.name("each");
        self.daemons.insert(name.clone());
        let (surge, unavailable) = [(0, 1), (0, 2), (1, 0)][self.rng.random_range(0..3)];
        let (image, hurried) = (self.server(), self.rng.random_bool(0.5));
        let rolling = json!({"type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
        let set = json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": name}},
            "updateStrategy": rolling, "template": template(&name, image, hurried)}});
        create(&format!("{DEFAULT}/daemonsets"), set)
    }
}
