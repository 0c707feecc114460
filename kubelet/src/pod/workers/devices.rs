//! What pods have of the node's devices, given and taken back together with the ledger's grants ([`crate::device`]). Plugins are asked
//! beside the loop: one that hangs holds up the pods that want its devices, and nobody else.

use super::Workers;
use super::pinning::Verdict;
use crate::admission::decide::Rejection;
use crate::device::draft::{self, Plan};
use crate::device::state::Refusal;
use crate::id::PodUid;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::{Id, JoinSet};

/// Pods whose devices are being given, or were; a pod that is let in or refused is not among them any more.
#[derive(Default)]
pub(super) struct Giving {
    tasks: JoinSet<Option<Rejection>>,
    of: BTreeMap<Id, PodUid>,
    pods: BTreeMap<PodUid, Step>,
}

enum Step {
    Asking,
    /// Done, or refused.
    Done(Option<Rejection>),
}

impl Giving {
    /// Whether the pod's devices are being given.
    pub(super) fn has(&self, uid: &PodUid) -> bool {
        self.pods.contains_key(uid)
    }

    /// Waits for the next pod that has its devices, or gets none; for ever while there is none. Cancel safe.
    pub(super) async fn next(&mut self) -> (PodUid, Option<Rejection>) {
        loop {
            let (id, refused) = match self.tasks.join_next_with_id().await {
                Some(Ok(done)) => done,
                // It panicked.
                Some(Err(error)) => (error.id(), Some(draft::rejection(&Refusal::Call(error.to_string())))),
                None => return std::future::pending().await,
            };
            if let Some(uid) = self.of.remove(&id) {
                return (uid, refused);
            }
        }
    }
}

impl Workers {
    /// What became of a pod whose devices are being given: it was judged before.
    pub(super) fn judged_before(&mut self, uid: &PodUid) -> Option<Verdict> {
        let refused = match self.giving.pods.get(uid)? {
            Step::Asking => return Some(Verdict::Later),
            Step::Done(refused) => refused.clone(),
        };
        self.giving.pods.remove(uid);
        Some(match refused {
            None => Verdict::Admitted,
            Some(refused) => {
                self.take_back(uid);
                Verdict::Rejected(refused)
            }
        })
    }

    /// Begins to give a pod that is let in its devices. They are its own at once: who is judged next sees none of them free.
    pub(super) fn give_devices(&mut self, uid: &PodUid, plan: Option<Plan>) -> Verdict {
        let Some(plan) = plan else { return Verdict::Admitted };
        let devices = self.shared.parts.devices.clone();
        if let Err(why) = devices.promise(&plan) {
            self.take_back(uid);
            return Verdict::Rejected(draft::rejection(&why));
        }
        let asking = async move { devices.give(&plan).await.err().map(|why| draft::rejection(&why)) };
        let id = self.giving.tasks.spawn(asking.boxed()).id();
        self.giving.of.insert(id, uid.clone());
        self.giving.pods.insert(uid.clone(), Step::Asking);
        Verdict::Later
    }

    /// A pod has its devices, or gets none. One that is not wanted any more gives everything back.
    pub(super) fn take_given(&mut self, (uid, refused): (PodUid, Option<Rejection>)) {
        if self.pods.borrow().desired.contains_key(&uid) {
            self.giving.pods.insert(uid, Step::Done(refused));
        } else {
            self.giving.pods.remove(&uid);
            self.take_back(&uid);
        }
    }

    /// Takes back all that a pod has of the node.
    pub(super) fn take_back(&mut self, uid: &PodUid) {
        self.ledger.release(uid);
        self.release_pinned(uid);
    }

    /// Gives up pods that are not wanted any more, though they have their devices.
    pub(super) fn drop_given(&mut self, desired: &BTreeMap<PodUid, Arc<Pod>>) {
        let gone = self.giving.pods.iter().filter(|(uid, step)| {
            let is_done = matches!(step, Step::Done(_));
            is_done && !desired.contains_key(*uid)
        });
        let gone: Vec<PodUid> = gone.map(|(uid, _)| uid.clone()).collect();
        for uid in gone {
            self.giving.pods.remove(&uid);
            self.take_back(&uid);
        }
    }
}
