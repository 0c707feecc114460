//! Conditions: find one by type, set one so that the transition time moves only when the status flips.

use k8s_openapi::api::apps::v1::{DaemonSetCondition, DeploymentCondition, ReplicaSetCondition, StatefulSetCondition};
use k8s_openapi::api::batch::v1::JobCondition;
use k8s_openapi::api::core::v1::{NamespaceCondition, NodeCondition, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// What all condition types share.
pub trait ConditionFields: PartialEq {
    /// The condition's type, such as `Ready`.
    fn kind(&self) -> &str;
    /// `True`, `False` or `Unknown`.
    fn status(&self) -> &str;
    /// When the status last flipped.
    fn transition(&self) -> Option<&Time>;
    /// Replaces the transition time.
    fn set_transition(&mut self, time: Option<Time>);
}

macro_rules! optional_time {
    ($($kind:ty),*) => {$(
        impl ConditionFields for $kind {
            fn kind(&self) -> &str { &self.type_ }
            fn status(&self) -> &str { &self.status }
            fn transition(&self) -> Option<&Time> { self.last_transition_time.as_ref() }
            fn set_transition(&mut self, time: Option<Time>) { self.last_transition_time = time; }
        }
    )*};
}

optional_time!(
    PodCondition,
    NodeCondition,
    NamespaceCondition,
    JobCondition,
    DeploymentCondition,
    ReplicaSetCondition,
    DaemonSetCondition,
    StatefulSetCondition
);

impl ConditionFields for Condition {
    fn kind(&self) -> &str {
        &self.type_
    }
    fn status(&self) -> &str {
        &self.status
    }
    fn transition(&self) -> Option<&Time> {
        Some(&self.last_transition_time)
    }
    fn set_transition(&mut self, time: Option<Time>) {
        if let Some(time) = time {
            self.last_transition_time = time;
        }
    }
}

/// The condition of that type.
pub fn find<'a, C: ConditionFields>(conditions: Option<&'a Vec<C>>, kind: &str) -> Option<&'a C> {
    conditions?.iter().find(|c| c.kind() == kind)
}

/// Whether the condition of that type is there with status `True`.
pub fn is_true<C: ConditionFields>(conditions: Option<&Vec<C>>, kind: &str) -> bool {
    find(conditions, kind).is_some_and(|c| c.status() == "True")
}

/// Puts `new` in place of the condition of its type, or appends it; tells whether anything changed.
///
/// The caller sets `new`'s transition time to now; it is kept only when the status differs from the one in place.
pub fn set<C: ConditionFields>(conditions: &mut Vec<C>, mut new: C) -> bool {
    match conditions.iter_mut().find(|c| c.kind() == new.kind()) {
        None => {
            conditions.push(new);
            true
        }
        Some(old) => {
            if old.status() == new.status() && old.transition().is_some() {
                new.set_transition(old.transition().cloned());
            }
            let changed = *old != new;
            if changed {
                *old = new;
            }
            changed
        }
    }
}

/// Removes the condition of that type; tells whether it was there.
pub fn remove<C: ConditionFields>(conditions: &mut Vec<C>, kind: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|c| c.kind() != kind);
    conditions.len() != before
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    fn ready(status: &str, reason: &str, at: i64) -> PodCondition {
        PodCondition {
            type_: "Ready".into(),
            status: status.into(),
            reason: Some(reason.into()),
            last_transition_time: Some(Time(Timestamp::from_second(at).unwrap())),
            ..Default::default()
        }
    }

    #[test]
    fn transition_time_moves_only_on_flips() {
        let mut conditions = vec![];
        assert!(set(&mut conditions, ready("False", "A", 1)));
        assert!(!set(&mut conditions, ready("False", "A", 2)));
        assert!(set(&mut conditions, ready("False", "B", 3)));
        assert_eq!(conditions, vec![ready("False", "B", 1)]);
        assert!(set(&mut conditions, ready("True", "B", 4)));
        assert_eq!(conditions, vec![ready("True", "B", 4)]);
        assert!(is_true(Some(&conditions), "Ready"));
        assert!(remove(&mut conditions, "Ready"));
        assert!(!is_true(Some(&conditions), "Ready"));
    }
}
