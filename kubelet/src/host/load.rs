//! What the machine as a whole is busy with, from `/proc`.

use super::machine::Roots;
use std::fs;

/// Nanoseconds in a tick of `/proc/stat` (`USER_HZ` is 100 on every Linux).
pub(crate) const TICK_NANOS: u64 = 10_000_000;
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
    /// Bytes in swap.
    pub swap_used: Option<u64>,
    /// When the machine was booted, seconds since 1970.
    pub booted: Option<i64>,
}

impl Load {
    /// Reads the load.
    pub fn read(roots: &Roots) -> Self {
        let text = |name| fs::read_to_string(roots.proc.join(name)).unwrap_or_default();
        Self::of(&text("stat"), &text("meminfo"))
    }

    /// The load that `/proc/stat` and `/proc/meminfo` tell of.
    pub(crate) fn of(stat: &str, meminfo: &str) -> Self {
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
            swap_used: kib("SwapTotal")
                .zip(kib("SwapFree"))
                .map(|(total, free)| total.saturating_sub(free) * 1024),
            booted: stat
                .lines()
                .find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok()),
        }
    }
}

/// Bytes of memory there are, and those that cannot go at once: neither free nor cache that was not used for long. For the root of a
/// cgroup tree of version 2 the kernel says the same; in one of version 1 it counts less, and not the kernel's own.
pub fn memory(roots: &Roots) -> Option<(i64, u64)> {
    working_set(&fs::read_to_string(roots.proc.join("meminfo")).ok()?)
}

/// The same of `/proc/meminfo`.
pub(crate) fn working_set(meminfo: &str) -> Option<(i64, u64)> {
    let bytes = |name: &str| {
        let mut lines = meminfo.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let total = bytes("MemTotal")?;
    let used = total
        .saturating_sub(bytes("MemFree")?)
        .saturating_sub(bytes("Inactive(file)").unwrap_or(0));
    Some((i64::try_from(total).ok()?, used))
}

/// How many processes and threads there may be on the machine, and how many there are.
pub fn tasks(roots: &Roots) -> Option<(i64, u64)> {
    let loads = fs::read_to_string(roots.proc.join("loadavg")).ok()?;
    Some((tasks_max(roots)?, running(&loads)?))
}

/// How many processes and threads there may be on the machine.
pub fn tasks_max(roots: &Roots) -> Option<i64> {
    let limit = |name: &str| {
        let text = fs::read_to_string(roots.proc.join(name)).ok()?;
        text.trim().parse::<i64>().ok()
    };
    let limits = [limit("sys/kernel/pid_max"), limit("sys/kernel/threads-max")];
    limits.into_iter().flatten().min()
}

/// The number after the slash in `0.00 0.01 0.05 1/123 4567`.
fn running(loadavg: &str) -> Option<u64> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_read() {
        let stat = "cpu  10 1 5 1000 50 2 3 4 0 0\ncpu0 1 1 1 1\nbtime 1700000000\n";
        let load = Load::of(
            stat,
            "MemTotal: 100 kB\nMemFree: 10 kB\nMemAvailable: 40 kB\nSwapTotal: 9 kB\nSwapFree: 4 kB\n",
        );
        assert_eq!(load.cpu_nanos, Some(25 * TICK_NANOS));
        assert_eq!(
            (load.memory_used, load.memory_available),
            (Some(60 * 1024), Some(40 * 1024))
        );
        assert_eq!(load.swap_used, Some(5 * 1024));
        assert_eq!(load.booted, Some(1_700_000_000));
        assert_eq!(Load::of("", ""), Load::default());
    }

    #[test]
    fn what_is_left_is_read_from_what_cannot_go() {
        let meminfo =
            "MemTotal: 100 kB\nMemFree: 10 kB\nMemAvailable: 40 kB\nInactive(anon): 3 kB\nInactive(file): 20 kB\n";
        assert_eq!(working_set(meminfo), Some((100 * 1024, 70 * 1024)));
        assert_eq!(working_set("MemTotal: 100 kB\n"), None);
        assert_eq!(running("0.00 0.01 0.05 1/123 4567\n"), Some(123));
        assert_eq!(running("0.00 0.01 0.05 1\n"), None);
        let dir = tempfile::tempdir().expect("temp dir");
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("parent")).expect("dirs");
            fs::write(path, text).expect("file");
        };
        let roots = Roots {
            proc: dir.path().to_owned(),
            ..Roots::default()
        };
        put("loadavg", "0.00 0.01 0.05 1/123 4567\n");
        assert_eq!(tasks(&roots), None);
        put("sys/kernel/pid_max", "32768\n");
        put("sys/kernel/threads-max", "30000\n");
        assert_eq!(tasks(&roots), Some((30_000, 123)));
    }
}
