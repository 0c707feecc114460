//! What of a node is taken by pods. Pure; small, so that a copy of it can be asked "what if these were gone".

use super::super::pod::{Amounts, HostPort, PodInfo};

/// Reserved amounts, ports and places of one node.
#[derive(Clone, Debug, Default)]
pub struct Room {
    /// What its pods request.
    pub requested: Amounts<i128>,
    /// CPU (thousandths) and memory (bytes) its pods count for in scoring.
    pub assumed: (i128, i128),
    /// Ports in use.
    pub ports: Vec<HostPort>,
    /// How many pods there are.
    pub pods: i64,
}

/// A sum as scores count it: what is beyond 64 bits is beyond every node too.
pub fn clamped(sum: i128) -> i64 {
    i64::try_from(sum).unwrap_or(i64::MAX)
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
        self.assumed.0 += i128::from(sign) * i128::from(pod.assumed.0);
        self.assumed.1 += i128::from(sign) * i128::from(pod.assumed.1);
        self.pods += sign;
    }
}
