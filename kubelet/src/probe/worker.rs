//! One probe of one container instance, over and over.
//!
//! A task per probe, owned by the pod's worker, that reports outcomes and what people should read. It ends by itself when its
//! machine goes on hold; the next instance of the container gets a new task.

use super::Finding;
use super::check::{self, Check};
use super::outcome::{Kind, Machine, Outcome};
use super::{http, tcp};
use crate::events::Severity;
use crate::id::ContainerId;
use crate::runtime::Runtime;
use client::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Probe};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tonic::Code;

/// Immediate tries when a check could not be carried out.
const TRIES: u32 = 3;
/// Bytes of a command's output that messages quote.
const OUTPUT_MAX: usize = 10 << 10;

/// What a probe task needs.
pub struct Subject {
    /// The container's definition.
    pub container: Container,
    /// The instance.
    pub id: ContainerId,
    /// When the instance started.
    pub started_at: Timestamp,
    /// The pod's address, if it has one.
    pub pod_ip: Option<String>,
    /// Which of its probes.
    pub kind: Kind,
    /// The outcome from before a restart of the kubelet, to begin with.
    pub remembered: Option<Outcome>,
    /// How long to wait before the first check, so that a restarted kubelet does not check everything at once.
    pub spread: Duration,
}

/// What a task tells its worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The container's name.
    pub container: String,
    /// Which probe.
    pub kind: Kind,
    /// The instance.
    pub id: ContainerId,
    /// The new outcome, if it changed.
    pub outcome: Option<Outcome>,
    /// An event to record: severity, reason, message.
    pub event: Option<(Severity, &'static str, String)>,
}

/// Probes until the machine rests. `started` holds readiness and liveness back until the startup probe has passed.
///
/// Cancel by dropping; a check under way is dropped with it.
pub async fn run(
    subject: Subject,
    runtime: Arc<dyn Runtime>,
    clock: Arc<dyn Clock>,
    user_agent: Arc<str>,
    mut started: watch::Receiver<bool>,
    reports: mpsc::Sender<Report>,
) {
    let Some(probe) = subject.kind.of(&subject.container).cloned() else {
        return;
    };
    let mut machine = Machine::new(subject.kind, &probe, subject.remembered);
    tokio::time::sleep(initial_wait(&subject, &probe, clock.now()) + subject.spread).await;
    let mut ticks = tokio::time::interval(check::period(&probe));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !machine.is_on_hold() {
        ticks.tick().await;
        if subject.kind != Kind::Startup && started.wait_for(|started| *started).await.is_err() {
            return;
        }
        let finding = attempt(&subject, &probe, &*runtime, &user_agent).await;
        let event = describe(subject.kind, &finding);
        let outcome = match finding {
            Finding::Pass | Finding::Warning(_) => machine.take(true),
            Finding::Fail(_) => machine.take(false),
            Finding::Error(_) => None,
        };
        if outcome.is_none() && event.is_none() {
            continue;
        }
        let (container, id) = (subject.container.name.clone(), subject.id.clone());
        let report = Report {
            container,
            kind: subject.kind,
            id,
            outcome,
            event,
        };
        if reports.send(report).await.is_err() {
            return;
        }
    }
}

/// What is left of the initial delay, counted from the container's start.
fn initial_wait(subject: &Subject, probe: &Probe, now: Timestamp) -> Duration {
    let delay = Duration::from_secs(
        probe
            .initial_delay_seconds
            .and_then(|v| u64::try_from(v).ok())
            .unwrap_or(0),
    );
    let age = Duration::try_from(now.duration_since(subject.started_at)).unwrap_or_default();
    delay.saturating_sub(age)
}

async fn attempt(subject: &Subject, probe: &Probe, runtime: &dyn Runtime, user_agent: &str) -> Finding {
    let mut finding = once(subject, probe, runtime, user_agent).await;
    for _ in 1..TRIES {
        if !matches!(finding, Finding::Error(_)) {
            break;
        }
        finding = once(subject, probe, runtime, user_agent).await;
    }
    finding
}

