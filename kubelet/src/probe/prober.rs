//! The tasks that probe one pod's containers, one per probe.
//!
//! Each follows the newest instance of its container: waits until it runs (and has started, for liveness and readiness),
//! lets its initial delay pass, then checks once per period. Outcomes go to one `watch` that the pod's worker reads.

use super::check::{self, Target};
use super::outcome::{Kind, Machine, Outcome, Outcomes};
use crate::events::{Recorder, Severity};
use crate::host::addresses::HostIps;
use crate::id::ContainerId;
use crate::metrics::{ProbeMetrics, ProbeResult, Probed};
use crate::pod_object;
use crate::reason;
use crate::runtime::Runtime;
use crate::runtime::observed::{ContainerState, ObservedContainer, ObservedPod};
use client::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Immediate repetitions of a check that could not be carried out.
const ERROR_TRIES: u32 = 3;

/// What probing needs; one per kubelet.
#[derive(Clone)]
pub struct ProbeContext {
    /// Runs commands.
    pub runtime: Arc<dyn Runtime>,
    /// Tells of failures.
    pub recorder: Recorder,
    /// Tells how long a container has run.
    pub clock: Arc<dyn Clock>,
    /// When this kubelet started: what ran before keeps what was known of it.
    pub kubelet_start: Timestamp,
    /// The node's addresses, for pods on the host network.
    pub host_ips: HostIps,
    /// Counts how probes go.
    pub metrics: ProbeMetrics,
}

/// One pod's probes. Dropping it ends them.
pub struct Prober {
    tools: ProbeContext,
    observed: watch::Receiver<Option<Arc<ObservedPod>>>,
    outcomes: Arc<watch::Sender<Outcomes>>,
    tasks: BTreeMap<(String, Kind), AbortHandle>,
    /// The pod as it was delivered last, while anything of it is probed.
    newest: Option<watch::Sender<Arc<Pod>>>,
}

impl Prober {
    /// Probes of a pod observed there; none run yet.
    pub fn new(tools: ProbeContext, observed: watch::Receiver<Option<Arc<ObservedPod>>>) -> Self {
        Self {
            tools,
            observed,
            outcomes: Arc::new(watch::Sender::new(Outcomes::default())),
            tasks: BTreeMap::new(),
            newest: None,
        }
    }

    /// The outcomes, as they change.
    pub fn outcomes(&self) -> watch::Receiver<Outcomes> {
        self.outcomes.subscribe()
    }

    /// Takes over what was known of an instance before a restart of the kubelet.
    pub fn remember(&self, container: &str, id: &ContainerId, started: bool, ready: bool) {
        self.outcomes.send_modify(|outcomes| {
            if started {
                outcomes.set(container, Kind::Startup, id, Outcome::Success);
            }
            if ready {
                outcomes.set(container, Kind::Readiness, id, Outcome::Success);
            }
        });
    }

    /// Runs the probes of these containers, those of other containers no more. While the pod ends only readiness is probed.
    pub fn run<'c>(&mut self, pod: &Arc<Pod>, containers: impl Iterator<Item = &'c Container>, ending: bool) {
        let mut wanted = Vec::new();
        for container in containers {
            for kind in Kind::ALL {
                if let Some(probe) = kind.of(container)
                    && (!ending || kind == Kind::Readiness)
                {
                    wanted.push(((container.name.clone(), kind), container, probe));
                }
            }
        }
        let mut over = Vec::new();
        self.tasks.retain(|key, task| {
            let keep = wanted.iter().any(|(wanted, ..)| wanted == key);
            if !keep {
                task.abort();
                over.push(key.clone());
            }
            keep
        });
        if ending {
            self.let_pass(over);
        }
        if wanted.is_empty() {
            self.newest = None;
            return;
        }
        let newest = self.newest.get_or_insert_with(|| watch::Sender::new(pod.clone()));
        newest.send_replace(pod.clone());
        let newest = newest.subscribe();
        for (key, container, probe) in wanted {
            if !self.tasks.contains_key(&key) {
                let follower = Follower {
                    tools: self.tools.clone(),
                    pod: newest.clone(),
                    container: container.name.clone(),
                    kind: key.1,
                    probe: probe.clone(),
                    observed: self.observed.clone(),
                    outcomes: self.outcomes.clone(),
                    counted: self.count(pod, container, key.1),
                };
                self.tasks.insert(key, tokio::spawn(follower.run()).abort_handle());
            }
        }
    }
}

