//! Times of runs as figures: percentiles, ratios and the table a person reads. Pure.

use std::fmt;
use std::time::Duration;

/// How many pods, and whether together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Burst {
    /// How many pods.
    pub(crate) pods: usize,
    /// Started and stopped at once, not one after the other.
    pub(crate) at_once: bool,
}

impl Burst {
    /// One after the other.
    pub(crate) fn one_at_a_time(pods: usize) -> Self {
        Self { pods, at_once: false }
    }

    /// All together.
    pub(crate) fn at_once(pods: usize) -> Self {
        Self { pods, at_once: true }
    }
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.at_once {
            write!(f, "{} at once", self.pods)
        } else {
            write!(f, "{} one by one", self.pods)
        }
    }
}

/// What one run took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    /// Each pod's time until it ran (floor: three calls; cluster: create until Ready is seen).
    pub(crate) start: Vec<Duration>,
    /// Each pod's time until it was stopped (floor: two calls; cluster: delete until gone is seen).
    pub(crate) stop: Vec<Duration>,
    /// First start asked for until the last done.
    pub(crate) all_started: Duration,
    /// First stop asked for until the last done.
    pub(crate) all_stopped: Duration,
}

/// The value below which `percent` of the sorted times lie (nearest rank); zero when there are none.
pub(crate) fn percentile(times: &[Duration], percent: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

/// The table's first two lines.
pub(crate) fn heading(with_cluster: bool) -> String {
    let line = "pods             what          floor p50    p99     all";
    if with_cluster {
        format!("{line} |     ours p50    p99     all | p50 over floor   ratio  all ratio\n(milliseconds)")
    } else {
        format!("{line}\n(milliseconds)")
    }
}

/// The rows of one kind of run: starts and stops, floor beside cluster.
pub(crate) fn rows(burst: Burst, floor: &[Run], cluster: &[Run]) -> String {
    let mut out = String::new();
    for (what, times, all) in [
        (
            "start",
            (|run| &run.start) as fn(&Run) -> &Vec<Duration>,
            (|run| run.all_started) as fn(&Run) -> Duration,
        ),
        ("stop", |run| &run.stop, |run| run.all_stopped),
    ] {
        let summary = |runs: &[Run]| {
            let each: Vec<_> = runs.iter().flat_map(|run| times(run).iter().copied()).collect();
            let whole: Vec<_> = runs.iter().map(all).collect();
            [
                percentile(&each, 50.0),
                percentile(&each, 99.0),
                percentile(&whole, 50.0),
            ]
            .map(|time| time.as_secs_f64() * 1000.0)
        };
        let [p50, p99, whole] = summary(floor);
        out += &format!(
            "{:<16} {what:<8} {p50:>14.0} {p99:>6.0} {whole:>7.0}",
            burst.to_string()
        );
        if !cluster.is_empty() {
            let [ours50, ours99, ours_whole] = summary(cluster);
            out += &format!(
                " | {ours50:>12.0} {ours99:>6.0} {ours_whole:>7.0} | {:>+14.0} {:>7.2} {:>10.2}",
                ours50 - p50,
                ours50 / p50,
                ours_whole / whole
            );
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(values: &[u64]) -> Vec<Duration> {
        values.iter().copied().map(Duration::from_millis).collect()
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let times = milliseconds(&[40, 10, 30, 20]);
        for (percent, expected) in [(50.0, 20), (51.0, 30), (99.0, 40), (100.0, 40), (1.0, 10), (0.0, 10)] {
            assert_eq!(
                percentile(&times, percent),
                Duration::from_millis(expected),
                "p{percent}"
            );
        }
        assert_eq!(percentile(&[], 50.0), Duration::ZERO);
    }

    #[test]
    fn rows_compare_medians_over_all_rounds() {
        let run = |start: &[u64], all| Run {
            start: milliseconds(start),
            stop: milliseconds(&[100]),
            all_started: Duration::from_millis(all),
            all_stopped: Duration::from_millis(100),
        };
        let text = rows(
            Burst::at_once(2),
            &[run(&[100, 100], 150), run(&[100, 100], 150)],
            &[run(&[150, 150], 300)],
        );
        let start: Vec<_> = text.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(
            start,
            [
                "2", "at", "once", "start", "100", "100", "150", "|", "150", "150", "300", "|", "+50", "1.50", "2.00"
            ]
        );
        assert!(!rows(Burst::one_at_a_time(1), &[run(&[1], 1)], &[]).contains('|'));
    }
}
