//! A cgroup of version 2, from its files' text. Pure: whoever asks gives the files.

use super::numbers::{Cpu, Device, Limits, Memory, MemoryParts, Numbers, Periods, Pressure, Tasks};
use super::reading::Depth;
use super::text::{Texts, device, keyed, number, pairs, stalls, value_of};

/// The cgroup's files.
type Files<'a> = &'a mut dyn Texts;

fn text<'a>(read: &'a mut dyn Texts, file: &'static str) -> &'a str {
    read.text("", file).unwrap_or_default()
}

fn told(read: Files<'_>, file: &'static str) -> Option<u64> {
    read.text("", file).and_then(number)
}

/// The cgroup's numbers. Where the machine has no swap nothing can be in it, and nobody is asked.
pub(super) fn numbers(depth: Depth, swap: bool, read: Files<'_>) -> Numbers {
    let cpu = cpu(text(read, "cpu.stat"));
    let memory = memory(depth, swap, read);
    let mut numbers = Numbers {
        cpu,
        memory,
        limits: Limits {
            memory: told(read, "memory.max"),
            swap: match swap {
                true => told(read, "memory.swap.max"),
                false => None,
            },
            ..Limits::default()
        },
        ..Numbers::default()
    };
    if depth >= Depth::Summary {
        let mut of = |file| read.text("", file).and_then(stalls);
        numbers.pressure = Pressure {
            cpu: of("cpu.pressure"),
            memory: of("memory.pressure"),
            io: of("io.pressure"),
        };
    }
    if depth >= Depth::Everything {
        limits(&mut numbers.limits, read);
        numbers.tasks = Tasks {
            threads: told(read, "pids.current"),
            threads_max: told(read, "pids.max"),
            ..Tasks::default()
        };
        numbers.devices = devices(text(read, "io.stat"));
    }
    numbers
}

fn cpu(stat: &str) -> Cpu {
    let (mut cpu, mut periods, mut has_periods) = (Cpu::default(), Periods::default(), false);
    for (key, value) in keyed(stat) {
        let nanos = value.saturating_mul(1000);
        match key {
            "usage_usec" => cpu.total_nanos = Some(nanos),
            "user_usec" => cpu.user_nanos = Some(nanos),
            "system_usec" => cpu.system_nanos = Some(nanos),
            "nr_periods" => (periods.elapsed, has_periods) = (value, true),
            "nr_throttled" => periods.throttled = value,
            "throttled_usec" => periods.throttled_nanos = nanos,
            "nr_bursts" => periods.bursts = value,
            "burst_usec" => periods.burst_nanos = nanos,
            _ => {}
        }
    }
    cpu.periods = has_periods.then_some(periods);
    cpu
}

fn memory(depth: Depth, swap: bool, read: Files<'_>) -> Memory {
    let usage = told(read, "memory.current");
    let mut memory = Memory {
        usage,
        swap: match swap {
            true => told(read, "memory.swap.current"),
            false => usage.map(|_| 0),
        },
        ..Memory::default()
    };
    let everything = depth >= Depth::Everything;
    if everything {
        memory.peak = told(read, "memory.peak");
        let events = text(read, "memory.events");
        memory.limit_hits = value_of(events, "max");
        memory.oom_kills = value_of(events, "oom_kill");
    }
    let stat = text(read, "memory.stat");
    memory.parts = parts(stat);
    memory.working_set = usage.map(|usage| usage.saturating_sub(memory.parts.map_or(0, |parts| parts.inactive_file)));
    if everything {
        memory.kernel = value_of(stat, "kernel");
    }
    memory
}

fn parts(stat: &str) -> Option<MemoryParts> {
    let mut parts = MemoryParts::default();
    let mut is_told = false;
    for (key, value) in pairs(stat) {
        let into = match key {
            "anon" => &mut parts.rss,
            "file" => &mut parts.cache,
            "file_mapped" => &mut parts.mapped_file,
            "active_file" => &mut parts.active_file,
            "inactive_file" => &mut parts.inactive_file,
            "pgfault" => &mut parts.faults.0,
            "pgmajfault" => &mut parts.faults.1,
            _ => continue,
        };
        let Some(value) = number(value) else { continue };
        *into = value;
        is_told = true;
    }
    // There is one count, and it has all below in it.
    parts.own_faults = parts.faults;
    is_told.then_some(parts)
}

fn limits(limits: &mut Limits, read: Files<'_>) {
    let (quota, period) = text(read, "cpu.max").trim().split_once(' ').unwrap_or_default();
    (limits.quota_us, limits.period_us) = (quota.parse().ok(), period.parse().ok());
    let weight = told(read, "cpu.weight");
    limits.shares = weight.filter(|weight| *weight > 0).map(shares);
    limits.reservation = told(read, "memory.min");
    limits.has = (weight.is_some(), limits.reservation.is_some());
}

/// The shares whose weight this is, as cAdvisor counts back: 1 is 2, 10000 is 262144.
fn shares(weight: u64) -> u64 {
    2 + weight.saturating_sub(1).saturating_mul(262_142) / 9_999
}

/// What `io.stat` tells where the cost model rules, in the order of [`Device::cost_us`].
const COSTS: [&str; 4] = ["cost.usage", "cost.wait", "cost.indebt", "cost.indelay"];

