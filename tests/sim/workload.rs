//! What users do to a simulated cluster, by seed: deployments made, scaled, updated and deleted, pods made and deleted,
//! containers that crash.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Images that run until stopped.
pub const SERVERS: [&str; 3] = ["server:v1", "server:v2", "stubborn:v1"];
/// An image that ends with an error after a while.
pub const CRASHER: &str = "crasher:v1";
/// An image that does its work and succeeds.
pub const WORKER: &str = "worker:v1";

/// One thing a user does.
#[derive(Clone, Debug)]
pub enum Step {
    CreateDeployment {
        name: String,
        image: &'static str,
        replicas: i32,
        init: bool,
        probe: bool,
    },
    Scale {
        name: String,
        replicas: i32,
    },
    SetImage {
        name: String,
        image: &'static str,
    },
    DeleteDeployment {
        name: String,
    },
    CreatePod {
        name: String,
        image: &'static str,
        policy: &'static str,
    },
    /// Deletes the pod at this place (modulo their number) with this grace.
    DeletePod {
        place: usize,
        grace: u32,
    },
    /// Ends a running container of the pod at this place from within.
    Crash {
        place: usize,
        exit_code: i32,
    },
}

/// The script of one seed, with what should stand at its end.
pub struct Script {
    rng: StdRng,
    /// Deployments that should exist, with their replicas.
    pub deployments: BTreeMap<String, i32>,
    made: u32,
}

impl Script {
    pub fn new(seed: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed ^ 0x005c_2197),
            deployments: BTreeMap::new(),
            made: 0,
        }
    }

    /// Milliseconds until the next step.
    pub fn pause(&mut self) -> u64 {
        if self.rng.random_bool(0.3) {
            self.rng.random_range(0..200)
        } else {
            self.rng.random_range(200..15_000)
        }
    }

    fn name(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}{}", self.made)
    }

    /// The next step.
    pub fn step(&mut self) -> Step {
        let existing: Vec<String> = self.deployments.keys().cloned().collect();
        let choice = self.rng.random_range(0..100);
        let server = SERVERS.choose(&mut self.rng).copied().unwrap_or(SERVERS[0]);
        let Some(name) = existing.choose(&mut self.rng).cloned().filter(|_| choice >= 20) else {
            let step = Step::CreateDeployment {
                name: self.name("web"),
                image: server,
                replicas: self.rng.random_range(1..=4),
                init: self.rng.random_bool(0.4),
                probe: self.rng.random_bool(0.4),
            };
            if let Step::CreateDeployment { name, replicas, .. } = &step {
                self.deployments.insert(name.clone(), *replicas);
            }
            return step;
        };
        match choice {
            20..35 => {
                let replicas = self.rng.random_range(0..=5);
                self.deployments.insert(name.clone(), replicas);
                Step::Scale { name, replicas }
            }
            35..48 => Step::SetImage { name, image: server },
            48..56 => {
                self.deployments.remove(&name);
                Step::DeleteDeployment { name }
            }
            56..70 => Step::CreatePod {
                name: self.name("pod"),
                image: [CRASHER, WORKER, server]
                    .choose(&mut self.rng)
                    .copied()
                    .unwrap_or(WORKER),
                policy: ["Always", "OnFailure", "Never"]
                    .choose(&mut self.rng)
                    .copied()
                    .unwrap_or("Always"),
            },
            70..85 => Step::DeletePod {
                place: self.rng.random_range(0..64),
                grace: self.rng.random_range(1..20),
            },
            _ => Step::Crash {
                place: self.rng.random_range(0..64),
                exit_code: self.rng.random_range(0..3),
            },
        }
    }
}

/// A deployment as users write it.
pub fn deployment(name: &str, image: &str, replicas: i32, init: bool, probe: bool) -> Deployment {
    let mut container = json!({"name": "main", "image": image});
    if probe {
        container["readinessProbe"] = json!({"exec": {"command": ["ready"]}, "periodSeconds": 2});
    }
    let mut spec = json!({"containers": [container], "terminationGracePeriodSeconds": 5});
    if init {
        spec["initContainers"] = json!([{"name": "init", "image": WORKER}]);
    }
    typed(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    }))
}

fn typed<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("the harness writes valid objects")
}

/// Carries a step out as a user would, through a sound connection. `Crash` is the caller's.
pub async fn carry_out(step: &Step, client: &kube::Client) -> Result<(), kube::Error> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let create = PostParams::default();
    match step {
        Step::CreateDeployment {
            name,
            image,
            replicas,
            init,
            probe,
        } => deployments
            .create(&create, &deployment(name, image, *replicas, *init, *probe))
            .await
            .map(drop),
        Step::Scale { name, replicas } => {
            let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
            deployments
                .patch_scale(name, &PatchParams::default(), &patch)
                .await
                .map(drop)
        }
        Step::SetImage { name, image } => {
            let containers = json!([{"name": "main", "image": image}]);
            let patch = Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": containers}}}}));
            deployments.patch(name, &PatchParams::default(), &patch).await.map(drop)
        }
        Step::DeleteDeployment { name } => {
            let background = Some(PropagationPolicy::Background);
            let params = DeleteParams {
                propagation_policy: background,
                ..DeleteParams::default()
            };
            deployments.delete(name, &params).await.map(drop)
        }
        Step::CreatePod { name, image, policy } => {
            let pod: Pod = typed(json!({
                "metadata": {"name": name},
                "spec": {"restartPolicy": policy, "containers": [{"name": "main", "image": image}],
                    "terminationGracePeriodSeconds": 3},
            }));
            pods.create(&create, &pod).await.map(drop)
        }
        Step::DeletePod { place, grace } => {
            let list = pods.list(&Default::default()).await?;
            let Some(pod) = (!list.items.is_empty()).then(|| &list.items[place % list.items.len()]) else {
                return Ok(());
            };
            let name = pod.metadata.name.clone().unwrap_or_default();
            match pods.delete(&name, &DeleteParams::default().grace_period(*grace)).await {
                // Gone meanwhile.
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                other => other.map(drop),
            }
        }
        Step::Crash { .. } => Ok(()),
    }
}
