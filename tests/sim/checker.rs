//! Independent judges of a simulated cluster: they see only watch events and the scripted runtimes' contents, and share no
//! code with what they judge.
//!
//! Each rule has a planted-fault test below that shows it fires.

use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};

/// One sandbox as a runtime holds it.
#[derive(Clone, Debug)]
pub struct SandboxView {
    pub uid: String,
    pub ready: bool,
    pub ip: String,
}

/// One container as a runtime holds it.
#[derive(Clone, Debug)]
pub struct ContainerView {
    pub uid: String,
    pub name: String,
    pub running: bool,
    /// Exit code of a container that has run and ended.
    pub exit_code: Option<i32>,
}

/// Everything one node's runtime holds.
#[derive(Clone, Debug, Default)]
pub struct RuntimeView {
    pub sandboxes: Vec<SandboxView>,
    pub containers: Vec<ContainerView>,
}

impl RuntimeView {
    fn is_running(&self, uid: &str) -> bool {
        self.containers
            .iter()
            .any(|container| container.uid == uid && container.running)
    }

    fn has_ready_sandbox(&self, uid: &str) -> bool {
        self.sandboxes.iter().any(|sandbox| sandbox.uid == uid && sandbox.ready)
    }
}

/// What a pod watch delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Applied,
    Deleted,
}

#[derive(Default)]
struct Track {
    node: Option<String>,
    phase: String,
    restarts: BTreeMap<String, i32>,
    init_names: Vec<String>,
    main_names: BTreeSet<String>,
    /// Containers that are never run again once they ended.
    run_once: BTreeSet<String>,
}

/// The rules, and every breach of them so far.
#[derive(Default)]
pub struct Checker {
    pods: BTreeMap<String, Track>,
    /// UIDs of pods that left the API.
    gone: BTreeSet<String>,
    /// What runs, by UID and name.
    runs: BTreeSet<(String, String)>,
    /// What was told to have ended for good.
    ended: BTreeSet<(String, String)>,
    revision: u64,
    pub breaches: Vec<String>,
}

impl Checker {
    fn breach(&mut self, text: String) {
        // One fault repeats at every later event; a few lines tell it.
        if self.breaches.len() < 20 {
            self.breaches.push(text);
        }
    }

    /// Judges one node's runtime together with the others, after any change in it.
    pub fn on_runtimes(&mut self, runtimes: &BTreeMap<String, RuntimeView>) {
        let mut running: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        let mut ready: BTreeMap<&str, u32> = BTreeMap::new();
        let mut found = Vec::new();
        for (node, view) in runtimes {
            let mut addresses = BTreeSet::new();
            for sandbox in view.sandboxes.iter().filter(|sandbox| sandbox.ready) {
                *ready.entry(&sandbox.uid).or_default() += 1;
                if !sandbox.ip.is_empty() && !addresses.insert(&sandbox.ip) {
                    found.push(format!("address {} is held twice on {node}", sandbox.ip));
                }
            }
            for container in view.containers.iter().filter(|container| container.running) {
                *running.entry((&container.uid, &container.name)).or_default() += 1;
            }
        }
        for ((uid, name), count) in &running {
            if *count > 1 {
                found.push(format!("container {name} of pod {uid} runs {count} times"));
            }
        }
        for (uid, count) in &ready {
            if *count > 1 {
                found.push(format!("pod {uid} has {count} ready sandboxes"));
            }
        }
        found.extend(self.early_starts(runtimes));
        let now: BTreeSet<(String, String)> = running
            .keys()
            .map(|(uid, name)| ((*uid).to_owned(), (*name).to_owned()))
            .collect();
        found.extend(self.late_starts(&now));
        self.runs = now;
        for text in found {
            self.breach(text);
        }
    }

    /// Containers that run though their pod, or they themselves, are over.
    fn late_starts(&self, now: &BTreeSet<(String, String)>) -> Vec<String> {
        let mut found = Vec::new();
        for started in now.difference(&self.runs) {
            let (uid, name) = started;
            if self.gone.contains(uid) {
                found.push(format!(
                    "container {name} of pod {uid} was started though the pod has left the API"
                ));
            }
            let Some(track) = self.pods.get(uid) else { continue };
            if is_terminal(&track.phase) {
                found.push(format!(
                    "container {name} of pod {uid} was started though the pod is {}",
                    track.phase
                ));
            }
            if self.ended.contains(started) {
                found.push(format!(
                    "container {name} of pod {uid} was run again though it had ended for good"
                ));
            }
        }
        found
    }

