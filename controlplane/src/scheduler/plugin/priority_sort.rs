//! PrioritySort, at QueueSort: the higher priority first, then who waits longer.

use crate::scheduler::pod::PodInfo;
use std::cmp::Reverse;

/// A pod's place: the smallest is next.
pub type ActiveOrder = (Reverse<i32>, u64);

/// The place of a pod that began to wait as the `number`th.
pub fn order(pod: &PodInfo, number: u64) -> ActiveOrder {
    (Reverse(pod.priority), number)
}
