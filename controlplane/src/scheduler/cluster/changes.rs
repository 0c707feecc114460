//! When each node was last another, or what is reserved on it was. Pure.

/// Numbers of changes by slot of the node. A list of its own: cycles ask it of many nodes, and mostly nothing else of them.
#[derive(Debug, Default)]
pub(super) struct Changes {
    slots: Vec<u64>,
    last: u64,
}

impl Changes {
    /// Something of that node is another.
    pub(super) fn note(&mut self, slot: usize) {
        self.last += 1;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, 0);
        }
        self.slots[slot] = self.last;
    }

    /// The number of the node's last change; no two nodes ever have the same one, nor one node twice.
    pub(super) fn of(&self, slot: usize) -> u64 {
        self.slots.get(slot).copied().unwrap_or(0)
    }
}
