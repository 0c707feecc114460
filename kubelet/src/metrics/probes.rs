//! `/metrics/probes`: how each container's probes went. A pod's series go with its probes, so there are never more than probes.

use super::labels::{Counters, Histograms, Labels, counters, histograms};
use crate::probe::outcome::Kind;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::time::Duration;

/// Seconds.
const BUCKETS: &[f64] = super::labels::DEFAULT_BUCKETS;

/// How one check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// It passed.
    Successful,
    /// It did not.
    Failed,
    /// It could not be carried out.
    Unknown,
}

impl ProbeResult {
    const ALL: [Self; 3] = [Self::Successful, Self::Failed, Self::Unknown];

    fn name(self) -> &'static str {
        match self {
            Self::Successful => "successful",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// Whose probe it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's UID.
    pub uid: String,
    /// The container's name.
    pub container: String,
    /// Which of its probes.
    pub kind: Kind,
}

/// The probes of one kubelet. Cheap to clone.
#[derive(Clone)]
pub struct ProbeMetrics {
    registry: Arc<Registry>,
    total: Counters,
    durations: Histograms,
}

impl ProbeMetrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::default();
        let total = counters(
            &mut registry,
            "prober_probe",
            "Probes of a container, by kind and by how they ended",
        );
        let durations = histograms(
            &mut registry,
            "prober_probe_duration_seconds",
            "Time that probes of a container took",
            BUCKETS,
        );
        Self {
            registry: Arc::new(registry),
            total,
            durations,
        }
    }

    /// Counts a check.
    pub fn checked(&self, probed: &Probed, result: ProbeResult, took: Duration) {
        self.total.get_or_create(&counted(probed, result)).inc();
        let of = timed(probed);
        self.durations.get_or_create(&of).observe(took.as_secs_f64());
    }

    /// Forgets a probe that is over.
    pub fn forget(&self, probed: &Probed) {
        for result in ProbeResult::ALL {
            self.total.remove(&counted(probed, result));
        }
        self.durations.remove(&timed(probed));
    }

    /// The text of the page.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        super::text::classic(&text)
    }
}

fn counted(probed: &Probed, result: ProbeResult) -> Labels {
    vec![
        ("probe_type", probed.kind.name().into()),
        ("result", result.name().into()),
        ("container", probed.container.clone().into()),
        ("pod", probed.pod.clone().into()),
        ("namespace", probed.namespace.clone().into()),
        ("pod_uid", probed.uid.clone().into()),
    ]
}

fn timed(probed: &Probed) -> Labels {
    vec![
        ("probe_type", probed.kind.name().into()),
        ("container", probed.container.clone().into()),
        ("pod", probed.pod.clone().into()),
        ("namespace", probed.namespace.clone().into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_counted_until_it_is_over() {
        let metrics = ProbeMetrics::new();
        let probed = Probed {
            namespace: "ns".into(),
            pod: "p".into(),
            uid: "u".into(),
            container: "c".into(),
            kind: Kind::Liveness,
        };
        metrics.checked(&probed, ProbeResult::Failed, Duration::from_millis(20));
        let text = metrics.text();
        for line in [
            "# TYPE prober_probe_total counter",
            r#"prober_probe_total{probe_type="Liveness",result="failed",container="c",pod="p",namespace="ns",pod_uid="u"} 1"#,
            r#"prober_probe_duration_seconds_count{probe_type="Liveness",container="c",pod="p",namespace="ns"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        metrics.forget(&probed);
        assert!(!metrics.text().contains("pod=\"p\""), "{}", metrics.text());
    }
}
