//! The blocks of the summary, each with the time of its numbers, written as the JSON they are: of many pods there are many. Pure.

use crate::host::machine::Disk;
use crate::host::traffic::Traffic;
use crate::host::usage::TreeUsage;
use crate::stats::files::PodFiles;
use crate::stats::numbers::{Numbers, Stall, Stalls};
use std::fmt::Write;

/// The interface a network is known by.
const MAIN_INTERFACE: &str = "eth0";

/// An object that is being written, whose blocks are of one time.
pub(super) struct Blocks<'a> {
    out: &'a mut String,
    time: &'a str,
}

/// Numbers by name; what is not known is left out.
type Known<'a> = &'a [(&'a str, Option<u64>)];

/// Bytes and inodes of a tree that was counted to its end.
pub(super) fn counted(tree: &TreeUsage) -> (Option<u64>, Option<u64>) {
    match tree.incomplete {
        true => (None, None),
        false => (Some(tree.bytes), Some(tree.inodes)),
    }
}

/// Puts a comma, unless it would be the first thing in its object or list.
fn separate(out: &mut String) {
    if !matches!(out.as_bytes().last(), Some(b'{' | b'[')) {
        out.push(',');
    }
}

fn is_plain(text: &str) -> bool {
    for byte in text.as_bytes() {
        if *byte < 0x20 || *byte == b'"' || *byte == b'\\' {
            return false;
        }
    }
    true
}

/// Writes a number without what formats it in other ways, which takes longer: of many pods there are thousands.
fn decimal(out: &mut String, mut number: u64) {
    let mut digits = [0; 20];
    let mut from = digits.len();
    loop {
        from -= 1;
        digits[from] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.push_str(std::str::from_utf8(&digits[from..]).unwrap_or_default());
}

/// Writes an object into a list, or by itself.
pub(super) fn object(out: &mut String, time: &str, fill: impl FnOnce(&mut Blocks<'_>)) {
    if !out.is_empty() && !out.ends_with(':') {
        separate(out);
    }
    out.push('{');
    fill(&mut Blocks { out, time });
    out.push('}');
}

impl Blocks<'_> {
    fn name(&mut self, name: &str) {
        separate(self.out);
        self.out.push('"');
        self.out.push_str(name);
        self.out.push_str("\":");
    }

    /// An object in this one.
    pub(super) fn object(&mut self, name: &str, fill: impl FnOnce(&mut Blocks<'_>)) {
        self.name(name);
        object(self.out, self.time, fill);
    }

    /// A list in this one, into which [`object`] writes.
    pub(super) fn list(&mut self, name: &str, fill: impl FnOnce(&mut String)) {
        self.name(name);
        self.out.push('[');
        fill(self.out);
        self.out.push(']');
    }

    pub(super) fn text(&mut self, name: &str, text: &str) {
        // Of nearly all there is nothing to escape.
        match is_plain(text) {
            true => self.plain(name, text),
            false => {
                self.name(name);
                let _ = write!(self.out, "{}", serde_json::Value::from(text));
            }
        }
    }

    /// A text in which there is nothing to escape.
    fn plain(&mut self, name: &str, text: &str) {
        self.name(name);
        self.out.push('"');
        self.out.push_str(text);
        self.out.push('"');
    }

    fn time(&mut self) {
        self.plain("time", self.time);
    }

    pub(super) fn number(&mut self, name: &str, number: u64) {
        self.name(name);
        decimal(self.out, number);
    }

    fn known(&mut self, numbers: Known<'_>) {
        for (name, number) in numbers {
            if let Some(number) = number {
                self.number(name, *number);
            }
        }
    }

    /// A block of the numbers that are known; none if there are none.
    pub(super) fn numbers(&mut self, name: &str, numbers: Known<'_>) {
        self.block(name, numbers, None);
    }

    fn block(&mut self, name: &str, numbers: Known<'_>, pressure: Option<&Stalls>) {
        if pressure.is_none() && numbers.iter().all(|(_, number)| number.is_none()) {
            return;
        }
        self.object(name, |block| {
            block.time();
            block.known(numbers);
            if let Some(pressure) = pressure {
                block.object("psi", |psi| {
                    psi.stall("full", &pressure.full);
                    psi.stall("some", &pressure.some);
                });
            }
        });
    }

    fn stall(&mut self, name: &str, stall: &Stall) {
        self.object(name, |out| {
            out.number("total", stall.total_us);
            for (name, average) in ["avg10", "avg60", "avg300"].into_iter().zip(stall.averages) {
                out.name(name);
                let _ = write!(out.out, "{average:?}");
            }
        });
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
        self.numbers(name, &of_disk(disk, used));
    }

    /// The same, of another time, and there whatever is known.
    pub(super) fn disk_at(&mut self, name: &str, time: &str, disk: Disk, used: (Option<u64>, Option<u64>)) {
        let known = of_disk(Some(disk), used);
        self.name(name);
        object(self.out, time, |block| {
            if known.iter().any(|(_, number)| number.is_some()) {
                block.time();
            }
            block.known(&known);
        });
    }

    /// The pod's volumes, of the time they were counted, which is also given as text.
    pub(super) fn volumes(&mut self, files: &PodFiles, of_count: &str) {
        if files.volumes.is_empty() {
            return;
        }
        self.list("volume", |out| {
            for (name, volume) in &files.volumes {
                object(out, of_count, |block| {
                    block.time();
                    block.known(&of_disk(Some(volume.disk), counted(&volume.usage)));
                    block.text("name", name);
                });
            }
        });
    }

    /// The network: its main interface, whose name is empty where there is none of that name, as upstream's, and each of them.
    pub(super) fn network(&mut self, interfaces: &[Traffic]) {
        if interfaces.is_empty() {
            return;
        }
        let main = interfaces.iter().find(|interface| interface.name == MAIN_INTERFACE);
        self.object("network", |network| {
            network.time();
            match main {
                Some(main) => network.interface(main),
                None => network.text("name", ""),
            }
            network.list("interfaces", |out| {
                for of in interfaces {
                    object(out, "", |block| block.interface(of));
                }
            });
        });
    }

    fn interface(&mut self, of: &Traffic) {
        self.text("name", &of.name);
        self.number("rxBytes", of.received.bytes);
        self.number("rxErrors", of.received.errors);
        self.number("txBytes", of.sent.bytes);
        self.number("txErrors", of.sent.errors);
    }
}

fn of_disk(disk: Option<Disk>, (bytes, inodes): (Option<u64>, Option<u64>)) -> [(&'static str, Option<u64>); 6] {
    // One without a size is not there.
    let disk = disk.filter(|disk| disk.capacity > 0);
    let count = |number: fn(&Disk) -> i64| disk.as_ref().and_then(|disk| u64::try_from(number(disk)).ok());
    [
        ("availableBytes", count(|disk| disk.available)),
        ("capacityBytes", count(|disk| disk.capacity)),
        ("usedBytes", bytes),
        ("inodesFree", count(|disk| disk.inodes_free)),
        ("inodes", count(|disk| disk.inodes)),
        ("inodesUsed", inodes),
    ]
}
