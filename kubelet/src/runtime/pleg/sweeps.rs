//! Whether the sweeps go well: the node's sign that something of the runtime is no longer seen.

use crate::image::go_duration;
use crate::runtime::RuntimeError;
use std::time::Duration;
use tokio::time::Instant;

/// How long no sweep may succeed (kubelet contract §4.1).
const THRESHOLD: Duration = Duration::from_secs(180);

/// How the sweeps went.
#[derive(Clone, Debug)]
pub struct Sweeps {
    last: Instant,
    error: Option<RuntimeError>,
}

impl Sweeps {
    /// None was made yet.
    pub(super) fn begin() -> Self {
        Self {
            last: Instant::now(),
            error: None,
        }
    }

    pub(super) fn note<T>(&mut self, listed: &Result<T, RuntimeError>) {
        match listed {
            Ok(_) => *self = Self::begin(),
            Err(error) => self.error = Some(error.clone()),
        }
    }

    /// What the node has to say of it, if the last sweep is too long ago; told in whole minutes, so that it is not another
    /// text every time.
    pub fn problem(&self, now: Instant) -> Option<String> {
        let since = now - self.last;
        if since <= THRESHOLD {
            return None;
        }
        let minutes = Duration::from_secs(since.as_secs() / 60 * 60);
        let (ago, threshold) = (go_duration(minutes), go_duration(THRESHOLD));
        let why = self
            .error
            .as_ref()
            .map(|error| format!(": {error}"))
            .unwrap_or_default();
        Some(format!(
            "PLEG is not healthy: pleg was last seen active {ago} ago; threshold is {threshold}{why}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[tokio::test(start_paused = true)]
    async fn a_reply_that_is_too_large_is_named_after_three_minutes_until_one_is_not() {
        let mut sweeps = Sweeps::begin();
        let text = "grpc: received message larger than max (16777226 vs. 16777216)";
        sweeps.note::<()>(&Err(RuntimeError::new("ListContainers", Code::ResourceExhausted, text)));
        assert_eq!(sweeps.problem(Instant::now() + Duration::from_secs(180)), None);
        let told = sweeps.problem(Instant::now() + Duration::from_secs(205));
        assert_eq!(
            told.as_deref(),
            Some(
                "PLEG is not healthy: pleg was last seen active 3m0s ago; threshold is 3m0s: rpc error: code = ResourceExhausted \
                  desc = grpc: received message larger than max (16777226 vs. 16777216)"
            )
        );
        tokio::time::advance(Duration::from_secs(300)).await;
        assert!(sweeps.problem(Instant::now()).is_some());
        sweeps.note(&Ok(()));
        assert_eq!(sweeps.problem(Instant::now() + Duration::from_secs(100)), None);
    }
}
