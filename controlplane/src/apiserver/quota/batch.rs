//! One turn of charges: everything that waits in a namespace is judged in its order, and each quota is written once.

use super::{ATTEMPTS, Refusal, Taken, Waiting, Writing, quotas, read, write};
use crate::apiserver::served::Served;
use crate::apiserver::state::ServerState;
use crate::quota::{Quota, Usage};
use crate::store::StoreError;
use crate::store::window::Stored;
use futures::future::join_all;
use std::sync::Arc;

/// A quota of the namespace as it was read.
struct Held {
    stored: Arc<Stored>,
    quota: Quota,
}

/// What has been decided of one that waits: its charges, or why there are none.
type Verdict = Result<Vec<Taken>, Refusal>;

/// Charges all that wait, and tells each what came of it.
pub(super) async fn settle(server: &ServerState, served: &Served, namespace: &str, all: Vec<Waiting>) {
    let mut held: Vec<Held> = quotas(served, namespace)
        .into_iter()
        .map(|stored| Held {
            quota: read(&stored),
            stored,
        })
        .collect();
    let mut verdicts: Vec<Verdict> = all.iter().map(|waiting| judge(&mut held, waiting)).collect();
    let writing = held.iter().enumerate().map(|(place, held)| {
        let charged: Vec<(usize, &Waiting, &Usage)> = charged(&verdicts, &held.stored.key)
            .map(|(index, added)| (index, &all[index], added))
            .collect();
        async move { (place, put(server, served, held, charged).await) }
    });
    let written = join_all(writing).await;
    // Somebody else changed the quota meanwhile, and what was to be charged to it is not: nor is it to any other.
    let mut undone: Vec<Taken> = Vec::new();
    let refused: Vec<(usize, usize, Refusal)> = written
        .into_iter()
        .flat_map(|(place, refused)| refused.into_iter().map(move |(index, why)| (place, index, why)))
        .collect();
    let failed = |key: &Arc<str>, index: usize| {
        let mut all = refused.iter();
        all.any(|(place, other, _)| *other == index && held[*place].stored.key == *key)
    };
    for (_, index, why) in &refused {
        let before = std::mem::replace(&mut verdicts[*index], Err(why.clone()));
        undone.extend(before.into_iter().flatten().filter(|taken| !failed(&taken.key, *index)));
    }
    give_back(server, served, &undone).await;
    for (waiting, verdict) in all.into_iter().zip(verdicts) {
        // Who does not listen any more keeps what was charged; it is counted anew.
        let _ = waiting.answer.send(verdict);
    }
}

/// What the verdicts charge to the quota under that key.
fn charged<'v>(verdicts: &'v [Verdict], key: &'v Arc<str>) -> impl Iterator<Item = (usize, &'v Usage)> {
    verdicts.iter().enumerate().flat_map(move |(index, verdict)| {
        let taken = verdict.iter().flatten().filter(move |taken| taken.key == *key);
        taken.map(move |taken| (index, &taken.added))
    })
}

/// Charges one demand to all quotas it falls under, or to none.
fn judge(held: &mut [Held], waiting: &Waiting) -> Verdict {
    let mut added: Vec<(usize, Usage)> = Vec::new();
    for (place, held) in held.iter().enumerate() {
        let usage = waiting.demand.on(&held.quota).map_err(Refusal::Quota)?;
        if !usage.is_empty() {
            added.push((place, usage));
        }
    }
    let mut charged = Vec::new();
    for (place, usage) in &added {
        let mut quota = held[*place].quota.clone();
        quota.charge(usage).map_err(Refusal::Quota)?;
        charged.push((*place, quota));
    }
    if waiting.dry_run {
        return Ok(Vec::new());
    }
    for (place, quota) in charged {
        held[place].quota = quota;
    }
    let taken = added.into_iter().map(|(place, added)| Taken {
        key: Arc::clone(&held[place].stored.key),
        added,
    });
    Ok(taken.collect())
}

/// Writes a quota with what is charged to it. Gives those that are not charged after all.
async fn put(
    server: &ServerState,
    served: &Served,
    held: &Held,
    mut charged: Vec<(usize, &Waiting, &Usage)>,
) -> Vec<(usize, Refusal)> {
    let mut refused = Vec::new();
    let (mut stored, mut used) = (Arc::clone(&held.stored), held.quota.used.clone());
    for _ in 0..ATTEMPTS {
        if charged.is_empty() {
            return refused;
        }
        match write(server, served, &stored, (Writing::Charge, &used)).await {
            Ok(()) => return refused,
            // It is gone, and bounds nothing any more.
            Err(StoreError::Conflict { current: None, .. }) => return refused,
            Err(StoreError::Conflict {
                current: Some(record), ..
            }) => stored = Arc::new(Stored::from(record)),
            Err(error) => {
                let failed = |(index, _, _)| (index, Refusal::Failed(error.to_string()));
                refused.extend(charged.into_iter().map(failed));
                return refused;
            }
        }
        let mut quota = read(&stored);
        charged.retain(|(index, waiting, added)| match again(&mut quota, waiting, added) {
            Ok(()) => true,
            Err(why) => {
                refused.push((*index, Refusal::Quota(why)));
                false
            }
        });
        used = quota.used;
    }
    let many = |(index, _, _)| (index, Refusal::Failed("resource quota evaluation timed out".to_owned()));
    refused.extend(charged.into_iter().map(many));
    refused
}

/// Charges what was to be charged to a quota that somebody changed.
fn again(quota: &mut Quota, waiting: &Waiting, added: &Usage) -> Result<(), String> {
    waiting.demand.on(quota)?;
    quota.charge(&crate::quota::masked(added, &quota.hard))
}

/// Takes charges back from the quotas that are still there.
pub(super) async fn give_back(server: &ServerState, served: &Served, taken: &[Taken]) {
    for taken in taken {
        for _ in 0..ATTEMPTS {
            let Some(resource) = served.resource("", "resourcequotas") else {
                return;
            };
            let found = resource.window.cached().objects.get(&*taken.key).map(Arc::clone);
            let Some(stored) = found else { break };
            let mut quota = read(&stored);
            quota.give_back(&taken.added);
            match write(server, served, &stored, (Writing::GiveBack, &quota.used)).await {
                Err(StoreError::Conflict {
                    current: Some(record), ..
                }) => {
                    let _ = resource.window.reach(record.modified).await;
                }
                // What stays charged is counted anew.
                _ => break,
            }
        }
    }
}
