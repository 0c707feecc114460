//! What the machine as a whole is busy with, from `/proc`.

use super::machine::Roots;
use std::fs;

/// Nanoseconds in a tick of `/proc/stat` (`USER_HZ` is 100 on every Linux).
const TICK_NANOS: u64 = 10_000_000;
/// The columns of `/proc/stat` that are work: user, nice, system, then irq, softirq and steal.
const BUSY: [usize; 6] = [0, 1, 2, 5, 6, 7];

/// The load; what cannot be read is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// CPU time since boot, nanoseconds.
    pub cpu_nanos: Option<u64>,
    /// Bytes of memory that are not free and cannot be made so at once.
    pub memory_used: Option<u64>,
    /// Bytes of memory that are, or can be, free.
    pub memory_available: Option<u64>,
    /// When the machine was booted, seconds since 1970.
    pub booted: Option<i64>,
}

impl Load {
    /// Reads the load.
    pub fn read(roots: &Roots) -> Self {
        let text = |name| fs::read_to_string(roots.proc.join(name)).unwrap_or_default();
        Self::of(&text("stat"), &text("meminfo"))
    }

    fn of(stat: &str, meminfo: &str) -> Self {
        let kib = |name: &str| {
            let line = meminfo
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        };
        let total = kib("MemTotal").map(|kib| kib * 1024);
        let available = kib("MemAvailable").map(|kib| kib * 1024);
        let cpu = stat.lines().find_map(|line| line.strip_prefix("cpu "));
        let ticks = cpu.map(|line| {
            let columns: Vec<u64> = line.split_whitespace().map_while(|text| text.parse().ok()).collect();
            BUSY.iter().filter_map(|column| columns.get(*column)).sum::<u64>()
        });
        Self {
            cpu_nanos: ticks.map(|ticks| ticks.saturating_mul(TICK_NANOS)),
            memory_used: total
                .zip(available)
                .map(|(total, available)| total.saturating_sub(available)),
            memory_available: available,
            booted: stat
                .lines()
                .find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_read() {
        let stat = "cpu  10 1 5 1000 50 2 3 4 0 0\ncpu0 1 1 1 1\nbtime 1700000000\n";
        let load = Load::of(stat, "MemTotal: 100 kB\nMemFree: 10 kB\nMemAvailable: 40 kB\n");
        assert_eq!(load.cpu_nanos, Some(25 * TICK_NANOS));
        assert_eq!(
            (load.memory_used, load.memory_available),
            (Some(60 * 1024), Some(40 * 1024))
        );
        assert_eq!(load.booted, Some(1_700_000_000));
        assert_eq!(Load::of("", ""), Load::default());
    }
}
