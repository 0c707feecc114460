//! How the runtime and its network are, and how often to look.

use super::RuntimeFacts;
use crate::runtime::{Runtime, RuntimeStatus, RuntimeVersion};
use std::time::Duration;
use tokio::time::Instant;

/// A runtime that has not answered for this long is down.
const DOWN_AFTER: Duration = Duration::from_secs(30);
/// While the node is becoming ready it is looked at this often, for so long.
const FAST: Duration = Duration::from_millis(100);
const FAST_FOR: Duration = Duration::from_secs(120);
/// And this often while it is not ready later on.
const UNREADY: Duration = Duration::from_secs(1);

/// What keeps the node from being ready; empty texts where nothing does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Why the runtime is not ready.
    pub runtime: String,
    /// Why its network is not ready, `container runtime network not ready: ...`; pods not on the host's network wait for it.
    pub network: String,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            runtime: "container runtime status check may not have completed yet".to_owned(),
            network: String::new(),
        }
    }
}

impl Health {
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

/// Looks at the runtime and remembers when it last answered.
pub(super) struct HealthPoll {
    health: Health,
    answered: Option<Instant>,
    version: Option<RuntimeVersion>,
}

impl HealthPoll {
    pub(super) fn new() -> Self {
        Self {
            health: Health::default(),
            answered: None,
            version: None,
        }
    }

    pub(super) fn health(&self) -> &Health {
        &self.health
    }

    /// One look; the runtime's calls have their own deadlines.
    pub(super) async fn poll(&mut self, runtime: &dyn Runtime) -> RuntimeFacts {
        let status = runtime.status().await;
        if self.version.is_none() {
            self.version = runtime.version().await.ok();
        }
        let now = Instant::now();
        let mut facts = RuntimeFacts {
            version: self.version.clone().unwrap_or_default(),
            ..RuntimeFacts::default()
        };
        match status {
            Ok(status) => {
                self.answered = Some(now);
                self.health = judge(&status);
                facts.handlers = status.handlers;
                facts.features = status.features;
            }
            Err(error) => {
                tracing::debug!(%error, "runtime status failed");
                // It may be another runtime, or another version, when it comes back.
                self.version = None;
                if self.answered.is_some_and(|at| now.duration_since(at) >= DOWN_AFTER) {
                    self.health.runtime = "container runtime is down".to_owned();
                }
            }
        }
        facts
    }
}

fn judge(status: &RuntimeStatus) -> Health {
    let text = |ready: bool, message: &str, otherwise: &str| match (ready, message) {
        (true, _) => String::new(),
        (false, "") => otherwise.to_owned(),
        (false, message) => message.to_owned(),
    };
    Health {
        runtime: text(
            status.runtime_ready,
            &status.runtime_message,
            "container runtime not ready",
        ),
        network: text(
            status.network_ready,
            &status.network_message,
            "container runtime network not ready",
        ),
    }
}

/// When to look next.
pub(super) struct Pace {
    begun: Instant,
    steady: Duration,
    was_ready: bool,
}

impl Pace {
    pub(super) fn new(steady: Duration) -> Self {
        Self {
            begun: Instant::now(),
            steady,
            was_ready: false,
        }
    }

    pub(super) fn next(&mut self, ready: bool) -> Duration {
        self.was_ready |= ready;
        match ready {
            true => self.steady,
            false if !self.was_ready && self.begun.elapsed() < FAST_FOR => FAST,
            false => UNREADY.min(self.steady),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn fast_until_ready_then_steady() {
        let steady = Duration::from_secs(10);
        let mut pace = Pace::new(steady);
        assert_eq!(pace.next(false), FAST);
        assert_eq!(pace.next(true), steady);
        assert_eq!(pace.next(false), UNREADY);
        let mut never = Pace::new(steady);
        tokio::time::advance(FAST_FOR).await;
        assert_eq!(never.next(false), UNREADY);
    }

    #[test]
    fn conditions_become_texts() {
        let mut status = RuntimeStatus {
            runtime_ready: true,
            network_ready: true,
            ..RuntimeStatus::default()
        };
        assert!(judge(&status).is_ready());
        status.network_ready = false;
        status.network_message = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized".into();
        let health = judge(&status);
        assert!(!health.is_ready());
        assert_eq!(health.problems(), [status.network_message.as_str()]);
    }
}
