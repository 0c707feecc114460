//! What processes cost while nothing happens: CPU from `/proc/PID/stat`, memory from `/proc/PID/smaps_rollup`.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::processes::Group;

/// Memory in kilobytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Memory {
    resident: u64,
    proportional: u64,
    anonymous: u64,
}

/// Watches the groups for `time` and returns a table.
///
/// # Errors
/// If one of the processes is not there, at the beginning or at the end.
pub(crate) async fn measure(groups: &[Group], time: Duration) -> anyhow::Result<String> {
    let begin = Instant::now();
    let before = groups.iter().map(Group::cpu).collect::<anyhow::Result<Vec<_>>>()?;
    tokio::time::sleep(time).await;
    let mut out = format!(
        "{:<16} {:>5} {:>9} {:>9} {:>9} {:>9}\n",
        "", "procs", "CPU %", "Pss MB", "anon MB", "RSS MB"
    );
    for (group, before) in groups.iter().zip(before) {
        let used = (group.cpu()? - before).as_secs_f64() / begin.elapsed().as_secs_f64() * 100.0;
        let sum = sum(group)?;
        let [pss, anonymous, resident] = [sum.proportional, sum.anonymous, sum.resident].map(|kb| kb as f64 / 1024.0);
        out += &format!(
            "{:<16} {:>5} {used:>9.2} {pss:>9.1} {anonymous:>9.1} {resident:>9.1}\n",
            group.name,
            group.pids.len()
        );
    }
    Ok(out)
}

/// What a group's processes have now, in MB: proportional and anonymous.
///
/// # Errors
/// If one of the processes is not there.
pub(crate) fn memory(group: &Group) -> anyhow::Result<[f64; 2]> {
    let sum = sum(group)?;
    Ok([sum.proportional, sum.anonymous].map(|kb| kb as f64 / 1024.0))
}

fn sum(group: &Group) -> anyhow::Result<Memory> {
    let mut sum = Memory::default();
    for pid in &group.pids {
        let path = format!("/proc/{pid}/smaps_rollup");
        let memory = memory_of(&fs::read_to_string(&path).with_context(|| path.clone())?);
        sum.resident += memory.resident;
        sum.proportional += memory.proportional;
        sum.anonymous += memory.anonymous;
    }
    Ok(sum)
}

fn memory_of(smaps_rollup: &str) -> Memory {
    let field = |name: &str| {
        smaps_rollup
            .lines()
            .find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
            .unwrap_or(0)
    };
    Memory {
        resident: field("Rss:"),
        proportional: field("Pss:"),
        anonymous: field("Anonymous:"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_by_name() {
        let text = "0-1 ---p 0 00:00 0 [rollup]\nRss:   2048 kB\nPss:   1024 kB\nPss_Anon: 7 kB\nAnonymous:  512 kB\n";
        assert_eq!(
            memory_of(text),
            Memory {
                resident: 2048,
                proportional: 1024,
                anonymous: 512
            }
        );
    }
}
