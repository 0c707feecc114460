//! What users do to a simulated cluster, by seed: deployments, pods, services, configurations and namespaces come, change and go,
//! nodes are tainted, containers crash, and strangers try what they may not. Of the other kinds ([`kinds`]) each seed has some.

pub mod kinds;
pub mod manifest;

use http::Request;
use kinds::Kinds;
use manifest::{Shape, config_map, deployment, pod, secret, service};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Images that run until stopped.
pub const SERVERS: [&str; 3] = ["server:v1", "server:v2", "stubborn:v1"];
/// An image that ends with an error after a while.
pub const CRASHER: &str = "crasher:v1";
/// An image that does its work and succeeds.
pub const WORKER: &str = "worker:v1";
/// The configuration that pods mount, and its Secret.
pub const CONFIG: &str = "settings";
/// The taint that users put on nodes.
pub const TAINT: &str = "maintenance";
/// What is said to whoever makes a pod in a namespace that is too new.
const NO_ACCOUNT: &str = "serviceaccount \"default\" not found";
/// CPU that deployments may ask for altogether, in thousandths: the smallest cluster has room for them.
const CPU_MILLI_MAX: i64 = 3000;

/// One thing a user does.
#[derive(Clone, Debug)]
pub enum Step {
    /// A request as the administrator, which must succeed; 404 and 409 mean that somebody was faster.
    Ask {
        method: &'static str,
        path: String,
        body: Value,
    },
    /// Deletes the pod at this place (modulo their number) with this grace.
    DeletePod { place: usize, grace: u32 },
    /// Ends a running container of the pod at this place from within.
    Crash { place: usize, exit_code: i32 },
    /// Asks as somebody who may not.
    Trespass(usize),
    /// Evicts the pod at this place of those with the label `app: NAME`; its budget may be against it.
    Evict { app: String, place: usize },
    /// Makes an object of this kind (`configmaps`, `secrets`) that these own: kind and name.
    Own {
        kind: &'static str,
        name: String,
        owners: Vec<(&'static str, String)>,
    },
    /// Gives an object one more owner.
    Adopt {
        kind: &'static str,
        name: String,
        owner: (&'static str, String),
    },
    /// Takes every owner from the object at this place of what stands under this path.
    Strip { path: &'static str, place: usize },
    /// Lets simulated time pass.
    Wait(Duration),
    /// These, one right after the other.
    All(Vec<Step>),
}

/// Requests that the policy forbids: who, method, path.
pub const TRESPASSES: [(&str, &str, &str, &str); 5] = [
    (
        "stranger",
        "system:authenticated",
        "GET",
        "/api/v1/namespaces/kube-system/secrets",
    ),
    (
        "stranger",
        "system:authenticated",
        "DELETE",
        "/api/v1/namespaces/default/pods/nobody",
    ),
    (
        "system:node:node0",
        "system:nodes",
        "GET",
        "/api/v1/namespaces/kube-system/secrets/nobody",
    ),
    (
        "system:node:node0",
        "system:nodes",
        "DELETE",
        "/apis/apps/v1/namespaces/default/deployments/nobody",
    ),
    (
        "system:serviceaccount:default:default",
        "system:serviceaccounts",
        "GET",
        "/api/v1/nodes",
    ),
];

/// The script of one seed, with what should stand at its end.
pub struct Script {
    rng: StdRng,
    /// Deployments that should exist, with their replicas.
    pub deployments: BTreeMap<String, i32>,
    /// Namespaces that should be gone.
    pub gone: BTreeSet<String>,
    /// Pods that fit no node.
    pub giants: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    services: BTreeSet<String>,
    tainted: BTreeSet<String>,
    cpu_milli: i64,
    made: u32,
    /// What the seed has of the other kinds.
    pub kinds: Kinds,
}

impl Script {
    pub fn new(seed: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed ^ 0x005c_2197),
            deployments: BTreeMap::new(),
            gone: BTreeSet::new(),
            giants: BTreeSet::new(),
            namespaces: BTreeSet::new(),
            services: BTreeSet::new(),
            tainted: BTreeSet::new(),
            cpu_milli: 0,
            made: 0,
            kinds: Kinds::new(seed),
        }
    }

    /// What stands before anything else.
    pub fn first_steps(&self) -> Vec<Step> {
        vec![
            create("/api/v1/namespaces/default/configmaps", config_map(0)),
            create("/api/v1/namespaces/default/secrets", secret(0)),
        ]
    }

    /// What undoes what no cluster could come to rest with.
    pub fn last_steps(&mut self) -> Vec<Step> {
        let tainted = std::mem::take(&mut self.tainted);
        let mut steps: Vec<Step> = tainted.iter().map(|node| taint(node, false)).collect();
        steps.extend(self.kinds.last_steps());
        steps
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

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from.choose(&mut self.rng).copied().unwrap_or(WORKER)
    }

    /// The next step.
    pub fn step(&mut self) -> Step {
        let apps: Vec<String> = self.deployments.keys().cloned().collect();
        if let Some(step) = self.kinds.step(&apps) {
            return step;
        }
        let choice = self.rng.random_range(0..100);
        let existing: Vec<String> = self.deployments.keys().cloned().collect();
        let existing = existing.choose(&mut self.rng).cloned().filter(|_| choice >= 15);
        let Some(name) = existing else {
            return self.create_deployment();
        };
        let path = format!("/apis/apps/v1/namespaces/default/deployments/{name}");
        match choice {
            15..28 => {
                let replicas = self.rng.random_range(0..=5);
                self.deployments.insert(name.clone(), replicas);
                ask(
                    "MERGE",
                    &format!("{path}/scale"),
                    json!({"spec": {"replicas": replicas}}),
                )
            }
            28..42 => {
                let image = self.pick(&SERVERS);
                let containers = json!([{"name": "main", "image": image}]);
                ask(
                    "STRATEGIC",
                    &path,
                    json!({"spec": {"template": {"spec": {"containers": containers}}}}),
                )
            }
            42..48 => {
                self.deployments.remove(&name);
                ask(
                    "DELETE",
                    &path,
                    json!({"propagationPolicy": self.pick(&["Background", "Foreground"])}),
                )
            }
            48..58 => self.create_pod(),
            58..66 => Step::DeletePod {
                place: self.rng.random_range(0..64),
                grace: self.rng.random_range(1..20),
            },
            66..74 => Step::Crash {
                place: self.rng.random_range(0..64),
                exit_code: self.rng.random_range(0..3),
            },
            74..79 => self.change_config(),
            79..84 => self.change_service(&name),
            84..89 => self.change_namespace(),
            89..94 => self.change_taint(),
            _ => Step::Trespass(self.rng.random_range(0..TRESPASSES.len())),
        }
    }

    fn create_deployment(&mut self) -> Step {
        let replicas = self.rng.random_range(1..=4);
        // Scaling goes up to five.
        let room = (CPU_MILLI_MAX - self.cpu_milli) / 5;
        let cpu_milli = self.rng.random_range(10..300).min(room).max(1);
        self.cpu_milli += cpu_milli * 5;
        let shape = Shape {
            image: self.pick(&SERVERS),
            replicas,
            cpu_milli,
            init: self.rng.random_bool(0.3),
            sidecar: self.rng.random_bool(0.3),
            probes: self.rng.random_bool(0.4),
            volumes: self.rng.random_bool(0.4),
            hurried: self.rng.random_bool(0.5),
            bounds: *[("25%", "25%"), ("1", "0"), ("0", "1"), ("50%", "0")]
                .choose(&mut self.rng)
                .unwrap_or(&("1", "0")),
        };
        let name = self.name("web");
        self.deployments.insert(name.clone(), replicas);
        create(
            "/apis/apps/v1/namespaces/default/deployments",
            deployment(&name, &shape),
        )
    }

    fn create_pod(&mut self) -> Step {
        let (image, policy, cpu) = match self.rng.random_range(0..4) {
            // Some need most of a node and are done soon, some fit no node.
            0 => (WORKER, "Never", "1500m"),
            1 => (WORKER, "Never", "64"),
            _ => {
                let image = self.pick(&[CRASHER, WORKER, SERVERS[0]]);
                (image, self.pick(&["Always", "OnFailure", "Never"]), "10m")
            }
        };
        let name = self.name("pod");
        if cpu == "64" {
            self.giants.insert(name.clone());
        }
        create("/api/v1/namespaces/default/pods", pod(&name, image, policy, cpu))
    }

    fn change_config(&mut self) -> Step {
        let number = self.rng.random_range(1..1000);
        if self.rng.random_bool(0.5) {
            ask(
                "MERGE",
                &format!("/api/v1/namespaces/default/configmaps/{CONFIG}"),
                config_map(number),
            )
        } else {
            ask(
                "MERGE",
                &format!("/api/v1/namespaces/default/secrets/{CONFIG}"),
                secret(number),
            )
        }
    }

    fn change_service(&mut self, name: &str) -> Step {
        let services = "/api/v1/namespaces/default/services";
        if self.services.remove(name) {
            return ask("DELETE", &format!("{services}/{name}"), json!({}));
        }
        self.services.insert(name.to_owned());
        create(services, service(name))
    }

    fn change_namespace(&mut self) -> Step {
        let existing: Vec<String> = self.namespaces.iter().cloned().collect();
        match existing.choose(&mut self.rng) {
            Some(name) if self.rng.random_bool(0.5) => {
                self.namespaces.remove(name);
                self.gone.insert(name.clone());
                ask("DELETE", &format!("/api/v1/namespaces/{name}"), json!({}))
            }
            Some(name) => {
                let path = format!("/api/v1/namespaces/{name}/pods");
                let own = self.name("pod");
                create(&path, pod(&own, SERVERS[0], "Always", "10m"))
            }
            None => {
                let name = self.name("space");
                self.namespaces.insert(name.clone());
                create("/api/v1/namespaces", json!({"metadata": {"name": name}}))
            }
        }
    }

    fn change_taint(&mut self) -> Step {
        let node = self.pick(&["node0", "node1", "node2"]);
        let on = self.tainted.insert(node.to_owned());
        if !on {
            self.tainted.remove(node);
        }
        taint(node, on)
    }
}

fn ask(method: &'static str, path: &str, body: Value) -> Step {
    let path = path.to_owned();
    Step::Ask { method, path, body }
}

fn create(path: &str, body: Value) -> Step {
    ask("POST", path, body)
}

fn taint(node: &str, on: bool) -> Step {
    let taint = match on {
        true => json!({"key": TAINT, "value": "yes", "effect": "NoExecute"}),
        false => json!({"key": TAINT, "effect": "NoExecute", "$patch": "delete"}),
    };
    ask(
        "STRATEGIC",
        &format!("/api/v1/nodes/{node}"),
        json!({"spec": {"taints": [taint]}}),
    )
}

/// One request; the error is what the server, or the wire, said.
pub async fn send(client: &kube::Client, method: &str, path: &str, body: &Value) -> Result<Value, kube::Error> {
    let (method, kind) = match method {
        "MERGE" => ("PATCH", "application/merge-patch+json"),
        "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json"),
        other => (other, "application/json"),
    };
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    client.request(request.body(body).expect("a request")).await
}

