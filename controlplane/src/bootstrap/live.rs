//! Which API servers live, where several use one store: each keeps a record under `/registry/masterleases/`, as upstream's lease reconciler
//! does, and the Endpoints of the Service `kubernetes` list all of them.
//!
//! Owns these records. A record is its owner's word for as long as it has been seen to change within [`TTL`], by the reader's own clock
//! from the moment it *saw* the change; what is older is removed by whoever notices, and its owner, should it live, writes it anew. In etcd
//! it goes by itself as well: an API server of upstream's looks at nothing else.
//! Nothing is kept where the store is one process's own.

use super::{Facts, LOOK};
use crate::apiserver::ApiServer;
use crate::store::value::{TypeMeta, canonical};
use crate::store::window::ResourceWindow;
use crate::store::{Expect, Revision, StoreError};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Upstream's prefix: a key for each address.
pub(crate) const PREFIX: &str = "/registry/masterleases/";
/// How long a record lives that is not written again (upstream's `DefaultEndpointReconcilerTTL`).
pub(crate) const TTL: Duration = Duration::from_secs(15);

/// Records as seen, by address. Pure: times are of the reader's own clock.
#[derive(Debug, Default)]
struct Seen(BTreeMap<IpAddr, (Revision, Duration)>);

impl Seen {
    /// Takes in what there is at `now`; gives what has not changed for too long.
    fn see(&mut self, present: &BTreeMap<IpAddr, Revision>, now: Duration) -> BTreeMap<IpAddr, Revision> {
        self.0.retain(|ip, _| present.contains_key(ip));
        let mut over = BTreeMap::new();
        for (ip, revision) in present {
            let seen = self.0.entry(*ip).or_insert((*revision, now));
            if seen.0 != *revision {
                *seen = (*revision, now);
            }
            if now >= seen.1 + TTL {
                over.insert(*ip, *revision);
            }
        }
        over
    }

    /// Nothing could be seen for a while: what there is gets its whole time again from the next look on.
    fn restart(&mut self) {
        self.0.clear();
    }

    /// When the first of them will be over, if none changes.
    fn next_end(&self) -> Option<Duration> {
        self.0.values().map(|(_, since)| *since + TTL).min()
    }
}

/// What one API server knows of all that live, and its own record.
pub(super) struct Live {
    server: ApiServer,
    own: IpAddr,
    window: Arc<ResourceWindow>,
    changes: watch::Receiver<u64>,
    seen: Seen,
    origin: Instant,
    /// How often the own record has been written: no two writes say the same.
    written: u64,
    due: Instant,
}

impl Live {
    /// `None` where nobody else can be there, or where nobody could reach this server by its address.
    pub(super) fn of(server: &ApiServer, facts: &Facts) -> Option<Self> {
        if !server.store().is_shared() || facts.advertise.is_loopback() {
            return None;
        }
        let window = server.window().resource(PREFIX);
        Some(Self {
            server: server.clone(),
            own: facts.advertise,
            changes: window.changes(),
            window,
            seen: Seen::default(),
            origin: Instant::now(),
            written: 0,
            due: Instant::now(),
        })
    }

    /// Writes the own record when it is time, and removes those that are over. Gives the addresses of all that live.
    ///
    /// # Errors
    /// Whatever the store answers: then nothing is known anew, and nobody's time goes on: the others could not write either.
    pub(super) async fn look(&mut self) -> Result<BTreeSet<IpAddr>, StoreError> {
        let looked = self.look_now().await;
        if looked.is_err() {
            self.seen.restart();
        }
        looked
    }

    async fn look_now(&mut self) -> Result<BTreeSet<IpAddr>, StoreError> {
        // Who took this server for dead removed its record.
        let is_listed = self.present().contains_key(&self.own);
        let began = Instant::now();
        if began >= self.due || !is_listed {
            self.renew().await?;
            self.due = Instant::now() + LOOK;
        }
        if began.elapsed() >= LOOK {
            // The store was slow, to the others, too.
            self.seen.restart();
        }
        self.changes.mark_unchanged();
        let mut present = self.present();
        for (ip, revision) in self.seen.see(&present, self.origin.elapsed()) {
            if ip == self.own {
                continue;
            }
            // Until readers see it: what is not seen is over once more in the next look.
            match self.server.store().delete(&key(ip), revision).await {
                Ok(gone) => {
                    tracing::info!(%ip, "an API server does not live any more");
                    present.remove(&ip);
                    self.window.reach(gone).await?;
                }
                // It was removed by another, or written, in this moment.
                Err(StoreError::Conflict { current: None, .. }) => {
                    present.remove(&ip);
                    self.window.latest().await?;
                }
                Err(StoreError::Conflict {
                    current: Some(record), ..
                }) => self.window.reach(record.modified).await?,
                Err(error) => return Err(error),
            }
        }
        Ok(self.alike(present.into_keys().chain([self.own])))
    }

