//! What the proxy counts, under upstream's names (`pkg/proxy/metrics`), and the pages of `metricsBindAddress`.
//!
//! Owns the numbers. Never reads rules or objects: whoever knows tells.

mod page;
mod text;

pub use page::{Page, handler};

use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most changes of endpoints whose time is kept until the next write.
const TRIGGERS_MAX: usize = 10_000;

/// What was probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// `/healthz`.
    Healthz,
    /// `/livez`.
    Livez,
}

/// How often values were at most so much.
#[derive(Clone, Debug, Default, PartialEq)]
struct Histogram {
    /// One for each bound: how many values are at most that.
    buckets: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    fn observe(&mut self, bounds: &[f64], value: f64) {
        self.buckets.resize(bounds.len(), 0);
        for (bucket, bound) in self.buckets.iter_mut().zip(bounds) {
            *bucket += u64::from(value <= *bound);
        }
        self.sum += value;
        self.count += 1;
    }
}

/// 1 ms and its doubles, up to 16 s.
fn sync_bounds() -> Vec<f64> {
    (0..15).map(|power| 0.001 * f64::from(1 << power)).collect()
}

/// Quarters of a second, seconds, then steps of five and of thirty, up to five minutes.
fn programming_bounds() -> Vec<f64> {
    let steps = |first: f64, width: f64, count: i32| (0..count).map(move |step| first + width * f64::from(step));
    let all = steps(0.0, 0.25, 3).chain(steps(1.0, 1.0, 59));
    all.chain(steps(60.0, 5.0, 12)).chain(steps(120.0, 30.0, 7)).collect()
}

/// The numbers; those by family are in the order of the proxy's families.
#[derive(Clone, Debug, Default, PartialEq)]
struct Numbers {
    conntrack_deleted: Vec<u64>,
    conntrack_seconds: Vec<Histogram>,
    programming_seconds: Histogram,
    /// When what waits for the next write happened.
    triggers: Vec<Timestamp>,
    healthz: BTreeMap<u16, u64>,
    livez: BTreeMap<u16, u64>,
    full_seconds: Histogram,
    partial_seconds: Histogram,
    sync_seconds: Histogram,
    endpoint_changes_pending: u64,
    endpoint_changes: u64,
    service_changes_pending: u64,
    service_changes: u64,
    /// Seconds since 1970.
    last_queued: f64,
    last_synced: f64,
    sync_failures: u64,
    /// Services of a Local policy without an endpoint here, by family: internal and external.
    no_local: Vec<(u64, u64)>,
}

/// What the proxy counts. Clones are the same.
#[derive(Clone, Debug)]
pub struct Metrics {
    numbers: Arc<Mutex<Numbers>>,
    begun: Timestamp,
    families: &'static [&'static str],
}

impl Metrics {
    /// Of a proxy of these families that begins now.
    pub fn new(families: &'static [&'static str], begun: Timestamp) -> Self {
        let numbers = Numbers {
            conntrack_deleted: vec![0; families.len()],
            conntrack_seconds: vec![Histogram::default(); families.len()],
            no_local: vec![(0, 0); families.len()],
            ..Numbers::default()
        };
        Self {
            numbers: Arc::new(Mutex::new(numbers)),
            begun,
            families,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A probe was answered.
    pub fn probed(&self, probe: Probe, code: u16) {
        let mut numbers = self.lock();
        let counts = match probe {
            Probe::Healthz => &mut numbers.healthz,
            Probe::Livez => &mut numbers.livez,
        };
        *counts.entry(code).or_default() += 1;
    }

    /// A change waits.
    pub fn queued(&self, now: Timestamp) {
        self.lock().last_queued = now.as_duration().as_secs_f64();
    }

    /// Changes of objects were seen and wait for the next write. What happened before this process began says nothing of how long it
    /// takes.
    pub fn changed(&self, services: usize, endpoints: usize, triggers: &[Timestamp]) {
        let mut numbers = self.lock();
        let room = TRIGGERS_MAX.saturating_sub(numbers.triggers.len());
        let of_ours = triggers.iter().filter(|trigger| **trigger >= self.begun);
        numbers.triggers.extend(of_ours.take(room));
        numbers.service_changes += services as u64;
        numbers.service_changes_pending += services as u64;
        numbers.endpoint_changes += endpoints as u64;
        numbers.endpoint_changes_pending += endpoints as u64;
    }

    /// Everything known was written, in that time.
    pub fn synced(&self, took: Duration, full: bool, now: Timestamp) {
        let (mut numbers, bounds) = (self.lock(), sync_bounds());
        let programming = programming_bounds();
        for trigger in std::mem::take(&mut numbers.triggers) {
            let after = now.duration_since(trigger).as_secs_f64().max(0.0);
            numbers.programming_seconds.observe(&programming, after);
        }
        numbers.sync_seconds.observe(&bounds, took.as_secs_f64());
        let kind = match full {
            true => &mut numbers.full_seconds,
            false => &mut numbers.partial_seconds,
        };
        kind.observe(&bounds, took.as_secs_f64());
        (numbers.service_changes_pending, numbers.endpoint_changes_pending) = (0, 0);
        numbers.last_synced = now.as_duration().as_secs_f64();
    }

    /// A write failed.
    pub fn failed(&self) {
        self.lock().sync_failures += 1;
    }

    /// How many Services have a Local policy and no endpoint here, by family: internal and external.
    pub fn no_local_endpoints(&self, of_family: impl Fn(&str) -> (u64, u64)) {
        let counted = self.families.iter().map(|family| of_family(family)).collect();
        self.lock().no_local = counted;
    }

    /// Connections of a family were looked over and some deleted.
    pub fn swept(&self, family: &str, took: Duration, deleted: usize) {
        let (mut numbers, bounds) = (self.lock(), sync_bounds());
        if let Some(at) = self.families.iter().position(|of| *of == family) {
            numbers.conntrack_deleted[at] += deleted as u64;
            numbers.conntrack_seconds[at].observe(&bounds, took.as_secs_f64());
        }
    }

    /// The text scrapers get.
    pub fn text(&self) -> String {
        let numbers = self.lock().clone();
        text::render(&numbers, self.families)
    }
}

#[cfg(test)]
mod tests;
