//! The state of the rules: what is served, and what each family's table was told. Pure; a change costs what it changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::desired::{elements, owner};
use crate::diff::{Book, Delta, Turn};
use crate::model::{PortName, Served, ServiceName, Snapshot};
use crate::settings::Settings;

/// New state of some Services; `None` for those that are gone.
pub type Changes = BTreeMap<ServiceName, Option<Arc<[Served]>>>;

/// Deltas by family: `true` for IPv4.
pub type Deltas = BTreeMap<bool, Delta>;

/// What is served and what the tables were told.
#[derive(Debug, Default)]
pub struct Ledger {
    snapshot: Arc<Snapshot>,
    books: BTreeMap<bool, Book>,
}

impl Ledger {
    /// A ledger of empty tables for the families the settings ask for.
    pub fn new(settings: &Settings) -> Self {
        let families = [(true, settings.ipv4), (false, settings.ipv6)];
        let books = families.into_iter().filter(|(_, wanted)| *wanted);
        Self {
            snapshot: Arc::default(),
            books: books.map(|(v4, _)| (v4, Book::default())).collect(),
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
        let turns = |v4: bool| {
            let each = pairs
                .iter()
                .flat_map(|(before, after)| turns(before.as_deref(), after.as_deref()));
            let made = move |served: Option<&Served>| served.map(|served| elements(served, &settings.node_ips, v4));
            each.map(move |(name, before, after)| Turn {
                owner: owner(name),
                before: made(before).unwrap_or_default(),
                after: made(after).unwrap_or_default(),
            })
        };
        self.books
            .iter_mut()
            .map(|(v4, book)| (*v4, book.enter(turns(*v4))))
            .collect()
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