    /// Waits until something is to be looked at.
    pub(super) async fn changed(&mut self) {
        let end = self.seen.next_end().map_or(self.due, |end| self.origin + end);
        tokio::select! {
            biased;
            Ok(()) = self.changes.changed() => {}
            () = tokio::time::sleep_until(end.min(self.due)) => {}
        }
    }

    /// Removes the own record: this server ends. Gives the addresses of the others.
    ///
    /// # Errors
    /// Whatever the store answers.
    pub(super) async fn leave(self) -> Result<BTreeSet<IpAddr>, StoreError> {
        let store = self.server.store();
        let (_, records) = store.range(&key(self.own)).await?;
        if let Some(record) = records.iter().find(|record| *record.key == *key(self.own)) {
            let revision = store.delete(&record.key, record.modified).await?;
            self.window.reach(revision).await?;
        }
        Ok(self.alike(self.present().into_keys()))
    }

    /// Those of the own address's family: one list has one.
    fn alike(&self, addresses: impl Iterator<Item = IpAddr>) -> BTreeSet<IpAddr> {
        addresses.filter(|ip| ip.is_ipv4() == self.own.is_ipv4()).collect()
    }

    fn present(&self) -> BTreeMap<IpAddr, Revision> {
        let objects = self.window.cached().objects;
        let read = objects
            .iter()
            .filter_map(|(key, stored)| Some((key.strip_prefix(PREFIX)?.parse().ok()?, stored.revision)));
        read.collect()
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        self.written += 1;
        let record = json!({
            "metadata": {"generation": self.written},
            "subsets": [{"addresses": [{"ip": self.own}]}],
        });
        let raw = canonical(&TypeMeta::new("v1", "Endpoints"), &record);
        let key = key(self.own);
        let known = self
            .window
            .cached()
            .objects
            .get(key.as_str())
            .map(|stored| stored.revision);
        let mut expect = known.map_or(Expect::Absent, Expect::At);
        let revision = loop {
            match self.server.store().put(&key, raw.clone().into(), expect).await {
                Ok(revision) => break revision,
                Err(StoreError::Conflict { current, .. }) => {
                    expect = current.map_or(Expect::Absent, |record| Expect::At(record.modified));
                }
                Err(error) => return Err(error),
            }
        };
        self.window.reach(revision).await
    }
}

fn key(ip: IpAddr) -> String {
    format!("{PREFIX}{ip}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn who_does_not_write_is_over_by_the_readers_own_clock() {
        let ip = |last: u8| IpAddr::from([192, 0, 2, last]);
        let both = |a, b| BTreeMap::from([(ip(1), a), (ip(2), b)]);
        let mut seen = Seen::default();
        assert!(seen.see(&both(10, 11), at(100)).is_empty());
        assert_eq!(seen.next_end(), Some(at(115)));
        assert!(seen.see(&both(20, 11), at(114)).is_empty());
        assert_eq!(seen.see(&both(20, 11), at(115)), BTreeMap::from([(ip(2), 11)]));
        // It writes again in this moment, and lives.
        assert!(seen.see(&both(20, 30), at(115)).is_empty());
        // Removed and made again is a new record.
        assert!(seen.see(&BTreeMap::from([(ip(1), 40)]), at(120)).is_empty());
        assert!(seen.see(&both(40, 50), at(134)).is_empty());
        assert_eq!(seen.next_end(), Some(at(135)));
        // After a time in which nothing could be seen.
        seen.restart();
        assert!(seen.see(&both(40, 50), at(140)).is_empty());
        assert_eq!(seen.next_end(), Some(at(155)));
    }
}
