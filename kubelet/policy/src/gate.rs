//! The gate between a pod's sandbox and its containers: this node knows a pod's addresses before anybody else does, and waits
//! here until its rules stand.
//!
//! In the kernel the gate has its other half: while the cluster has any policy, an address of this node's ranges that is no
//! known pod's is held back in both directions. So between the sandbox's first moment and [`Gate::prepare`] nothing reaches
//! the pod, and no time limit of ours lets anything through.
//!
//! That is so for addresses nobody has. One that is given out again while the API server still shows its old pod, on this
//! node and not finished, is known: until [`Gate::prepare`] has told the new pod, it has the old one's rules, and counts as the
//! old one where others' rules ask for it. From then on it is the new pod's alone, whatever is still shown of the old one. Of
//! two pods told of one address, it is that of the one told last; it does not fall back to the other.

use client::ordered::Arrange;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{Notify, watch};

use crate::facts::{Facts, PodId};

/// The rules of a pod do not stand yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Late {
    /// The kernel holds the pod's addresses back meanwhile: its containers may start, unheard, and their traffic passes when
    /// the rules stand.
    #[error("the pod's network policies are not in the kernel yet; its traffic is held back")]
    Held,
    /// It does not: policies are not known yet, or could not be brought into the kernel.
    #[error("the pod's network policies are not known yet, and its traffic is not held back")]
    Open,
}

/// How far the kernel is.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    revision: u64,
    is_holding: bool,
    /// There are no policies, as far as was known last.
    is_open: bool,
}

#[derive(Default)]
struct Local {
    revision: u64,
    /// With the revision they were told at last.
    pods: BTreeMap<PodId, (u64, Facts)>,
    /// Not taken yet.
    changed: BTreeSet<PodId>,
}

impl Local {
    /// Whether this is no news. It is some if another pod was told one of the addresses since.
    fn knows(&self, id: &PodId, facts: Option<&Facts>) -> bool {
        let (Some((at, old)), Some(new)) = (self.pods.get(id), facts) else {
            return !self.pods.contains_key(id) && facts.is_none();
        };
        let shares = |other: &Facts| other.addresses.iter().any(|addr| new.addresses.contains(addr));
        old == new && !self.pods.values().any(|(later, other)| later > at && shares(other))
    }

    /// These, those that are gone first.
    fn in_order(&self, ids: impl IntoIterator<Item = PodId>) -> Vec<(PodId, Option<Facts>)> {
        let told = |id: PodId| {
            let (at, facts) = self.pods.get(&id).cloned().unzip();
            (at, id, facts)
        };
        let mut all: Vec<_> = ids.into_iter().map(told).collect();
        all.arrange_by_key(|(at, ..)| *at);
        all.into_iter().map(|(_, id, facts)| (id, facts)).collect()
    }
}

struct Shared {
    local: Mutex<Local>,
    wake: Notify,
    reached: watch::Sender<Reached>,
}

/// See the module. Clones are of one gate.
#[derive(Clone)]
pub struct Gate(Arc<Shared>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Shared {
            local: Mutex::new(Local::default()),
            wake: Notify::new(),
            reached: watch::Sender::new(Reached::default()),
        }))
    }
}

