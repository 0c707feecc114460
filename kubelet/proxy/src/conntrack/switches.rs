//! The kernel's limits and timeouts of connection tracking (`conntrack` of the configuration).
//!
//! Which are set to what is decided purely; who sets them tells what could not be. The number of entries is only ever raised: what an
//! administrator made larger stays.

use crate::config::Conntrack;
use netlink::sysctl;
use std::time::Duration;

/// Most entries that processors ask for together, as upstream has it.
const SCALED_MAX: u64 = 1 << 20;
/// Below `/proc/sys/net`.
const MAX: &str = "netfilter/nf_conntrack_max";
/// How many buckets entries are looked up in.
const BUCKETS: &str = "/sys/module/nf_conntrack/parameters/hashsize";
const PROCESSORS: &str = "/sys/devices/system/cpu/online";

/// A switch below `/proc/sys/net` and what it is to be.
type Switch = (&'static str, u64);

/// How many entries there are to be; nothing leaves the limit.
pub fn entries(rules: &Conntrack, processors: u64) -> Option<u64> {
    if rules.max_per_core == 0 {
        return None;
    }
    let scaled = u64::from(rules.max_per_core).saturating_mul(processors);
    Some(match scaled > SCALED_MAX {
        true => SCALED_MAX,
        false => scaled.max(rules.min.into()),
    })
}

/// Timeouts and truths that are not left as they are.
fn timeouts(rules: &Conntrack) -> Vec<Switch> {
    let seconds = [
        ("netfilter/nf_conntrack_tcp_timeout_established", rules.tcp_established),
        ("netfilter/nf_conntrack_tcp_timeout_close_wait", rules.tcp_close_wait),
        ("netfilter/nf_conntrack_udp_timeout", rules.udp),
        ("netfilter/nf_conntrack_udp_timeout_stream", rules.udp_stream),
    ];
    let set = seconds.into_iter().filter(|(_, after)| *after > Duration::ZERO);
    let liberal = rules
        .tcp_be_liberal
        .then_some(("netfilter/nf_conntrack_tcp_be_liberal", 1));
    set.map(|(name, after)| (name, after.as_secs()))
        .chain(liberal)
        .collect()
}

/// How many processors a list such as `0-3,6` names.
fn count(list: &str) -> Option<u64> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    list.trim().split(',').try_fold(0, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(sum + number(last)?.checked_sub(number(first)?)? + 1)
    })
}

fn processors() -> u64 {
    let listed = std::fs::read_to_string(PROCESSORS).ok();
    let here = || std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    listed.and_then(|list| count(&list)).unwrap_or_else(here)
}

/// Sets what the configuration asks for, in the calling thread's network namespace; returns what could not be set. A machine where
/// these cannot be written works all the same, with what it has.
pub fn set(rules: &Conntrack) -> Vec<String> {
    let mut failed = Vec::new();
    if let Some(entries) = entries(rules, processors()) {
        failed.extend(raise(entries).err());
    }
    for (name, value) in timeouts(rules) {
        let value = value.to_string();
        if sysctl::get(name).as_deref() != Some(&value) {
            tracing::info!(entry = format!("net/{name}"), value, "Set sysctl");
            failed.extend(sysctl::ensure(name, &value).err().map(|error| chain(&error)));
        }
    }
    failed
}

/// Raises the number of entries, and with it that of buckets to a quarter.
fn raise(entries: u64) -> Result<(), String> {
    let number = |text: Option<String>| text.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0);
    if number(sysctl::get(MAX)) < entries {
        tracing::info!(nfConntrackMax = entries, "Setting nf_conntrack_max");
        sysctl::set(MAX, &entries.to_string()).map_err(|error| chain(&error))?;
    }
    let buckets = entries / 4;
    if number(std::fs::read_to_string(BUCKETS).ok()) < buckets {
        tracing::info!(conntrackHashsize = buckets, "Setting conntrack hashsize");
        std::fs::write(BUCKETS, buckets.to_string())
            .map_err(|error| format!("failed to set {BUCKETS} to {buckets}: {error}"))?;
    }
    Ok(())
}

