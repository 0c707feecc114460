//! What upstream's scheduler_perf measures, as far as it needs no volumes and no devices: which pods are there, which are
//! measured, and from how many pods a second on upstream lets a change in. Pure.
//!
//! Source: contract §11; sizes and pods are those of `test/integration/scheduler_perf`.

use serde_json::{Value, json};

/// Where pods are that are there before, and those that come between.
pub(crate) const FIRST: &str = "sched-0";
/// Where the measured pods are.
pub(crate) const MEASURED: &str = "sched-1";
/// The priority class of pods that others have to go for.
pub(crate) const URGENT: &str = "bench-urgent";
/// Its value, upstream's.
pub(crate) const URGENT_VALUE: i32 = 10;

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// A kind of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// 100m and 500Mi, as all others that say nothing else.
    Plain,
    /// In the zone of pods like it.
    Near,
    /// On no node with a pod like it.
    Apart,
    /// Nothing of its own; [`Kind::Apart`] keep away from it.
    Avoided,
    /// Rather on a node with pods like it.
    RatherNear,
    /// Rather on a node without.
    RatherApart,
    /// Evenly over zones.
    Spread,
    /// Rather evenly over zones.
    RatherSpread,
    /// 900m, gone at once when it is deleted.
    Low,
    /// 3 CPUs, and pods of lower priority go for it.
    Urgent,
    /// 9 CPUs, which no node has.
    Hopeless,
}

impl Kind {
    /// The pod.
    pub(crate) fn pod(self, name: &str) -> Value {
        let cpu = match self {
            Self::Low => "900m",
            Self::Urgent => "3000m",
            Self::Hopeless => "9000m",
            _ => "100m",
        };
        let amounts = json!({"cpu": cpu, "memory": "500Mi"});
        let container = json!({"name": "pause", "image": "registry.k8s.io/pause:3.10", "ports": [{"containerPort": 80}],
            "resources": {"requests": amounts, "limits": amounts}});
        let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [container]}});
        if let Some(color) = self.color() {
            pod["metadata"]["labels"] = json!({"color": color});
        }
        let spec = &mut pod["spec"];
        match self {
            Self::Near => spec["affinity"] = json!({"podAffinity": {REQUIRED: [self.term(ZONE)]}}),
            Self::Apart => spec["affinity"] = json!({"podAntiAffinity": {REQUIRED: [self.term(HOST)]}}),
            Self::RatherNear => spec["affinity"] = json!({"podAffinity": {PREFERRED: [self.wish()]}}),
            Self::RatherApart => spec["affinity"] = json!({"podAntiAffinity": {PREFERRED: [self.wish()]}}),
            Self::Spread => spec["topologySpreadConstraints"] = self.constraint("DoNotSchedule"),
            Self::RatherSpread => spec["topologySpreadConstraints"] = self.constraint("ScheduleAnyway"),
            Self::Low => spec["terminationGracePeriodSeconds"] = json!(0),
            Self::Urgent | Self::Hopeless => spec["priorityClassName"] = json!(URGENT),
            Self::Plain | Self::Avoided => {}
        }
        pod
    }

    fn color(self) -> Option<&'static str> {
        match self {
            Self::Near | Self::Spread | Self::RatherSpread => Some("blue"),
            Self::Apart | Self::Avoided => Some("green"),
            Self::RatherNear => Some("red"),
            Self::RatherApart => Some("yellow"),
            Self::Plain | Self::Low | Self::Urgent | Self::Hopeless => None,
        }
    }

    fn like(self) -> Value {
        json!({"matchLabels": {"color": self.color()}})
    }

    fn term(self, key: &str) -> Value {
        json!({"labelSelector": self.like(), "topologyKey": key, "namespaces": [MEASURED, FIRST]})
    }

    fn wish(self) -> Value {
        json!({"weight": 1, "podAffinityTerm": self.term(HOST)})
    }

    fn constraint(self, otherwise: &str) -> Value {
        json!([{"maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": otherwise, "labelSelector": self.like()}])
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// One of upstream's workloads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// What it is asked for by.
    pub(crate) name: &'static str,
    /// What upstream calls it.
    pub(crate) upstream: &'static str,
    /// Pods a second that upstream asks for.
    pub(crate) gate: u32,
    /// Nodes, with 4 CPUs, 32Gi and room for 110 pods each.
    pub(crate) nodes: usize,
    /// Zones these are in.
    pub(crate) zones: usize,
    /// Pods that are there before.
    pub(crate) first: (usize, Kind),
    /// Pods that are measured.
    pub(crate) measured: (usize, Kind),
    /// Pods of which one comes every 200 ms meanwhile.
    pub(crate) between: Option<Kind>,
}

