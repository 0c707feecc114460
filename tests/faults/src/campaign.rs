//! Rounds of a campaign against etcd: clients ask and watchers follow while something breaks and heals; the judge has the last word.
//!
//! Owns what breaks, by seed. A seed chooses faults, keys and values; when exactly something happens is the machine's affair, and a
//! round's verdict must not depend on it.

mod alone;
mod restored;

use crate::drive::{self, Events, Following, Keys, Pause, Recorder};
use crate::history::{Answer, Event, Revision, Watcher, operations};
use crate::judge;
use crate::members::{COUNT, Members, Side};
use anyhow::{Context, ensure};
use bytes::Bytes;
use etcd::Etcd;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use store::{Expect, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Beyond it something hangs.
const LONG: Duration = Duration::from_secs(120);
const CLIENTS: usize = 5;
/// Acknowledged writes before something breaks, and after it has healed.
const BEFORE: usize = 100;
const AFTER: usize = 150;
/// Acknowledged writes that somebody misses while they are away.
const MISSED: usize = 50;
/// How long something stays broken, unless there are so many events earlier.
const BROKEN: (Duration, usize) = (Duration::from_secs(4), 600);

/// How long a slow member works, and then stands still: shorter than what makes the others elect another leader (etcd's default 1 s).
const SLOW: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(300));

/// How often it stands still.
const SLICES: usize = 12;

/// What breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The leader dies, and comes back.
    LeaderKilled,
    /// Another dies.
    FollowerKilled,
    /// The leader has no way to the others; clients reach it.
    LeaderWithoutPeers,
    /// Nobody reaches the leader.
    LeaderCut,
    /// Nobody reaches another.
    FollowerCut,
    /// Nobody reaches two of three, one of them the leader; clients reach the last.
    MajorityCut,
    /// Clients reach all members, and no member another.
    NoQuorum,
    /// Clients reach nobody.
    ClientsCut,
    /// The leader stands still for as long.
    LeaderFrozen,
    /// Another stands still for as long.
    FollowerFrozen,
    /// The leader works a small part of the time, and goes on leading.
    LeaderSlow,
    /// Another does.
    FollowerSlow,
    /// A member comes back with clocks that are days ahead, and then with those of before.
    ClockAhead,
    /// A member's data are gone; it joins again as a new one.
    MemberReplaced,
    /// History is compacted while a watcher is away.
    Compacted,
    /// All members come back with what they had a while ago, beneath who asks and follows.
    Restored,
    /// One of them does, alone, from a snapshot.
    RestoredAlone,
    /// What members tell one another comes late.
    PeersLate,
    /// What they tell one another is lost now and then, and so are their connections.
    PeersLossy,
    /// What clients ask and are answered comes late.
    ClientsLate,
    /// It is lost now and then, and so are their connections.
    ClientsLossy,
}

/// All of them, in the order of a campaign.
pub const FAULTS: [Fault; 21] = [
    Fault::LeaderKilled,
    Fault::LeaderWithoutPeers,
    Fault::MajorityCut,
    Fault::Compacted,
    Fault::FollowerKilled,
    Fault::LeaderCut,
    Fault::NoQuorum,
    Fault::MemberReplaced,
    Fault::FollowerCut,
    Fault::ClientsCut,
    Fault::LeaderFrozen,
    Fault::ClockAhead,
    Fault::LeaderSlow,
    Fault::Restored,
    Fault::FollowerFrozen,
    Fault::FollowerSlow,
    Fault::PeersLossy,
    Fault::ClientsLossy,
    Fault::RestoredAlone,
    Fault::PeersLate,
    Fault::ClientsLate,
];

/// What a round came to.
#[derive(Debug)]
pub struct Report {
    /// Operations by answer: done or read, refused by their condition, not done, unknown.
    pub counts: [usize; 4],
    /// What the judge found.
    pub wrong: Vec<String>,
}

