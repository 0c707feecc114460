//! Rules and changes of elements as batches for the kernel, and the connection they go by. Owns the two tables of the proxy's
//! name, and nothing else in the kernel.

use std::collections::{BTreeMap, BTreeSet};

use netlink::nft::bulk::Fingerprint;
use netlink::nft::expression::Verdict;
use netlink::nft::set::{Element, Value};
use netlink::nft::{Batch, Chain, Connection, Error, Family, feature};

use crate::desired::{Class, Set};
use crate::diff::Delta;
use crate::rules::{AFFINITY, ChainRules, Writer, dispatch_map};

mod clients;

use clients::Clients;

/// The name of the proxy's table, in the families `ip` and `ip6`.
pub const TABLE: &str = "skiff-proxy";
const COMMENT: &str = "Services of the cluster; written by the proxy, changes by others are undone";

const FAMILIES: [Family; 2] = [Family::Ipv4, Family::Ipv6];

fn chain<'a>(family: Family, name: &'a str) -> Chain<'a> {
    Chain {
        family,
        table: TABLE,
        name,
    }
}

fn add_chains(batch: &mut Batch, family: Family, chains: &[ChainRules]) {
    for made in chains {
        batch.add_chain(chain(family, &made.name), made.base, None);
    }
    for made in chains {
        for rule in &made.rules {
            batch.add_steps(chain(family, &made.name), rule);
        }
    }
}

/// The elements that lead to the chains of classes, by map.
fn by_map(classes: &BTreeSet<Class>) -> BTreeMap<&'static str, Vec<Element>> {
    let mut maps: BTreeMap<&'static str, Vec<Element>> = BTreeMap::new();
    for class in classes {
        let goto = Value::Verdict(Verdict::Goto(class.chain()));
        let element = Element::new(&class.number().to_ne_bytes(), &goto);
        maps.entry(dispatch_map(*class)).or_default().push(element);
    }
    maps
}

fn element(set: Set, (key, data): (&[u8], &[u8])) -> Element {
    match set {
        Set::Allowed => {
            let (first, last) = key.split_at(key.len() / 2);
            Element::range(first, last)
        }
        _ if data.is_empty() => Element::new(key, &Value::Nothing),
        _ => Element::new(key, &Value::Bytes(data.to_vec())),
    }
}

/// Adds the changes of a family to a batch: what goes, then chains, then what comes.
pub fn add_delta(batch: &mut Batch, writer: &Writer<'_>, delta: &Delta) {
    let family = writer.family();
    for (set, pairs) in &delta.gone {
        let gone = pairs.iter().map(|pair| element(*set, pair));
        batch.delete_elements(family, TABLE, set.name(), gone);
    }
    if !delta.classes_gone.is_empty() {
        for (map, elements) in by_map(&delta.classes_gone) {
            batch.delete_elements(family, TABLE, map, elements.into_iter());
        }
        // A chain may go once no other goes to it: first what they do, then they.
        for class in &delta.classes_gone {
            batch.flush_chain(chain(family, &class.chain()));
        }
        for class in &delta.classes_gone {
            batch.delete_chain(chain(family, &class.chain()));
        }
    }
    let chains: Vec<ChainRules> = delta.classes_come.iter().map(|class| writer.class(*class)).collect();
    add_chains(batch, family, &chains);
    for (map, elements) in by_map(&delta.classes_come) {
        batch.add_elements(family, TABLE, map, elements.into_iter());
    }
    for (set, pairs) in &delta.come {
        let come = pairs.iter().map(|pair| element(*set, pair));
        batch.add_elements(family, TABLE, set.name(), come);
    }
}

/// Adds a whole table to a batch, in place of the one that may be there.
fn add_table(batch: &mut Batch, writer: &Writer<'_>, delta: &Delta, clients: &Clients) {
    let family = writer.family();
    remove_table(batch, family);
    batch.add_table(family, TABLE, Some(COMMENT));
    for set in writer.sets() {
        batch.add_set(family, TABLE, &set);
    }
    add_chains(batch, family, &writer.chains());
    add_delta(batch, writer, delta);
    batch.add_elements(
        family,
        TABLE,
        AFFINITY,
        clients.iter().map(|client| Element::timed(&client)),
    );
}

/// Deletes the table, which need not be there: it is made first.
fn remove_table(batch: &mut Batch, family: Family) {
    batch.add_table(family, TABLE, None);
    batch.delete_table(family, TABLE);
}

/// The kernel, as it was left.
pub struct Kernel {
    connection: Connection,
    /// The rule set's generation when the tables were last known to be as written, with what they looked like.
    known: Option<(u32, BTreeMap<bool, Fingerprint>)>,
}

