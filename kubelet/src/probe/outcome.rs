//! Probe results as state: the machine that turns single results into an outcome, and the outcomes of one pod. Pure.
//!
//! Kubelet contract §4.4: readiness begins as failure, liveness as success, startup as unknown; a result counts once it came
//! as often in a row as its threshold says; after a liveness failure or any startup result probing rests until the
//! container is another one.

use crate::id::ContainerId;
use k8s_openapi::api::core::v1::{Container, Probe};
use std::collections::BTreeMap;

/// What a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Whether the container is to be restarted.
    Liveness,
    /// Whether it takes traffic.
    Readiness,
    /// Whether it has started, so that the others begin.
    Startup,
}

impl Kind {
    /// All kinds, in the order upstream starts them.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Readiness, Self::Liveness];

    /// Its name at the head of events, and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
            Self::Startup => "Startup",
        }
    }

    /// The container's probe of this kind.
    pub fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Liveness => container.liveness_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
            Self::Startup => container.startup_probe.as_ref(),
        }
    }

    /// What is assumed of a container before its first results.
    pub fn initial(self) -> Outcome {
        match self {
            Self::Liveness => Outcome::Success,
            Self::Readiness => Outcome::Failure,
            Self::Startup => Outcome::Unknown,
        }
    }
}

/// A probe's standing result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passes.
    Success,
    /// It fails.
    Failure,
    /// Nothing is known yet.
    Unknown,
}

/// The state machine of one probe of one container.
#[derive(Clone, Debug)]
pub struct Machine {
    kind: Kind,
    success_threshold: u32,
    failure_threshold: u32,
    last: Option<Outcome>,
    run: u32,
    outcome: Outcome,
    on_hold: bool,
}

impl Machine {
    /// A machine at its initial outcome, or at one remembered from before a restart of the kubelet.
    pub fn new(kind: Kind, probe: &Probe, remembered: Option<Outcome>) -> Self {
        let threshold = |value: Option<i32>, default: u32| {
            value
                .and_then(|v| u32::try_from(v).ok())
                .filter(|v| *v > 0)
                .unwrap_or(default)
        };
        let outcome = remembered.unwrap_or(kind.initial());
        Self {
            kind,
            success_threshold: threshold(probe.success_threshold, 1),
            failure_threshold: threshold(probe.failure_threshold, 3),
            last: None,
            run: 0,
            outcome,
            on_hold: kind == Kind::Startup && outcome == Outcome::Success,
        }
    }

    /// The standing outcome.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether probing rests until the container is another one.
    pub fn is_on_hold(&self) -> bool {
        self.on_hold
    }

    /// Takes one result; tells the new outcome if a threshold was reached and it differs. A probe that could not be
    /// carried out is not a result and is not passed here.
    pub fn take(&mut self, passed: bool) -> Option<Outcome> {
        let result = if passed { Outcome::Success } else { Outcome::Failure };
        if self.last == Some(result) {
            self.run = self.run.saturating_add(1);
        } else {
            self.last = Some(result);
            self.run = 1;
        }
        let threshold = if passed {
            self.success_threshold
        } else {
            self.failure_threshold
        };
        if self.run < threshold {
            return None;
        }
        let settled = match self.kind {
            Kind::Liveness => result == Outcome::Failure,
            Kind::Startup => true,
            Kind::Readiness => false,
        };
        if settled {
            self.on_hold = true;
            self.run = 0;
        }
        let changed = self.outcome != result;
        self.outcome = result;
        changed.then_some(result)
    }
}

/// The outcomes of one pod's probes, each for one container instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    by_probe: BTreeMap<(String, Kind), (ContainerId, Outcome)>,
}

impl Outcomes {
    /// Sets an outcome; tells whether anything changed.
    pub fn set(&mut self, container: &str, kind: Kind, id: &ContainerId, outcome: Outcome) -> bool {
        let value = (id.clone(), outcome);
        let old = self.by_probe.insert((container.to_owned(), kind), value.clone());
        old != Some(value)
    }

    /// The outcome of a probe for that instance: the initial one if it is about another.
    pub fn get(&self, container: &str, kind: Kind, id: &ContainerId) -> Outcome {
        match self.by_probe.get(&(container.to_owned(), kind)) {
            Some((of, outcome)) if of == id => *outcome,
            _ => kind.initial(),
        }
    }

