//! What the machine as a whole uses, from `/proc`: a root cgroup does not tell.

use super::numbers::{Cpu, Memory, MemoryParts, Numbers, Pressure};
use super::text::{keyed, stalls, value_of};
use crate::host::load::{self, Load};
use crate::host::machine::Roots;
use std::fs;

/// The machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// As of a cgroup of everything.
    pub numbers: Numbers,
    /// Memory that is left before the node runs short of it, bytes: as eviction sees it (kubelet contract §10).
    pub available: Option<u64>,
    /// Swap there is, bytes.
    pub swap_total: u64,
    /// When it was booted, seconds since 1970.
    pub booted: Option<i64>,
    /// How many processes and threads there may be, and how many there are.
    pub tasks: Option<(i64, u64)>,
}

/// Reads it.
pub(super) fn read(roots: &Roots) -> Node {
    let text = |name: &str| fs::read_to_string(roots.proc.join(name)).unwrap_or_default();
    let pressure = |name: &str| stalls(&text(&format!("pressure/{name}")));
    let mut node = of(&text("stat"), &text("meminfo"), &text("vmstat"));
    node.numbers.pressure = Pressure {
        cpu: pressure("cpu"),
        memory: pressure("memory"),
        io: pressure("io"),
    };
    node.tasks = load::tasks(roots);
    node
}

fn of(stat: &str, meminfo: &str, vmstat: &str) -> Node {
    let load = Load::of(stat, meminfo);
    let bytes = |name: &str| {
        let mut lines = meminfo.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let usage = bytes("MemTotal")
        .zip(bytes("MemFree"))
        .map(|(total, free)| total.saturating_sub(free));
    let (user, system) = cpu_times(stat);
    let left = load::working_set(meminfo);
    let faults = (
        value_of(vmstat, "pgfault").unwrap_or(0),
        value_of(vmstat, "pgmajfault").unwrap_or(0),
    );
    let part = |name| bytes(name).unwrap_or(0);
    let parts = MemoryParts {
        rss: part("AnonPages"),
        cache: part("Cached"),
        mapped_file: part("Mapped"),
        active_file: part("Active(file)"),
        inactive_file: part("Inactive(file)"),
        own_faults: faults,
        faults,
    };
    let mut numbers = Numbers {
        cpu: Cpu {
            total_nanos: load.cpu_nanos,
            user_nanos: user,
            system_nanos: system,
            periods: None,
        },
        memory: Memory {
            usage,
            working_set: left.map(|(_, used)| used),
            swap: load.swap_used,
            oom_kills: keyed(vmstat)
                .find(|(key, _)| *key == "oom_kill")
                .map(|(_, kills)| kills),
            parts: usage.map(|_| parts),
            ..Memory::default()
        },
        ..Numbers::default()
    };
    numbers.limits.memory = bytes("MemTotal");
    Node {
        numbers,
        available: left.and_then(|(total, used)| u64::try_from(total).ok()?.checked_sub(used)),
        swap_total: bytes("SwapTotal").unwrap_or(0),
        booted: load.booted,
        tasks: None,
    }
}

/// In user mode and in the kernel, nanoseconds.
fn cpu_times(stat: &str) -> (Option<u64>, Option<u64>) {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let columns = line.map(|line| {
        let columns = line.split_whitespace().map_while(|text| text.parse().ok());
        columns.collect::<Vec<u64>>()
    });
    let sum = |wanted: &[usize]| {
        let columns = columns.as_ref()?;
        let ticks: u64 = wanted.iter().filter_map(|column| columns.get(*column)).sum();
        Some(ticks.saturating_mul(load::TICK_NANOS))
    };
    (sum(&[0, 1]), sum(&[2, 5, 6]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_told_as_eviction_sees_it() {
        let stat = "cpu  10 1 5 1000 50 2 3 4 0 0\nbtime 1700000000\n";
        let meminfo = "MemTotal: 100 kB\nMemFree: 10 kB\nMemAvailable: 40 kB\nInactive(file): 20 kB\nAnonPages: 30 kB\n\
                       SwapTotal: 9 kB\nSwapFree: 4 kB\n";
        let node = of(stat, meminfo, "pgfault 7\npgmajfault 2\noom_kill 1\n");
        let memory = node.numbers.memory;
        assert_eq!((memory.usage, memory.working_set), (Some(90 << 10), Some(70 << 10)));
        assert_eq!(
            (node.available, memory.swap, node.swap_total),
            (Some(30 << 10), Some(5 << 10), 9 << 10)
        );
        let parts = memory.parts.expect("parts");
        assert_eq!((parts.rss, parts.faults, memory.oom_kills), (30 << 10, (7, 2), Some(1)));
        let cpu = node.numbers.cpu;
        let ticks = |ticks: u64| Some(ticks * load::TICK_NANOS);
        assert_eq!(
            (cpu.total_nanos, cpu.user_nanos, cpu.system_nanos),
            (ticks(25), ticks(11), ticks(10))
        );
        let nothing = of("", "", "");
        assert_eq!(
            (nothing.numbers.memory, nothing.numbers.cpu, nothing.available),
            Default::default()
        );
    }
}
