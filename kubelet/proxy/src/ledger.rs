//! The state of the rules: what is served, and what each family's table was told. Pure; a change costs what it changes.

use client::ordered::CollectOrdered;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::desired::{Owner, Pool, elements, owner};
use crate::diff::{Book, Delta, Turn};
use crate::model::{PortName, Served, ServiceName, Snapshot};
use crate::settings::Settings;

mod pools;

use pools::Pools;

/// New state of some Services; `None` for those that are gone.
pub type Changes = BTreeMap<ServiceName, Option<Arc<[Served]>>>;

/// Deltas by family: `true` for IPv4.
pub type Deltas = BTreeMap<bool, Delta>;

/// What is served and what the tables were told.
#[derive(Debug, Default)]
pub struct Ledger {
    snapshot: Arc<Snapshot>,
    pools: Pools,
    books: BTreeMap<bool, Book>,
}

impl Ledger {
    /// A ledger of empty tables for the families the settings ask for.
    pub fn new(settings: &Settings) -> Self {
        let families = [(true, settings.ipv4), (false, settings.ipv6)];
        let books = families.into_iter().filter(|(_, wanted)| *wanted);
        Self {
            snapshot: Arc::default(),
            pools: Pools::default(),
            books: books.map(|(v4, _)| (v4, Book::default())).collect_ordered(),
        }
    }

    /// What is served.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Enters changes; returns what changes in each family's table.
    pub fn enter(&mut self, changes: Changes, settings: &Settings) -> Deltas {
        let mut next = Snapshot::clone(&self.snapshot);
        let mut pairs = Vec::with_capacity(changes.len());
        for (name, after) in changes {
            let before = match &after {
                Some(ports) => next.services.insert(Arc::new(name), ports.clone()),
                None => next.services.remove(&name),
            };
            pairs.push((before, after));
        }
        self.snapshot = Arc::new(next);
        let changed = pairs
            .iter()
            .flat_map(|(before, after)| turns(before.as_deref(), after.as_deref()));
        let ports: Vec<Port<'_>> = changed.map(|change| self.pools.enter(change)).collect();
        let made = |port: &Port<'_>, served: Option<&Served>, v4| match served {
            Some(served) => elements(served, port.pool, &settings.node_ips, v4),
            None => Vec::new(),
        };
        let turn = |port: &Port<'_>, v4| Turn {
            owner: port.owner,
            before: made(port, port.before, v4),
            after: made(port, port.after, v4),
        };
        let books = self.books.iter_mut();
        books
            .map(|(v4, book)| (*v4, book.enter(ports.iter().map(|port| turn(port, *v4)))))
            .collect_ordered()
    }
}

/// A port that changes.
struct Port<'a> {
    owner: Owner,
    pool: Pool,
    before: Option<&'a Served>,
    after: Option<&'a Served>,
}

impl Pools {
    fn enter<'a>(&mut self, (name, before, after): Ports<'a>) -> Port<'a> {
        let owner = owner(name);
        if before.is_none() {
            self.take(owner);
        }
        let pool = self.of(owner);
        if after.is_none() {
            // Who takes it now comes after what goes from it.
            self.give_back(owner);
        }
        Port {
            owner,
            pool,
            before,
            after,
        }
    }
}

type Ports<'a> = (&'a PortName, Option<&'a Served>, Option<&'a Served>);

/// The ports of a Service that are not as they were.
fn turns<'a>(before: Option<&'a [Served]>, after: Option<&'a [Served]>) -> Vec<Ports<'a>> {
    let mut ports: BTreeMap<&PortName, (Option<&Served>, Option<&Served>)> = BTreeMap::new();
    for served in before.unwrap_or_default() {
        ports.entry(&served.port.name).or_default().0 = Some(served);
    }
    for served in after.unwrap_or_default() {
        ports.entry(&served.port.name).or_default().1 = Some(served);
    }
    let changed = ports.into_iter().filter(|(_, (before, after))| before != after);
    changed.map(|(name, (before, after))| (name, before, after)).collect()
}
