//! A history that goes back: all members come back with what they had a while ago, as after `etcdctl snapshot restore`, beneath clients
//! and watchers that know what is there no more.
//!
//! Owns what must come of it: whoever knew the history that is gone is told nothing of the other, and ends; who comes anew finds what was
//! restored, and goes on.

use super::{AFTER, BEFORE, LONG, Load, MISSED, Report, report};
use crate::history::{Answer, Event};
use crate::members::Members;
use anyhow::{Context, ensure};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::StoreError;

/// Tells the seed of those who come anew from the seed of those who were there.
const ANEW: u64 = 1 << 40;

/// See the module.
pub(super) async fn round(members: &mut Members, seed: u64) -> anyhow::Result<Report> {
    let load = Load::start(members, seed).await?;
    load.goes_on(BEFORE, "before anything is saved").await?;
    members.save()?;
    load.goes_on(MISSED, "after all was saved").await?;
    for store in &load.stores {
        // Who was told nothing of what will be gone, because its members were not asked again so soon, would rightly go on.
        let told = async {
            while store.current_revision().await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let told = tokio::time::timeout(LONG, told).await;
        told.context("a store that is answered after all was saved")?;
    }
    members.restore()?;
    let before = end(load).await?;
    let load = Load::start(members, seed | ANEW).await?;
    load.goes_on(AFTER, "by who comes after all was restored").await?;
    members.check()?;
    let (mut report, _) = load.end().await?;
    report.wrong.extend(before.wrong);
    for (sum, count) in report.counts.iter_mut().zip(before.counts) {
        *sum += count;
    }
    Ok(report)
}

/// Everybody who knew what is gone finds that out, and is answered nothing any more.
async fn end(load: Load) -> anyhow::Result<Report> {
    for store in &load.stores {
        let over = async {
            while !matches!(store.current_revision().await, Err(StoreError::Unusable(_))) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let ended = tokio::time::timeout(LONG, over).await;
        ended.context("a store goes on with a history that is not what it has told")?;
    }
    let answered = || load.answers(|answer| !matches!(answer, Answer::NotDone | Answer::Unknown));
    // Who was being answered as it was found out has been by now.
    let asked = load.count();
    load.until("everybody asks again", || load.count() > asked + 4 * load.clients.len())
        .await?;
    let then = answered();
    let asked = load.count();
    load.until("everybody asks once more", || {
        load.count() > asked + 4 * load.clients.len()
    })
    .await?;
    ensure!(
        answered() == then,
        "something is answered from a history that is not what was told"
    );
    load.stop.store(true, Ordering::SeqCst);
    for client in load.clients {
        tokio::time::timeout(LONG, client)
            .await
            .context("a client that does not end")??;
    }
    // Nobody reaches what is there no more: what they were told before is looked at.
    load.goal.send_replace(0);
    let mut seen = Vec::new();
    for watcher in load.watchers {
        let watcher = tokio::time::timeout(LONG, watcher).await;
        seen.push(watcher.context("a watcher that does not end")??);
    }
    let newest = {
        let events = load.events.lock().unwrap_or_else(PoisonError::into_inner);
        let done = events.iter().filter_map(|event| match event {
            Event::Ended(_, Answer::Done(revision)) => Some(*revision),
            _ => None,
        });
        done.max().unwrap_or_default()
    };
    let beyond = seen
        .iter()
        .flat_map(|watcher| &watcher.parts)
        .flat_map(|part| &part.steps);
    ensure!(
        beyond.clone().count() > 0 && newest > 0,
        "nobody was told anything before all was restored"
    );
    Ok(report(&load.events, &seen, 0))
}
