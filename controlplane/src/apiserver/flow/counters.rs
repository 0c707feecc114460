//! What flow control counts, under upstream's names. Labels are names of stored objects: counters are made when a schema's first
//! request comes, and go when neither the configuration nor a request has them any more.

use super::level::LevelView;
use super::queue_set::Reason;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Upstream's buckets of times, in seconds.
const SECONDS: [f64; 13] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
/// Upstream's buckets of seats.
const SEATS: [f64; 4] = [1.0, 2.0, 4.0, 10.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfFlow {
    flow_schema: String,
    priority_level: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Rejected {
    flow_schema: String,
    priority_level: String,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Waited {
    execute: &'static str,
    flow_schema: String,
    priority_level: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Executed {
    flow_schema: String,
    priority_level: String,
    r#type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfLevel {
    priority_level: String,
}

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

fn seats() -> Histogram {
    Histogram::new(SEATS)
}

type Times<L> = Family<L, Histogram, fn() -> Histogram>;

/// The family's metric of these labels; what locks the family is given back at once.
fn made<L, M, C>(family: &Family<L, M, C>, labels: &L) -> M
where
    L: Clone + std::hash::Hash + Eq,
    M: Clone,
    C: MetricConstructor<M>,
{
    let metric = family.get_or_create(labels);
    M::clone(&metric)
}

/// All of them.
pub(super) struct FlowMetrics {
    rejected: Family<Rejected, Counter>,
    dispatched: Family<OfFlow, Counter>,
    queued: Family<OfFlow, Gauge>,
    executing: Family<OfFlow, Gauge>,
    seats: Family<OfFlow, Gauge>,
    waited: Times<Waited>,
    executed: Times<Executed>,
    estimated: Times<OfFlow>,
    made: Mutex<BTreeMap<OfSchema, Arc<FlowCounters>>>,
}

/// Names of a schema and of its level.
pub(super) type OfSchema = (Arc<str>, Arc<str>);

impl Default for FlowMetrics {
    fn default() -> Self {
        Self {
            rejected: Family::default(),
            dispatched: Family::default(),
            queued: Family::default(),
            executing: Family::default(),
            seats: Family::default(),
            waited: Family::new_with_constructor(seconds),
            executed: Family::new_with_constructor(seconds),
            estimated: Family::new_with_constructor(seats),
            made: Mutex::default(),
        }
    }
}

const REASONS: [(Reason, &str); 4] = [
    (Reason::QueueFull, "queue-full"),
    (Reason::ConcurrencyLimit, "concurrency-limit"),
    (Reason::TimeOut, "time-out"),
    (Reason::Cancelled, "cancelled"),
];

/// Those of one schema at one level.
pub(super) struct FlowCounters {
    rejected: Family<Rejected, Counter>,
    labels: OfFlow,
    pub(super) dispatched: Counter,
    pub(super) queued: Gauge,
    pub(super) executing: Gauge,
    pub(super) seats: Gauge,
    pub(super) waited: Histogram,
    pub(super) waited_in_vain: Histogram,
    executed: Histogram,
    watched: Histogram,
    pub(super) estimated: Histogram,
}

impl FlowCounters {
    /// Counts a request that was sent away.
    pub(super) fn rejected(&self, reason: Reason) {
        self.rejected.get_or_create(&self.labels.rejected(reason)).inc();
    }

    /// Notes how long a request was worked on.
    pub(super) fn executed(&self, is_watch: bool, took: Duration) {
        let histogram = if is_watch { &self.watched } else { &self.executed };
        histogram.observe(took.as_secs_f64());
    }
}

impl OfFlow {
    fn rejected(&self, reason: Reason) -> Rejected {
        let found = REASONS.iter().find(|(own, _)| *own == reason);
        Rejected {
            flow_schema: self.flow_schema.clone(),
            priority_level: self.priority_level.clone(),
            reason: found.map_or("", |(_, text)| text),
        }
    }

    fn waited(&self, execute: &'static str) -> Waited {
        Waited {
            execute,
            flow_schema: self.flow_schema.clone(),
            priority_level: self.priority_level.clone(),
        }
    }

    fn executed(&self, r#type: &'static str) -> Executed {
        Executed {
            flow_schema: self.flow_schema.clone(),
            priority_level: self.priority_level.clone(),
            r#type,
        }
    }
}

impl FlowMetrics {
    /// The counters of a schema at a level; they are kept as long as somebody has them.
    pub(super) fn of(&self, schema: &Arc<str>, level: &Arc<str>) -> Arc<FlowCounters> {
        let key = (Arc::clone(schema), Arc::clone(level));
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let counters = made.entry(key).or_insert_with(|| Arc::new(self.make(schema, level)));
        Arc::clone(counters)
    }

    /// Forgets what nobody has any more and is not among `kept`.
    pub(super) fn retain(&self, kept: &BTreeSet<OfSchema>) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|key, counters| {
            let is_kept = Arc::strong_count(counters) > 1 || kept.contains(key);
            if !is_kept {
                self.forget(&key.0, &key.1);
            }
            is_kept
        });
    }

    fn make(&self, schema: &str, level: &str) -> FlowCounters {
        let labels = OfFlow {
            flow_schema: schema.to_owned(),
            priority_level: level.to_owned(),
        };
        FlowCounters {
            rejected: self.rejected.clone(),
            dispatched: made(&self.dispatched, &labels),
            queued: made(&self.queued, &labels),
            executing: made(&self.executing, &labels),
            seats: made(&self.seats, &labels),
            waited: made(&self.waited, &labels.waited("true")),
            waited_in_vain: made(&self.waited, &labels.waited("false")),
            executed: made(&self.executed, &labels.executed("regular")),
            watched: made(&self.executed, &labels.executed("watch")),
            estimated: made(&self.estimated, &labels),
            labels,
        }
    }

    /// The schema is no more, or uses another level.
    fn forget(&self, schema: &str, level: &str) {
        let labels = OfFlow {
            flow_schema: schema.to_owned(),
            priority_level: level.to_owned(),
        };
        for (reason, _) in REASONS {
            self.rejected.remove(&labels.rejected(reason));
        }
        self.dispatched.remove(&labels);
        for gauges in [&self.queued, &self.executing, &self.seats] {
            gauges.remove(&labels);
        }
        for execute in ["true", "false"] {
            self.waited.remove(&labels.waited(execute));
        }
        for kind in ["regular", "watch"] {
            self.executed.remove(&labels.executed(kind));
        }
        self.estimated.remove(&labels);
    }

    /// Adds everything to `registry`, which knows what all these names begin with, for one answer.
    pub(super) fn register(&self, registry: &mut Registry, levels: &[LevelView], fraction: f64) {
        registry.register(
            "rejected_requests",
            "Number of requests rejected by API Priority and Fairness subsystem",
            self.rejected.clone(),
        );
        registry.register(
            "dispatched_requests",
            "Number of requests executed by API Priority and Fairness subsystem",
            self.dispatched.clone(),
        );
        for (name, help, gauges) in [
            (
                "current_inqueue_requests",
                "Number of requests currently pending in queues of the API Priority and Fairness subsystem",
                &self.queued,
            ),
            (
                "current_executing_requests",
                "Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness subsystem",
                &self.executing,
            ),
            (
                "current_executing_seats",
                "Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem",
                &self.seats,
            ),
        ] {
            registry.register(name, help, gauges.clone());
        }
        registry.register(
            "request_wait_duration_seconds",
            "Length of time a request spent waiting in its queue",
            self.waited.clone(),
        );
        registry.register(
            "request_execution_seconds",
            "Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the API Priority and Fairness subsystem",
            self.executed.clone(),
        );
        registry.register(
            "work_estimated_seats",
            "Number of estimated seats (maximum of initial and final seats) associated with requests in API Priority and Fairness",
            self.estimated.clone(),
        );
        register_levels(registry, levels, fraction);
    }
}

/// What a level has of something.
type OfView = fn(&LevelView) -> f64;

fn register_levels(registry: &mut Registry, levels: &[LevelView], fraction: f64) {
    let gauges: [(&str, &str, OfView); 9] = [
        (
            "nominal_limit_seats",
            "Nominal number of execution seats configured for each priority level",
            |level| level.bounds.nominal as f64,
        ),
        (
            "lower_limit_seats",
            "Configured lower bound on number of execution seats available to each priority level",
            |level| level.bounds.lower as f64,
        ),
        (
            "upper_limit_seats",
            "Configured upper bound on number of execution seats available to each priority level",
            |level| level.bounds.upper as f64,
        ),
        (
            "current_limit_seats",
            "current derived number of execution seats available to each priority level",
            |level| level.limit as f64,
        ),
        (
            "demand_seats_high_watermark",
            "High watermark, over last adjustment period, of demand_seats",
            |level| level.demand.high,
        ),
        (
            "demand_seats_average",
            "Time-weighted average, over last adjustment period, of demand_seats",
            |level| level.demand.average,
        ),
        (
            "demand_seats_stdev",
            "Time-weighted standard deviation, over last adjustment period, of demand_seats",
            |level| level.demand.deviation,
        ),
        ("demand_seats_smoothed", "Smoothed seat demands", |level| level.smoothed),
        ("target_seats", "Seat allocation targets", |level| level.target),
    ];
    for (name, help, value) in gauges {
        let family = Family::<OfLevel, Gauge<f64, AtomicU64>>::default();
        for level in levels {
            let labels = OfLevel {
                priority_level: level.name.to_string(),
            };
            family.get_or_create(&labels).set(value(level));
        }
        registry.register(name, help, family);
    }
    let seat_fair_frac = Gauge::<f64, AtomicU64>::default();
    seat_fair_frac.set(fraction);
    registry.register(
        "seat_fair_frac",
        "Fair fraction of server's concurrency to allocate to each priority level that can use it",
        seat_fair_frac,
    );
}
