//! Processes by name and id, and the CPU time they have used, from `/proc/PID/stat`.

use std::fs;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;

/// Clock ticks in a second: `USER_HZ`, the same on every Linux this runs on.
const TICKS_PER_SECOND: u64 = 100;

/// Processes whose figures are added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// What the figures are shown under.
    pub(crate) name: String,
    /// The processes.
    pub(crate) pids: Vec<u32>,
}

impl Group {
    /// This very program.
    pub(crate) fn own() -> Self {
        Self {
            name: "podtool".to_owned(),
            pids: vec![std::process::id()],
        }
    }

    /// CPU time used so far, with that of children that ended.
    ///
    /// # Errors
    /// If one of the processes is not there.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let ticks: u64 = self.pids.iter().map(|pid| ticks_of(*pid)).sum::<anyhow::Result<_>>()?;
        Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
    }
}

/// CPU time used so far by each of the groups.
///
/// # Errors
/// If one of the processes is not there.
pub(crate) fn cpu(groups: &[Group]) -> anyhow::Result<Vec<Duration>> {
    groups.iter().map(Group::cpu).collect()
}

/// CPU time each of the groups has used since `before`.
///
/// # Errors
/// If one of the processes is not there.
pub(crate) fn cpu_since(groups: &[Group], before: &[Duration]) -> anyhow::Result<Vec<Duration>> {
    let now = cpu(groups)?;
    Ok(now
        .iter()
        .zip(before)
        .map(|(now, before)| now.saturating_sub(*before))
        .collect())
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
