//! Lets go of claims of pods that nobody looks after any more: those that went while no kubelet ran, above all (kubelet contract §8).

use super::Dra;
use crate::id::PodUid;
use crate::parts::Parts;
use crate::source::Pods;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often that is looked for while pods use claims.
const EVERY: Duration = Duration::from_secs(60);

/// Runs until shut down. While nobody uses a claim it only waits for the first.
pub async fn run(parts: Arc<Parts>, pods: watch::Receiver<Pods>, shutdown: CancellationToken) {
    let mut any = parts.dra.any.subscribe();
    let work = async {
        loop {
            if any.wait_for(|any| *any).await.is_err() {
                return;
            }
            turn(&parts, &pods).await;
            tokio::time::sleep(EVERY).await;
        }
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = work => {}
    }
}

async fn turn(parts: &Parts, pods: &watch::Receiver<Pods>) {
    let known = pods.borrow().clone();
    if !known.complete {
        return;
    }
    let is_desired = |uid: &PodUid| known.desired.contains_key(uid);
    // One that a worker has is the worker's until it is past that step.
    let worked_at = |uid: &PodUid| parts.pods.by_uid(uid).map(|pod| pod.ended);
    for uid in left(&parts.dra, is_desired, worked_at) {
        if let Err(error) = parts.dra.unprepare(&uid).await {
            tracing::warn!(pod = uid, %error, "claims of a pod that is gone are not let go of yet, trying again");
        }
    }
}

/// The pods that use claims and that nobody will let go for; `worked_at` tells of one with a worker whether it has ended.
fn left(
    dra: &Dra,
    is_desired: impl Fn(&PodUid) -> bool,
    worked_at: impl Fn(&PodUid) -> Option<bool>,
) -> BTreeSet<String> {
    let mut pods = dra.held().claims.pods();
    pods.retain(|uid| {
        let uid = PodUid::from(uid.as_str());
        worked_at(&uid).unwrap_or_else(|| !is_desired(&uid))
    });
    pods
}
