//! The last two points of everything on a node, and the rates between them. Pure.
//!
//! Rules are metrics-server's: two points are never of two lives of a container, and what started within the resolution is measured
//! from its start. Kept small: a point takes 32 bytes, names are boxed once.

use super::page::{Page, PodPoints, Point};

/// How often points are taken, in milliseconds, as metrics-server.
pub(super) const RESOLUTION_MS: i64 = 15_000;
/// A container younger than this has no rate yet.
const FRESH_MIN_MS: i64 = 10_000;
/// Points nearer than this say nothing of a rate: the older pair is kept.
const WINDOW_MIN_MS: i64 = 1_000;

/// The last two points of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Track {
    last: Point,
    /// Before `last`, of the same life.
    prev: Option<Point>,
}

/// What something uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    /// When the window ended, in milliseconds since the epoch.
    pub(super) at_ms: i64,
    /// Its length; never less than a millisecond.
    pub(super) window_ms: i64,
    /// Billionths of a core.
    pub(super) nanocores: u64,
    /// Bytes.
    pub(super) memory: u64,
}

impl Track {
    /// After a new point of a container or node.
    fn after(before: Option<&Self>, new: Point) -> Self {
        let age = new.at_ms.saturating_sub(new.start_ms);
        if new.start_ms > 0 && (FRESH_MIN_MS..RESOLUTION_MS).contains(&age) {
            let start = Point {
                at_ms: new.start_ms,
                cpu_nanos: 0,
                ..new
            };
            return Self {
                last: new,
                prev: Some(start),
            };
        }
        // Another life: it began after what is known of the one before, or counts from anew.
        let same = before.filter(|before| new.start_ms < before.last.at_ms && new.cpu_nanos >= before.last.cpu_nanos);
        let Some(before) = same else {
            return Self { last: new, prev: None };
        };
        if new.at_ms >= before.last.at_ms.saturating_add(WINDOW_MIN_MS) {
            return Self {
                last: new,
                prev: Some(before.last),
            };
        }
        // The kubelet's own sample is still the same one, or its clock went back.
        Self {
            last: new,
            prev: before.prev.filter(|prev| prev.at_ms < new.at_ms),
        }
    }

    /// The rate between the two points, if they are two.
    fn rate(&self) -> Option<Rate> {
        let prev = self.prev.as_ref()?;
        let window_ms = self.last.at_ms.checked_sub(prev.at_ms).filter(|window| *window > 0)?;
        let used = self.last.cpu_nanos.checked_sub(prev.cpu_nanos)?;
        let nanocores = u128::from(used) * 1000 / u128::try_from(window_ms).ok()?;
        Some(Rate {
            at_ms: self.last.at_ms,
            window_ms,
            nanocores: u64::try_from(nanocores).ok()?,
            memory: self.last.memory,
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
struct PodHistory {
    namespace: Box<str>,
    name: Box<str>,
    /// Sorted by name.
    containers: Box<[(Box<str>, Track)]>,
}

/// All that is kept of a node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NodeHistory {
    node: Option<Track>,
    /// Sorted by namespace and name.
    pods: Box<[PodHistory]>,
}

/// What the containers of a pod use, by name.
pub(super) type PodRates = Vec<(Box<str>, Rate)>;

impl NodeHistory {
    /// After another page of its kubelet.
    pub(super) fn after(before: Option<&Self>, page: Page) -> Self {
        let old_node = before.and_then(|before| before.node.as_ref());
        let pods = page.pods.into_iter().map(|pod| {
            let old = before.and_then(|before| before.pod(&pod.namespace, &pod.name));
            PodHistory::after(old, pod)
        });
        Self {
            node: page.node.map(|point| Track::after(old_node, point)),
            pods: pods.collect(),
        }
    }

    /// What the node uses.
    pub(super) fn node_rate(&self) -> Option<Rate> {
        self.node.as_ref()?.rate()
    }

    /// What a pod's containers use: of all of them, or nothing.
    pub(super) fn pod_rates(&self, namespace: &str, name: &str) -> Option<PodRates> {
        let pod = self.pod(namespace, name)?;
        let rates = pod
            .containers
            .iter()
            .map(|(name, track)| Some((name.clone(), track.rate()?)));
        rates.collect()
    }

    fn pod(&self, namespace: &str, name: &str) -> Option<&PodHistory> {
        let wanted = (namespace, name);
        let found = self
            .pods
            .binary_search_by(|pod| (&*pod.namespace, &*pod.name).cmp(&wanted));
        found.ok().map(|at| &self.pods[at])
    }
}

impl PodHistory {
    fn after(before: Option<&Self>, pod: PodPoints) -> Self {
        let containers = pod.containers.into_iter().map(|(name, point)| {
            let known = before.map_or(&[][..], |before| &before.containers);
            let old = known.binary_search_by(|(old, _)| old.cmp(&name)).ok();
            let track = Track::after(old.map(|at| &known[at].1), point);
            (name, track)
        });
        Self {
            containers: containers.collect(),
            namespace: pod.namespace,
            name: pod.name,
        }
    }
}

#[cfg(test)]
mod tests;
