//! A cgroup of version 1, from its files' text in the controllers' trees. Pure: whoever asks gives the files.

use super::numbers::{Cpu, Device, Limits, Memory, MemoryParts, Numbers, Periods, Tasks};
use super::reading::Depth;
use super::text::{Texts, device, keyed, number, pairs, value_of};
use std::collections::BTreeMap;

/// A limit from here on is none: the kernel rounds its largest number to pages.
const UNLIMITED: u64 = 1 << 62;
/// Nanoseconds in a tick of `cpuacct.stat`.
const TICK_NANOS: u64 = 10_000_000;

/// The cgroup's files in the controllers' trees.
type Files<'a> = &'a mut dyn Texts;

fn told(read: Files<'_>, tree: &'static str, file: &'static str) -> Option<u64> {
    read.text(tree, file).and_then(number)
}

/// The cgroup's numbers. This version tells of no pressure. Where the machine has no swap nothing can be in it.
pub(super) fn numbers(depth: Depth, swap: bool, read: Files<'_>) -> Numbers {
    let mut numbers = Numbers {
        cpu: Cpu {
            total_nanos: told(read, "cpuacct", "cpuacct.usage"),
            ..Cpu::default()
        },
        memory: memory(swap, read),
        ..Numbers::default()
    };
    numbers.limits.memory = limit(read, "memory.limit_in_bytes");
    if swap {
        // Its limit is of memory and swap together.
        let both = limit(read, "memory.memsw.limit_in_bytes");
        let memory = numbers.limits.memory.unwrap_or(0);
        numbers.limits.swap = both.map(|both| both.saturating_sub(memory));
    }
    if depth >= Depth::Everything {
        limits(&mut numbers.limits, read);
        time(&mut numbers.cpu, read);
        // What became of a quota nobody has is told to nobody: most have none, and each file is opened for this alone.
        if numbers.limits.quota_us.is_some() {
            numbers.cpu.periods = periods(read);
        }
        rare_memory(&mut numbers.memory, read);
        numbers.tasks = Tasks {
            threads: told(read, "pids", "pids.current"),
            threads_max: told(read, "pids", "pids.max"),
            ..Tasks::default()
        };
        numbers.devices = devices(read);
    }
    numbers
}

fn limit(read: Files<'_>, file: &'static str) -> Option<u64> {
    told(read, "memory", file).filter(|limit| *limit < UNLIMITED)
}

fn memory(swap: bool, read: Files<'_>) -> Memory {
    let usage = told(read, "memory", "memory.usage_in_bytes");
    let stat = read.text("memory", "memory.stat").unwrap_or_default();
    let parts = parts(stat);
    Memory {
        usage,
        working_set: usage.map(|usage| usage.saturating_sub(parts.map_or(0, |parts| parts.inactive_file))),
        swap: match swap {
            true => value_of(stat, "total_swap"),
            false => usage.map(|_| 0),
        },
        parts,
        ..Memory::default()
    }
}

/// The totals: of the cgroup and all below it.
fn parts(stat: &str) -> Option<MemoryParts> {
    let mut parts = MemoryParts::default();
    let mut is_told = false;
    for (key, value) in pairs(stat) {
        // Most are neither, and told by their first letter.
        let into = match key.as_bytes().first() {
            Some(b'p') => match key {
                "pgfault" => &mut parts.own_faults.0,
                "pgmajfault" => &mut parts.own_faults.1,
                _ => continue,
            },
            Some(b't') => match key {
                "total_rss" => &mut parts.rss,
                "total_cache" => &mut parts.cache,
                "total_mapped_file" => &mut parts.mapped_file,
                "total_active_file" => &mut parts.active_file,
                "total_inactive_file" => &mut parts.inactive_file,
                "total_pgfault" => &mut parts.faults.0,
                "total_pgmajfault" => &mut parts.faults.1,
                _ => continue,
            },
            _ => continue,
        };
        let Some(value) = number(value) else { continue };
        *into = value;
        is_told = true;
    }
    is_told.then_some(parts)
}