/// `8:0 rbytes=1 wbytes=2 rios=3 wios=4 ...`, a device a line.
fn devices(text: &str) -> Vec<Device> {
    let one = |line: &str| {
        let mut words = line.split_whitespace();
        let (major, minor) = device(words.next()?)?;
        let mut found = Device {
            major,
            minor,
            ..Device::default()
        };
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            let value = value.parse().unwrap_or(0);
            match key {
                "rbytes" => found.bytes.0 = value,
                "wbytes" => found.bytes.1 = value,
                "rios" => found.operations.0 = value,
                "wios" => found.operations.1 = value,
                _ => {
                    if let Some(place) = COSTS.iter().position(|cost| *cost == key) {
                        found.cost_us.get_or_insert_default()[place] = value;
                    }
                }
            }
        }
        Some(found)
    };
    text.lines().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: &[(&str, &str)] = &[
        (
            "cpu.stat",
            "usage_usec 9000\nuser_usec 6000\nsystem_usec 3000\nnr_periods 10\nnr_throttled 4\nthrottled_usec 70\nnr_bursts 2\nburst_usec 5\n",
        ),
        ("cpu.max", "20000 100000\n"),
        ("cpu.weight", "100\n"),
        (
            "cpu.pressure",
            "some avg10=1.00 avg60=0.00 avg300=0.00 total=50\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=20\n",
        ),
        ("memory.current", "1000\n"),
        (
            "memory.stat",
            "anon 300\nfile 600\nkernel 50\nfile_mapped 40\ninactive_file 250\nactive_file 350\npgfault 7\npgmajfault 1\n",
        ),
        ("memory.max", "4096\n"),
        ("memory.min", "0\n"),
        ("memory.peak", "2000\n"),
        ("memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n"),
        ("memory.swap.current", "64\n"),
        ("memory.swap.max", "max\n"),
        ("pids.current", "5\n"),
        ("pids.max", "max\n"),
        (
            "io.stat",
            "8:0 rbytes=11 wbytes=22 rios=3 wios=4 dbytes=0 dios=0 cost.vrate=100.00 cost.usage=5 cost.wait=6 cost.indelay=8\n7:7 \nbroken\n",
        ),
    ];

    struct Given<'a> {
        without: &'a [&'a str],
        asked: Vec<&'static str>,
    }

    impl Texts for Given<'_> {
        fn text(&mut self, _tree: &'static str, file: &'static str) -> Option<&str> {
            self.asked.push(file);
            let mut there = FILES.iter().filter(|(name, _)| !self.without.contains(name));
            there.find(|(name, _)| *name == file).map(|(_, text)| *text)
        }
    }

    fn read(depth: Depth, swap: bool, without: &[&str]) -> (Numbers, Vec<&'static str>) {
        let mut given = Given {
            without,
            asked: Vec::new(),
        };
        let numbers = numbers(depth, swap, &mut given);
        (numbers, given.asked)
    }

    #[test]
    fn everything_a_cgroup_tells_is_read() {
        let (numbers, _) = read(Depth::Everything, true, &[]);
        let periods = numbers.cpu.periods.expect("a quota");
        assert_eq!(numbers.cpu.total_nanos, Some(9_000_000));
        assert_eq!(
            (periods.elapsed, periods.throttled, periods.throttled_nanos),
            (10, 4, 70_000)
        );
        assert_eq!((periods.bursts, periods.burst_nanos), (2, 5_000));
        let parts = numbers.memory.parts.expect("parts");
        assert_eq!(
            (
                parts.rss,
                parts.cache,
                parts.mapped_file,
                parts.active_file,
                parts.faults,
                parts.own_faults
            ),
            (300, 600, 40, 350, (7, 1), (7, 1))
        );
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
            shares: Some(2597),
            quota_us: Some(20_000),
            period_us: Some(100_000),
            memory: Some(4096),
            swap: None,
            reservation: Some(0),
            has: (true, true),
        };
        assert_eq!(numbers.limits, expected);
        assert_eq!((numbers.tasks.threads, numbers.tasks.threads_max), (Some(5), None));
        let devices: Vec<_> = numbers
            .devices
            .iter()
            .map(|d| (d.major, d.minor, d.bytes, d.operations))
            .collect();
        assert_eq!(devices, [(8, 0, (11, 22), (3, 4)), (7, 7, (0, 0), (0, 0))]);
        let costs: Vec<_> = numbers.devices.iter().map(|d| d.cost_us).collect();
        assert_eq!(costs, [Some([5, 6, 0, 8]), None]);
        let pressure = numbers.pressure.cpu.expect("pressure");
        assert_eq!((pressure.some.total_us, pressure.full.total_us), (50, 20));
        assert_eq!(numbers.pressure.io, None);
    }

    #[test]
    fn what_went_meanwhile_is_absent_and_nothing_else() {
        let (numbers, _) = read(Depth::Everything, true, &["memory.stat", "cpu.stat", "cpu.max"]);
        assert_eq!(
            (numbers.memory.usage, numbers.memory.working_set),
            (Some(1000), Some(1000))
        );
        assert_eq!((numbers.memory.parts, numbers.cpu), (None, Cpu::default()));
        assert_eq!((numbers.limits.quota_us, numbers.limits.period_us), (None, None));
        assert!(numbers.is_told());
        let (gone, _) = read(Depth::Load, true, &["memory.current", "cpu.stat"]);
        assert!(!gone.is_told());
    }

    #[test]
    fn no_more_is_read_than_is_asked_for() {
        let files = |depth, swap| read(depth, swap, &[]).1;
        assert_eq!(
            files(Depth::Load, false),
            ["cpu.stat", "memory.current", "memory.stat", "memory.max"]
        );
        assert_eq!(files(Depth::Load, true).len(), 6);
        assert_eq!(files(Depth::Summary, false).len(), 7);
        assert_eq!(read(Depth::Load, false, &[]).0.memory.swap, Some(0));
    }

    #[test]
    fn weights_are_counted_back() {
        for (weight, expected) in [(1, 2), (100, 2597), (10_000, 262_144)] {
            assert_eq!(shares(weight), expected);
        }
    }
}