async fn once(subject: &Subject, probe: &Probe, runtime: &dyn Runtime, user_agent: &str) -> Finding {
    let timeout = check::timeout(probe);
    match Check::of(probe, &subject.container, subject.pod_ip.as_deref()) {
        Err(error) => Finding::Error(error.to_string()),
        Ok(Check::Tcp { host, port }) => tcp::check(&host, port, timeout).await,
        Ok(Check::Http(request)) => http::check(&request, user_agent, timeout).await,
        Ok(Check::Exec { command }) => exec(&command, &subject.id, runtime, timeout).await,
    }
}

async fn exec(command: &[String], id: &ContainerId, runtime: &dyn Runtime, timeout: Duration) -> Finding {
    match runtime.exec_sync(id, command, timeout).await {
        Ok(output) if output.exit_code == 0 => Finding::Pass,
        Ok(output) => {
            let mut bytes = output.stdout;
            bytes.extend(output.stderr);
            bytes.truncate(OUTPUT_MAX);
            Finding::Fail(String::from_utf8_lossy(&bytes).into_owned())
        }
        Err(error) if error.code == Code::DeadlineExceeded => Finding::Fail(format!(
            "command timed out: {:?} timed out after {}s",
            command.join(" "),
            timeout.as_secs()
        )),
        Err(error) => Finding::Error(error.to_string()),
    }
}

/// The event a finding deserves.
fn describe(kind: Kind, finding: &Finding) -> Option<(Severity, &'static str, String)> {
    let name = kind.name();
    match finding {
        Finding::Pass => None,
        Finding::Warning(text) => Some((
            Severity::Warning,
            "ProbeWarning",
            format!("{name} probe warning: {text}"),
        )),
        Finding::Fail(text) => Some((Severity::Warning, "Unhealthy", format!("{name} probe failed: {text}"))),
        Finding::Error(text) => {
            let message = format!("{name} probe errored and resulted in unknown state: {text}");
            Some((Severity::Warning, "Unhealthy", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::fake::FakeRuntime;
    use client::TokioClock;
    use serde_json::json;

    fn subject(kind: Kind, started_at: Timestamp) -> Subject {
        let probe = json!({"exec": {"command": ["true"]}, "initialDelaySeconds": 5, "periodSeconds": 2});
        let container = json!({"name": "c", "readinessProbe": probe, "livenessProbe": probe, "startupProbe": probe});
        Subject {
            container: serde_json::from_value(container).expect("a container"),
            id: ContainerId::from("gone"),
            started_at,
            pod_ip: None,
            kind,
            remembered: None,
            spread: Duration::ZERO,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_initial_delay_counts_from_the_start_of_the_container() {
        let now = Timestamp::from_second(100).expect("in range");
        let probe = |s: &Subject| s.kind.of(&s.container).cloned().expect("has one");
        for (age, wait) in [(0, 5), (3, 2), (60, 0)] {
            let started = Timestamp::from_second(100 - age).expect("in range");
            let subject = subject(Kind::Liveness, started);
            assert_eq!(initial_wait(&subject, &probe(&subject), now), Duration::from_secs(wait));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_that_cannot_be_carried_out_is_an_event_but_no_outcome() {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(Timestamp::UNIX_EPOCH));
        let runtime = Arc::new(FakeRuntime::new(clock.clone(), 1));
        let (reports, mut inbox) = mpsc::channel(4);
        let (open, started) = watch::channel(false);
        let begun = tokio::time::Instant::now();
        let subject = subject(Kind::Readiness, Timestamp::UNIX_EPOCH);
        let task = tokio::spawn(run(subject, runtime, clock, "kube-probe/1.36".into(), started, reports));
        assert!(
            tokio::time::timeout(Duration::from_secs(60), inbox.recv())
                .await
                .is_err(),
            "held back until started"
        );
        open.send_replace(true);
        let report = inbox.recv().await.expect("a report");
        assert_eq!(report.outcome, None);
        let (_, reason, message) = report.event.expect("an event");
        assert_eq!(reason, "Unhealthy");
        assert!(
            message.starts_with("Readiness probe errored and resulted in unknown state: "),
            "{message}"
        );
        assert!(begun.elapsed() >= Duration::from_secs(60));
        task.abort();
    }
}
