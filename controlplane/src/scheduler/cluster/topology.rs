//! Topology domains: which nodes have the same value of a label, as small numbers. Pure.
//!
//! A label that some pod's rule names has a column here: the number of every node's value. Counting pods by domain is then an
//! addition into a table, whatever the values are called. Numbers of values that no node has any more are given again.

use std::collections::BTreeMap;

/// The number of nodes that lack the label.
pub const NO_DOMAIN: usize = 0;

/// Columns beyond this are forgotten at the next cycle, unless a rule of a placed or nominated pod needs them.
const COLUMNS_MAX: usize = 256;

/// Labels, with how many need each.
#[derive(Debug, Default)]
pub struct Needed(BTreeMap<String, usize>);

impl Needed {
    /// One more needs it.
    pub fn add(&mut self, label: &str) {
        match self.0.get_mut(label) {
            Some(count) => *count += 1,
            None => drop(self.0.insert(label.to_owned(), 1)),
        }
    }

    /// One that was added needs it no longer.
    pub fn remove(&mut self, label: &str) {
        if let Some(count) = self.0.get_mut(label) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(label);
            }
        }
    }

    /// Whether anybody needs it.
    pub fn has(&self, label: &str) -> bool {
        self.0.contains_key(label)
    }

    /// How many labels there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// The values of one label, by node.
#[derive(Debug, Default)]
pub struct Column {
    numbers: BTreeMap<String, u32>,
    /// By number: the value, and how many nodes have it. The first is nobody's.
    values: Vec<(String, u32)>,
    free: Vec<u32>,
    /// By slot of the node.
    slots: Vec<u32>,
}

impl Column {
    /// The domain of the node in that slot; [`NO_DOMAIN`] if it lacks the label.
    pub fn at(&self, slot: usize) -> usize {
        self.slots.get(slot).map_or(NO_DOMAIN, |number| *number as usize)
    }

    /// All domains are below it.
    pub fn size(&self) -> usize {
        self.values.len().max(1)
    }

    fn number(&mut self, value: &str) -> u32 {
        if let Some(number) = self.numbers.get(value) {
            return *number;
        }
        if self.values.is_empty() {
            self.values.push((String::new(), 0));
        }
        let entry = (value.to_owned(), 0);
        let number = match self.free.pop() {
            Some(number) => {
                self.values[number as usize] = entry;
                number
            }
            None => {
                self.values.push(entry);
                u32::try_from(self.values.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.numbers.insert(value.to_owned(), number);
        number
    }

    fn set(&mut self, slot: usize, value: Option<&str>) {
        let old = self.at(slot);
        let new = value.map_or(0, |value| self.number(value));
        if old == new as usize {
            return;
        }
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, 0);
        }
        self.slots[slot] = new;
        if new != 0 {
            self.values[new as usize].1 += 1;
        }
        if old != NO_DOMAIN {
            let (name, nodes) = &mut self.values[old];
            *nodes -= 1;
            if *nodes == 0 {
                self.numbers.remove(std::mem::take(name).as_str());
                self.free.push(u32::try_from(old).unwrap_or(0));
            }
        }
    }
}

type Labels = BTreeMap<String, String>;

/// The columns there are, by label.
#[derive(Debug, Default)]
pub struct Topology {
    columns: BTreeMap<String, Column>,
}

impl Topology {
    /// The column of a label that was asked for with [`Topology::know`].
    pub fn column(&self, label: &str) -> &Column {
        static EMPTY: Column = Column {
            numbers: BTreeMap::new(),
            values: Vec::new(),
            free: Vec::new(),
            slots: Vec::new(),
        };
        self.columns.get(label).unwrap_or(&EMPTY)
    }

    /// Makes sure that there is a column; `nodes` are those present, with their slots.
    pub fn know<'n>(&mut self, label: &str, nodes: impl Iterator<Item = (usize, &'n Labels)>) {
        if self.columns.contains_key(label) {
            return;
        }
        let mut column = Column::default();
        for (slot, labels) in nodes {
            column.set(slot, labels.get(label).map(String::as_str));
        }
        self.columns.insert(label.to_owned(), column);
    }

    /// Takes in a node's labels; `None`: it is gone.
    pub fn set_node(&mut self, slot: usize, labels: Option<&Labels>) {
        for (label, column) in &mut self.columns {
            column.set(slot, labels.and_then(|labels| labels.get(label)).map(String::as_str));
        }
    }

    /// Forgets columns that none of these needs, once there are many, and twice as many as are needed: so a look at all of them
    /// is paid for by those that were added since the last.
    pub fn limit(&mut self, needed: [&Needed; 2]) {
        let most = 2 * needed.iter().map(|needed| needed.len()).sum::<usize>();
        if self.columns.len() > most.max(COLUMNS_MAX) {
            self.columns
                .retain(|label, _| needed.iter().any(|needed| needed.has(label)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(value: &str) -> Labels {
        BTreeMap::from([("zone".to_owned(), value.to_owned())])
    }

    #[test]
    fn domains_are_equal_values_and_their_numbers_are_used_again() {
        let (a, b) = (labels("a"), labels("b"));
        let mut topology = Topology::default();
        topology.know("zone", [(0, &a), (1, &b), (3, &a)].into_iter());
        let at = |topology: &Topology, slot| topology.column("zone").at(slot);
        assert_eq!(at(&topology, 0), at(&topology, 3));
        assert_ne!(at(&topology, 0), at(&topology, 1));
        assert_eq!((at(&topology, 2), at(&topology, 9)), (NO_DOMAIN, NO_DOMAIN));
        let before = topology.column("zone").size();
        for turn in 0..100 {
            topology.set_node(1, Some(&labels(&format!("v{turn}"))));
            assert_ne!(at(&topology, 1), at(&topology, 0));
        }
        assert!(topology.column("zone").size() <= before + 1, "numbers are given again");
        topology.set_node(1, None);
        assert_eq!(at(&topology, 1), NO_DOMAIN);
        assert_eq!(topology.column("unknown").at(0), NO_DOMAIN);
    }

    #[test]
    fn columns_are_forgotten_when_half_of_them_are_not_needed() {
        let know = |topology: &mut Topology, names: std::ops::Range<usize>| {
            names.for_each(|i| topology.know(&format!("k{i}"), std::iter::empty()));
        };
        let (mut topology, mut placed, mut nominated) = (Topology::default(), Needed::default(), Needed::default());
        (0..COLUMNS_MAX).for_each(|i| placed.add(&format!("k{i}")));
        nominated.add("k300");
        know(&mut topology, 0..2 * COLUMNS_MAX + 2);
        topology.limit([&placed, &nominated]);
        assert_eq!(topology.columns.len(), 2 * COLUMNS_MAX + 2, "not looked at yet");
        know(&mut topology, 900..901);
        topology.limit([&placed, &nominated]);
        assert_eq!(topology.columns.len(), COLUMNS_MAX + 1);
        assert!(topology.columns.contains_key("k300"), "a nominated pod needs it");
        // Counted by how many need it.
        placed.add("k0");
        (0..COLUMNS_MAX).for_each(|i| placed.remove(&format!("k{i}")));
        nominated.remove("k300");
        assert_eq!((placed.len(), nominated.len()), (1, 0));
        know(&mut topology, 1000..1001);
        topology.limit([&placed, &nominated]);
        assert_eq!(topology.columns.keys().collect::<Vec<_>>(), ["k0"]);
    }
}