fn time(cpu: &mut Cpu, read: Files<'_>) {
    let ticks = read.text("cpuacct", "cpuacct.stat").unwrap_or_default();
    let nanos = |key| value_of(ticks, key).map(|ticks| ticks.saturating_mul(TICK_NANOS));
    (cpu.user_nanos, cpu.system_nanos) = (nanos("user"), nanos("system"));
}

fn periods(read: Files<'_>) -> Option<Periods> {
    let (mut periods, mut has_periods) = (Periods::default(), false);
    for (key, value) in keyed(read.text("cpu", "cpu.stat").unwrap_or_default()) {
        match key {
            "nr_periods" => (periods.elapsed, has_periods) = (value, true),
            "nr_throttled" => periods.throttled = value,
            "throttled_time" => periods.throttled_nanos = value,
            "nr_bursts" => periods.bursts = value,
            "burst_time" => periods.burst_nanos = value,
            _ => {}
        }
    }
    has_periods.then_some(periods)
}

fn rare_memory(memory: &mut Memory, read: Files<'_>) {
    let mut of = |file| told(read, "memory", file);
    memory.kernel = of("memory.kmem.usage_in_bytes");
    memory.peak = of("memory.max_usage_in_bytes");
    memory.limit_hits = of("memory.failcnt");
    memory.oom_kills = read
        .text("memory", "memory.oom_control")
        .and_then(|text| value_of(text, "oom_kill"));
}

fn limits(limits: &mut Limits, read: Files<'_>) {
    let mut of = |file| told(read, "cpu", file);
    limits.shares = of("cpu.shares");
    limits.period_us = of("cpu.cfs_period_us");
    // -1 is none.
    limits.quota_us = of("cpu.cfs_quota_us");
    let soft = told(read, "memory", "memory.soft_limit_in_bytes");
    limits.has = (limits.shares.is_some(), soft.is_some());
    limits.reservation = soft.filter(|soft| *soft < UNLIMITED);
}

/// `8:0 Read 11` and so on, in bytes and in operations.
fn devices(read: Files<'_>) -> Vec<Device> {
    let mut found: BTreeMap<(u32, u32), Device> = BTreeMap::new();
    for (file, is_bytes) in [
        ("blkio.throttle.io_service_bytes_recursive", true),
        ("blkio.throttle.io_serviced_recursive", false),
    ] {
        add_devices(&mut found, read.text("blkio", file).unwrap_or_default(), is_bytes);
    }
    found.into_values().collect()
}

