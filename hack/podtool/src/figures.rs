//! Times of runs as figures: percentiles, ratios and the table a person reads. Pure.

use std::fmt;
use std::time::Duration;

use crate::processes::Group;

/// How many pods, and whether together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Burst {
    /// How many pods in one round.
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
    /// CPU time each group of processes used while the pods started.
    pub(crate) start_cpu: Vec<Duration>,
    /// The same while they stopped.
    pub(crate) stop_cpu: Vec<Duration>,
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

/// One half of a run: starting, or stopping.
struct Half {
    name: &'static str,
    each: fn(&Run) -> &[Duration],
    all: fn(&Run) -> Duration,
    cpu: fn(&Run) -> &[Duration],
}

const HALVES: [Half; 2] = [
    Half {
        name: "start",
        each: |run| &run.start,
        all: |run| run.all_started,
        cpu: |run| &run.start_cpu,
    },
    Half {
        name: "stop",
        each: |run| &run.stop,
        all: |run| run.all_stopped,
        cpu: |run| &run.stop_cpu,
    },
];

/// What many runs of one half come to, in milliseconds.
struct Summary {
    p50: f64,
    p95: f64,
    p99: f64,
    /// All pods of a round: the median over the rounds.
    all: f64,
}

impl Summary {
    fn of(half: &Half, runs: &[Run]) -> Self {
        let each: Vec<_> = runs.iter().flat_map(|run| (half.each)(run).iter().copied()).collect();
        let whole: Vec<_> = runs.iter().map(half.all).collect();
        Self {
            p50: milliseconds(percentile(&each, 50.0)),
            p95: milliseconds(percentile(&each, 95.0)),
            p99: milliseconds(percentile(&each, 99.0)),
            all: milliseconds(percentile(&whole, 50.0)),
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// The table's first two lines.
pub(crate) fn heading(with_cluster: bool) -> String {
    let line = "pods                what   floor p50   p95   p99    all";
    let mut text = line.to_owned();
    if with_cluster {
        text += " | ours p50   p95   p99    all | p50 over floor  ratio  p99/p50  all ratio";
    }
    text + "\n(milliseconds; all: of one round, the median)"
}

/// The rows of one kind of run: starts and stops, floor beside cluster.
pub(crate) fn rows(burst: Burst, floor: &[Run], cluster: &[Run]) -> String {
    let label = format!("{} x {burst}", floor.len());
    let mut out = String::new();
    for half in &HALVES {
        let base = Summary::of(half, floor);
        out += &format!(
            "{label:<19} {:<6} {:>9.0} {:>5.0} {:>5.0} {:>6.0}",
            half.name, base.p50, base.p95, base.p99, base.all
        );
        if !cluster.is_empty() {
            let ours = Summary::of(half, cluster);
            out += &format!(
                " | {:>8.0} {:>5.0} {:>5.0} {:>6.0} | {:>+14.0} {:>6.2} {:>8.2} {:>10.2}",
                ours.p50,
                ours.p95,
                ours.p99,
                ours.all,
                ours.p50 - base.p50,
                ours.p50 / base.p50,
                ours.p99 / ours.p50,
                ours.all / base.all
            );
        }
        out.push('\n');
    }
    out
}

/// CPU time a pod cost in each group of processes, floor beside cluster; nothing without groups.
pub(crate) fn cpu_rows(groups: &[Group], burst: Burst, floor: &[Run], cluster: &[Run]) -> String {
    let mut out = String::new();
    if groups.is_empty() {
        return out;
    }
    for half in &HALVES {
        let per_pod = |runs: &[Run]| {
            let mut text = String::new();
            for (number, group) in groups.iter().enumerate() {
                let used: Duration = runs.iter().filter_map(|run| (half.cpu)(run).get(number)).sum();
                let pods = (runs.len() * burst.pods).max(1);
                text += &format!(" {} {:.1}", group.name, milliseconds(used) / pods as f64);
            }
            text
        };
        out += &format!("  CPU a pod, {:<5}: floor{}", half.name, per_pod(floor));
        if !cluster.is_empty() {
            out += &format!(" | ours{}", per_pod(cluster));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(values: &[u64]) -> Vec<Duration> {
        values.iter().copied().map(Duration::from_millis).collect()
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let times = times(&[40, 10, 30, 20]);
        for (percent, expected) in [(50.0, 20), (51.0, 30), (99.0, 40), (100.0, 40), (1.0, 10), (0.0, 10)] {
            assert_eq!(
                percentile(&times, percent),
                Duration::from_millis(expected),
                "p{percent}"
            );
        }
        assert_eq!(percentile(&[], 50.0), Duration::ZERO);
    }

    fn run(start: &[u64], all: u64, cpu: &[u64]) -> Run {
        Run {
            start: times(start),
            stop: times(&[100]),
            all_started: Duration::from_millis(all),
            all_stopped: Duration::from_millis(100),
            start_cpu: times(cpu),
            stop_cpu: Vec::new(),
        }
    }

    #[test]
    fn rows_compare_medians_over_all_rounds() {
        let text = rows(
            Burst::at_once(2),
            &[run(&[100, 100], 150, &[]), run(&[100, 100], 150, &[])],
            &[run(&[150, 300], 300, &[])],
        );
        let start: Vec<_> = text.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(
            start.join(" "),
            "2 x 2 at once start 100 100 100 150 | 150 300 300 300 | +50 1.50 2.00 2.00"
        );
        assert!(!rows(Burst::one_at_a_time(1), &[run(&[1], 1, &[])], &[]).contains('|'));
    }

    #[test]
    fn cpu_is_told_for_each_pod_and_group() {
        let groups = ["a=1".parse().unwrap(), "b=2".parse().unwrap()];
        let floor = [run(&[1, 1], 1, &[10, 0]), run(&[1, 1], 1, &[30, 0])];
        let ours = [run(&[1, 1], 1, &[20, 5])];
        let text = cpu_rows(&groups, Burst::at_once(2), &floor, &ours);
        let start = text.lines().next().unwrap().trim();
        assert_eq!(start, "CPU a pod, start: floor a 10.0 b 0.0 | ours a 10.0 b 2.5");
        assert_eq!(cpu_rows(&[], Burst::at_once(2), &floor, &ours), "");
    }
}