    /// Regular containers that run though an init container has not succeeded.
    fn early_starts(&self, runtimes: &BTreeMap<String, RuntimeView>) -> Vec<String> {
        let mut found = Vec::new();
        for (uid, track) in &self.pods {
            for view in runtimes.values() {
                let main_runs = view.containers.iter().any(|container| {
                    &container.uid == uid && container.running && track.main_names.contains(&container.name)
                });
                for init in track.init_names.iter().filter(|_| main_runs) {
                    let known: Vec<_> = view
                        .containers
                        .iter()
                        .filter(|container| &container.uid == uid && &container.name == init)
                        .collect();
                    // A pruned init container succeeded earlier; one that is still here must have.
                    if !known.is_empty() && !known.iter().any(|container| container.exit_code == Some(0)) {
                        found.push(format!(
                            "pod {uid} runs regular containers before init container {init} succeeded"
                        ));
                    }
                }
            }
        }
        found
    }

    /// Judges one watch event against the runtimes as they are at its delivery.
    pub fn on_pod(&mut self, seen: Seen, pod: &Pod, runtimes: &BTreeMap<String, RuntimeView>) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let name = pod.metadata.name.clone().unwrap_or_default();
        let revision = pod
            .metadata
            .resource_version
            .as_deref()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        if revision <= self.revision {
            self.breach(format!(
                "revision {revision} of {name} was delivered after {}",
                self.revision
            ));
        }
        self.revision = revision;
        let alive = runtimes.values().any(|view| view.is_running(&uid));
        if seen == Seen::Deleted {
            if alive {
                self.breach(format!("{name} ({uid}) left the API while a container of it ran"));
            }
            if runtimes.values().any(|view| view.has_ready_sandbox(&uid)) {
                self.breach(format!("{name} ({uid}) left the API while its sandbox was ready"));
            }
            self.pods.remove(&uid);
            self.gone.insert(uid);
            return;
        }
        self.on_status(&uid, &name, pod, alive);
    }

    fn on_status(&mut self, uid: &str, name: &str, pod: &Pod, alive: bool) {
        let mut found = Vec::new();
        let track = self.pods.entry(uid.to_owned()).or_default();
        if let Some(spec) = &pod.spec {
            track.init_names = spec
                .init_containers
                .iter()
                .flatten()
                .filter(|c| c.restart_policy.is_none())
                .map(|c| c.name.clone())
                .collect();
            track.main_names = spec.containers.iter().map(|c| c.name.clone()).collect();
            if spec.restart_policy.as_deref() == Some("Never") {
                track.run_once = track.main_names.clone();
            }
            if track.node.is_some() && track.node != spec.node_name {
                found.push(format!("{name} moved from {:?} to {:?}", track.node, spec.node_name));
            }
            track.node = spec.node_name.clone();
        }
        let status = pod.status.clone().unwrap_or_default();
        let phase = status.phase.clone().unwrap_or_default();
        if is_terminal(&track.phase) && phase != track.phase {
            found.push(format!("{name} went from {} to {phase}", track.phase));
        }
        if is_terminal(&phase) && alive {
            found.push(format!("{name} is {phase} while a container of it runs"));
        }
        for container in status.container_statuses.iter().flatten() {
            let last = track.restarts.entry(container.name.clone()).or_default();
            if container.restart_count < *last {
                let (name_of, count) = (&container.name, container.restart_count);
                found.push(format!(
                    "restart count of {name_of} in {name} fell from {last} to {count}"
                ));
            }
            *last = container.restart_count;
            let ended = container.state.as_ref().is_some_and(|state| state.terminated.is_some());
            if ended && track.run_once.contains(&container.name) {
                self.ended.insert((uid.to_owned(), container.name.clone()));
            }
        }
        let ready = status
            .conditions
            .iter()
            .flatten()
            .any(|c| c.type_ == "Ready" && c.status == "True");
        if ready && status.pod_ip.as_deref().unwrap_or_default().is_empty() {
            found.push(format!("{name} is Ready without an address"));
        }
        track.phase = phase;
        for text in found {
            self.breach(text);
        }
    }

    /// Judges the end: every fault is over and the cluster has had time; what runs is exactly what the API holds.
    pub fn at_rest(&mut self, pods: &[Pod], runtimes: &BTreeMap<String, RuntimeView>) {
        let mut found = Vec::new();
        let known: BTreeMap<&str, &Pod> = pods
            .iter()
            .filter_map(|pod| pod.metadata.uid.as_deref().map(|uid| (uid, pod)))
            .collect();
        for (node, view) in runtimes {
            for sandbox in &view.sandboxes {
                if !known.contains_key(sandbox.uid.as_str()) {
                    found.push(format!("a sandbox of unknown pod {} is left on {node}", sandbox.uid));
                }
            }
            for container in &view.containers {
                if !known.contains_key(container.uid.as_str()) {
                    found.push(format!(
                        "container {} of unknown pod {} is left on {node}",
                        container.name, container.uid
                    ));
                }
            }
        }
        for (uid, pod) in known {
            if runs_without_sandbox(pod, runtimes.values()) {
                found.push(format!("pod {uid} is Running without a sandbox"));
            }
        }
        for text in found {
            self.breach(text);
        }
    }
}