fn add_devices(found: &mut BTreeMap<(u32, u32), Device>, text: &str, is_bytes: bool) {
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(number), Some(kind), Some(value)) = (words.next().and_then(device), words.next(), words.next())
        else {
            continue;
        };
        let device = found.entry(number).or_default();
        (device.major, device.minor) = number;
        let pair = match is_bytes {
            true => &mut device.bytes,
            false => &mut device.operations,
        };
        let value = value.parse().unwrap_or(0);
        match kind {
            "Read" => pair.0 = value,
            "Write" => pair.1 = value,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: &[(&str, &str)] = &[
        ("cpuacct/cpuacct.usage", "9000000\n"),
        ("cpuacct/cpuacct.stat", "user 6\nsystem 3\n"),
        ("cpu/cpu.stat", "nr_periods 10\nnr_throttled 4\nthrottled_time 70000\n"),
        ("cpu/cpu.shares", "512\n"),
        ("cpu/cpu.cfs_period_us", "100000\n"),
        ("cpu/cpu.cfs_quota_us", "20000\n"),
        ("memory/memory.usage_in_bytes", "1000\n"),
        (
            "memory/memory.stat",
            "cache 1\nrss 2\npgfault 3\npgmajfault 4\ntotal_cache 600\ntotal_rss 300\ntotal_mapped_file 40\ntotal_swap 64\n\
             total_pgfault 7\ntotal_pgmajfault 1\ntotal_inactive_file 250\ntotal_rss x\ntotal_active_file 350\n",
        ),
        ("memory/memory.limit_in_bytes", "4096\n"),
        ("memory/memory.memsw.limit_in_bytes", "6144\n"),
        ("memory/memory.soft_limit_in_bytes", "9223372036854771712\n"),
        ("memory/memory.kmem.usage_in_bytes", "50\n"),
        ("memory/memory.max_usage_in_bytes", "2000\n"),
        ("memory/memory.failcnt", "3\n"),
        (
            "memory/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        ),
        ("pids/pids.current", "5\n"),
        ("pids/pids.max", "100\n"),
        (
            "blkio/blkio.throttle.io_service_bytes_recursive",
            "8:0 Read 11\n8:0 Write 22\n8:0 Sync 33\nTotal 33\n",
        ),
        (
            "blkio/blkio.throttle.io_serviced_recursive",
            "8:0 Read 3\n8:0 Write 4\n7:1 Write 9\nTotal 16\n",
        ),
    ];

    struct Given<'a> {
        without: &'a [&'a str],
        asked: usize,
    }

    impl Texts for Given<'_> {
        fn text(&mut self, controller: &'static str, file: &'static str) -> Option<&str> {
            self.asked += 1;
            let path = format!("{controller}/{file}");
            let mut there = FILES.iter().filter(|(name, _)| !self.without.contains(name));
            there.find(|(name, _)| *name == path).map(|(_, text)| *text)
        }
    }

    fn read(depth: Depth, swap: bool, without: &[&str]) -> (Numbers, usize) {
        let mut given = Given { without, asked: 0 };
        let numbers = numbers(depth, swap, &mut given);
        (numbers, given.asked)
    }

    #[test]
    fn everything_a_cgroup_tells_is_read() {
        let (numbers, _) = read(Depth::Everything, true, &[]);
        let expected = Cpu {
            total_nanos: Some(9_000_000),
            user_nanos: Some(60_000_000),
            system_nanos: Some(30_000_000),
            periods: Some(Periods {
                elapsed: 10,
                throttled: 4,
                throttled_nanos: 70_000,
                ..Periods::default()
            }),
        };
        assert_eq!(numbers.cpu, expected);
        let parts = MemoryParts {
            rss: 300,
            cache: 600,
            mapped_file: 40,
            active_file: 350,
            inactive_file: 250,
            own_faults: (3, 4),
            faults: (7, 1),
        };
        let expected = Memory {
            usage: Some(1000),
            working_set: Some(750),
            swap: Some(64),
            kernel: Some(50),
            peak: Some(2000),
            limit_hits: Some(3),
            oom_kills: Some(2),
            parts: Some(parts),
            rss_told: None,
        };
        assert_eq!(numbers.memory, expected);
        let expected = Limits {
            shares: Some(512),
            quota_us: Some(20_000),
            period_us: Some(100_000),
            memory: Some(4096),
            swap: Some(2048),
            reservation: None,
            has: (true, true),
        };
        assert_eq!(numbers.limits, expected);
        assert_eq!((numbers.tasks.threads, numbers.tasks.threads_max), (Some(5), Some(100)));
        let devices: Vec<_> = numbers
            .devices
            .iter()
            .map(|d| (d.major, d.bytes, d.operations))
            .collect();
        assert_eq!(devices, [(7, (0, 0), (0, 9)), (8, (11, 22), (3, 4))]);
        assert_eq!(numbers.pressure, Default::default());
    }

    #[test]
    fn what_went_meanwhile_is_absent_and_nothing_else() {
        let (numbers, _) = read(Depth::Load, true, &["memory/memory.stat", "cpuacct/cpuacct.usage"]);
        assert_eq!((numbers.memory.working_set, numbers.memory.swap), (Some(1000), None));
        assert_eq!((numbers.cpu.total_nanos, numbers.is_told()), (None, true));
    }

    #[test]
    fn no_more_is_read_than_is_asked_for() {
        assert_eq!(read(Depth::Load, false, &[]).1, 4);
        assert_eq!(read(Depth::Load, true, &[]).1, 5);
        assert_eq!(read(Depth::Summary, false, &[]).1, 4);
        assert_eq!(read(Depth::Load, false, &[]).0.memory.swap, Some(0));
        let (of_all, asked) = read(Depth::Everything, false, &[]);
        let (numbers, fewer) = read(Depth::Everything, false, &["cpu/cpu.cfs_quota_us"]);
        assert_eq!(
            (numbers.cpu.periods, asked - fewer),
            (None, 1),
            "no quota, nothing came of it"
        );
        assert!(of_all.cpu.periods.is_some());
    }
}
