//! A stored PriorityLevelConfiguration, read. Pure.

use crate::resource::field::{int, text};
use crate::resource::flow_defaults::{EXEMPT, is_mandatory, priority_levels};
use serde_json::Value;

/// What a priority level is to be (KEP-1040).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LevelSpec {
    /// Whether nothing waits.
    pub(super) is_exempt: bool,
    /// Its part of all places.
    pub(super) shares: u64,
    /// How much of that others may use.
    pub(super) lendable_percent: u64,
    /// How much more than that it may use; everything if nothing is said.
    pub(super) borrowing_percent: Option<u64>,
    /// How those wait who find no place; `None`: they do not.
    pub(super) queuing: Option<Queuing>,
}

/// How requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Queuing {
    pub(super) queues: usize,
    /// Of how many of them a flow uses the shortest.
    pub(super) hand_size: usize,
    /// Requests that wait in one of them.
    pub(super) length: usize,
}

impl LevelSpec {
    /// What a level of this name is, whatever is stored: a mandatory one is as it is built in, but for the two numbers of the exempt
    /// one, and only that one is exempt.
    pub(super) fn obeyed(name: &str, stored: &Value) -> Self {
        let mut spec = Self::read(stored);
        let is_own = |object: &&Value| is_mandatory(name) && text(object, &["metadata", "name"]) == name;
        if let Some(built_in) = priority_levels().iter().find(is_own) {
            let built_in = Self::read(built_in);
            match name == EXEMPT && spec.is_exempt {
                true => (spec.borrowing_percent, spec.queuing) = (built_in.borrowing_percent, built_in.queuing),
                false => spec = built_in,
            }
        }
        spec.is_exempt = name == EXEMPT;
        spec
    }

    /// Reads a stored object; what cannot be is brought to what can.
    pub(super) fn read(object: &Value) -> Self {
        let is_exempt = text(object, &["spec", "type"]) == "Exempt";
        let part = if is_exempt { "exempt" } else { "limited" };
        let number = |key: &str| int(object, &["spec", part, key]).and_then(|number| u64::try_from(number).ok());
        let queuing = |key: &str, most: usize| {
            let number = int(object, &["spec", "limited", "limitResponse", "queuing", key]);
            let number = number.and_then(|number| usize::try_from(number).ok());
            number.unwrap_or(1).clamp(1, most)
        };
        let queues = queuing("queues", 10_000_000);
        let waits = text(object, &["spec", "limited", "limitResponse", "type"]) == "Queue";
        Self {
            is_exempt,
            shares: number("nominalConcurrencyShares").unwrap_or(0),
            lendable_percent: number("lendablePercent").unwrap_or(0).min(100),
            borrowing_percent: number("borrowingLimitPercent"),
            queuing: waits.then(|| Queuing {
                queues,
                hand_size: queuing("handSize", queues.min(super::queue_set::HAND_MAX)),
                length: queuing("queueLengthLimit", usize::MAX),
            }),
        }
    }
}
