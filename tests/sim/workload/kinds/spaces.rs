//! Namespaces with a quota, in which users and controllers want more than it gives, and which go with all that is in them.

use super::sets;
use crate::workload::{SERVERS, Step, ask, create, pod};
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::json;
use std::collections::BTreeSet;

#[derive(Default)]
pub struct Spaces {
    made: u32,
    /// The namespace there is, if any, and how many of its first objects have been made.
    current: Option<(String, u32)>,
    pub gone: BTreeSet<String>,
}

impl Spaces {
    pub fn step(&mut self, rng: &mut StdRng) -> Step {
        let Some((space, known)) = &mut self.current else {
            self.made += 1;
            let name = format!("team{}", self.made);
            self.current = Some((name.clone(), 0));
            return create("/api/v1/namespaces", json!({"metadata": {"name": name}}));
        };
        *known += 1;
        let (space, known) = (space.clone(), *known);
        let core = format!("/api/v1/namespaces/{space}");
        let apps = format!("/apis/apps/v1/namespaces/{space}/deployments");
        match (known, rng.random_range(0..10)) {
            (1, _) => {
                let hard = json!({"pods": "3", "requests.cpu": "100m", "configmaps": "4"});
                create(
                    &format!("{core}/resourcequotas"),
                    json!({"metadata": {"name": "bound"}, "spec": {"hard": hard}}),
                )
            }
            (2, _) => {
                let spec = json!({"replicas": rng.random_range(1..6), "selector": {"matchLabels": {"app": "crew"}},
                    "template": sets::template("crew", SERVERS[0], true)});
                create(&apps, json!({"metadata": {"name": "crew"}, "spec": spec}))
            }
            (_, 0..3) => {
                let cpu = ["10m", "60m"][rng.random_range(0..2)];
                create(
                    &format!("{core}/pods"),
                    pod(&format!("hand{known}"), "worker:v1", "Never", cpu),
                )
            }
            (_, 3..6) => create(
                &format!("{core}/configmaps"),
                json!({"metadata": {"name": format!("map{known}")}}),
            ),
            (_, 6..8) => {
                let replicas = rng.random_range(0..6);
                ask(
                    "MERGE",
                    &format!("{apps}/crew/scale"),
                    json!({"spec": {"replicas": replicas}}),
                )
            }
            _ => {
                self.current = None;
                self.gone.insert(space);
                ask("DELETE", &core, json!({}))
            }
        }
    }
}
