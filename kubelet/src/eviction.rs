//! Ending pods so that the node lives: those that outgrow limits of their own ([`local_storage`]), and those that must go because the
//! node runs short of something ([`guard`]).
//!
//! Owns the kills the node decides, which [`crate::pod::workers`] hands to the pods' workers: one way to die, as for every other
//! reason. What runs short is told in one place ([`crate::parts::Parts::pressure`]), which the node's status and admission read.

mod decide;
mod earlier;
mod grip;
pub mod guard;
mod hung;
pub mod local_storage;
mod measure;
mod message;
mod notice;
mod pressure;
mod rank;
mod reclaim;
mod sight;
#[cfg(test)]
mod tests;
pub mod threshold;
mod turns;

pub use reclaim::Reclaim;

use crate::id::PodUid;
use crate::pod::view::PodSnapshot;
use crate::pod::worker::Kill;
use crate::pod_object;
use client::ordered::CollectOrdered;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::watch;

/// The grace of a pod that must go at once, seconds.
const GRACE_SECONDS: i64 = 1;

/// The pods the node ends, until nothing of them is left.
pub type Kills = Arc<BTreeMap<PodUid, Kill>>;

/// What the node runs short of, or did until a moment ago.
pub type Conditions = BTreeSet<threshold::Condition>;

/// Where kills are decided. Clones decide for the same workers.
#[derive(Clone, Debug, Default)]
pub struct Killer {
    kills: watch::Sender<Kills>,
}

impl Killer {
    /// What is decided, for the owner of the workers.
    pub fn subscribe(&self) -> watch::Receiver<Kills> {
        self.kills.subscribe()
    }

    /// Ends a pod; one that ends already for a reason of the node's keeps its reason, and its grace if that is no longer.
    pub fn kill(&self, uid: PodUid, kill: Kill) {
        self.kills.send_if_modified(|kills| {
            let shorter = |old: &Kill| match (old.grace_seconds, kill.grace_seconds) {
                (Some(old), Some(new)) => new < old,
                (None, Some(_)) => true,
                (_, None) => false,
            };
            let news = kills.get(&uid).is_none_or(shorter);
            if news {
                let cause = kills.get(&uid).map_or(kill.cause, |old| old.cause.clone());
                Arc::make_mut(kills).insert(uid, Kill { cause, ..kill });
            }
            news
        });
    }

    /// Whether the pod is being ended.
    pub fn has(&self, uid: &PodUid) -> bool {
        self.kills.borrow().contains_key(uid)
    }

    /// Whether it is being ended with no more grace than there is in need.
    fn is_hurried(&self, uid: &PodUid) -> bool {
        let kills = self.kills.borrow();
        kills
            .get(uid)
            .is_some_and(|kill| kill.grace_seconds.is_some_and(|grace| grace <= GRACE_SECONDS))
    }

    /// Forgets pods nothing of which is left.
    fn forget_gone(&self, pods: &[Arc<PodSnapshot>]) {
        let there: BTreeSet<PodUid> = pods
            .iter()
            .map(|snapshot| pod_object::uid(&snapshot.pod))
            .collect_ordered();
        self.retain(|uid| there.contains(uid));
    }

    /// Forgets a pod nothing of which is left.
    pub fn forget(&self, gone: &PodUid) {
        self.retain(|uid| uid != gone);
    }

    fn retain(&self, stays: impl Fn(&PodUid) -> bool) {
        self.kills.send_if_modified(|kills| {
            let gone = kills.keys().any(|uid| !stays(uid));
            if gone {
                Arc::make_mut(kills).retain(|uid, _| stays(uid));
            }
            gone
        });
    }
}