impl Prober {
    fn count(&self, pod: &Pod, container: &Container, kind: Kind) -> Counted {
        Counted {
            metrics: self.tools.metrics.clone(),
            probed: Probed {
                namespace: pod_object::namespace(pod).to_owned(),
                pod: pod_object::name(pod).to_owned(),
                uid: pod_object::uid(pod).to_string(),
                container: container.name.clone(),
                kind,
            },
        }
    }

    /// What a pod's end made probing stop for counts as passed (kubelet contract §4.4): readiness goes on after it.
    fn let_pass(&self, probes: Vec<(String, Kind)>) {
        let observed = self.observed.borrow().clone();
        for (container, kind) in probes.into_iter().filter(|(_, kind)| *kind != Kind::Readiness) {
            let running = observed
                .as_deref()
                .and_then(|pod| pod.newest(&container))
                .filter(|c| is_running(c));
            if let Some(running) = running {
                self.outcomes
                    .send_if_modified(|outcomes| outcomes.set(&container, kind, &running.id, Outcome::Success));
            }
        }
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        for task in self.tasks.values() {
            task.abort();
        }
    }
}

/// One probe of one container, instance after instance.
struct Follower {
    tools: ProbeContext,
    /// Looked at when it is needed, so that no earlier delivery of it is held.
    pod: watch::Receiver<Arc<Pod>>,
    container: String,
    kind: Kind,
    probe: Probe,
    observed: watch::Receiver<Option<Arc<ObservedPod>>>,
    outcomes: Arc<watch::Sender<Outcomes>>,
    counted: Counted,
}

/// The counting of one probe, which ends with it.
struct Counted {
    metrics: ProbeMetrics,
    probed: Probed,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.metrics.forget(&self.probed);
    }
}

/// An instance to probe.
#[derive(Clone, Debug)]
struct Instance {
    id: ContainerId,
    started_at: Timestamp,
    /// Its pod's own address; the node's of the moment if it has none.
    pod_ip: Option<String>,
}

impl Follower {
    async fn run(mut self) {
        let mut done: Option<ContainerId> = None;
        while let Some(instance) = self.next_instance(done.take()).await {
            let mut observed = self.observed.clone();
            let over = async {
                let name = &self.container;
                // An error means the observer is gone, and this task with it.
                let _ = observed
                    .wait_for(|pod| !still_runs(pod.as_deref(), name, &instance.id))
                    .await;
            };
            tokio::select! {
                biased;
                () = over => {
                    let failed = self.kind == Kind::Readiness;
                    if failed {
                        self.publish(&instance.id, Outcome::Failure);
                    }
                }
                () = self.probe_instance(&instance) => {}
            }
            done = Some(instance.id);
        }
    }

    /// Waits for a running instance other than the one that is done.
    async fn next_instance(&mut self, done: Option<ContainerId>) -> Option<Instance> {
        let host_network = pod_object::host_network(&self.pod.borrow());
        let (name, host_ips) = (self.container.clone(), self.tools.host_ips.texts());
        let find = |pod: &ObservedPod| {
            let newest = pod
                .newest(&name)
                .filter(|c| is_running(c) && done.as_ref() != Some(&c.id))?;
            let pod_ip = pod.sandbox().and_then(|s| s.addresses(&host_ips).into_iter().next());
            Some(Instance {
                id: newest.id.clone(),
                started_at: newest.started_at.unwrap_or(newest.created_at),
                pod_ip: (!host_network).then(|| pod_ip.unwrap_or_default()),
            })
        };
        let mut found = None;
        let seen = self.observed.wait_for(|pod| {
            found = pod.as_deref().and_then(&find);
            found.is_some()
        });
        seen.await.ok()?;
        found
    }

    /// Probes an instance until its outcome is settled; does not end by itself otherwise.
    async fn probe_instance(&self, instance: &Instance) {
        let before = self.outcomes.borrow().get(&self.container, self.kind, &instance.id);
        let known = Some(before).filter(|before| *before != self.kind.initial());
        let mut machine = Machine::new(self.kind, &self.probe, known);
        if machine.is_on_hold() {
            return std::future::pending().await;
        }
        self.wait_for_start(instance).await;
        self.initial_delay(instance).await;
        let period = self.period();
        loop {
            let begun = tokio::time::Instant::now();
            if let Some(passed) = self.check(instance).await
                && let Some(outcome) = machine.take(passed)
            {
                self.publish(&instance.id, outcome);
            }
            if machine.is_on_hold() {
                // A startup probe's success must be told even if it is what was assumed.
                self.publish(&instance.id, machine.outcome());
                return std::future::pending().await;
            }
            tokio::time::sleep_until(begun + period).await;
        }
    }