impl Display for Report {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [answered, conflicts, not_done, unknown] = self.counts;
        write!(
            to,
            "{answered} answered, {conflicts} conflicts, {not_done} not done, {unknown} unknown: "
        )?;
        match self.wrong.len() {
            0 => write!(to, "fine"),
            count => write!(to, "{count} WRONG"),
        }
    }
}

/// What runs in a round.
struct Load {
    stores: Vec<Arc<dyn Store>>,
    events: Events,
    stop: Arc<AtomicBool>,
    /// Of the first watcher.
    pause: Arc<Pause>,
    goal: watch::Sender<Revision>,
    /// Beyond it something hangs.
    patience: Duration,
    clients: Vec<JoinHandle<()>>,
    watchers: Vec<JoinHandle<Watcher>>,
}

impl Load {
    /// Two stores, as of two API servers: each asks another member first.
    async fn start(members: &Members, seed: u64) -> anyhow::Result<Self> {
        let mut stores: Vec<Arc<dyn Store>> = Vec::new();
        for first in [seed as usize % COUNT, (seed as usize + 1) % COUNT] {
            stores.push(Arc::new(Etcd::open(members.options(first)).await?));
        }
        Ok(Self::over(stores, seed, LONG))
    }

    fn over(stores: Vec<Arc<dyn Store>>, seed: u64, patience: Duration) -> Self {
        let keys = Keys {
            prefix: format!("/registry/r{seed:x}/"),
            count: 6,
            value_max: 200,
        };
        let (recorder, events) = Recorder::kept();
        let (stop, pause) = (Arc::<AtomicBool>::default(), Arc::<Pause>::default());
        let (goal, _) = watch::channel(Revision::MAX);
        let door = |number: usize| drive::to(Arc::clone(&stores[number % stores.len()]));
        let client = |number| {
            let (recorder, stop) = (Arc::clone(&recorder), Arc::clone(&stop));
            tokio::spawn(drive::client(number, seed, keys.clone(), door(number), recorder, stop))
        };
        let watcher = |number: usize| {
            let never = Arc::<Pause>::default();
            let following = Following {
                name: format!("watcher {number}"),
                prefix: keys.prefix.clone(),
                pause: if number == 0 { Arc::clone(&pause) } else { never },
                goal: goal.subscribe(),
            };
            tokio::spawn(drive::follow(door(number), following))
        };
        let (clients, watchers) = ((0..CLIENTS).map(client).collect(), (0..3).map(watcher).collect());
        Self {
            events,
            stop,
            pause,
            clients,
            watchers,
            goal,
            patience,
            stores,
        }
    }

