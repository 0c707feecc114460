//! Which policies are about a pod. Many pods of a namespace are asked for at once when many policies change, and policies are
//! often about the same pods: then each selector is asked once for each pod, not each policy. Pure.

use client::ordered::Arrange;
use std::collections::{BTreeMap, HashMap};

use client::Key;

use crate::selector::{Labels, Selector};
use crate::spec::Policy;

/// From so many pods of a namespace on, its policies are sorted by whom they are about.
const SORTED_PODS: usize = 3;

/// Policies by their place in order, and whom they are about.
type Groups<'p> = HashMap<&'p Selector, Vec<(usize, &'p Policy)>>;

/// See the module.
pub(super) struct Concerning<'p> {
    all: &'p BTreeMap<Key, Policy>,
    /// The namespace that was asked for last, and how often.
    namespace: String,
    asked: usize,
    groups: Groups<'p>,
}

/// The policies of a namespace.
pub(super) fn all_of<'p>(
    all: &'p BTreeMap<Key, Policy>,
    namespace: &str,
) -> impl Iterator<Item = (&'p Key, &'p Policy)> + use<'p> {
    let namespace = namespace.to_owned();
    all.range(Key::new(namespace.clone(), "")..)
        .take_while(move |(key, _)| key.namespace == namespace)
}

impl<'p> Concerning<'p> {
    pub(super) fn new(all: &'p BTreeMap<Key, Policy>) -> Self {
        Self {
            all,
            namespace: String::new(),
            asked: 0,
            groups: Groups::new(),
        }
    }

    fn all_of(&self, namespace: &str) -> impl Iterator<Item = &'p Policy> + use<'p> {
        all_of(self.all, namespace).map(|(_, policy)| policy)
    }

    /// The policies about a pod with these labels, in order. To be asked for the pods of one namespace after the other.
    pub(super) fn of(&mut self, namespace: &str, labels: &Labels) -> Vec<&'p Policy> {
        if self.namespace != namespace {
            self.namespace = namespace.to_owned();
            self.asked = 0;
            self.groups.clear();
        }
        self.asked += 1;
        if self.asked < SORTED_PODS {
            return self
                .all_of(namespace)
                .filter(|policy| policy.concerns(labels))
                .collect();
        }
        if self.asked == SORTED_PODS {
            for (place, policy) in self.all_of(namespace).enumerate() {
                // Without a selector that can be read it is about nobody.
                if let Some(pods) = &policy.pods {
                    self.groups.entry(pods).or_default().push((place, policy));
                }
            }
        }
        let groups = self.groups.iter().filter(|(pods, _)| pods.selects(labels));
        let mut found: Vec<(usize, &Policy)> = groups.flat_map(|(_, policies)| policies.iter().copied()).collect();
        found.arrange_by_key(|(place, _)| *place);
        found.into_iter().map(|(_, policy)| policy).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn policy(namespace: &str, name: &str, selector: Value) -> (Key, Policy) {
        let object = json!({"metadata": {"namespace": namespace, "name": name}, "spec": {"podSelector": selector}});
        let object = serde_json::from_value(object).unwrap();
        (Key::of(&object), Policy::read(&object))
    }

    #[test]
    fn it_is_the_same_however_many_are_asked_for() {
        let app = |app: &str| json!({"matchLabels": {"app": app}});
        let odd = json!({"matchExpressions": [{"key": "app", "operator": "Odd"}]});
        let all: BTreeMap<Key, Policy> = [
            policy("a", "1", app("x")),
            policy("a", "2", json!({})),
            policy("a", "3", app("x")),
            policy("a", "4", app("y")),
            policy("a", "5", odd),
            policy("b", "1", app("x")),
        ]
        .into_iter()
        .collect();
        let name = |wanted: &Policy| {
            all.iter()
                .find(|(_, policy)| std::ptr::eq(*policy, wanted))
                .unwrap()
                .0
                .to_string()
        };
        let mut concerning = Concerning::new(&all);
        for _ in 0..2 {
            for (namespace, app, expected) in [
                ("a", "x", &["a/1", "a/2", "a/3"][..]),
                ("a", "y", &["a/2", "a/4"]),
                ("a", "z", &["a/2"]),
                ("a", "x", &["a/1", "a/2", "a/3"]),
                ("b", "x", &["b/1"]),
                ("c", "x", &[]),
            ] {
                let labels = Labels::from([("app".to_owned(), app.to_owned())]);
                let found: Vec<String> = concerning.of(namespace, &labels).into_iter().map(name).collect();
                assert_eq!(found, expected, "{namespace} {app}");
            }
        }
    }
}
