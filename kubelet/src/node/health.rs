//! What keeps the node from being ready. Pure.

use crate::runtime::RuntimeStatus;

/// What keeps the node from being ready; empty texts where nothing does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Why the runtime is not ready.
    pub runtime: String,
    /// Why its network is not ready, `container runtime network not ready: ...`.
    pub network: String,
}

impl Health {
    /// What a runtime status means for the node.
    pub fn of(status: &RuntimeStatus) -> Self {
        if *status == RuntimeStatus::default() {
            return Self {
                runtime: "container runtime status check may not have completed yet".to_owned(),
                network: String::new(),
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
        }
    }

    /// Whether nothing is in the way.
    pub fn is_ready(&self) -> bool {
        self.runtime.is_empty() && self.network.is_empty()
    }

    /// Everything in the way, as the Ready condition's message.
    pub(super) fn problems(&self) -> Vec<&str> {
        [self.runtime.as_str(), self.network.as_str()]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_become_texts() {
        assert!(
            Health::of(&RuntimeStatus::default())
                .runtime
                .contains("may not have completed yet")
        );
        let mut status = RuntimeStatus {
            runtime_ready: true,
            network_ready: true,
            ..RuntimeStatus::default()
        };
        assert!(Health::of(&status).is_ready());
        status.network_ready = false;
        status.network_message = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized".into();
        let health = Health::of(&status);
        assert!(!health.is_ready());
        assert_eq!(health.problems(), [status.network_message.as_str()]);
        let down = RuntimeStatus {
            runtime_message: "container runtime is down".into(),
            network_message: "container runtime is down".into(),
            ..RuntimeStatus::default()
        };
        assert_eq!(Health::of(&down).problems(), ["container runtime is down"]);
    }
}
