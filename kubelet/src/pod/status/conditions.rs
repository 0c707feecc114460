//! Pod conditions (kubelet contract §5). Pure.

use super::{Inputs, Phase, seconds};
use crate::pod::plan;
use crate::pod_object::{self, Kind};
use crate::reason;
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition};
use proto::api::condition;

/// What conditions are made from.
pub(super) struct Source<'a> {
    pub(super) inputs: &'a Inputs<'a>,
    pub(super) phase: Phase,
    pub(super) inits: &'a [ContainerStatus],
    pub(super) regulars: &'a [ContainerStatus],
}

/// A condition's status with its reason and message, empty for none.
struct Verdict {
    holds: bool,
    reason: &'static str,
    message: String,
}

impl Verdict {
    fn yes() -> Self {
        Self {
            holds: true,
            reason: "",
            message: String::new(),
        }
    }

    fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            holds: false,
            reason,
            message: message.into(),
        }
    }
}

impl Source<'_> {
    /// Sets the kubelet's own conditions; foreign ones stay.
    pub(super) fn update(&self, conditions: &mut Vec<PodCondition>) {
        let inputs = self.inputs;
        let has_sandbox = plan::has_sandbox(inputs.pod, inputs.state, inputs.observed);
        let containers_ready = self.containers_ready();
        let ready = self.ready(&containers_ready, conditions);
        let sandboxed = if has_sandbox {
            Verdict::yes()
        } else {
            Verdict::no("", "")
        };
        self.set(conditions, reason::condition::POD_READY_TO_START_CONTAINERS, &sandboxed);
        self.set(conditions, reason::condition::INITIALIZED, &self.initialized());
        self.set(conditions, reason::condition::READY, &ready);
        self.set(conditions, reason::condition::CONTAINERS_READY, &containers_ready);
        self.set(conditions, reason::condition::POD_SCHEDULED, &Verdict::yes());
        if pod_object::may_restart_all(inputs.pod) {
            let kind = reason::condition::ALL_CONTAINERS_RESTARTING;
            self.set(conditions, kind, &self.all_containers_restarting());
        }
        super::resize::tell(inputs, conditions);
        if super::is_disrupted(inputs.state) && inputs.state.has_ended() {
            let message = super::failure(inputs.state).map_or("", |(_, message)| message);
            let verdict = Verdict {
                holds: true,
                reason: reason::condition::TERMINATION_BY_KUBELET,
                message: message.to_owned(),
            };
            self.set(conditions, reason::condition::DISRUPTION_TARGET, &verdict);
        }
    }

    fn set(&self, conditions: &mut Vec<PodCondition>, kind: &str, verdict: &Verdict) {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let condition = PodCondition {
            type_: kind.to_owned(),
            status: if verdict.holds { "True" } else { "False" }.to_owned(),
            reason: text(verdict.reason),
            message: text(&verdict.message),
            last_probe_time: None,
            last_transition_time: Some(seconds(self.inputs.now)),
            observed_generation: self.inputs.pod.metadata.generation,
        };
        condition::set(conditions, condition);
    }

    fn initialized(&self) -> Verdict {
        if self.phase == Phase::Succeeded {
            return Verdict {
                holds: true,
                reason: reason::condition::POD_COMPLETED,
                message: String::new(),
            };
        }
        // Once one of them ran, the pod was initialised, whatever its sidecars do since.
        let ran = |status: &ContainerStatus| {
            let state = status.state.as_ref();
            state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
        };
        if self.regulars.iter().any(ran) {
            return Verdict::yes();
        }
        let incomplete: Vec<&str> = pod_object::inits(self.inputs.pod)
            .iter()
            .zip(self.inits)
            .filter(|(container, status)| match pod_object::kind_of_init(container) {
                Kind::Sidecar => status.started != Some(true),
                _ => !status.ready,
            })
            .map(|(container, _)| container.name.as_str())
            .collect();
        if incomplete.is_empty() {
            Verdict::yes()
        } else {
            Verdict::no(
                reason::condition::CONTAINERS_NOT_INITIALIZED,
                listed("containers with incomplete status", &incomplete),
            )
        }
    }

    fn all_containers_restarting(&self) -> Verdict {
        match self.phase {
            Phase::Succeeded => Verdict::no(reason::condition::POD_COMPLETED, ""),
            Phase::Failed => Verdict::no(reason::condition::POD_FAILED, ""),
            Phase::Pending | Phase::Running if super::restarts_all(self.inputs) => Verdict {
                holds: true,
                reason: reason::condition::RESTART_ALL_CONTAINERS_STARTED,
                message: "container exited with restart policy rule".to_owned(),
            },
            Phase::Pending | Phase::Running => Verdict::no("", ""),
        }
    }

    fn containers_ready(&self) -> Verdict {
        match self.phase {
            Phase::Succeeded => return Verdict::no(reason::condition::POD_COMPLETED, ""),
            Phase::Failed => return Verdict::no(reason::condition::POD_FAILED, ""),
            Phase::Pending | Phase::Running => {}
        }
        let sidecars = pod_object::inits(self.inputs.pod)
            .iter()
            .zip(self.inits)
            .filter(|(container, _)| pod_object::kind_of_init(container) == Kind::Sidecar)
            .map(|(_, status)| status);
        let unready: Vec<&str> = sidecars
            .chain(self.regulars)
            .filter(|status| !status.ready)
            .map(|status| status.name.as_str())
            .collect();
        if unready.is_empty() {
            Verdict::yes()
        } else {
            Verdict::no(
                reason::condition::CONTAINERS_NOT_READY,
                listed("containers with unready status", &unready),
            )
        }
    }

    fn ready(&self, containers: &Verdict, conditions: &[PodCondition]) -> Verdict {
        if !containers.holds {
            return Verdict::no(containers.reason, containers.message.clone());
        }
        let gates = pod_object::spec(self.inputs.pod)
            .readiness_gates
            .as_deref()
            .unwrap_or_default();
        let unmet: Vec<String> = gates
            .iter()
            .filter_map(|gate| {
                let kind = &gate.condition_type;
                match conditions.iter().find(|condition| condition.type_ == *kind) {
                    None => Some(format!(
                        "corresponding condition of pod readiness gate \"{kind}\" does not exist."
                    )),
                    Some(condition) if condition.status != "True" => Some(format!(
                        "the status of pod readiness gate \"{kind}\" is not \"True\", but {}",
                        condition.status
                    )),
                    Some(_) => None,
                }
            })
            .collect();
        if unmet.is_empty() {
            Verdict::yes()
        } else {
            Verdict::no(reason::condition::READINESS_GATES_NOT_READY, unmet.join(", "))
        }
    }
}

fn listed(lead: &str, names: &[&str]) -> String {
    format!("{lead}: [{}]", names.join(" "))
}
