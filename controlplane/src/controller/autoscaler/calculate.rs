//! How many replicas a metric asks for. Pure.
//!
//! The arithmetic is upstream's (`replica_calculator.go`): what pods use over what they should, times the ready ones; pods without a
//! metric, or not ready yet, only ever make the change smaller.

use crate::held::{Container, Pod};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerBehavior;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use proto::api::quantity::Quantity;
use proto::api::{condition, resources};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long after its start a pod's CPU says little (upstream's `--horizontal-pod-autoscaler-cpu-initialization-period`).
pub(super) const CPU_INITIALIZATION: SignedDuration = SignedDuration::from_mins(5);
/// A pod that became unready within this time of its start has never been ready
/// (`--horizontal-pod-autoscaler-initial-readiness-delay`).
pub(super) const INITIAL_READINESS: SignedDuration = SignedDuration::from_secs(30);
/// How far a ratio may be from 1 without a change (`--horizontal-pod-autoscaler-tolerance`).
const TOLERANCE: f64 = 0.1;

/// What one pod uses of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// When its window ended.
    pub(super) at: Timestamp,
    /// The window's length.
    pub(super) window: SignedDuration,
    /// Thousandths of the resource's unit.
    pub(super) milli: i64,
}

/// By name of the pod.
pub(super) type Samples = BTreeMap<String, Sample>;

/// How far a ratio may be from 1, in each direction, without a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerances {
    down: f64,
    up: f64,
}

impl Tolerances {
    /// As the autoscaler's behavior says, or the default.
    pub(super) fn of(behavior: Option<&HorizontalPodAutoscalerBehavior>) -> Self {
        let rules = |up: bool| {
            let rules = behavior.and_then(|b| if up { b.scale_up.as_ref() } else { b.scale_down.as_ref() });
            let own = rules.and_then(|rules| rules.tolerance.as_ref());
            own.map_or(TOLERANCE, |own| Quantity::of(own).milli_value() as f64 / 1000.0)
        };
        Self {
            down: rules(false),
            up: rules(true),
        }
    }

    /// Whether nothing is to change for this ratio.
    pub(super) fn is_within(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

/// What a metric proposes, and what it was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) replicas: i32,
    /// Percent of what is requested, where that is what counts.
    pub(super) utilization: Option<i32>,
    /// Average over the pods, in thousandths.
    pub(super) average_milli: i64,
}

/// What is wanted of each pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Percent of its request.
    Utilization(i32),
    /// Thousandths of the resource's unit.
    AverageMilli(i64),
}

/// What the calculation is about.
pub(super) struct Question<'a> {
    /// The pods the target's selector chooses.
    pub(super) pods: &'a [Arc<Pod>],
    /// Name of the resource, such as `cpu`.
    pub(super) resource: &'a str,
    /// The container that counts; all of them if it is empty.
    pub(super) container: &'a str,
    /// The replicas there should be now.
    pub(super) current: i32,
    pub(super) tolerances: Tolerances,
    pub(super) now: Timestamp,
}

