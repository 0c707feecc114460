//! How fast pods may be driven from silent nodes, by how much of their zone is silent. Pure.
//!
//! Source: control-plane contract §12. A few silent nodes are nodes that died; many are rather a network that did; and if no node at all is
//! heard of, it is rather we who are cut off.

use super::census::Count;
use crate::held::Node;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

const REGION: &str = "topology.kubernetes.io/region";
const ZONE: &str = "topology.kubernetes.io/zone";

/// How fast; the flags are upstream's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Nodes a second of a zone that is well, or down as a whole while others are not (`--node-eviction-rate`). 0 is none.
    pub nodes_per_second: f64,
    /// Nodes a second of a large zone that is partly disrupted (`--secondary-node-eviction-rate`). 0 is none.
    pub secondary_nodes_per_second: f64,
    /// The part of silent nodes that makes a zone partly disrupted, if they are more than two (`--unhealthy-zone-threshold`).
    pub unhealthy_zone: f64,
    /// A zone of at most so many nodes stops when it is partly disrupted (`--large-cluster-size-threshold`).
    pub large_cluster_nodes: usize,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            nodes_per_second: 0.1,
            secondary_nodes_per_second: 0.01,
            unhealthy_zone: 0.55,
            large_cluster_nodes: 50,
        }
    }
}

/// What a zone's nodes say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Normal,
    Partial,
    Full,
}

impl Rates {
    pub(super) fn state_of(&self, Count { ready, silent }: Count) -> State {
        // Of numbers of nodes no digit is lost.
        #[expect(clippy::cast_precision_loss)]
        let part = silent as f64 / (ready + silent).max(1) as f64;
        match (ready, silent) {
            (0, 1..) => State::Full,
            (_, 3..) if part >= self.unhealthy_zone => State::Partial,
            _ => State::Normal,
        }
    }

    /// Time between two nodes of a zone; `None` stops it. `has_ready` says whether any node of any zone is ready.
    pub(super) fn interval(&self, has_ready: bool, zone: Count) -> Option<Duration> {
        let rate = match self.state_of(zone) {
            _ if !has_ready => 0.0,
            State::Normal | State::Full => self.nodes_per_second,
            State::Partial if zone.ready + zone.silent > self.large_cluster_nodes => self.secondary_nodes_per_second,
            State::Partial => 0.0,
        };
        // What is never due is none: a rate of nothing, or of next to nothing.
        Duration::try_from_secs_f64(1.0 / rate).ok()
    }
}

/// The failure domain a node belongs to: region and zone, empty without labels.
pub(super) fn zone_of(node: &Node) -> (String, String) {
    let label = |name: &str| node.labels().get(name).cloned().unwrap_or_default();
    (label(REGION), label(ZONE))
}

/// Upstream's key of a failure domain, by which metrics name it: no label has what stands between the two.
pub(super) fn key_of((region, zone): &(String, String)) -> String {
    match region.is_empty() && zone.is_empty() {
        true => String::new(),
        false => format!("{region}:\0:{zone}"),
    }
}

/// When each zone's last node was tainted. No clock that somebody sets says how long ago that is.
#[derive(Debug, Default)]
pub struct Limits(BTreeMap<(String, String), Instant>);

impl Limits {
    /// How long the zone's next node has to wait; zero when it may go now.
    pub(super) fn wait(&self, zone: &(String, String), interval: Duration, now: Instant) -> Duration {
        self.0.get(zone).map_or(Duration::ZERO, |last| {
            interval.saturating_sub(now.saturating_duration_since(*last))
        })
    }

    /// A node of the zone goes now. Zones that are no more are forgotten: whoever labels nodes makes as many as he likes.
    pub(super) fn note(&mut self, zone: (String, String), now: Instant, is_zone: impl Fn(&(String, String)) -> bool) {
        self.0.retain(|zone, _| is_zone(zone));
        self.0.insert(zone, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Option<Duration> = Some(Duration::from_secs(10));
    const HUNDRED: Option<Duration> = Some(Duration::from_secs(100));

    #[test]
    fn the_rate_follows_the_zone() {
        let rates = Rates::default();
        for (ready, silent, state, expected) in [
            (0, 0, State::Normal, TEN),
            (9, 1, State::Normal, TEN),
            (1, 2, State::Normal, TEN),
            (2, 3, State::Partial, None),
            (9, 11, State::Partial, None),
            (45, 54, State::Normal, TEN),
            (45, 55, State::Partial, HUNDRED),
            (22, 28, State::Partial, None),
            (22, 29, State::Partial, HUNDRED),
            (0, 1, State::Full, TEN),
            (0, 70, State::Full, TEN),
        ] {
            let zone = Count { ready, silent };
            assert_eq!(rates.state_of(zone), state, "{zone:?}");
            assert_eq!(rates.interval(true, zone), expected, "{zone:?}");
            assert_eq!(rates.interval(false, zone), None, "nothing goes when all are down");
        }
    }

    #[test]
    fn every_rate_is_the_administrators() {
        let rates = Rates {
            nodes_per_second: 2.0,
            secondary_nodes_per_second: 0.5,
            unhealthy_zone: 0.25,
            large_cluster_nodes: 10,
        };
        let interval = |rates: Rates, ready, silent| rates.interval(true, Count { ready, silent });
        assert_eq!(interval(rates, 9, 1), Some(Duration::from_millis(500)));
        assert_eq!(interval(rates, 7, 3), None);
        assert_eq!(interval(rates, 8, 3), Some(Duration::from_secs(2)));
        let stopped = Rates {
            nodes_per_second: 0.0,
            secondary_nodes_per_second: 0.0,
            ..rates
        };
        for (ready, silent) in [(9, 1), (8, 3), (0, 3)] {
            assert_eq!(interval(stopped, ready, silent), None);
        }
        let never = Rates {
            nodes_per_second: f64::MIN_POSITIVE,
            ..rates
        };
        assert_eq!(interval(never, 9, 1), None);
    }

    #[test]
    fn zones_wait_for_themselves_alone() {
        let begun = Instant::now();
        let at = |second| begun + Duration::from_secs(second);
        let zone = |name: &str| ("r".to_owned(), name.to_owned());
        let interval = Duration::from_secs(10);
        let mut limits = Limits::default();
        assert_eq!(limits.wait(&zone("a"), interval, at(0)), Duration::ZERO);
        limits.note(zone("a"), at(0), |_| true);
        assert_eq!(limits.wait(&zone("a"), interval, at(4)), Duration::from_secs(6));
        assert_eq!(limits.wait(&zone("a"), interval, at(10)), Duration::ZERO);
        assert_eq!(limits.wait(&zone("b"), interval, at(4)), Duration::ZERO);
        for number in 0..100 {
            limits.note(zone(&number.to_string()), at(5), |known| *known == zone("a"));
        }
        assert_eq!(limits.0.keys().cloned().collect::<Vec<_>>(), [zone("99"), zone("a")]);
        assert_eq!(limits.wait(&zone("a"), interval, at(5)), Duration::from_secs(5));
    }
}