    fn count(&self) -> usize {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn answers(&self, is_one: impl Fn(&Answer) -> bool) -> usize {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let is_one = |event: &&Event| matches!(event, Event::Ended(_, answer) if is_one(answer));
        events.iter().filter(is_one).count()
    }

    async fn until(&self, what: &str, holds: impl Fn() -> bool) -> anyhow::Result<()> {
        let waiting = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(self.patience, waiting).await;
        waited.with_context(|| format!("not in {} s: {what}", self.patience.as_secs()))
    }

    /// Until so many more writes have been acknowledged: who answers reads alone does not go on.
    async fn goes_on(&self, more: usize, when: &str) -> anyhow::Result<()> {
        let written = || self.answers(|answer| matches!(answer, Answer::Done(_)));
        let goal = written() + more;
        let what = format!("{more} writes are acknowledged {when}");
        self.until(&what, || written() >= goal).await
    }

    /// Until somebody has been told that something was not done, or is not known to be.
    async fn is_felt(&self) -> anyhow::Result<()> {
        let failed = || self.answers(|answer| matches!(answer, Answer::NotDone | Answer::Unknown));
        let before = failed();
        self.until("somebody feels it", || failed() > before).await
    }

    /// While something is broken.
    async fn while_broken(&self) {
        let enough = self.count() + BROKEN.1;
        let going = async {
            while self.count() < enough {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // Nothing may be answered at all.
        let _ = tokio::time::timeout(BROKEN.0, going).await;
    }

    /// The first watcher is away while history goes on and is compacted.
    async fn compacts(&self) -> anyhow::Result<()> {
        self.pause.is_asked.store(true, Ordering::SeqCst);
        self.until("a watcher goes away", || self.pause.is_away.load(Ordering::SeqCst))
            .await?;
        self.goes_on(MISSED, "while a watcher is away").await?;
        let newest = self.stores[0].current_revision().await?;
        self.stores[0].compact(newest).await?;
        self.pause.is_asked.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Ends all; tells what the judge finds, and in how many parts the first watcher saw it.
    async fn end(self) -> anyhow::Result<(Report, usize)> {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            tokio::time::timeout(LONG, client)
                .await
                .context("a client that does not end")??;
        }
        let newest = self.stores[0].current_revision().await?;
        self.goal.send_replace(newest);
        let mut seen = Vec::new();
        for watcher in self.watchers {
            seen.push(
                tokio::time::timeout(LONG, watcher)
                    .await
                    .context("a watcher that reaches nothing")??,
            );
        }
        // No round has more history than its own.
        self.stores[0].compact(newest).await?;
        Ok((report(&self.events, &seen, newest), seen[0].parts.len()))
    }
}

/// What the judge finds; all must have seen everything up to `newest`.
fn report(events: &Events, seen: &[Watcher], newest: Revision) -> Report {
    let events = events.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut counts = [0; 4];
    for operation in operations(&events) {
        let kind = match operation.answer {
            Answer::Conflict(_) => 1,
            Answer::NotDone => 2,
            Answer::Unknown => 3,
            _ => 0,
        };
        counts[kind] += 1;
    }
    let wrong = judge(&events, seen, newest);
    Report { counts, wrong }
}

/// One round: all is well before it, and again after it.
///
/// # Errors
/// Something hangs, cannot be broken or mended, or is not felt by anybody.
pub async fn round(members: &mut Members, seed: u64, fault: Fault) -> anyhow::Result<Report> {
    match fault {
        Fault::Restored => return restored::round(members, seed).await,
        Fault::RestoredAlone => return alone::round(members, seed).await,
        _ => {}
    }
    let mut dice = StdRng::seed_from_u64(seed);
    let load = Load::start(members, seed).await?;
    load.goes_on(BEFORE, "before anything breaks").await?;
    let leader = members.leader()?;
    let other = (leader + dice.random_range(1..COUNT)) % COUNT;
    broken(members, fault, (leader, other), &mut dice, &load).await?;
    load.goes_on(AFTER, "although all is mended").await?;
    members.check()?;
    let (report, parts) = load.end().await?;
    ensure!(
        fault != Fault::Compacted || parts > 1,
        "a watcher did not miss what was compacted"
    );
    Ok(report)
}

/// Breaks something for a while, and mends it.
async fn broken(
    members: &mut Members,
    fault: Fault,
    (leader, other): (usize, usize),
    dice: &mut StdRng,
    load: &Load,
) -> anyhow::Result<()> {
    use Side::{Clients, Peers};
    let third = COUNT - leader - other;
    let links: &[(Side, usize)] = match fault {
        Fault::LeaderWithoutPeers => &[(Peers, leader)],
        Fault::LeaderCut => &[(Peers, leader), (Clients, leader)],
        Fault::FollowerCut => &[(Peers, other), (Clients, other)],
        Fault::MajorityCut => &[(Peers, leader), (Clients, leader), (Peers, other), (Clients, other)],
        Fault::NoQuorum => &[(Peers, leader), (Peers, other), (Peers, third)],
        Fault::ClientsCut => &[(Clients, leader), (Clients, other), (Clients, third)],
        _ => &[],
    };
    // How late in milliseconds, and how many of a thousand are lost: less than what makes others lead, most of the time.
    let weather = match fault {
        Fault::PeersLate => Some((Peers, 120, 0)),
        Fault::PeersLossy => Some((Peers, 20, 20)),
        Fault::ClientsLate => Some((Clients, 150, 0)),
        Fault::ClientsLossy => Some((Clients, 10, 30)),
        _ => None,
    };
    if let Some((side, late_ms, lost)) = weather {
        members.weather(side).set(Duration::from_millis(late_ms), lost);
    }
    for (side, member) in links {
        members.link(*side, *member, false)?;
    }
    match fault {
        Fault::LeaderKilled | Fault::FollowerKilled => {
            let member = if fault == Fault::LeaderKilled { leader } else { other };
            members.kill(member);
            felt(members, fault, (leader, other), load).await?;
            members.revive(member)?;
        }
        Fault::LeaderFrozen | Fault::FollowerFrozen => {
            let member = if fault == Fault::LeaderFrozen { leader } else { other };
            members.freeze(member, true)?;
            felt(members, fault, (leader, other), load).await?;
            members.freeze(member, false)?;
        }
        Fault::LeaderSlow => slow(members, leader).await?,
        Fault::FollowerSlow => slow(members, other).await?,
        Fault::ClockAhead => {
            members.skew(other, dice.random_range(1..1_000_000))?;
            felt(members, fault, (leader, other), load).await?;
            members.skew(other, 0)?;
        }
        Fault::MemberReplaced => {
            let before = members.number(other)?;
            members.replace(other)?;
            load.while_broken().await;
            ensure!(members.number(other)? != before, "a new member is the old one");
        }
        Fault::Compacted => load.compacts().await?,
        _ => felt(members, fault, (leader, other), load).await?,
    }
    for (side, member) in links {
        members.link(*side, *member, true)?;
    }
    if let Some((side, ..)) = weather {
        members.weather(side).set(Duration::ZERO, 0);
    }
    Ok(())
}

/// For a while a member works [`SLOW`]'s first part of the time and stands still for the second.
async fn slow(members: &Members, member: usize) -> anyhow::Result<()> {
    let (works, stands) = SLOW;
    for _ in 0..SLICES {
        members.freeze(member, true)?;
        tokio::time::sleep(stands).await;
        members.freeze(member, false)?;
        tokio::time::sleep(works).await;
    }
    Ok(())
}

/// While it is broken, until it is certain that the fault is one.
async fn felt(members: &Members, fault: Fault, (leader, other): (usize, usize), load: &Load) -> anyhow::Result<()> {
    if matches!(fault, Fault::MajorityCut | Fault::NoQuorum | Fault::ClientsCut) {
        // Nothing can be written, so somebody's time is over sooner or later.
        return load.is_felt().await;
    }
    load.while_broken().await;
    match fault {
        Fault::LeaderKilled | Fault::LeaderWithoutPeers | Fault::LeaderCut | Fault::LeaderFrozen => {
            // The others have one of theirs, whatever the old one says.
            members.leader_beside(leader).map(drop)
        }
        Fault::FollowerKilled | Fault::FollowerCut | Fault::FollowerFrozen => {
            ensure!(!members.answers(other), "a member is reached that should not be");
            Ok(())
        }
        Fault::ClockAhead => members.has_clocks_of_its_own(other),
        _ => Ok(()),
    }
}

/// Whether a cluster takes writes: it may have been started just now.
///
/// # Errors
/// It does not in two minutes.
pub async fn ready(members: &Members) -> anyhow::Result<()> {
    let store = Etcd::open(members.options(0)).await?;
    let put = async {
        while store
            .put("/registry/ready", Bytes::new(), Expect::Absent)
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LONG, put)
        .await
        .context("a cluster that takes writes")
}

#[cfg(test)]
mod tests;
