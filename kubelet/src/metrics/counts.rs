//! Numbers of pods, counted when somebody asks.

use super::labels::{Labels, Number, Numbers, label, number, numbers};
use crate::pod::view::PodSnapshot;
use crate::pod_object;
use crate::reason::condition;
use crate::runtime::observed::ContainerState;
use k8s_openapi::api::core::v1::PodCondition;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The pods there are, in every way they are told of.
#[derive(Clone)]
pub(super) struct Counts {
    running: Number,
    containers: Numbers,
    desired: Numbers,
    active: Numbers,
    working: Numbers,
    mirrors: Number,
    ephemerals: Number,
    resizes_pending: Numbers,
    resizing: Number,
}

pub(super) fn of_static(is_static: bool) -> Labels {
    label("static", if is_static { "true" } else { "" })
}

impl Counts {
    pub(super) fn register(r: &mut Registry) -> Self {
        Self {
            running: number(r, "kubelet_running_pods", "Pods whose sandbox runs"),
            containers: numbers(r, "kubelet_running_containers", "Containers, by state"),
            desired: numbers(r, "kubelet_desired_pods", "Pods this kubelet is to run"),
            active: numbers(
                r,
                "kubelet_active_pods",
                "Pods that hold resources of the node when others ask for some",
            ),
            working: numbers(
                r,
                "kubelet_working_pods",
                "Pods that have a worker, by how far their life is and whether they are still wanted",
            ),
            mirrors: number(
                r,
                "kubelet_mirror_pods",
                "Static pods that have a mirror pod, or are to have one",
            ),
            ephemerals: number(
                r,
                "kubelet_managed_ephemeral_containers",
                "Ephemeral containers of all pods",
            ),
            resizes_pending: numbers(
                r,
                "kubelet_pod_pending_resizes",
                "Resizes that were not given, by reason",
            ),
            resizing: number(
                r,
                "kubelet_pod_in_progress_resizes",
                "Resizes that were given and are not done",
            ),
        }
    }

    pub(super) fn take(&self, pods: &[Arc<PodSnapshot>]) {
        let count = |test: &dyn Fn(&PodSnapshot) -> bool| pods.iter().filter(|pod| test(pod)).count() as f64;
        self.running
            .set(count(&|pod| pod.observed.sandboxes.iter().any(|sandbox| sandbox.ready)));
        for (state, name) in [
            (ContainerState::Created, "created"),
            (ContainerState::Running, "running"),
            (ContainerState::Exited, "exited"),
            (ContainerState::Unknown, "unknown"),
        ] {
            let all = pods.iter().flat_map(|pod| &pod.observed.containers);
            let number = all.filter(|container| container.state == state).count();
            let of = label("container_state", name);
            self.containers.get_or_create(&of).set(number as f64);
        }
        for is_static in [false, true] {
            let of_kind = |pod: &PodSnapshot| pod_object::is_static(&pod.pod) == is_static;
            let of = of_static(is_static);
            self.desired
                .get_or_create(&of)
                .set(count(&|pod| of_kind(pod) && pod.life.present));
            self.active
                .get_or_create(&of)
                .set(count(&|pod| of_kind(pod) && !pod.ended));
        }
        self.count_lives(pods);
        self.mirrors
            .set(count(&|pod| pod_object::is_static(&pod.pod) && !pod.ended));
        let ephemerals = pods.iter().map(|pod| pod_object::ephemerals(&pod.pod).len());
        self.ephemerals.set(ephemerals.sum::<usize>() as f64);
        self.count_resizes(pods);
    }

    fn count_lives(&self, pods: &[Arc<PodSnapshot>]) {
        let mut numbers: BTreeMap<_, f64> = BTreeMap::new();
        for lifecycle in ["sync", "terminating", "terminated"] {
            for config in ["desired", "orphan", "runtime_only"] {
                for is_static in [false, true] {
                    // Of those the runtime alone knows nobody can tell whether they were static.
                    let known = config == "runtime_only" && is_static;
                    if !known {
                        numbers.insert((lifecycle, config, is_static), 0.0);
                    }
                }
            }
        }
        for pod in pods {
            let lifecycle = match (pod.ended, pod.life.ending) {
                (true, _) => "terminated",
                (false, true) => "terminating",
                (false, false) => "sync",
            };
            let config = if pod.life.present { "desired" } else { "orphan" };
            let place = (lifecycle, config, pod_object::is_static(&pod.pod));
            *numbers.entry(place).or_default() += 1.0;
        }
        for ((lifecycle, config, is_static), number) in numbers {
            let mut of = label("lifecycle", lifecycle);
            of.push(("config", config.into()));
            let is_static = if config == "runtime_only" {
                "unknown"
            } else if is_static {
                "true"
            } else {
                ""
            };
            of.push(("static", is_static.into()));
            self.working.get_or_create(&of).set(number);
        }
    }

    fn count_resizes(&self, pods: &[Arc<PodSnapshot>]) {
        let conditions = |kind: &'static str| {
            let all = pods.iter().flat_map(|pod| pod.status.conditions.iter().flatten());
            all.filter(move |found: &&PodCondition| found.type_ == kind && found.status == "True")
        };
        for (reason, name) in [(condition::DEFERRED, "deferred"), (condition::INFEASIBLE, "infeasible")] {
            let pending = conditions(condition::POD_RESIZE_PENDING);
            let number = pending.filter(|found| found.reason.as_deref() == Some(reason)).count();
            let of = label("reason", name);
            self.resizes_pending.get_or_create(&of).set(number as f64);
        }
        self.resizing
            .set(conditions(condition::POD_RESIZE_IN_PROGRESS).count() as f64);
    }
}