/// Carries a step out as a user would, through a sound connection. `Crash` and `Trespass` are the caller's.
pub async fn carry_out(step: &Step, client: &kube::Client) -> Result<(), kube::Error> {
    let done = match step {
        Step::Ask { method, path, body } => send(client, method, path, body).await,
        Step::DeletePod { place, grace } => {
            let pods = "/api/v1/namespaces/default/pods";
            let list = send(client, "GET", pods, &Value::Null).await?;
            let list = list["items"].as_array().cloned().unwrap_or_default();
            let Some(pod) = (!list.is_empty()).then(|| &list[place % list.len()]) else {
                return Ok(());
            };
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            send(
                client,
                "DELETE",
                &format!("{pods}/{name}"),
                &json!({"gracePeriodSeconds": grace}),
            )
            .await
        }
        Step::Evict { app, place } => return kinds::ask::evict(client, app, *place).await,
        Step::Own { kind, name, owners } => return kinds::ask::own(client, kind, name, owners).await,
        Step::Adopt { kind, name, owner } => return kinds::ask::adopt(client, kind, name, owner).await,
        Step::Strip { path, place } => return kinds::ask::strip(client, path, *place).await,
        Step::Wait(time) => {
            tokio::time::sleep(*time).await;
            return Ok(());
        }
        Step::All(steps) => {
            for step in steps {
                Box::pin(carry_out(step, client)).await?;
            }
            return Ok(());
        }
        Step::Crash { .. } | Step::Trespass(_) => return Ok(()),
    };
    match done {
        // A quota is in the way.
        Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains("exceeded quota") => Ok(()),
        // Gone meanwhile, there already, or a namespace that is going.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains("being terminated") => Ok(()),
        // The controller that makes the account has not come to it yet: a user sees that, and asks again.
        Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains(NO_ACCOUNT) => {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Box::pin(carry_out(step, client)).await
        }
        other => other.map(drop),
    }
}
