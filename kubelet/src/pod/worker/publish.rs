//! What a worker tells of its pod: the status, and the snapshot others read.

use super::{Desired, Worker, ended};
use crate::api_status::Update;
use crate::planted::{self, Fault};
use crate::pod::plan::Plan;
use crate::pod::state::{Cause, PodState};
use crate::pod::status;
use crate::pod::view::{Life, PodSnapshot};
use crate::pod_object;
use crate::probe::outcome::Outcomes;
use crate::reason;
use crate::runtime::observed::ObservedPod;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

impl Worker {
    /// Computes the status and hands it to whoever reads it, if anything changed.
    pub(super) fn publish(
        &mut self,
        desired: &Desired,
        observed: &Arc<ObservedPod>,
        outcomes: &Outcomes,
        plan: &Plan,
        now: Timestamp,
    ) {
        let host_ips = self.shared.parts.context.host_ips.texts();
        let status = match &desired.rejected {
            Some((reason, message)) => status::rejected(&desired.pod, reason, message, &host_ips, now),
            None => {
                let mut previous = (*self.status).clone();
                adopt_foreign(&mut previous, desired.pod.status.as_ref());
                let resize = status::Resize {
                    applied: &self.memory.applied,
                    pending: desired.pending.as_ref(),
                    in_progress: plan.resizing,
                    given: desired.given,
                    error: self.memory.resize_error.as_deref(),
                };
                let mut status = status::status(&status::Inputs {
                    pod: &desired.pod,
                    previous: &previous,
                    state: &self.state,
                    observed,
                    outcomes,
                    waiting: &plan.waiting,
                    starting: &plan.starting,
                    recursive_read_only: observed.sandbox().is_some_and(|sandbox| {
                        let status = self.shared.parts.runtime_status.borrow();
                        status.has_recursive_read_only(&sandbox.handler)
                    }),
                    stop_signals: self.shared.parts.context.stop_signals,
                    resize: &resize,
                    runtime_name: &self.shared.runtime_name,
                    host_ips: &host_ips,
                    now,
                });
                self.tell_devices(&mut status);
                status
            }
        };
        let mut status = status;
        self.shared.parts.dra.tell_health(&desired.pod, &mut status);
        self.count_start(desired, &status, now);
        if *self.status != status {
            for ended in ended::containers(&self.status, &status) {
                self.shared.parts.metrics.pods.container_ended(ended);
            }
            self.status = Arc::new(status);
        }
        let orphaned = matches!(self.state.termination().map(|t| &t.cause), Some(Cause::Orphaned));
        let deleting = desired.pod.metadata.deletion_timestamp.is_some();
        let active = !matches!(self.state, PodState::Released(_));
        // Before it is shown as ended: whoever waits for the end looks next for what is still to be told.
        let is_told = !status::is_terminal(Some(&self.status)) || !planted::is(Fault::EndUntold);
        if desired.present && !orphaned && is_told {
            let update = Update {
                pod: desired.pod.clone(),
                status: self.status.clone(),
                delete: deleting && (!active || planted::is(Fault::ObjectBeforeEnd)),
            };
            self.shared.statuses.publish(&self.uid, update);
        }
        if !orphaned {
            let snapshot = PodSnapshot {
                pod: desired.pod.clone(),
                status: self.status.clone(),
                observed: observed.clone(),
                active,
                ended: self.state.has_ended(),
                life: Life {
                    present: desired.present,
                    ending: self.state.termination().is_some(),
                    volumes: self.memory.volumes_ready && !self.memory.volumes_released,
                },
            };
            self.shared.parts.pods.publish(self.uid.clone(), snapshot);
        }
    }
}

impl Worker {
    /// Tells how well the devices of regular containers are (KEP-4680).
    fn tell_devices(&self, status: &mut PodStatus) {
        for container in status.container_statuses.iter_mut().flatten() {
            let health = self.shared.parts.devices.health(self.uid.as_str(), &container.name);
            if !health.is_empty() {
                container.allocated_resources_status = Some(health);
            }
        }
    }

    /// Counts a pod that runs now and did not before.
    fn count_start(&mut self, desired: &Desired, status: &PodStatus, now: Timestamp) {
        match status.phase.as_deref() {
            Some("Running") => {}
            Some("Succeeded" | "Failed") => return self.starting.ended(),
            _ => return,
        }
        let created = desired.pod.metadata.creation_timestamp.as_ref();
        let created = created.filter(|_| !pod_object::is_static(&desired.pod));
        let since = created.map(|created| Duration::try_from(now.duration_since(created.0)).unwrap_or_default());
        let own_network = !pod_object::host_network(&desired.pod);
        if let Some(start) = self.starting.runs(Instant::now(), since, own_network) {
            self.shared.parts.metrics.pods.runs(start);
        }
    }
}

/// Conditions of other writers come from the API server, not from memory.
fn adopt_foreign(previous: &mut PodStatus, delivered: Option<&PodStatus>) {
    let own = |kind: &str| reason::condition::OWN.contains(&kind);
    let mut conditions: Vec<_> = previous
        .conditions
        .take()
        .unwrap_or_default()
        .into_iter()
        .filter(|c| own(&c.type_))
        .collect();
    let scheduled = conditions.iter().any(|c| c.type_ == reason::condition::POD_SCHEDULED);
    let delivered = delivered
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    conditions.extend(
        delivered
            .filter(|c| !own(&c.type_) || (c.type_ == reason::condition::POD_SCHEDULED && !scheduled))
            .cloned(),
    );
    previous.conditions = Some(conditions);
}
