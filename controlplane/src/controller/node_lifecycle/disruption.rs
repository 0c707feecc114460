//! How fast pods may be driven from silent nodes, by how much of their zone is silent. Pure.
//!
//! Source: control-plane contract §12. A few silent nodes are nodes that died; many are rather a network that did.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::time::Duration;

/// One node in ten seconds: 0.1 a second (`--node-eviction-rate`).
const INTERVAL: Duration = Duration::from_secs(10);
/// One node in a hundred seconds: 0.01 a second (`--secondary-node-eviction-rate`).
const SECONDARY_INTERVAL: Duration = Duration::from_secs(100);
/// Zones of at most this size stop when they are partly disrupted (`--large-cluster-size-threshold`).
const SMALL_ZONE: usize = 50;
/// So many percent of silent nodes are a partial disruption (`--unhealthy-zone-threshold` 0.55).
const UNHEALTHY_PERCENT: usize = 55;

const REGION: &str = "topology.kubernetes.io/region";
const ZONE: &str = "topology.kubernetes.io/zone";

/// The failure domain a node belongs to: region and zone, empty without labels.
pub(super) fn zone_of(node: &Node) -> (String, String) {
    let label = |name: &str| node.labels().get(name).cloned().unwrap_or_default();
    (label(REGION), label(ZONE))
}

/// Time between two nodes of a zone that is in this state; `None` stops it. That every zone is down is for the caller to see.
pub(super) fn interval(ready: usize, silent: usize) -> Option<Duration> {
    let size = ready + silent;
    let is_partial = silent > 2 && silent * 100 >= size * UNHEALTHY_PERCENT;
    match (ready, is_partial) {
        // A zone that is down as a whole, while others are not, goes at full speed.
        (0, _) | (_, false) => Some(INTERVAL),
        (_, true) if size > SMALL_ZONE => Some(SECONDARY_INTERVAL),
        (_, true) => None,
    }
}

/// When each zone's last node was tainted.
#[derive(Debug, Default)]
pub struct Limits(BTreeMap<(String, String), Timestamp>);

impl Limits {
    /// How long the zone's next node has to wait; zero when it may go now.
    pub(super) fn wait(&self, zone: &(String, String), interval: Duration, now: Timestamp) -> Duration {
        self.0.get(zone).map_or(Duration::ZERO, |last| {
            let since = Duration::try_from(now.duration_since(*last)).unwrap_or(Duration::ZERO);
            interval.saturating_sub(since)
        })
    }

    /// A node of the zone goes now.
    pub(super) fn note(&mut self, zone: (String, String), now: Timestamp) {
        self.0.insert(zone, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_the_zone() {
        for (ready, silent, expected) in [
            (9, 1, Some(INTERVAL)),
            (1, 2, Some(INTERVAL)),
            (2, 3, None),
            (45, 54, Some(INTERVAL)),
            (45, 55, Some(SECONDARY_INTERVAL)),
            (22, 28, None),
            (0, 7, Some(INTERVAL)),
        ] {
            assert_eq!(interval(ready, silent), expected, "{ready} ready, {silent} silent");
        }
    }

    #[test]
    fn zones_wait_for_themselves_alone() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let zone = |name: &str| ("r".to_owned(), name.to_owned());
        let mut limits = Limits::default();
        assert_eq!(limits.wait(&zone("a"), INTERVAL, at(0)), Duration::ZERO);
        limits.note(zone("a"), at(0));
        assert_eq!(limits.wait(&zone("a"), INTERVAL, at(4)), Duration::from_secs(6));
        assert_eq!(limits.wait(&zone("a"), INTERVAL, at(10)), Duration::ZERO);
        assert_eq!(limits.wait(&zone("b"), INTERVAL, at(4)), Duration::ZERO);
    }
}
