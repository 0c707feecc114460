//! Lets go of claims of pods that nobody looks after any more: those that went while no kubelet ran, above all (kubelet contract §8). Writes
//! what could not be written when it changed.

use super::Dra;
use crate::id::PodUid;
use crate::parts::Parts;
use crate::source::Pods;
use client::beat;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often that is looked for while pods use claims.
const EVERY: Duration = Duration::from_secs(60);

/// Runs until shut down. While nobody uses a claim, and that is on disk, it only waits for the first.
pub async fn run(parts: Arc<Parts>, pods: watch::Receiver<Pods>, shutdown: CancellationToken) {
    let mut any = parts.dra.any.subscribe();
    let work = async {
        loop {
            if !parts.dra.is_behind() && any.wait_for(|any| *any).await.is_err() {
                return;
            }
            turn(&parts, &pods).await;
            beat::wait(EVERY).await;
        }
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = work => {}
    }
}

async fn turn(parts: &Parts, pods: &watch::Receiver<Pods>) {
    if let Err(error) = parts.dra.keep_if_behind().await {
        tracing::warn!(%error, "which claims are prepared is not on disk, trying again");
    }
    let known = pods.borrow().clone();
    // Before the runtime was ever listed nobody knows what runs.
    if !known.complete || !parts.pleg.has_listed() {
        return;
    }
    let running = parts.pleg.known();
    let fate = |uid: &PodUid| Fate {
        is_desired: known.desired.contains_key(uid),
        runs: running.borrow().contains(uid),
        worked_at: parts.pods.by_uid(uid).map(|pod| pod.ended),
    };
    for uid in left(&parts.dra, fate) {
        if let Err(error) = parts.dra.unprepare(&uid).await {
            tracing::warn!(pod = uid, %error, "claims of a pod that is gone are not let go of yet, trying again");
        }
    }
}

/// What is known of a pod that uses claims.
#[derive(Clone, Copy, Debug)]
struct Fate {
    /// A source has it.
    is_desired: bool,
    /// The runtime has something of it: it may use the devices until that was looked at and ended.
    runs: bool,
    /// With a worker, whether that has ended it: until it is past that step the claims are its own to let go of.
    worked_at: Option<bool>,
}

impl Fate {
    /// Whether nobody else will let go of the claims. Pure.
    fn is_left(self) -> bool {
        match self.worked_at {
            Some(ended) => ended,
            None => !self.is_desired && !self.runs,
        }
    }
}

/// The pods that use claims and that nobody will let go for.
fn left(dra: &Dra, fate: impl Fn(&PodUid) -> Fate) -> BTreeSet<String> {
    let mut pods = dra.held().claims.pods();
    pods.retain(|uid| fate(&PodUid::from(uid.as_str())).is_left());
    pods
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_what_may_run_are_kept() {
        for (is_desired, runs, worked_at, left) in [
            (false, false, None, true),
            (true, false, None, false),
            // An orphan at which a look failed: nobody has ended it.
            (false, true, None, false),
            (false, true, Some(false), false),
            (true, true, Some(true), true),
        ] {
            let fate = Fate {
                is_desired,
                runs,
                worked_at,
            };
            assert_eq!(fate.is_left(), left, "{fate:?}");
        }
    }
}