impl Gate {
    /// A gate nobody has passed.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Local> {
        self.0.local.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Tells the addresses of a pod's new sandbox, and waits until the rules for them stand, at most so long. Without any
    /// policy in the cluster, and for pods in the node's network, that is at once. Cancel safe; the pod stays told.
    ///
    /// # Errors
    /// They do not stand in time. They will; asking again waits for it.
    pub async fn prepare(&self, pod: &Pod, addresses: &[IpAddr], at_most: Duration) -> Result<(), Late> {
        let on_host = pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false);
        if on_host {
            return Ok(());
        }
        let facts = Facts {
            is_local: true,
            is_subject: true,
            addresses: addresses.to_vec(),
            ..Facts::of(pod, "")
        };
        let wanted = self.tell(PodId::of(pod), Some(facts));
        let mut reached = self.0.reached.subscribe();
        let is_there = reached.wait_for(|reached| reached.is_open || reached.revision >= wanted);
        match tokio::time::timeout(at_most, is_there).await {
            Ok(_) => Ok(()),
            Err(_) if self.0.reached.borrow().is_holding => Err(Late::Held),
            Err(_) => Err(Late::Open),
        }
    }

    /// The pod's sandbox is gone; its addresses are unknown again.
    pub fn forget(&self, id: &PodId) {
        self.tell(id.clone(), None);
    }

    fn tell(&self, id: PodId, facts: Option<Facts>) -> u64 {
        let mut local = self.lock();
        if !local.knows(&id, facts.as_ref()) {
            local.revision += 1;
            let revision = local.revision;
            match facts {
                Some(facts) => local.pods.insert(id.clone(), (revision, facts)),
                None => local.pods.remove(&id),
            };
            local.changed.insert(id);
            self.0.wake.notify_one();
        }
        local.revision
    }

    /// Waits for something to take.
    pub(crate) async fn news(&self) {
        while self.lock().changed.is_empty() {
            self.0.wake.notified().await;
        }
    }

    /// What changed since it was last taken; in the order it was told, for an address is the one's who was told last.
    pub(crate) fn take(&self) -> (u64, Vec<(PodId, Option<Facts>)>) {
        let mut local = self.lock();
        let changed = std::mem::take(&mut local.changed);
        (local.revision, local.in_order(changed))
    }

    /// All local pods, as if none had been taken, in the order they were told.
    pub(crate) fn all(&self) -> (u64, Vec<(PodId, Option<Facts>)>) {
        let mut local = self.lock();
        local.changed.clear();
        let all: Vec<PodId> = local.pods.keys().cloned().collect();
        (local.revision, local.in_order(all))
    }

    /// Everything up to this revision is in the kernel. For who brings it there.
    pub fn reach(&self, revision: u64, is_holding: bool) {
        self.0.reached.send_modify(|reached| {
            reached.revision = reached.revision.max(revision);
            reached.is_holding = is_holding;
            reached.is_open = false;
        });
    }

    /// Whether pods are let in until the first [`Gate::reach`].
    pub(crate) fn open(&self, is_open: bool) {
        self.0.reached.send_modify(|reached| reached.is_open = is_open);
    }

    /// Whether unknown addresses are held back. For who has them held back.
    pub fn hold(&self, is_holding: bool) {
        self.0.reached.send_modify(|reached| reached.is_holding = is_holding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, on_host: bool) -> Pod {
        let text = json!({"metadata": {"namespace": "a", "name": name, "uid": name},
            "spec": {"containers": [], "hostNetwork": on_host}});
        serde_json::from_value(text).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_when_the_rules_stand_and_not_before() {
        let gate = Gate::new();
        let minute = Duration::from_secs(60);
        let addresses = ["10.0.0.9".parse().unwrap()];
        assert_eq!(gate.prepare(&pod("h", true), &addresses, minute).await, Ok(()));
        assert_eq!(
            gate.prepare(&pod("p", false), &addresses, minute).await,
            Err(Late::Open)
        );
        gate.open(true);
        assert_eq!(gate.prepare(&pod("p", false), &addresses, minute).await, Ok(()));
        gate.open(false);
        gate.hold(true);
        assert_eq!(
            gate.prepare(&pod("p", false), &addresses, minute).await,
            Err(Late::Held)
        );
        gate.news().await;
        let (revision, changes) = gate.take();
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[0].1.as_ref().unwrap().addresses, addresses);
        gate.reach(revision, true);
        assert_eq!(gate.prepare(&pod("p", false), &addresses, minute).await, Ok(()));
        assert_eq!(gate.prepare(&pod("q", false), &[], minute).await, Err(Late::Held));
        gate.forget(&PodId::of(&pod("p", false)));
        let (_, changes) = gate.take();
        let told: Vec<(&str, bool)> = changes
            .iter()
            .map(|(id, facts)| (id.key.name.as_str(), facts.is_some()))
            .collect();
        assert_eq!(told, [("p", false), ("q", true)]);
        assert_eq!(gate.all().1.len(), 1);
    }

    #[tokio::test]
    async fn what_is_told_is_taken_in_that_order() {
        let gate = Gate::new();
        let addresses = ["10.0.0.9".parse().unwrap()];
        let tell = async |name: &str| {
            let _ = gate.prepare(&pod(name, false), &addresses, Duration::ZERO).await;
        };
        let taken = |(_, list): (u64, Vec<(PodId, Option<Facts>)>)| -> Vec<String> {
            list.into_iter().map(|(id, _)| id.key.name).collect()
        };
        tell("z").await;
        tell("a").await;
        assert_eq!(taken(gate.take()), ["z", "a"]);
        assert_eq!(taken(gate.all()), ["z", "a"]);
        // Nothing new of the last; the first has its address back.
        tell("a").await;
        assert!(taken(gate.take()).is_empty());
        tell("z").await;
        assert_eq!(taken(gate.take()), ["z"]);
        assert_eq!(taken(gate.all()), ["a", "z"]);
    }
}
