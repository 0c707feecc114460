//! The Pod row, whose Status cell sums up a pod's whole life (control-plane contract §5). Pure.

use jiff::Timestamp;
use serde_json::Value;

use super::format::{age, human_duration, moment, name, or};
use super::{AGE, NAME, Printer, column, wide};
use crate::resource::field::{at, flag, int, list, text};

pub(super) const POD: Printer = Printer {
    columns: &[
        NAME,
        column("Ready"),
        column("Status"),
        column("Restarts"),
        AGE,
        wide("IP"),
        wide("Node"),
        wide("Nominated Node"),
        wide("Readiness Gates"),
    ],
    cells,
};

fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = summarize(pod);
    let first_ip = list(pod, &["status", "podIPs"]).first().map(|ip| text(ip, &["ip"]));
    let ip = first_ip.unwrap_or_else(|| text(pod, &["status", "podIP"]));
    vec![
        name(pod),
        Value::from(format!("{}/{}", summary.ready, summary.total)),
        Value::from(summary.reason.clone()),
        Value::from(summary.restarts_text(now)),
        age(pod, now),
        or(ip, "<none>"),
        or(text(pod, &["spec", "nodeName"]), "<none>"),
        or(text(pod, &["status", "nominatedNodeName"]), "<none>"),
        Value::from(readiness_gates(pod)),
    ]
}

struct Summary {
    ready: usize,
    total: usize,
    reason: String,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Summary {
    fn restarts_text(&self, now: Timestamp) -> String {
        match self.last_restart {
            Some(then) if self.restarts != 0 => {
                let ago = human_duration(now.duration_since(then).as_secs());
                format!("{} ({ago} ago)", self.restarts)
            }
            _ => self.restarts.to_string(),
        }
    }

    fn add_restarts(&mut self, status: &Value) {
        self.restarts += int(status, &["restartCount"]).unwrap_or(0);
        let finished = moment(at(status, &["lastState", "terminated", "finishedAt"]));
        self.last_restart = self.last_restart.max(finished);
    }
}

fn is_sidecar(pod: &Value, container: &str) -> bool {
    list(pod, &["spec", "initContainers"])
        .iter()
        .any(|init| text(init, &["name"]) == container && text(init, &["restartPolicy"]) == "Always")
}

fn condition<'v>(pod: &'v Value, kind: &str) -> Option<&'v Value> {
    list(pod, &["status", "conditions"])
        .iter()
        .find(|condition| text(condition, &["type"]) == kind)
}

fn is_true(pod: &Value, kind: &str) -> bool {
    condition(pod, kind).is_some_and(|condition| text(condition, &["status"]) == "True")
}

fn summarize(pod: &Value) -> Summary {
    let sidecars = list(pod, &["spec", "initContainers"])
        .iter()
        .filter(|init| text(init, &["restartPolicy"]) == "Always")
        .count();
    let phase = text(pod, &["status", "phase"]);
    let status_reason = text(pod, &["status", "reason"]);
    let mut summary = Summary {
        ready: 0,
        total: list(pod, &["spec", "containers"]).len() + sidecars,
        reason: if status_reason.is_empty() { phase } else { status_reason }.to_owned(),
        restarts: 0,
        last_restart: None,
    };
    if condition(pod, "PodScheduled").is_some_and(|c| text(c, &["reason"]) == "SchedulingGated") {
        summary.reason = "SchedulingGated".to_owned();
    }
    let initializing = init_containers(pod, &mut summary);
    if !initializing || is_true(pod, "Initialized") {
        main_containers(pod, &mut summary);
    }
    let deleting = !at(pod, &["metadata", "deletionTimestamp"]).is_null();
    if deleting && status_reason == "NodeLost" {
        summary.reason = "Unknown".to_owned();
    } else if deleting && !matches!(phase, "Succeeded" | "Failed") {
        summary.reason = "Terminating".to_owned();
    }
    summary
}

/// Looks at init containers up to the first unfinished one; says whether there is one.
fn init_containers(pod: &Value, summary: &mut Summary) -> bool {
    let total = list(pod, &["spec", "initContainers"]).len();
    for (i, status) in list(pod, &["status", "initContainerStatuses"]).iter().enumerate() {
        summary.add_restarts(status);
        let terminated = at(status, &["state", "terminated"]);
        let waiting = text(status, &["state", "waiting", "reason"]);
        if !terminated.is_null() && int(terminated, &["exitCode"]).unwrap_or(0) == 0 {
            continue;
        }
        if is_sidecar(pod, text(status, &["name"])) && flag(status, &["started"]) {
            summary.ready += usize::from(flag(status, &["ready"]));
            continue;
        }
        summary.reason = if !terminated.is_null() {
            format!("Init:{}", end_of(terminated))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{i}/{total}")
        };
        return true;
    }
    false
}

fn end_of(terminated: &Value) -> String {
    let reason = text(terminated, &["reason"]);
    if !reason.is_empty() {
        return reason.to_owned();
    }
    match int(terminated, &["signal"]).unwrap_or(0) {
        0 => format!("ExitCode:{}", int(terminated, &["exitCode"]).unwrap_or(0)),
        signal => format!("Signal:{signal}"),
    }
}

/// Restarts of ended init containers no longer count; those of sidecars do.
fn main_containers(pod: &Value, summary: &mut Summary) {
    (summary.restarts, summary.last_restart) = (0, None);
    for status in list(pod, &["status", "initContainerStatuses"]) {
        if is_sidecar(pod, text(status, &["name"])) {
            summary.add_restarts(status);
        }
    }
    let mut running = false;
    for status in list(pod, &["status", "containerStatuses"]).iter().rev() {
        summary.add_restarts(status);
        let terminated = at(status, &["state", "terminated"]);
        let waiting = text(status, &["state", "waiting", "reason"]);
        if !waiting.is_empty() {
            summary.reason = waiting.to_owned();
        } else if !terminated.is_null() {
            summary.reason = end_of(terminated);
        } else if flag(status, &["ready"]) && !at(status, &["state", "running"]).is_null() {
            running = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" && running {
        let ready = is_true(pod, "Ready");
        summary.reason = if ready { "Running" } else { "NotReady" }.to_owned();
    }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, &["spec", "readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let met = gates
        .iter()
        .filter(|gate| is_true(pod, text(gate, &["conditionType"])))
        .count();
    format!("{met}/{}", gates.len())
}