/// How many entries there are in a network namespace; each may have [`MAX`] of its own.
const COUNT: &str = "netfilter/nf_conntrack_count";

/// Whether there is room for more entries in the calling thread's network namespace, as it was last seen.
#[derive(Debug, Default)]
pub struct Room {
    is_full: bool,
}

impl Room {
    /// How many entries there are, if there is no room now and there was before.
    pub fn fills(&mut self) -> Option<u64> {
        let number = |name| sysctl::get(name)?.parse::<u64>().ok();
        let (count, most) = (number(COUNT)?, number(MAX)?);
        let is_news = is_full(count, most, self.is_full) && !self.is_full;
        self.is_full = is_full(count, most, self.is_full);
        is_news.then_some(count)
    }
}

/// What was full is so until a tenth is free: what comes and goes at the limit is told once.
fn is_full(count: u64, most: u64, was: bool) -> bool {
    let percent = if was { 90 } else { 99 };
    // Zero is no limit.
    most > 0 && count.saturating_mul(100) >= most.saturating_mul(percent)
}

/// Whether connections of SCTP are followed with their ports, in the calling thread's network namespace. A kernel that does not (without
/// `CONFIG_NF_CT_PROTO_SCTP`) translates addresses of theirs and no ports.
pub fn follows_sctp() -> bool {
    sysctl::get("netfilter/nf_conntrack_sctp_timeout_established").is_some()
}

fn chain(error: &sysctl::Error) -> String {
    format!("{error}: {}", error.source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_grow_with_processors_up_to_a_million() {
        for (max_per_core, min, processors, expected) in [
            (0, 131_072, 64, None),
            (32_768, 131_072, 2, Some(131_072)),
            (32_768, 131_072, 8, Some(262_144)),
            (32_768, 0, 1, Some(32_768)),
            (32_768, 131_072, 64, Some(SCALED_MAX)),
            (u32::MAX, 0, u64::MAX, Some(SCALED_MAX)),
            (1, 2_000_000, 1, Some(2_000_000)),
        ] {
            let rules = Conntrack {
                max_per_core,
                min,
                ..Conntrack::default()
            };
            assert_eq!(
                entries(&rules, processors),
                expected,
                "{max_per_core} {min} {processors}"
            );
        }
    }

    #[test]
    fn zero_leaves_what_is_there() {
        assert_eq!(timeouts(&Conntrack::default()), []);
        let rules = Conntrack {
            tcp_established: Duration::from_secs(86_400),
            tcp_be_liberal: true,
            udp_stream: Duration::from_secs(300),
            ..Conntrack::default()
        };
        assert_eq!(
            timeouts(&rules),
            [
                ("netfilter/nf_conntrack_tcp_timeout_established", 86_400),
                ("netfilter/nf_conntrack_udp_timeout_stream", 300),
                ("netfilter/nf_conntrack_tcp_be_liberal", 1),
            ]
        );
    }

    #[test]
    fn a_table_is_full_until_a_tenth_of_it_is_free() {
        for (count, most, was, expected) in [
            (0, 1000, false, false),
            (989, 1000, false, false),
            (990, 1000, false, true),
            (1001, 1000, false, true),
            (990, 1000, true, true),
            (900, 1000, true, true),
            (899, 1000, true, false),
            (5, 0, false, false),
            (u64::MAX, u64::MAX, false, true),
        ] {
            assert_eq!(is_full(count, most, was), expected, "{count} {most} {was}");
        }
    }

    #[test]
    fn processors_are_counted() {
        for (list, expected) in [
            ("0\n", Some(1)),
            ("0-3", Some(4)),
            ("0-1,4,6-7", Some(5)),
            ("", None),
            ("3-1", None),
            ("a", None),
        ] {
            assert_eq!(count(list), expected, "{list}");
        }
    }
}