#[derive(Default)]
struct Groups {
    ready: usize,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

/// Whether what a pod uses of the CPU says nothing: it starts, or has never been ready.
fn is_starting(pod: &Pod, sample: &Sample, now: Timestamp) -> bool {
    let status = pod.status.as_ref();
    let ready = condition::find(status.and_then(|s| s.conditions.as_ref()), "Ready");
    let started = status.and_then(|s| s.start_time.as_ref());
    let (Some(ready), Some(started)) = (ready, started) else {
        return true;
    };
    let is_unready = ready.status == "False";
    let changed = ready
        .last_transition_time
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    match started.0.saturating_add(CPU_INITIALIZATION) {
        Ok(end) if end > now => {
            let whole = changed.saturating_add(sample.window).unwrap_or(Timestamp::MAX);
            is_unready || sample.at < whole
        }
        _ => {
            is_unready
                && started
                    .0
                    .saturating_add(INITIAL_READINESS)
                    .is_ok_and(|end| end > changed)
        }
    }
}

fn group(question: &Question<'_>, samples: &Samples) -> Groups {
    let mut groups = Groups::default();
    for pod in question.pods {
        let name = pod.name_any();
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default();
        if pod.metadata.deletion_timestamp.is_some() || phase == "Failed" {
            groups.ignored.insert(name);
        } else if phase == "Pending" {
            groups.unready.insert(name);
        } else {
            match samples.get(&name) {
                None => drop(groups.missing.insert(name)),
                Some(sample) if question.resource == "cpu" && is_starting(pod, sample, question.now) => {
                    groups.unready.insert(name);
                }
                Some(_) => groups.ready += 1,
            }
        }
    }
    groups
}

/// What a pod requests of the resource, in thousandths.
fn request(pod: &Pod, question: &Question<'_>) -> Result<i64, String> {
    let name = pod.name_any();
    let Some(spec) = pod.spec.as_ref() else { return Ok(0) };
    let (wanted, resource) = (question.container, question.resource);
    let own = spec.resources.as_ref().and_then(|own| own.requests.as_ref());
    let has_own = own.is_some_and(|own| own.keys().any(|name| resources::allowed_at_pod_level(name)));
    if wanted.is_empty() && has_own {
        let all = resources::pod_requests(spec);
        let found = all.get(resource).copied();
        let found = found.ok_or_else(|| format!("missing pod-level request for {resource} in Pod {name}"))?;
        return Ok(found.milli_value());
    }
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(resources::is_sidecar);
    let mut sum = 0i64;
    for container in spec.containers.iter().chain(sidecars) {
        if !wanted.is_empty() && wanted != container.name {
            continue;
        }
        let missing = || {
            format!(
                "missing request for {resource} in container {} of Pod {name}",
                container.name
            )
        };
        let found = requested(container, resource).ok_or_else(missing)?;
        sum = sum.saturating_add(found);
        if wanted == container.name {
            return Ok(sum);
        }
    }
    match wanted {
        "" => Ok(sum),
        wanted => Err(format!("container {wanted} not found in Pod {name}")),
    }
}

fn requested(container: &Container, resource: &str) -> Option<i64> {
    let requests = container.resources.as_ref()?.requests.as_ref()?;
    requests.get(resource).map(|amount| Quantity::of(amount).milli_value())
}

/// How much is used over how much is wanted, with the numbers behind it.
struct Ratio {
    ratio: f64,
    utilization: Option<i32>,
    average_milli: i64,
}

fn ratio_of(samples: &Samples, requests: &Requests, wanted: Wanted) -> Result<Ratio, String> {
    let sum = |values: &mut dyn Iterator<Item = i64>| values.map(i128::from).sum::<i128>();
    match wanted {
        Wanted::AverageMilli(wanted) => {
            let total = sum(&mut samples.values().map(|sample| sample.milli));
            let average = clamped(total / (samples.len().max(1) as i128));
            Ok(Ratio {
                ratio: average as f64 / wanted as f64,
                utilization: None,
                average_milli: average,
            })
        }
        Wanted::Utilization(wanted) => {
            let known: Vec<(i64, i64)> = samples
                .iter()
                .filter_map(|(name, sample)| Some((sample.milli, *requests.get(name)?)))
                .collect();
            let used = sum(&mut known.iter().map(|(used, _)| *used));
            let asked = sum(&mut known.iter().map(|(_, asked)| *asked));
            if asked == 0 {
                // Zero would be divided by: there is nothing to have a share of.
                return Err("no metrics returned matched known pods".to_owned());
            }
            let percent = i32::try_from(used * 100 / asked).unwrap_or(i32::MAX);
            Ok(Ratio {
                ratio: f64::from(percent) / f64::from(wanted),
                utilization: Some(percent),
                average_milli: clamped(used / (known.len() as i128)),
            })
        }
    }
}

fn clamped(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Rounded up; a float beyond the integers is the largest of them.
pub(super) fn ceil(value: f64) -> i32 {
    value.ceil() as i32
}

/// What pods request of a resource, in thousandths by name of the pod.
type Requests = BTreeMap<String, i64>;

/// What a walk over the pods finds out about a resource, whatever is wanted of it.
pub(super) struct Prepared {
    /// Of the pods that count.
    samples: Samples,
    groups: Groups,
    /// Known once it is asked for.
    requests: OnceCell<Result<Requests, String>>,
}

impl Prepared {
    /// For all metrics that ask about the same resource of the same container.
    ///
    /// # Errors
    /// As [`replicas`].
    pub(super) fn of(question: &Question<'_>, mut samples: Samples) -> Result<Self, String> {
        if question.pods.is_empty() {
            return Err("no pods returned by selector while calculating replica count".to_owned());
        }
        let groups = group(question, &samples);
        samples.retain(|name, _| !groups.ignored.contains(name) && !groups.unready.contains(name));
        if samples.is_empty() {
            return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
        }
        Ok(Self {
            samples,
            groups,
            requests: OnceCell::new(),
        })
    }

    fn requests(&self, question: &Question<'_>) -> Result<&Requests, String> {
        let all = || {
            let pods = question.pods.iter();
            pods.map(|pod| Ok((pod.name_any(), request(pod, question)?))).collect()
        };
        self.requests.get_or_init(all).as_ref().map_err(String::clone)
    }
}

/// The replicas a resource asks for, of what was prepared for the same question.
///
/// # Errors
/// Upstream's text of what is missing.
pub(super) fn replicas(question: &Question<'_>, prepared: &Prepared, wanted: Wanted) -> Result<Proposal, String> {
    let groups = &prepared.groups;
    let none = Requests::new();
    let requests = match wanted {
        Wanted::Utilization(_) => prepared.requests(question)?,
        Wanted::AverageMilli(_) => &none,
    };
    let first = ratio_of(&prepared.samples, requests, wanted)?;
    let proposal = |replicas| Proposal {
        replicas,
        utilization: first.utilization,
        average_milli: first.average_milli,
    };
    let grows_with_unready = !groups.unready.is_empty() && first.ratio > 1.0;
    if !grows_with_unready && groups.missing.is_empty() {
        return Ok(proposal(match question.tolerances.is_within(first.ratio) {
            true => question.current,
            false => ceil(first.ratio * groups.ready as f64),
        }));
    }
    let mut samples = prepared.samples.clone();
    let assumed = |milli| Sample {
        at: question.now,
        window: SignedDuration::ZERO,
        milli,
    };
    for name in &groups.missing {
        if first.ratio < 1.0 {
            let all = match wanted {
                Wanted::AverageMilli(wanted) => wanted,
                Wanted::Utilization(wanted) => {
                    let asked = i128::from(requests.get(name).copied().unwrap_or_default());
                    clamped(asked * i128::from(wanted.max(100)) / 100)
                }
            };
            samples.insert(name.clone(), assumed(all));
        } else if first.ratio > 1.0 {
            samples.insert(name.clone(), assumed(0));
        }
    }
    if grows_with_unready {
        samples.extend(groups.unready.iter().map(|name| (name.clone(), assumed(0))));
    }
    let second = ratio_of(&samples, requests, wanted)?.ratio;
    let turns = (first.ratio < 1.0 && second > 1.0) || (first.ratio > 1.0 && second < 1.0);
    if turns || question.tolerances.is_within(second) {
        return Ok(proposal(question.current));
    }
    let new = ceil(second * samples.len() as f64);
    let is_odd = (second < 1.0 && new > question.current) || (second > 1.0 && new < question.current);
    Ok(proposal(if is_odd { question.current } else { new }))
}

#[cfg(test)]
mod tests;