    async fn wait_for_start(&self, instance: &Instance) {
        let pod = self.pod.borrow().clone();
        let container = pod_object::find(&pod, &self.container).map(|(_, container)| container);
        let Some(container) = container.filter(|c| self.kind != Kind::Startup && c.startup_probe.is_some()) else {
            return;
        };
        let mut outcomes = self.outcomes.subscribe();
        // The sender is this task's own, so this cannot fail.
        let _ = outcomes
            .wait_for(|outcomes| outcomes.started(&container, &instance.id))
            .await;
    }

    async fn initial_delay(&self, instance: &Instance) {
        let seconds = i64::from(self.probe.initial_delay_seconds.unwrap_or(0).max(0));
        let due = instance
            .started_at
            .saturating_add(SignedDuration::from_secs(seconds))
            .unwrap_or(Timestamp::MAX);
        let left = due.duration_since(self.tools.clock.now());
        tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
        if instance.started_at < self.tools.kubelet_start {
            // After a restart of the kubelet everything would be probed at once: spread it over a period.
            tokio::time::sleep(self.period().mul_f64(spread(instance.id.as_str()))).await;
        }
    }

    fn period(&self) -> Duration {
        let seconds = self
            .probe
            .period_seconds
            .and_then(|s| u64::try_from(s).ok())
            .filter(|s| *s > 0);
        Duration::from_secs(seconds.unwrap_or(10))
    }

    /// One check, repeated at once if it could not be carried out; tells nothing if it never could.
    async fn check(&self, instance: &Instance) -> Option<bool> {
        let host_ip = || self.tools.host_ips.texts().into_iter().next().unwrap_or_default();
        let pod_ip = instance.pod_ip.clone().unwrap_or_else(host_ip);
        let pod = self.pod.borrow().clone();
        let (_, container) = pod_object::find(&pod, &self.container)?;
        let target = Target {
            container: &container,
            id: &instance.id,
            pod_ip: &pod_ip,
        };
        let mut last = String::new();
        let begun = tokio::time::Instant::now();
        for _ in 0..ERROR_TRIES {
            // On the heap while it lasts: a probe mostly waits for its next one.
            match Box::pin(check::check(&*self.tools.runtime, &self.probe, &target)).await {
                Ok(report) => {
                    let result = match report.passed {
                        true => ProbeResult::Successful,
                        false => ProbeResult::Failed,
                    };
                    self.tools
                        .metrics
                        .checked(&self.counted.probed, result, begun.elapsed());
                    self.tell(&report);
                    return Some(report.passed);
                }
                Err(error) => last = error.to_string(),
            }
        }
        let counted = &self.counted.probed;
        self.tools
            .metrics
            .checked(counted, ProbeResult::Unknown, begun.elapsed());
        let message = format!(
            "{} probe errored and resulted in unknown state: {last}",
            self.kind.name()
        );
        self.event(reason::event::UNHEALTHY, message);
        None
    }

    fn tell(&self, report: &check::Report) {
        if report.warning {
            self.event(
                reason::event::PROBE_WARNING,
                format!("{} probe warning: {}", self.kind.name(), report.message),
            );
        } else if !report.passed {
            self.event(
                reason::event::UNHEALTHY,
                format!("{} probe failed: {}", self.kind.name(), report.message),
            );
        }
    }

    fn event(&self, reason: &str, message: String) {
        let (pod, recorder) = (self.pod.borrow().clone(), &self.tools.recorder);
        recorder.container(&pod, &self.container, Severity::Warning, reason, message);
    }

    fn publish(&self, id: &ContainerId, outcome: Outcome) {
        self.outcomes
            .send_if_modified(|outcomes| outcomes.set(&self.container, self.kind, id, outcome));
    }
}

fn is_running(container: &ObservedContainer) -> bool {
    container.state == ContainerState::Running
}

fn still_runs(pod: Option<&ObservedPod>, name: &str, id: &ContainerId) -> bool {
    pod.and_then(|pod| pod.newest(name))
        .is_some_and(|newest| newest.id == *id && is_running(newest))
}