impl Kernel {
    /// Connects to the calling thread's network namespace.
    ///
    /// # Errors
    /// There is no nf_tables.
    pub fn open() -> Result<Self, Error> {
        Ok(Self {
            connection: Connection::open()?,
            known: None,
        })
    }

    /// Replaces the tables: one batch, so that no packet meets half of them. Connections stay, and so do the clients the
    /// tables remember. The table of a family that is not served any more goes.
    ///
    /// # Errors
    /// The kernel's: nothing has changed then, or it is not known.
    pub fn replace(&mut self, mut families: Vec<(Writer<'_>, Delta)>) -> Result<(), Error> {
        self.known = None;
        let mut batch = Batch::new();
        for v4 in [true, false] {
            let family = if v4 { Family::Ipv4 } else { Family::Ipv6 };
            match families.iter_mut().find(|(writer, _)| writer.v4 == v4) {
                Some((writer, delta)) => {
                    let place = (family, TABLE, AFFINITY);
                    let take = |clients: &mut Clients, client| clients.take(&client, v4);
                    let clients = self.connection.gather_timed(place, take)?;
                    // Gone once it is in the batch: both are large.
                    add_table(&mut batch, writer, &std::mem::take(delta), &clients);
                }
                None => remove_table(&mut batch, family),
            }
        }
        if let Err(error) = self.connection.commit_bulk(&batch) {
            let served: Vec<Family> = families.iter().map(|(writer, _)| writer.family()).collect();
            return Err(self.connection.explain(error, &served, feature::TRANSLATING));
        }
        self.look(families.iter().map(|(writer, _)| writer.v4))
    }

    /// Brings changes into the tables, all together or none. Returns `false`, with nothing done, when somebody else changed
    /// the tables: they should be replaced then.
    ///
    /// # Errors
    /// The kernel's. The tables should be replaced then, too.
    pub fn change(&mut self, families: &[(Writer<'_>, Delta)]) -> Result<bool, Error> {
        if !self.is_intact()? {
            return Ok(false);
        }
        let mut batch = Batch::new();
        for (writer, delta) in families {
            add_delta(&mut batch, writer, delta);
        }
        if batch.is_empty() {
            return Ok(true);
        }
        let known = self.known.take();
        self.connection.commit_bulk(&batch)?;
        let same = |delta: &Delta| delta.classes_come.is_empty() && delta.classes_gone.is_empty();
        match known {
            // Elements do not change what a table looks like. If somebody wrote meanwhile, the next look finds out.
            Some((generation, looks)) if families.iter().all(|(_, delta)| same(delta)) => {
                self.known = Some((generation.wrapping_add(1), looks));
            }
            _ => self.look(families.iter().map(|(writer, _)| writer.v4))?,
        }
        Ok(true)
    }

    /// How many clients of Services with session affinity a family's table remembers. Lists them all.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn clients(&mut self, v4: bool) -> Result<usize, Error> {
        let family = if v4 { Family::Ipv4 } else { Family::Ipv6 };
        self.connection
            .gather_timed((family, TABLE, AFFINITY), |count, _| *count += 1)
    }

    /// Remembers what the tables look like now; nothing when one is gone already.
    fn look(&mut self, families: impl Iterator<Item = bool>) -> Result<(), Error> {
        let generation = self.connection.current_generation()?;
        let mut looks = BTreeMap::new();
        for v4 in families {
            let family = if v4 { Family::Ipv4 } else { Family::Ipv6 };
            let Some(look) = self.connection.fingerprint(family, TABLE)? else {
                return Ok(());
            };
            looks.insert(v4, look);
        }
        self.known = Some((generation, looks));
        Ok(())
    }

    /// Whether the tables are still as written, as far as a cheap look tells: one request while nobody wrote anything, a
    /// comparison of handles and numbers of rules otherwise. Elements taken out of a set by hand are not seen.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn is_intact(&mut self) -> Result<bool, Error> {
        let Some((generation, looks)) = self.known.take() else {
            return Ok(false);
        };
        let now = self.connection.current_generation()?;
        if now != generation {
            for (v4, look) in &looks {
                let family = if *v4 { Family::Ipv4 } else { Family::Ipv6 };
                if self.connection.fingerprint(family, TABLE)?.as_ref() != Some(look) {
                    return Ok(false);
                }
            }
        }
        self.known = Some((now, looks));
        Ok(true)
    }
}

/// Takes the proxy's tables out of the calling thread's network namespace. Connections that were translated go on.
///
/// # Errors
/// The kernel's.
pub fn remove() -> Result<(), Error> {
    Connection::open()?.remove_table(&FAMILIES, TABLE)
}
