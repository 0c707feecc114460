//! Token cleaner: removes bootstrap tokens when they end.

use super::expiration;
use crate::controller::harness::{Controller, Wiring};
use crate::controller::informers::Informers;
use crate::controller::write::{self, Plan, Write};
use client::Key;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// The controller. Its keys are Secrets.
pub struct TokenCleaner {
    /// The shared informers.
    pub informers: Informers,
}

impl Controller for TokenCleaner {
    const NAME: &'static str = "token-cleaner";

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on_self(&self.informers.bootstrap_tokens);
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(secret) = self.informers.bootstrap_tokens.get_key(key) else {
            return Plan::default();
        };
        let left = left(&secret, now);
        let over = left.is_some_and(|left| left.is_zero());
        Plan {
            writes: over
                .then(|| Write::delete(write::SECRETS, &*secret))
                .into_iter()
                .collect(),
            again_in: left.filter(|_| !over),
            ..Plan::default()
        }
    }
}

/// How long the token lives yet; `None`: for ever.
pub(super) fn left(secret: &Secret, now: Timestamp) -> Option<Duration> {
    let end = expiration(secret)?;
    Some(Duration::try_from(end.duration_since(now)).unwrap_or(Duration::ZERO))
}