    /// Whether a running instance counts as started.
    pub fn started(&self, container: &Container, id: &ContainerId) -> bool {
        container.startup_probe.is_none() || self.get(&container.name, Kind::Startup, id) == Outcome::Success
    }

    /// Whether a running instance counts as ready.
    pub fn ready(&self, container: &Container, id: &ContainerId) -> bool {
        self.started(container, id)
            && (container.readiness_probe.is_none()
                || self.get(&container.name, Kind::Readiness, id) == Outcome::Success)
    }

    /// Whether a running instance is to be restarted, and which probe says so.
    pub fn failed(&self, container: &Container, id: &ContainerId) -> Option<Kind> {
        [Kind::Liveness, Kind::Startup]
            .into_iter()
            .find(|kind| kind.of(container).is_some() && self.get(&container.name, *kind, id) == Outcome::Failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(success: i32, failure: i32) -> Probe {
        Probe {
            success_threshold: Some(success),
            failure_threshold: Some(failure),
            ..Probe::default()
        }
    }

    fn feed(kind: Kind, probe: &Probe, results: &[bool]) -> (Vec<Option<Outcome>>, bool) {
        let mut machine = Machine::new(kind, probe, None);
        (results.iter().map(|r| machine.take(*r)).collect(), machine.is_on_hold())
    }

    #[test]
    fn thresholds_count_results_in_a_row() {
        use Outcome::{Failure, Success};
        type Case = (
            &'static str,
            Kind,
            Probe,
            &'static [bool],
            &'static [Option<Outcome>],
            bool,
        );
        let cases: &[Case] = &[
            (
                "ready at the first success",
                Kind::Readiness,
                probe(1, 3),
                &[true],
                &[Some(Success)],
                false,
            ),
            (
                "two in a row",
                Kind::Readiness,
                probe(2, 3),
                &[true, false, true, true],
                &[None, None, None, Some(Success)],
                false,
            ),
            (
                "unready at the third failure",
                Kind::Readiness,
                probe(1, 3),
                &[true, false, false, false],
                &[Some(Success), None, None, Some(Failure)],
                false,
            ),
            (
                "alive is no change",
                Kind::Liveness,
                probe(1, 1),
                &[true],
                &[None],
                false,
            ),
            (
                "dead holds",
                Kind::Liveness,
                probe(1, 2),
                &[false, false],
                &[None, Some(Failure)],
                true,
            ),
            (
                "started holds",
                Kind::Startup,
                probe(1, 3),
                &[false, true],
                &[None, Some(Success)],
                true,
            ),
            (
                "never started holds",
                Kind::Startup,
                probe(1, 2),
                &[false, false],
                &[None, Some(Failure)],
                true,
            ),
        ];
        for (name, kind, probe, results, outcomes, on_hold) in cases {
            let (got, hold) = feed(*kind, probe, results);
            assert_eq!(got, *outcomes, "{name}");
            assert_eq!(hold, *on_hold, "{name}");
        }
    }

    #[test]
    fn an_outcome_belongs_to_one_instance() {
        let mut outcomes = Outcomes::default();
        let container = Container {
            name: "c".into(),
            readiness_probe: Some(probe(1, 1)),
            startup_probe: Some(probe(1, 1)),
            liveness_probe: Some(probe(1, 1)),
            ..Container::default()
        };
        let (one, two) = (ContainerId::from("1"), ContainerId::from("2"));
        assert!(!outcomes.started(&container, &one) && !outcomes.ready(&container, &one));
        outcomes.set("c", Kind::Readiness, &one, Outcome::Success);
        assert!(!outcomes.ready(&container, &one), "not ready before it started");
        outcomes.set("c", Kind::Startup, &one, Outcome::Success);
        assert!(outcomes.ready(&container, &one) && !outcomes.ready(&container, &two));
        outcomes.set("c", Kind::Liveness, &one, Outcome::Failure);
        assert_eq!(outcomes.failed(&container, &one), Some(Kind::Liveness));
        assert_eq!(outcomes.failed(&container, &two), None);
    }
}
