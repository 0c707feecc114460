//! `/metrics/slis`: what health checks said, each time they were asked.

use super::labels::{Counters, Labels, Numbers, counters, numbers};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// Counts answers of health checks. Cheap to clone.
#[derive(Clone)]
pub struct HealthMetrics {
    registry: Arc<Registry>,
    now: Numbers,
    total: Counters,
}

impl HealthMetrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::default();
        let now = numbers(
            &mut registry,
            "kubernetes_healthcheck",
            "What a health check said last: 1 is well",
        );
        let total = counters(
            &mut registry,
            "kubernetes_healthchecks",
            "Answers of health checks, by what they said",
        );
        Self {
            registry: Arc::new(registry),
            now,
            total,
        }
    }

    /// Counts what a check said. Checks are a fixed set.
    pub fn checked(&self, check: &'static str, well: bool) {
        let of = |status: Option<&'static str>| -> Labels {
            let mut of = vec![("name", check.into())];
            of.extend(status.map(|status| ("status", status.into())));
            of.push(("type", "healthz".into()));
            of
        };
        self.now.get_or_create(&of(None)).set(f64::from(u8::from(well)));
        let status = if well { "success" } else { "error" };
        self.total.get_or_create(&of(Some(status))).inc();
    }

    /// The text of the page.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        super::text::classic(&text)
    }
}
