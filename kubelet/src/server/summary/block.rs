//! The blocks of the summary, each with the time of its numbers. Pure.

use crate::host::machine::Disk;
use crate::host::traffic::Traffic;
use crate::host::usage::TreeUsage;
use crate::stats::files::PodFiles;
use crate::stats::numbers::{Numbers, Stall, Stalls};
use client::ordered::CollectOrdered;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The interface a network is known by.
const MAIN_INTERFACE: &str = "eth0";

/// An object of blocks.
pub(super) struct Blocks {
    time: String,
    out: Map<String, Value>,
}

/// Bytes and inodes of a tree that was counted to its end.
pub(super) fn counted(tree: &TreeUsage) -> (Option<u64>, Option<u64>) {
    match tree.incomplete {
        true => (None, None),
        false => (Some(tree.bytes), Some(tree.inodes)),
    }
}

impl Blocks {
    /// An empty one, whose blocks are of that time.
    pub(super) fn at(at: Timestamp) -> Self {
        Self {
            time: at.to_string(),
            out: Map::new(),
        }
    }

    pub(super) fn done(self) -> Map<String, Value> {
        self.out
    }

    pub(super) fn put(&mut self, name: &str, value: Value) {
        self.out.insert(name.to_owned(), value);
    }

    pub(super) fn text(&mut self, name: &str, text: &str) {
        self.put(name, Value::from(text));
    }

    /// A block of the numbers that are known; none if there are none.
    pub(super) fn numbers(&mut self, name: &str, numbers: &[(&str, Option<u64>)]) {
        self.block(name, numbers, None);
    }

    fn block(&mut self, name: &str, numbers: &[(&str, Option<u64>)], pressure: Option<&Stalls>) {
        let mut block: Map<String, Value> = numbers
            .iter()
            .filter_map(|(name, number)| Some(((*name).to_owned(), Value::from((*number)?))))
            .collect_ordered();
        if let Some(pressure) = pressure {
            block.insert(
                "psi".to_owned(),
                json!({"full": stall(&pressure.full), "some": stall(&pressure.some)}),
            );
        }
        if !block.is_empty() {
            block.insert("time".to_owned(), Value::from(self.time.as_str()));
            self.put(name, Value::Object(block));
        }
    }

    /// CPU time.
    pub(super) fn cpu(&mut self, numbers: &Numbers, rate: Option<u64>) {
        let known = [
            ("usageNanoCores", rate),
            ("usageCoreNanoSeconds", numbers.cpu.total_nanos),
        ];
        self.block("cpu", &known, numbers.pressure.cpu.as_ref());
    }

    /// Memory; what is left of it where it is limited.
    pub(super) fn memory(&mut self, numbers: &Numbers) {
        let memory = &numbers.memory;
        let limited = numbers.limits.memory.zip(memory.working_set);
        let faults = memory.parts.map(|parts| parts.faults);
        let known = [
            (
                "availableBytes",
                limited.map(|(limit, used)| limit.saturating_sub(used)),
            ),
            ("usageBytes", memory.usage),
            ("workingSetBytes", memory.working_set),
            ("rssBytes", memory.rss()),
            ("pageFaults", faults.map(|(all, _)| all)),
            ("majorPageFaults", faults.map(|(_, major)| major)),
        ];
        self.block("memory", &known, numbers.pressure.memory.as_ref());
    }

    /// Swap; what is left of it where it is limited.
    pub(super) fn swap(&mut self, numbers: &Numbers) {
        let used = numbers.memory.swap;
        let left = numbers
            .limits
            .swap
            .zip(used)
            .map(|(limit, used)| limit.saturating_sub(used));
        self.numbers("swap", &[("swapUsageBytes", used), ("swapAvailableBytes", left)]);
    }

    /// How long it waited for disks.
    pub(super) fn pressure_of_disks(&mut self, numbers: &Numbers) {
        self.block("io", &[], numbers.pressure.io.as_ref());
    }

    /// A file system and what is used of it; nothing if neither is known.
    pub(super) fn disk(&mut self, name: &str, disk: Option<Disk>, used: (Option<u64>, Option<u64>)) {
        let block = self.of_disk(disk, used);
        if block.len() > 1 {
            self.put(name, Value::Object(block));
        }
    }

    fn of_disk(&self, disk: Option<Disk>, (bytes, inodes): (Option<u64>, Option<u64>)) -> Map<String, Value> {
        // One without a size is not there.
        let disk = disk.filter(|disk| disk.capacity > 0);
        let count = |number: fn(&Disk) -> i64| disk.as_ref().and_then(|disk| u64::try_from(number(disk)).ok());
        let known = [
            ("availableBytes", count(|disk| disk.available)),
            ("capacityBytes", count(|disk| disk.capacity)),
            ("usedBytes", bytes),
            ("inodesFree", count(|disk| disk.inodes_free)),
            ("inodes", count(|disk| disk.inodes)),
            ("inodesUsed", inodes),
        ];
        let known = known.into_iter();
        let mut block: Map<String, Value> = known
            .filter_map(|(name, number)| Some((name.to_owned(), Value::from(number?))))
            .collect_ordered();
        block.insert("time".to_owned(), Value::from(self.time.as_str()));
        block
    }

    /// The pod's volumes, of the time they were counted.
    pub(super) fn volumes(&mut self, files: &PodFiles) {
        let of_count = Self::at(files.at);
        let volumes = files.volumes.iter().map(|(name, volume)| {
            let mut block = of_count.of_disk(Some(volume.disk), counted(&volume.usage));
            block.insert("name".to_owned(), Value::from(name.as_str()));
            Value::Object(block)
        });
        let volumes: Vec<Value> = volumes.collect();
        if !volumes.is_empty() {
            self.put("volume", Value::Array(volumes));
        }
    }

    /// The network: its main interface, whose name is empty where there is none of that name, as upstream's, and each of them.
    pub(super) fn network(&mut self, interfaces: &[Traffic]) {
        if interfaces.is_empty() {
            return;
        }
        let block = |of: &Traffic| {
            json!({"name": of.name, "rxBytes": of.received.bytes, "rxErrors": of.received.errors,
                "txBytes": of.sent.bytes, "txErrors": of.sent.errors})
        };
        let main = interfaces.iter().find(|interface| interface.name == MAIN_INTERFACE);
        let mut network = main.map_or_else(|| json!({"name": ""}), block);
        network["time"] = Value::from(self.time.as_str());
        network["interfaces"] = interfaces.iter().map(block).collect();
        self.put("network", network);
    }
}

fn stall(stall: &Stall) -> Value {
    let [avg10, avg60, avg300] = stall.averages;
    json!({"total": stall.total_us, "avg10": avg10, "avg60": avg60, "avg300": avg300})
}
