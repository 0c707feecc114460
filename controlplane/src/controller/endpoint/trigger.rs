//! When that happened which changes a Service's endpoints: proxies measure by it how long it takes until traffic follows.
//!
//! Source: control-plane contract §12 and upstream's endpoint utilities: of all that happened since the Service was looked at last, the
//! earliest; what happens to a pod is a turn of its Ready condition, to a Service that it was made, and to one that is looked at for the
//! first time nothing else: what its pods did before is older than its endpoints. Best effort, as there: what a write that failed was
//! to tell is lost.

use crate::held::Pod;
use client::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

/// The annotation that says so.
pub const ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// What was seen of a Service.
struct Seen {
    service: Option<Timestamp>,
    /// Pods by a hash of their names, ordered; a great many are remembered, and two of one hash cost one measurement.
    pods: Box<[(u64, Timestamp)]>,
}

/// What was seen of all Services.
#[derive(Default)]
pub struct Triggers(Mutex<HashMap<Key, Seen>>);

impl Triggers {
    /// When the earliest of what is new happened to the Service or to pods it selects, and of a Service that nobody knows when it was
    /// made; `None` when nothing is new.
    pub fn of<'p>(&self, key: &Key, service: &Service, pods: impl Iterator<Item = &'p Arc<Pod>>) -> Option<Timestamp> {
        let mut turns: Vec<(u64, Timestamp)> = pods.filter_map(|pod| Some((hash(pod), turned(pod)?))).collect();
        turns.sort_unstable();
        let now = Seen {
            service: service.metadata.creation_timestamp.as_ref().map(|time| time.0),
            pods: turns.into(),
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(seen) = all.get_mut(key) else {
            let made = now.service;
            all.insert(key.clone(), now);
            return made;
        };
        let trigger = earliest(seen, &now);
        *seen = now;
        trigger
    }

    /// The Service is gone.
    pub fn forget(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

fn earliest(seen: &Seen, now: &Seen) -> Option<Timestamp> {
    let is_news = |pod: &&(u64, Timestamp)| {
        let at = seen.pods.binary_search_by_key(&pod.0, |known| known.0);
        at.is_err() || at.is_ok_and(|at| pod.1 > seen.pods[at].1)
    };
    let pods = now.pods.iter().filter(is_news).map(|pod| pod.1);
    pods.chain(now.service.filter(|made| Some(*made) > seen.service)).min()
}

fn hash(pod: &Pod) -> u64 {
    let mut hasher = DefaultHasher::new();
    pod.metadata.name.hash(&mut hasher);
    hasher.finish()
}

/// When its Ready condition turned last.
pub(super) fn turned(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// The annotations of an object that is written with this.
pub fn annotated(
    annotations: Option<BTreeMap<String, String>>,
    trigger: Option<Timestamp>,
) -> Option<BTreeMap<String, String>> {
    let mut all = annotations.unwrap_or_default();
    match trigger {
        Some(trigger) => drop(all.insert(ANNOTATION.to_owned(), trigger.to_string())),
        // What the last change was about says nothing of this one.
        None => drop(all.remove(ANNOTATION)),
    }
    Some(all).filter(|all| !all.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, turned: &str) -> Arc<Pod> {
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": turned});
        let pod =
            json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Other", "status": "True"}, ready]}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn the_earliest_of_what_is_new_is_told_once() {
        let at = |second: u32| format!("2026-01-01T00:00:{second:02}Z");
        let service: Service =
            serde_json::from_value(json!({"metadata": {"name": "s", "creationTimestamp": at(20)}})).unwrap();
        let (triggers, key) = (Triggers::default(), Key::new("ns", "s"));
        let of = |pods: &[(&str, u32)]| {
            let pods: Vec<Arc<Pod>> = pods.iter().map(|(name, turned)| pod(name, &at(*turned))).collect();
            triggers.of(&key, &service, pods.iter()).map(|time| time.to_string())
        };
        for (pods, expected) in [
            (&[][..], Some(20)),
            (&[("a", 30), ("b", 25)], Some(25)),
            (&[("a", 30), ("b", 25)], None),
            // In the same second, and before what was seen last: it is another pod's.
            (&[("a", 30), ("b", 25), ("c", 25)], Some(25)),
            (&[("a", 40), ("b", 25), ("c", 41)], Some(40)),
            // One that goes is no trigger, and one that comes back is what it was.
            (&[("b", 25)], None),
            (&[("a", 40), ("b", 25)], Some(40)),
        ] {
            assert_eq!(of(pods), expected.map(at), "{pods:?}");
        }
        triggers.forget(&key);
        assert_eq!(
            of(&[("a", 10)]),
            Some(at(20)),
            "a Service that was made for pods that were there"
        );
        assert_eq!(
            of(&[("a", 10), ("b", 15)]),
            Some(at(15)),
            "a pod that it selects from now on"
        );
        assert_eq!(
            triggers.of(&Key::new("ns", "t"), &Service::default(), std::iter::empty()),
            None
        );
    }

    #[test]
    fn without_a_trigger_the_last_one_goes() {
        let trigger: Timestamp = "2026-01-01T00:00:01.5Z".parse().unwrap();
        let with = annotated(None, Some(trigger)).unwrap();
        assert_eq!(with[ANNOTATION], "2026-01-01T00:00:01.5Z");
        let mut others = with.clone();
        others.insert("mine".to_owned(), "1".to_owned());
        assert_eq!(
            annotated(Some(others), None),
            Some([("mine".to_owned(), "1".to_owned())].into())
        );
        assert_eq!(annotated(Some(with), None), None);
    }
}
