//! How much memory is kept for whom, from where on it is reclaimed, and how much of it may be swapped (KEP-2570, KEP-2400; kubelet
//! contract §7). Pure.

use proto::api::qos::QosClass;

/// What the gate `MemoryQoS` brings on a machine with cgroups of version 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryQos {
    /// `memoryThrottlingFactor`: above 0, at most 1.
    pub factor: f64,
    /// `memoryReservationPolicy: TieredReservation`: what is requested is kept.
    pub reserves: bool,
    /// What stands for the limit of containers that have none: the node's memory less reservations, bytes.
    pub allocatable: i64,
    /// The size of a page, bytes.
    pub page: i64,
}

/// What is kept of memory, bytes: 0 is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// `memory.min`: never taken.
    pub min: i64,
    /// `memory.low`: taken once nothing else is left.
    pub low: i64,
}

impl MemoryQos {
    /// What is kept for a pod or container that requests this much.
    pub fn reservation(&self, class: QosClass, request: i64) -> Reservation {
        match class {
            _ if !self.reserves => Reservation::default(),
            QosClass::Guaranteed => Reservation { min: request, low: 0 },
            QosClass::Burstable => Reservation { min: 0, low: request },
            QosClass::BestEffort => Reservation::default(),
        }
    }

    /// `memory.high` of a container: a part of the way from its request to its limit, in whole pages. None where the two are the same.
    pub fn high(&self, request: i64, limit: Option<i64>) -> Option<i64> {
        let limit = limit.filter(|limit| *limit > 0);
        if limit == Some(request) {
            return None;
        }
        let top = limit.unwrap_or(self.allocatable);
        let (page, above) = (self.page.max(1), as_float(top.saturating_sub(request)));
        let pages = ((as_float(request) + above * self.factor) / as_float(page)).floor();
        Some(as_whole(pages).saturating_mul(page)).filter(|high| *high > request)
    }
}

/// How containers may swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swap {
    /// The kernel limits swap by cgroup; where it does not, nothing is asked of it.
    pub controlled: bool,
    /// `memorySwap.swapBehavior: LimitedSwap`, on a machine with cgroups of version 2.
    pub limited: bool,
    /// The machine's swap space, bytes.
    pub capacity: i64,
}

/// What limited swap gives a container: the part of the swap space that its request is of the machine's memory, bytes. Nothing
/// for one that requests more than there is.
pub fn swap_share(request: i64, memory: i64, capacity: i64) -> i64 {
    if memory <= 0 || request <= 0 || request > memory {
        return 0;
    }
    as_whole(as_float(request) / as_float(memory) * as_float(capacity))
}

/// Upstream counts in floating point; so its sums are met to the byte.
#[expect(clippy::cast_precision_loss, reason = "amounts of memory are below 2^53")]
fn as_float(bytes: i64) -> f64 {
    bytes as f64
}

#[expect(clippy::cast_possible_truncation, reason = "a part of an amount of memory")]
fn as_whole(bytes: f64) -> i64 {
    bytes as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MI: i64 = 1 << 20;

    fn qos(factor: f64) -> MemoryQos {
        MemoryQos {
            factor,
            reserves: true,
            allocatable: 4096 * MI,
            page: 4096,
        }
    }

    #[test]
    fn memory_is_reclaimed_before_the_limit_is_met() {
        for (factor, request, limit, high) in [
            // floor((64Mi + 0.9 * 448Mi) / 4096) pages
            (0.9, 64 * MI, Some(512 * MI), Some(119_603 * 4096)),
            (0.9, 256 * MI, Some(512 * MI), Some(124_518 * 4096)),
            (1.0, 256 * MI, Some(512 * MI), Some(512 * MI)),
            // Without a limit it is the node's.
            (0.5, 0, None, Some(2048 * MI)),
            (0.9, 128 * MI, None, Some(946_995 * 4096)),
            (0.9, 512 * MI, Some(512 * MI), None),
            // So small a part that nothing is above the request.
            (0.000_001, 512 * MI, Some(513 * MI), None),
        ] {
            assert_eq!(qos(factor).high(request, limit), high, "{factor} {request} {limit:?}");
        }
    }

    #[test]
    fn what_is_requested_is_kept_by_class() {
        let of = |min, low| Reservation { min, low };
        for (class, kept) in [
            (QosClass::Guaranteed, of(MI, 0)),
            (QosClass::Burstable, of(0, MI)),
            (QosClass::BestEffort, of(0, 0)),
        ] {
            assert_eq!(qos(0.9).reservation(class, MI), kept, "{class:?}");
            let none = MemoryQos {
                reserves: false,
                ..qos(0.9)
            };
            assert_eq!(none.reservation(class, MI), of(0, 0), "{class:?}");
        }
    }

    #[test]
    fn swap_goes_by_the_part_of_memory() {
        for (request, memory, capacity, share) in [
            (1024 * MI, 8192 * MI, 4096 * MI, 512 * MI),
            (1, 3, 10, 3),
            (0, 8192 * MI, 4096 * MI, 0),
            (2, 1, 10, 0),
            (1, 0, 10, 0),
        ] {
            assert_eq!(
                swap_share(request, memory, capacity),
                share,
                "{request}/{memory}*{capacity}"
            );
        }
    }
}
