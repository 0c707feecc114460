//! What of a node is taken by pods. Pure; small, so that a copy of it can be asked "what if these were gone".

use super::super::pod::{Amounts, HostPort, PodInfo};

/// Reserved amounts, ports and places of one node.
#[derive(Clone, Debug, Default)]
pub struct Room {
    /// What its pods request.
    pub requested: Amounts,
    /// CPU (thousandths) and memory (bytes) its pods count for in scoring.
    pub assumed: (i64, i64),
    /// Ports in use.
    pub ports: Vec<HostPort>,
    /// How many pods there are.
    pub pods: i64,
}

impl Room {
    /// Counts a pod.
    pub fn add(&mut self, pod: &PodInfo) {
        self.count(pod, 1);
        self.ports.extend(pod.ports.iter().cloned());
    }

    /// Counts a pod no longer that was counted.
    pub fn remove(&mut self, pod: &PodInfo) {
        self.count(pod, -1);
        for port in &pod.ports {
            if let Some(at) = self.ports.iter().position(|p| p == port) {
                self.ports.swap_remove(at);
            }
        }
    }

    fn count(&mut self, pod: &PodInfo, sign: i64) {
        self.requested.add(&pod.requests, sign);
        self.assumed.0 = self.assumed.0.saturating_add(sign.saturating_mul(pod.assumed.0));
        self.assumed.1 = self.assumed.1.saturating_add(sign.saturating_mul(pod.assumed.1));
        self.pods += sign;
    }
}