const fn row(
    names: [&'static str; 2],
    gate: u32,
    zones: usize,
    first: (usize, Kind),
    measured: (usize, Kind),
    between: Option<Kind>,
) -> Workload {
    Workload {
        name: names[0],
        upstream: names[1],
        gate,
        nodes: 5_000,
        zones,
        first,
        measured,
        between,
    }
}

/// All of them.
pub(crate) const ALL: [Workload; 10] = [
    row(
        ["basic", "SchedulingBasic"],
        270,
        3,
        (1_000, Kind::Plain),
        (10_000, Kind::Plain),
        None,
    ),
    row(
        ["affinity", "SchedulingPodAffinity"],
        35,
        1,
        (5_000, Kind::Near),
        (5_000, Kind::Near),
        None,
    ),
    row(
        ["anti-affinity", "SchedulingPodAntiAffinity"],
        60,
        3,
        (1_000, Kind::Apart),
        (2_000, Kind::Apart),
        None,
    ),
    row(
        ["avoided", "SchedulingPodMatchingAntiAffinity"],
        540,
        3,
        (1_000, Kind::Apart),
        (5_000, Kind::Avoided),
        None,
    ),
    row(
        ["preferred-affinity", "SchedulingPreferredPodAffinity"],
        90,
        3,
        (5_000, Kind::RatherNear),
        (5_000, Kind::RatherNear),
        None,
    ),
    row(
        ["preferred-anti-affinity", "SchedulingPreferredPodAntiAffinity"],
        90,
        3,
        (5_000, Kind::RatherApart),
        (5_000, Kind::RatherApart),
        None,
    ),
    row(
        ["spread", "TopologySpreading"],
        85,
        3,
        (5_000, Kind::Plain),
        (5_000, Kind::Spread),
        None,
    ),
    row(
        ["preferred-spread", "PreferredTopologySpreading"],
        125,
        3,
        (5_000, Kind::Plain),
        (5_000, Kind::RatherSpread),
        None,
    ),
    row(
        ["preemption", "PreemptionAsync"],
        160,
        3,
        (20_000, Kind::Low),
        (5_000, Kind::Plain),
        Some(Kind::Urgent),
    ),
    row(
        ["unschedulable", "Unschedulable"],
        140,
        3,
        (20_000, Kind::Plain),
        (10_000, Kind::Plain),
        Some(Kind::Hopeless),
    ),
];

impl Workload {
    /// By its name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|workload| workload.name == name)
    }

    /// The same with other nodes, and pods in proportion.
    pub(crate) fn with_nodes(mut self, nodes: usize) -> Self {
        let scaled = |pods: usize| (pods * nodes / self.nodes).max(1);
        self.first.0 = scaled(self.first.0);
        self.measured.0 = scaled(self.measured.0);
        self.nodes = nodes;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use std::collections::BTreeSet;

    #[test]
    fn every_workload_has_pods_of_its_own_and_fits_its_nodes() {
        let names: BTreeSet<&str> = ALL.iter().map(|workload| workload.name).collect();
        assert_eq!(names.len(), ALL.len());
        for workload in ALL {
            for kind in [workload.first.1, workload.measured.1]
                .into_iter()
                .chain(workload.between)
            {
                let value = kind.pod("p");
                let pod: Pod = serde_json::from_value(value.clone()).expect("a pod");
                let understood = serde_json::to_value(pod).expect("JSON");
                assert_eq!(
                    understood["spec"], value["spec"],
                    "{}: every field is known",
                    workload.name
                );
            }
            let half = workload.with_nodes(workload.nodes / 2);
            assert_eq!(
                (half.first.0, half.measured.0),
                (workload.first.0 / 2, workload.measured.0 / 2)
            );
        }
        assert!(Workload::named("nothing").is_none());
    }
}
