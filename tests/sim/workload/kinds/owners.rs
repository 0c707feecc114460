//! Owners and what they own, in chains, in circles and with several owners, and which of them should be there: an object stands as long as one
//! of its owners does, and one without owners until somebody deletes it.

use crate::workload::{Step, ask};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Kind and name.
pub type Object = (&'static str, String);

/// Objects of one seed.
const OBJECTS_MAX: usize = 12;
/// What happens in one step.
const AT_ONCE: usize = 4;
/// By then everybody knows who owns what.
const KNOWN_AFTER: Duration = Duration::from_secs(60);

/// What should be there, each with its owners.
#[derive(Default)]
pub struct Owners {
    pub standing: BTreeMap<Object, BTreeSet<Object>>,
    pub gone: BTreeSet<Object>,
    made: u32,
}

fn delete(object: &Object, policy: &str) -> Step {
    let (kind, name) = object;
    ask(
        "DELETE",
        &format!("/api/v1/namespaces/default/{kind}/{name}"),
        json!({"propagationPolicy": policy}),
    )
}

impl Owners {
    pub fn step(&mut self, rng: &mut StdRng) -> Step {
        Step::All((0..AT_ONCE).map(|_| self.one(rng)).collect())
    }

    fn one(&mut self, rng: &mut StdRng) -> Step {
        let all: Vec<Object> = self.standing.keys().cloned().collect();
        let choice = rng.random_range(0..10);
        let Some(object) = all
            .choose(rng)
            .cloned()
            .filter(|_| all.len() >= OBJECTS_MAX || choice >= 5)
        else {
            return self.make(rng, &all);
        };
        if choice < 8 {
            let owner = all.choose(rng).cloned().unwrap_or_else(|| object.clone());
            if owner == object {
                return self.make(rng, &all);
            }
            return self.adopt(object, owner);
        }
        self.remove(&object);
        delete(&object, ["Background", "Foreground"][rng.random_range(0..2)])
    }

    fn make(&mut self, rng: &mut StdRng, all: &[Object]) -> Step {
        self.made += 1;
        let kind = ["configmaps", "secrets"][rng.random_range(0..2)];
        let name = format!("own{}", self.made);
        let count = rng.random_range(0..3);
        let owners: BTreeSet<Object> = all.sample(rng, count).cloned().collect();
        self.standing.insert((kind, name.clone()), owners.clone());
        let owners = owners.into_iter().collect();
        Step::Own { kind, name, owners }
    }

    fn adopt(&mut self, object: Object, owner: Object) -> Step {
        self.standing.entry(object.clone()).or_default().insert(owner.clone());
        let (kind, name) = object;
        Step::Adopt { kind, name, owner }
    }

    /// Takes away an object, and whatever loses its last owner by that.
    fn remove(&mut self, object: &Object) {
        let mut going = vec![object.clone()];
        while let Some(next) = going.pop() {
            self.standing.remove(&next);
            for (other, owners) in &mut self.standing {
                if owners.remove(&next) && owners.is_empty() {
                    going.push(other.clone());
                }
            }
            self.gone.insert(next);
        }
    }

    /// Deletes an owner and leaves what it owns, as soon as everybody knows what that is; then one more with what it owns.
    pub fn last_steps(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        let owner = |standing: &BTreeMap<Object, BTreeSet<Object>>| standing.values().flatten().next().cloned();
        if let Some(orphaned) = owner(&self.standing) {
            self.standing.remove(&orphaned);
            for owners in self.standing.values_mut() {
                owners.remove(&orphaned);
            }
            self.gone.insert(orphaned.clone());
            steps.extend([
                Step::Wait(KNOWN_AFTER),
                delete(&orphaned, "Orphan"),
                Step::Wait(KNOWN_AFTER),
            ]);
        }
        if let Some(last) = owner(&self.standing) {
            self.remove(&last);
            steps.push(delete(&last, "Foreground"));
        }
        steps
    }
}

#[test]
fn what_loses_its_last_owner_is_gone_and_a_circle_without_an_end_stays() {
    let object = |name: &str| ("secrets", name.to_owned());
    let owned = |pairs: &[(&str, &[&str])]| Owners {
        standing: pairs
            .iter()
            .map(|(name, owners)| (object(name), owners.iter().map(|owner| object(owner)).collect()))
            .collect(),
        ..Owners::default()
    };
    let after = |mut owners: Owners, name: &str| {
        owners.remove(&object(name));
        owners
            .standing
            .into_keys()
            .map(|(_, name)| name)
            .collect::<Vec<_>>()
            .concat()
    };
    assert_eq!(after(owned(&[("a", &[]), ("b", &["a"]), ("c", &["b"])]), "a"), "");
    assert_eq!(after(owned(&[("a", &[]), ("b", &["a", "c"]), ("c", &[])]), "a"), "bc");
    assert_eq!(after(owned(&[("a", &["b"]), ("b", &["a"])]), "a"), "");
    assert_eq!(
        after(owned(&[("r", &[]), ("a", &["b", "r"]), ("b", &["a"])]), "r"),
        "ab"
    );
}
