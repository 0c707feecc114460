//! What keeps the node from being ready. Pure.

use crate::node_shutdown::{PROBLEM, Phase};
use crate::runtime::RuntimeStatus;

/// What keeps the node from being ready; empty texts where nothing does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Why the runtime is not ready.
    pub runtime: String,
    /// Why its network is not ready, `container runtime network not ready: ...`.
    pub network: String,
    /// Why its pods are not all seen, `PLEG is not healthy: ...`.
    pub pleg: String,
    /// That the machine is going down.
    pub shutdown: String,
}

impl Health {
    /// What a runtime's status, what is wrong with looking at its pods, and whether the machine goes down mean for the node.
    pub fn of(status: &RuntimeStatus, pleg: Option<String>, phase: Phase) -> Self {
        let goes_down = phase == Phase::ShuttingDown;
        Self {
            pleg: pleg.unwrap_or_default(),
            shutdown: if goes_down { PROBLEM } else { "" }.to_owned(),
            ..Self::of_runtime(status)
        }
    }

    fn of_runtime(status: &RuntimeStatus) -> Self {
        if *status == RuntimeStatus::default() {
            return Self {
                runtime: "container runtime status check may not have completed yet".to_owned(),
                network: String::new(),
                pleg: String::new(),
                shutdown: String::new(),
            };
        }
        let text = |ready: bool, message: &str, otherwise: &str| match (ready, message) {
            (true, _) => String::new(),
            (false, "") => otherwise.to_owned(),
            (false, message) => message.to_owned(),
        };
        let runtime = text(
            status.runtime_ready,
            &status.runtime_message,
            "container runtime not ready",
        );
        let network = text(
            status.network_ready,
            &status.network_message,
            "container runtime network not ready",
        );
        Self {
            // A runtime that does not answer says the same of both.
            network: if network == runtime { String::new() } else { network },
            runtime,
            pleg: String::new(),
            shutdown: String::new(),
        }
    }

    /// Whether nothing is in the way.
    pub fn is_ready(&self) -> bool {
        self.problems().is_empty()
    }

    /// Everything in the way, as the Ready condition's message.
    pub(super) fn problems(&self) -> Vec<&str> {
        let texts = [&self.runtime, &self.network, &self.pleg, &self.shutdown].into_iter();
        texts.map(String::as_str).filter(|text| !text.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_become_texts() {
        assert!(
            Health::of(&RuntimeStatus::default(), None, Phase::Up)
                .runtime
                .contains("may not have completed yet")
        );
        let mut status = RuntimeStatus {
            runtime_ready: true,
            network_ready: true,
            ..RuntimeStatus::default()
        };
        assert!(Health::of(&status, None, Phase::Asking).is_ready());
        let unseen = Health::of(&status, Some("PLEG is not healthy: why".into()), Phase::Up);
        assert_eq!(
            (unseen.is_ready(), unseen.problems()),
            (false, vec!["PLEG is not healthy: why"])
        );
        let going_down = Health::of(&status, None, Phase::ShuttingDown);
        assert_eq!(
            (going_down.is_ready(), going_down.problems()),
            (false, vec!["node is shutting down"])
        );
        status.network_ready = false;
        status.network_message = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized".into();
        let health = Health::of(&status, None, Phase::Asking);
        assert!(!health.is_ready());
        assert_eq!(health.problems(), [status.network_message.as_str()]);
        let down = RuntimeStatus {
            runtime_message: "container runtime is down".into(),
            network_message: "container runtime is down".into(),
            ..RuntimeStatus::default()
        };
        assert_eq!(
            Health::of(&down, None, Phase::Up).problems(),
            ["container runtime is down"]
        );
    }
}