/// Whether the API server says of a pod that it runs, and no node has a sandbox for it.
pub fn runs_without_sandbox<'a>(pod: &Pod, views: impl IntoIterator<Item = &'a RuntimeView>) -> bool {
    let running = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    running && !views.into_iter().any(|view| view.has_ready_sandbox(uid))
}

fn is_terminal(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(revision: u64, phase: &str, node: &str, restarts: i32) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u", "resourceVersion": revision.to_string()},
            "spec": {"nodeName": node, "containers": [{"name": "c"}], "initContainers": [{"name": "i"}]},
            "status": {"phase": phase, "containerStatuses":
                [{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": restarts}]},
        }))
        .expect("a pod")
    }

    fn running(count: usize) -> BTreeMap<String, RuntimeView> {
        let one = ContainerView {
            uid: "u".into(),
            name: "c".into(),
            running: true,
            exit_code: None,
        };
        let sandbox = SandboxView {
            uid: "u".into(),
            ready: true,
            ip: "10.0.0.1".into(),
        };
        let view = RuntimeView {
            sandboxes: vec![sandbox; count],
            containers: vec![one; count],
        };
        BTreeMap::from([("n".to_owned(), view)])
    }

    fn breaches(run: impl FnOnce(&mut Checker)) -> String {
        let mut checker = Checker::default();
        run(&mut checker);
        checker.breaches.join("\n")
    }

    #[test]
    fn a_sound_life_breaks_no_rule() {
        let text = breaches(|checker| {
            checker.on_pod(Seen::Applied, &pod(1, "Pending", "n", 0), &BTreeMap::new());
            checker.on_runtimes(&running(1));
            checker.on_pod(Seen::Applied, &pod(2, "Running", "n", 1), &running(1));
            checker.on_pod(Seen::Applied, &pod(3, "Succeeded", "n", 1), &running(0));
            checker.on_pod(Seen::Deleted, &pod(4, "Succeeded", "n", 1), &running(0));
            checker.at_rest(&[], &running(0));
        });
        assert_eq!(text, "");
    }

    #[test]
    fn every_rule_fires_on_its_planted_fault() {
        type Fault = fn(&mut Checker);
        let faults: [(&str, Fault); 11] = [
            ("runs 2 times", |c| c.on_runtimes(&running(2))),
            ("has 2 ready sandboxes", |c| c.on_runtimes(&running(2))),
            ("is held twice", |c| c.on_runtimes(&running(2))),
            ("was delivered after", |c| {
                c.on_pod(Seen::Applied, &pod(2, "Pending", "n", 0), &BTreeMap::new());
                c.on_pod(Seen::Applied, &pod(1, "Pending", "n", 0), &BTreeMap::new());
            }),
            ("left the API while a container", |c| {
                c.on_pod(Seen::Deleted, &pod(1, "Failed", "n", 0), &running(1))
            }),
            ("left the API while its sandbox", |c| {
                c.on_pod(Seen::Deleted, &pod(1, "Failed", "n", 0), &running(1))
            }),
            ("went from Failed to Running", |c| {
                c.on_pod(Seen::Applied, &pod(1, "Failed", "n", 0), &BTreeMap::new());
                c.on_pod(Seen::Applied, &pod(2, "Running", "n", 0), &BTreeMap::new());
            }),
            ("is Failed while a container", |c| {
                c.on_pod(Seen::Applied, &pod(1, "Failed", "n", 0), &running(1))
            }),
            ("fell from 2 to 1", |c| {
                c.on_pod(Seen::Applied, &pod(1, "Running", "n", 2), &BTreeMap::new());
                c.on_pod(Seen::Applied, &pod(2, "Running", "n", 1), &BTreeMap::new());
            }),
            ("moved from", |c| {
                c.on_pod(Seen::Applied, &pod(1, "Running", "n", 0), &BTreeMap::new());
                c.on_pod(Seen::Applied, &pod(2, "Running", "m", 0), &BTreeMap::new());
            }),
            ("is left on n", |c| c.at_rest(&[], &running(1))),
        ];
        for (expected, fault) in faults {
            let text = breaches(fault);
            assert!(text.contains(expected), "{expected:?} not in {text:?}");
        }
    }

    #[test]
    fn a_main_container_before_its_init_container_is_a_breach() {
        let text = breaches(|checker| {
            checker.on_pod(Seen::Applied, &pod(1, "Pending", "n", 0), &BTreeMap::new());
            let mut runtimes = running(1);
            let failed = ContainerView {
                uid: "u".into(),
                name: "i".into(),
                running: false,
                exit_code: Some(1),
            };
            runtimes
                .values_mut()
                .for_each(|view| view.containers.push(failed.clone()));
            checker.on_runtimes(&runtimes);
        });
        assert!(text.contains("before init container i succeeded"), "{text}");
    }

    #[test]
    fn a_running_pod_without_a_sandbox_at_rest_is_a_breach() {
        let text = breaches(|checker| checker.at_rest(&[pod(1, "Running", "n", 0)], &running(0)));
        assert!(text.contains("Running without a sandbox"), "{text}");
    }

    #[test]
    fn what_is_over_is_not_started_again() {
        let over = |pod: Pod, seen| {
            breaches(|checker| {
                checker.on_pod(seen, &pod, &BTreeMap::new());
                checker.on_runtimes(&running(1));
            })
        };
        let text = over(pod(1, "Running", "n", 0), Seen::Deleted);
        assert!(text.contains("was started though the pod has left the API"), "{text}");
        let text = over(pod(1, "Failed", "n", 0), Seen::Applied);
        assert!(text.contains("was started though the pod is Failed"), "{text}");
        let twice = |policy: &str| {
            let mut pod = pod(1, "Running", "n", 0);
            pod.spec.as_mut().expect("a spec").restart_policy = Some(policy.to_owned());
            let statuses = pod
                .status
                .as_mut()
                .and_then(|status| status.container_statuses.as_mut());
            let state = json!({"terminated": {"exitCode": 0}});
            statuses.expect("statuses")[0].state = serde_json::from_value(state).expect("a state");
            breaches(|checker| {
                checker.on_pod(Seen::Applied, &pod, &running(0));
                checker.on_runtimes(&running(1));
            })
        };
        assert!(twice("Never").contains("was run again though it had ended for good"));
        assert_eq!(twice("Always"), "");
    }

    #[test]
    fn a_ready_pod_without_an_address_and_a_container_of_nobody_are_breaches() {
        let mut ready = pod(1, "Running", "n", 0);
        let condition = json!([{"type": "Ready", "status": "True"}]);
        let status = ready.status.as_mut().expect("a status");
        status.conditions = serde_json::from_value(condition).expect("conditions");
        let text = breaches(|checker| checker.on_pod(Seen::Applied, &ready, &running(1)));
        assert!(text.contains("is Ready without an address"), "{text}");
        let mut left = running(1);
        left.values_mut().for_each(|view| view.sandboxes.clear());
        let text = breaches(|checker| checker.at_rest(&[], &left));
        assert!(text.contains("container c of unknown pod u is left on n"), "{text}");
    }
}