/// A number between 0 and 1 that depends on the text alone.
fn spread(text: &str) -> f64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::pod::testing::{container, observed, pod};
    use crate::probe::testing::{tcp, tools};
    use crate::runtime::fake::FakeRuntime;
    use client::TokioClock;

    #[tokio::test]
    async fn a_container_becomes_ready_when_it_listens_and_unready_when_it_ends() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = listener.local_addr().expect("address").port();
        let mut c = container("c");
        c.readiness_probe = Some(tcp(port));
        c.startup_probe = Some(tcp(port));
        let p = Arc::new(pod("p").with(c.clone()).build());
        let (sender, receiver) = watch::channel(None);
        let mut prober = Prober::new(tools(Arc::new(client::SystemClock)), receiver);
        let mut outcomes = prober.outcomes();
        prober.run(&p, [&c].into_iter(), false);
        sender.send_replace(Some(Arc::new(observed("p").sandbox(true).running("c").build())));
        let id = ContainerId::from("c0");
        let ready = outcomes.wait_for(|outcomes| outcomes.ready(&c, &id));
        tokio::time::timeout(Duration::from_secs(20), ready)
            .await
            .expect("in time")
            .expect("open");
        sender.send_replace(Some(Arc::new(observed("p").sandbox(true).exited("c", 0, 9).build())));
        let unready = outcomes.wait_for(|outcomes| outcomes.get("c", Kind::Readiness, &id) == Outcome::Failure);
        tokio::time::timeout(Duration::from_secs(20), unready)
            .await
            .expect("in time")
            .expect("open");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_command_is_told_after_its_threshold() {
        use crate::runtime::fake::Mishap;
        use crate::runtime::{Runtime as _, RuntimeError};
        let clock = Arc::new(TokioClock::starting_at(crate::pod::testing::at(0)));
        let tools = tools(clock.clone());
        let fake = FakeRuntime::new(clock, 2);
        let tools = ProbeContext {
            runtime: Arc::new(fake.clone()),
            ..tools
        };
        for _ in 0..100 {
            // The scripted runtime does not know the container: every command is an error, which counts as nothing.
            fake.next(
                "ExecSync",
                Mishap::Fail(RuntimeError::new("ExecSync", tonic::Code::Unknown, "no")),
            );
        }
        let mut c = container("c");
        let exec = k8s_openapi::api::core::v1::ExecAction {
            command: Some(vec!["x".into()]),
        };
        c.liveness_probe = Some(Probe {
            exec: Some(exec),
            failure_threshold: Some(1),
            ..Probe::default()
        });
        let p = Arc::new(pod("p").with(c.clone()).build());
        let (_sender, receiver) = watch::channel(Some(Arc::new(observed("p").sandbox(true).running("c").build())));
        let mut prober = Prober::new(tools, receiver);
        prober.run(&p, [&c].into_iter(), false);
        tokio::time::sleep(Duration::from_secs(25)).await;
        let calls = fake.calls().iter().filter(|call| call.starts_with("ExecSync")).count();
        assert_eq!(calls, 9, "three periods, three tries each");
        let id = ContainerId::from("c0");
        assert_eq!(
            prober.outcomes().borrow().get("c", Kind::Liveness, &id),
            Outcome::Success
        );
        assert!(fake.status().await.is_ok());
    }

    #[tokio::test]
    async fn a_pod_is_probed_at_its_first_address_of_the_nodes_family() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let mut c = container("c");
        let mut probe = tcp(listener.local_addr().expect("address").port());
        probe.tcp_socket.as_mut().expect("an action").host = None;
        c.readiness_probe = Some(probe);
        let p = Arc::new(pod("p").with(c.clone()).build());
        let mut seen = observed("p").sandbox(true).running("c").build();
        // Nobody answers at the one the runtime tells first, which is for documentation.
        seen.sandboxes[0].ips = vec!["2001:db8::1".into(), "127.0.0.1".into()];
        let (_sender, receiver) = watch::channel(Some(Arc::new(seen)));
        let mut prober = Prober::new(tools(Arc::new(client::SystemClock)), receiver);
        let mut outcomes = prober.outcomes();
        prober.run(&p, [&c].into_iter(), false);
        let id = ContainerId::from("c0");
        let told = |outcomes: &Outcomes| outcomes.ready(&c, &id);
        let ready = tokio::time::timeout(Duration::from_secs(20), outcomes.wait_for(told)).await;
        assert!(ready.is_ok_and(|ready| ready.is_ok()));
    }
}
