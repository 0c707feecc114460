//! What processes cost while nothing happens: CPU from `/proc/PID/stat`, memory from `/proc/PID/smaps_rollup`.

use std::fs;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::Context;

/// Clock ticks in a second: `USER_HZ`, the same on every Linux this runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processes whose figures are added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    name: String,
    pids: Vec<u32>,
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, pids) = text.split_once('=').ok_or("want NAME=PID[,PID...]")?;
        let pids = pids
            .split(',')
            .filter(|pid| !pid.is_empty())
            .map(|pid| pid.parse().map_err(|_| format!("{pid:?} is no process id")))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            name: name.to_owned(),
            pids,
        })
    }
}

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
    let ticks = |group: &Group| group.pids.iter().map(|pid| ticks_of(*pid)).sum::<anyhow::Result<u64>>();
    let begin = Instant::now();
    let before = groups.iter().map(ticks).collect::<anyhow::Result<Vec<_>>>()?;
    tokio::time::sleep(time).await;
    let mut out = format!(
        "{:<16} {:>5} {:>9} {:>9} {:>9} {:>9}\n",
        "", "procs", "CPU %", "Pss MB", "anon MB", "RSS MB"
    );
    for (group, before) in groups.iter().zip(before) {
        let used = (ticks(group)? - before) as f64 / TICKS_PER_SECOND / begin.elapsed().as_secs_f64() * 100.0;
        let mut sum = Memory::default();
        for pid in &group.pids {
            let path = format!("/proc/{pid}/smaps_rollup");
            let memory = memory_of(&fs::read_to_string(&path).with_context(|| path.clone())?);
            sum.resident += memory.resident;
            sum.proportional += memory.proportional;
            sum.anonymous += memory.anonymous;
        }
        let [pss, anonymous, resident] = [sum.proportional, sum.anonymous, sum.resident].map(|kb| kb as f64 / 1024.0);
        out += &format!(
            "{:<16} {:>5} {used:>9.2} {pss:>9.1} {anonymous:>9.1} {resident:>9.1}\n",
            group.name,
            group.pids.len()
        );
    }
    Ok(out)
}

fn ticks_of(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    parse_ticks(&text).with_context(|| format!("{path}: no CPU time in it"))
}

/// User and system time, children that were waited for included, from a stat line; the name in brackets may hold anything.
fn parse_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let times: Vec<u64> = fields
        .split_whitespace()
        .skip(11)
        .take(4)
        .filter_map(|field| field.parse().ok())
        .collect();
    (times.len() == 4).then(|| times.iter().sum())
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
    fn a_stat_line_is_read_behind_a_name_with_brackets_and_spaces() {
        let line = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 200 0 0 11 22 3 4 20 0 5 0 99 1 2";
        assert_eq!(parse_ticks(line), Some(40));
        assert_eq!(parse_ticks("7 (cut) S 1 7"), None);
    }

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

    #[test]
    fn groups_are_name_and_pids() {
        assert_eq!(
            "a=1,2".parse(),
            Ok(Group {
                name: "a".to_owned(),
                pids: vec![1, 2]
            })
        );
        assert!("a".parse::<Group>().is_err());
        assert!("a=x".parse::<Group>().is_err());
    }
}
