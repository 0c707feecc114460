//! One member comes back with a snapshot, alone, while the others go on: as after `etcdctl snapshot restore` of one where `member remove` and
//! `member add` were needed. It takes part in raft, has other data than the others ever after, and etcd says nothing.
//!
//! Owns what must come of it: nobody believes it, whoever has nobody else to ask is told so, and what the message says helps.

use super::{AFTER, BEFORE, Load, MISSED, Report, ready};
use crate::members::{COUNT, Members};
use anyhow::{bail, ensure};
use etcd::{Deadlines, Etcd, Options};
use serde_json::json;
use std::time::Duration;
use store::Store;

/// Until when somebody who can compare nobody gives up.
const HASTE: Duration = Duration::from_secs(8);

/// See the module.
pub(super) async fn round(members: &mut Members, seed: u64) -> anyhow::Result<Report> {
    // A member that was replaced has a number that no restored one has.
    members.begin_anew()?;
    ready(members).await?;
    let load = Load::start(members, seed).await?;
    load.goes_on(BEFORE, "before a snapshot is taken").await?;
    let one = seed as usize % COUNT;
    // It is sent all of the log again; what is written over revisions alone may come out as it did for the others, once for all keys are there.
    members.put_whatever_is_there()?;
    let snapshot = members.snapshot(one)?;
    load.goes_on(MISSED, "after a snapshot was taken").await?;
    members.restore_alone(one, &snapshot)?;
    load.goes_on(AFTER, "although a member has other data").await?;
    members.check()?;
    is_noticed(members, one, &load).await?;
    members.replace(one)?;
    load.goes_on(AFTER, "after it was taken out and in again").await?;
    members.check()?;
    let (report, _) = load.end().await?;
    Ok(report)
}

/// Who comes now asks it before the others and is not misled, and where there is only one other nobody goes on.
async fn is_noticed(members: &Members, one: usize, load: &Load) -> anyhow::Result<()> {
    let known = load.stores[0].current_revision().await?;
    let anew = Etcd::open(members.options(one)).await?;
    let found = anew.current_revision().await?;
    ensure!(found >= known, "revision {found} after {known}");
    let options = members.options(one);
    let two = Options {
        servers: options.servers[..2].to_vec(),
        deadlines: Deadlines {
            start: HASTE,
            ..options.deadlines
        },
        ..options
    };
    let Err(refused) = Etcd::open(two).await else {
        let say = |member| members.ask(member, "maintenance/status", &json!({}));
        bail!("{:?} is not told from {:?}", say(one)?, say((one + 1) % COUNT)?);
    };
    let text = refused.to_string();
    ensure!(
        text.contains("have different data") && text.contains("etcdctl member remove"),
        "what is said of it is: {text}"
    );
    Ok(())
}
