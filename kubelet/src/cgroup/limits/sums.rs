//! What follows for the cgroups of all pods and of the QoS classes from the pods in them (kubelet contract §7). Pure.

use super::memory::Reservation;
use super::{CgroupSettings, Values, cpu_request_milli, cpu_shares};
use k8s_openapi::api::core::v1::Pod;
use proto::api::qos::{QosClass, qos_class};
use proto::api::resources;

/// What the active pods request together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Of Burstable ones, millicores.
    pub burstable_cpu_milli: i64,
    /// Of Burstable ones, bytes.
    pub burstable_memory: i64,
    /// Of Guaranteed ones, bytes.
    pub guaranteed_memory: i64,
}

impl Sums {
    /// Those of these pods.
    pub fn of<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Self {
        let mut sums = Self::default();
        for spec in pods.into_iter().filter_map(|pod| pod.spec.as_ref()) {
            let memory = || resources::pod_requests(spec).get("memory").map_or(0, |q| q.value());
            match qos_class(spec) {
                QosClass::Guaranteed => add(&mut sums.guaranteed_memory, memory()),
                QosClass::Burstable => {
                    add(&mut sums.burstable_cpu_milli, cpu_request_milli(spec));
                    add(&mut sums.burstable_memory, memory());
                }
                QosClass::BestEffort => {}
            }
        }
        sums
    }

    /// What is kept for Guaranteed pods and for Burstable ones, where memory is kept.
    pub fn kept(&self, settings: &CgroupSettings) -> Reservation {
        match settings.memory_qos {
            Some(qos) if qos.reserves => Reservation {
                min: self.guaranteed_memory,
                low: self.burstable_memory,
            },
            _ => Reservation::default(),
        }
    }

    /// The values of each class's cgroup; that of the Guaranteed pods is the one of all. The kernel keeps no more for what is in a
    /// cgroup than for the cgroup, so those above keep the sum of those below; where nothing is kept any more that is written, too.
    pub fn values(&self, settings: &CgroupSettings) -> [(QosClass, Values); 3] {
        let kept = self.kept(settings);
        let mut all = Values {
            memory_min: Some(kept.min.saturating_add(kept.low)),
            memory_low: Some(0),
            ..Values::default()
        };
        let mut burstable = Values {
            cpu_shares: Some(cpu_shares(self.burstable_cpu_milli)),
            memory_min: Some(0),
            memory_low: Some(kept.low),
            ..Values::default()
        };
        let mut best_effort = Values {
            cpu_shares: Some(super::SHARES_MIN),
            ..Values::default()
        };
        if let (Some(percent), Some(node)) = (settings.qos_reserved_percent, &settings.node_limits) {
            let part = |amount: i64| amount / 100 * percent + amount % 100 * percent / 100;
            let left = node.allocatable_memory - part(self.guaranteed_memory);
            burstable.memory = Some(left.max(0));
            best_effort.memory = Some((left - part(self.burstable_memory)).max(0));
        }
        if settings.memory_qos.is_none() {
            // Nothing was kept by this kubelet; what one before it kept goes when it starts.
            for values in [&mut all, &mut burstable] {
                (values.memory_min, values.memory_low) = (None, None);
            }
        }
        [
            (QosClass::Guaranteed, all),
            (QosClass::Burstable, burstable),
            (QosClass::BestEffort, best_effort),
        ]
    }
}

fn add(sum: &mut i64, more: i64) {
    *sum = sum.saturating_add(more);
}
