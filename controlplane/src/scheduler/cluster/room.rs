//! What of a node is taken by pods. Pure; small, so that a copy of it can be asked "what if these were gone".

use super::super::pod::{Amounts, HostPort, PodInfo};

/// Reserved amounts, ports and places of one node.
#[derive(Clone, Debug, Default)]
pub struct Room {
    /// What its pods request.
    pub requested: Amounts<i128>,
    /// CPU (thousandths) and memory (bytes) its pods count for in scoring.
    pub assumed: (i128, i128),
    /// Ports in use, in order.
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
        if !pod.ports.is_empty() {
            self.ports.extend(pod.ports.iter().cloned());
            // Two runs in order: they are merged.
            self.ports.sort();
        }
    }

    /// Counts a pod no longer that was counted.
    pub fn remove(&mut self, pod: &PodInfo) {
        self.count(pod, -1);
        if !pod.ports.is_empty() {
            let mut gone = pod.ports.iter().peekable();
            self.ports.retain(|port| {
                while gone.next_if(|gone| *gone < port).is_some() {}
                gone.next_if(|gone| *gone == port).is_none()
            });
        }
    }

    fn count(&mut self, pod: &PodInfo, sign: i64) {
        self.requested.add(&pod.requests, sign);
        self.assumed.0 += i128::from(sign) * i128::from(pod.assumed.0);
        self.assumed.1 += i128::from(sign) * i128::from(pod.assumed.1);
        self.pods += sign;
    }
}
