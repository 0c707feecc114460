//! Which pods use a claim or a template: an index, so that a change of one wakes its pods without a look at all others.

use super::{claimed, keys_of};
use crate::held::Pod;
use client::Key;
use client::informer::Change;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

/// What pods use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Used {
    /// A claim, as the pod or its status names it.
    Claim(Key),
    /// A template of claims.
    Template(Key),
}

/// Pods by what they use. Owns nothing of pods that use nothing.
#[derive(Default)]
pub(super) struct Users(Mutex<BTreeMap<Used, BTreeSet<Key>>>);

impl Users {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Used, BTreeSet<Key>>> {
        self.0.lock().expect("no holder of this lock panics")
    }

    /// Takes in a change of a pod; all changes of it come here, one after the other.
    pub(super) fn note(&self, change: &Change<Pod>) {
        let of = |side: Option<&Pod>| side.map(used).unwrap_or_default();
        let (before, after) = (of(change.old.as_deref()), of(change.new.as_deref()));
        if before == after {
            return;
        }
        let mut all = self.lock();
        for gone in before.difference(&after) {
            if let Some(pods) = all.get_mut(gone) {
                pods.remove(&change.key);
                if pods.is_empty() {
                    all.remove(gone);
                }
            }
        }
        for new in after.difference(&before) {
            all.entry(new.clone()).or_default().insert(change.key.clone());
        }
    }

    /// The pods that use it.
    pub(super) fn of(&self, used: &Used) -> Vec<Key> {
        self.lock().get(used).into_iter().flatten().cloned().collect()
    }
}

fn used(pod: &Pod) -> BTreeSet<Used> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let templates = claimed(pod)
        .iter()
        .filter_map(|claim| claim.resource_claim_template_name.as_ref());
    let templates = templates.map(|name| Used::Template(Key::new(namespace, name.clone())));
    templates.chain(keys_of(pod).into_iter().map(Used::Claim)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn pod(name: &str, claims: Value, statuses: Value) -> Arc<Pod> {
        let pod = json!({"metadata": {"name": name, "namespace": "a"}, "spec": {"containers": [], "resourceClaims": claims},
            "status": {"resourceClaimStatuses": statuses}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn change(old: Option<&Arc<Pod>>, new: Option<&Arc<Pod>>) -> Change<Pod> {
        let key = Key::of(&**new.or(old).unwrap());
        let (old, new) = (old.cloned(), new.cloned());
        Change { key, old, new }
    }

    #[test]
    fn users_follow_the_changes_of_pods() {
        let users = Users::default();
        let claim = |name: &str| Used::Claim(Key::new("a", name));
        let template = Used::Template(Key::new("a", "t"));
        let names = |used: &Used| -> Vec<String> { users.of(used).into_iter().map(|key| key.name).collect() };
        let from = json!([{"name": "x", "resourceClaimTemplateName": "t"}]);
        let first = pod("p", from.clone(), json!([]));
        let made = pod("p", from, json!([{"name": "x", "resourceClaimName": "made"}]));
        let other = pod(
            "q",
            json!([{"name": "x", "resourceClaimName": "made"}, {"name": "y", "resourceClaimName": "c"}]),
            json!([]),
        );
        users.note(&change(None, Some(&first)));
        assert_eq!(
            (names(&template), names(&claim("made"))),
            (vec!["p".to_owned()], vec![])
        );
        users.note(&change(Some(&first), Some(&made)));
        users.note(&change(None, Some(&other)));
        assert_eq!(names(&template), ["p"]);
        assert_eq!(names(&claim("made")), ["p", "q"]);
        assert_eq!(names(&claim("c")), ["q"]);
        users.note(&change(Some(&made), None));
        assert_eq!(
            (names(&template), names(&claim("made"))),
            (vec![], vec!["q".to_owned()])
        );
        users.note(&change(Some(&other), None));
        users.note(&change(None, Some(&pod("r", json!([]), json!([])))));
        assert!(users.lock().is_empty());
    }
}
