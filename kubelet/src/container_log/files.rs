//! What becomes of the files beside a log, by their names. Pure.

use client::ordered::Arrange;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// What is compressed already.
pub(super) const COMPRESSED: &str = ".gz";
/// What was being compressed.
pub(super) const UNFINISHED: &str = ".tmp";
const FORMAT: &str = "%Y%m%d-%H%M%S";

/// What is to be done before a log is put aside, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chores {
    /// Leftovers of a compression that a kubelet died in, and logs that are too many, oldest first.
    pub(super) remove: Vec<String>,
    /// Logs that are to be compressed, oldest first.
    pub(super) compress: Vec<String>,
    /// The time of the newest one.
    pub(super) newest: Option<DateTime>,
}

/// When a log of that name was put aside; nothing if the name is none of ours.
pub(super) fn time_of(name: &str, log: &str) -> Option<DateTime> {
    let rest = name.strip_prefix(log)?.strip_prefix('.')?;
    let time = rest
        .strip_suffix(UNFINISHED)
        .or(rest.strip_suffix(COMPRESSED))
        .unwrap_or(rest);
    // Only what is written exactly like that.
    let parsed = DateTime::strptime(FORMAT, time).ok()?;
    (parsed.strftime(FORMAT).to_string() == time).then_some(parsed)
}

/// What is to be done with what lies beside `log`, of which `files_max` files stay once it is put aside and a new one is begun.
pub(super) fn chores(names: &[String], log: &str, files_max: usize) -> Chores {
    let mut ours: Vec<&String> = names.iter().filter(|name| time_of(name, log).is_some()).collect();
    ours.arrange();
    let mut chores = Chores::default();
    let mut stay: Vec<&String> = Vec::new();
    for name in &ours {
        // Compressed, and the kubelet died before it took the original away.
        let is_done = ours.iter().any(|other| **other == format!("{name}{COMPRESSED}"));
        match name.ends_with(UNFINISHED) || is_done {
            true => chores.remove.push((*name).clone()),
            false => stay.push(name),
        }
    }
    chores.newest = stay.iter().filter_map(|name| time_of(name, log)).max();
    // The new log, and the one that is put aside, are not among them yet.
    let excess = stay.len().saturating_sub(files_max.saturating_sub(2));
    let kept = stay.split_off(excess);
    chores.remove.extend(stay.into_iter().cloned());
    chores.compress = kept
        .into_iter()
        .filter(|name| !name.ends_with(COMPRESSED))
        .cloned()
        .collect();
    chores
}

/// The name by which a log is put aside: the time (UTC), but later than every name there is, so that names sort as the logs were written
/// though two come within one second, or the clock was set back.
pub(super) fn aside(log: &str, now: Timestamp, newest: Option<DateTime>) -> String {
    let now = TimeZone::UTC.to_datetime(now);
    let after = newest.and_then(|newest| newest.checked_add(1.second()).ok());
    let time = after.map_or(now, |after| after.max(now));
    format!("{log}.{}", time.strftime(FORMAT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(names: &[&str], files_max: usize) -> (Vec<String>, Vec<String>) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let chores = chores(&names, "0.log", files_max);
        let short = |names: Vec<String>| {
            names
                .iter()
                .map(|name| name.replace("0.log.20260101-00000", ""))
                .collect()
        };
        (short(chores.remove), short(chores.compress))
    }

    #[test]
    fn files_beside_a_log() {
        let t = |rest: &str| format!("0.log.20260101-00000{rest}");
        for (what, names, files_max, remove, compress) in [
            ("nothing there", vec![], 5, vec![], vec![]),
            ("the last one is compressed", vec![t("1")], 5, vec![], vec!["1"]),
            ("those that are stay", vec![t("2"), t("1.gz")], 5, vec![], vec!["2"]),
            (
                "the oldest go",
                vec![t("4"), t("3.gz"), t("2.gz"), t("1.gz")],
                5,
                vec!["1.gz"],
                vec!["4"],
            ),
            (
                "two files are the log and the last",
                vec![t("1"), t("2")],
                2,
                vec!["1", "2"],
                vec![],
            ),
            (
                "a kubelet died while it wrote",
                vec![t("1"), t("1.tmp")],
                5,
                vec!["1.tmp"],
                vec!["1"],
            ),
            (
                "it died when it had written",
                vec![t("1"), t("1.gz")],
                5,
                vec!["1"],
                vec![],
            ),
            (
                "others' names are none of ours",
                [
                    "0.log",
                    "1.log",
                    "0.log.bak",
                    "0.log.20260101-000001.old",
                    "0.log.20261301-000001",
                    "10.log.20260101-000001",
                ]
                .map(str::to_owned)
                .to_vec(),
                2,
                vec![],
                vec![],
            ),
        ] {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let expected = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(
                words(&names, files_max),
                (expected(remove), expected(compress)),
                "{what}"
            );
        }
    }

    #[test]
    fn names_sort_as_the_logs_were_written() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let time = |text: &str| DateTime::strptime(FORMAT, text).expect("a time");
        let now = at("2026-01-01T00:00:05Z");
        for (newest, expected) in [
            (None, "0.log.20260101-000005"),
            (Some("20260101-000004"), "0.log.20260101-000005"),
            (Some("20260101-000005"), "0.log.20260101-000006"),
            (Some("20260101-010000"), "0.log.20260101-010001"),
            // Nobody can be later: whoever made that name finds the next one before it.
            (Some("99991231-235959"), "0.log.20260101-000005"),
        ] {
            assert_eq!(aside("0.log", now, newest.map(time)), expected, "{newest:?}");
        }
    }
}
