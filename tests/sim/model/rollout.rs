//! Rollouts stay within their bounds: replica sets are never made larger than the surge allows, nor smaller while fewer pods are
//! available than must be.
//!
//! A controller acts on what it has seen, which may be older than what stands. So every bound is taken at its most generous since
//! what the controller must have seen: the deployment's observed generation, and counts of the last moments.

use controlplane::store::Revision;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};

/// How many revisions of the store a controller may be behind in what it knows of availability.
const LAG_REVISIONS: Revision = 150;

/// What a deployment asked for in one generation.
#[derive(Clone, Copy, Debug)]
struct Fences {
    generation: i64,
    most: i64,
    least: i64,
}

#[derive(Default)]
pub struct Rollouts {
    /// By UID: every generation that may still be acted on.
    fences: BTreeMap<String, Vec<Fences>>,
    /// By UID of the replica set: its available pods, with the revision since when.
    available: BTreeMap<String, VecDeque<(Revision, i64)>>,
    /// By UID of the replica set: whose it was last, and since when it is nobody's. A stranger may have taken it away.
    owners: BTreeMap<String, (String, Option<Revision>)>,
    newest: Revision,
    /// By UID of the deployment: when its controller last showed that it knew all of these counts.
    caught_up: BTreeMap<String, Revision>,
}

impl Rollouts {
    pub fn on_deployment(&mut self, revision: Revision, objects: &BTreeMap<String, Value>, deployment: Option<&Value>) {
        let Some(deployment) = deployment else { return };
        let sets = sets_of(objects, super::uid(deployment));
        let latest = |set: &Value| Some(self.available.get(super::uid(set))?.back()?.1);
        let available: i64 = sets.iter().filter_map(|set| latest(set)).sum();
        if deployment["status"]["availableReplicas"].as_i64().unwrap_or(0) == available {
            self.caught_up.insert(super::uid(deployment).to_owned(), revision);
        }
        let known = self.fences.entry(super::uid(deployment).to_owned()).or_default();
        let observed = deployment["status"]["observedGeneration"].as_i64().unwrap_or(0);
        let fences = fences(deployment);
        known.retain(|known| known.generation >= observed && known.generation != fences.generation);
        known.push(fences);
    }

    /// Notes how many pods of a replica set are available, and whose it is.
    pub fn on_revision(&mut self, revision: Revision, objects: &BTreeMap<String, Value>, key: &str) {
        self.newest = revision;
        let Some(set) = objects.get(key).filter(|_| key.starts_with("/registry/replicasets/")) else {
            return;
        };
        let noted = self.available.entry(super::uid(set).to_owned()).or_default();
        while noted.len() > 1 && noted[1].0 + LAG_REVISIONS < revision {
            noted.pop_front();
        }
        noted.push_back((revision, set["status"]["availableReplicas"].as_i64().unwrap_or(0)));
        let uid = super::uid(set);
        match (owner_of(set), self.owners.get_mut(uid)) {
            ("", Some((_, lost))) => drop(lost.get_or_insert(revision)),
            ("", None) => {}
            (owner, _) => drop(self.owners.insert(uid.to_owned(), (owner.to_owned(), None))),
        }
    }

    /// Whether that replica set is the deployment's, or its controller may believe so.
    fn counts_for(&self, set: &Value, deployment: &str) -> bool {
        let lately = |(owner, lost): &(String, Option<Revision>)| {
            owner == deployment && lost.is_none_or(|lost| lost + LAG_REVISIONS >= self.newest)
        };
        owner_of(set) == deployment || self.owners.get(super::uid(set)).is_some_and(lately)
    }

    /// The most pods of that replica set that its controller may believe to be available.
    fn available(&self, set: &Value) -> i64 {
        let noted = self.available.get(super::uid(set));
        noted.into_iter().flatten().map(|(_, count)| *count).max().unwrap_or(0)
    }

    /// The fewest, of the counts since its controller last knew them all.
    fn available_at_least(&self, set: &Value) -> i64 {
        let Some(noted) = self.available.get(super::uid(set)) else {
            return 0;
        };
        let since = self.caught_up.get(owner_of(set)).copied().unwrap_or(0);
        let first = noted.iter().rposition(|(revision, _)| *revision <= since).unwrap_or(0);
        noted.range(first..).map(|(_, count)| *count).min().unwrap_or(0)
    }
}

fn fences(deployment: &Value) -> Fences {
    let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
    let resolve = |value: &Value, up: i64| match value.as_str().and_then(|text| text.strip_suffix('%')) {
        Some(percent) => (percent.parse::<i64>().unwrap_or(0) * wanted + up) / 100,
        None => value.as_i64().unwrap_or(0),
    };
    let (surge, unavailable) = (
        resolve(&rolling["maxSurge"], 99),
        resolve(&rolling["maxUnavailable"], 0),
    );
    let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
    Fences {
        generation: deployment["metadata"]["generation"].as_i64().unwrap_or(0),
        most: wanted + surge,
        least: wanted - unavailable,
    }
}

fn size(set: &Value) -> i64 {
    set["spec"]["replicas"].as_i64().unwrap_or(0)
}

/// The UID of a replica set's deployment.
fn owner_of(set: &Value) -> &str {
    set["metadata"]["ownerReferences"][0]["uid"]
        .as_str()
        .unwrap_or_default()
}

fn all_sets(objects: &BTreeMap<String, Value>) -> impl Iterator<Item = &Value> {
    let all = objects.range("/registry/replicasets/".to_owned()..);
    all.take_while(|(key, _)| key.starts_with("/registry/replicasets/"))
        .map(|(_, set)| set)
}

/// The replica sets of a deployment.
fn sets_of<'a>(objects: &'a BTreeMap<String, Value>, deployment: &str) -> Vec<&'a Value> {
    all_sets(objects).filter(|set| owner_of(set) == deployment).collect()
}

/// Judges a replica set that has just been made larger or smaller.
pub fn judge_scaling(
    rollouts: &Rollouts,
    objects: &BTreeMap<String, Value>,
    before: Option<&Value>,
    after: Option<&Value>,
) -> Vec<String> {
    let Some(set) = after else { return Vec::new() };
    let was = before.map_or(0, size);
    let owner = owner_of(set);
    let Some(known) = rollouts.fences.get(owner) else {
        return Vec::new();
    };
    let siblings = sets_of(objects, owner);
    let name = &set["metadata"]["name"];
    if size(set) > was {
        let total: i64 = siblings.iter().map(|sibling| size(sibling)).sum();
        let most = known.iter().map(|fences| fences.most).max().unwrap_or(i64::MAX);
        if total > most {
            return vec![format!(
                "{name} was scaled from {was} to {}: {total} in all, {most} may be",
                size(set)
            )];
        }
    }
    let more = was - size(set);
    let total: i64 = siblings.iter().map(|sibling| size(sibling)).sum();
    // A deployment that was made smaller takes what is too many from each set its part, whoever is available (upstream, too).
    let most = known.iter().map(|fences| fences.most).min().unwrap_or(i64::MAX);
    let is_its_part = total >= most && total + more > most;
    // Down to as many as are available costs none of them: those that are not go first.
    if more > 0 && !is_its_part && size(set) < rollouts.available_at_least(set) {
        let uid = super::uid(set);
        let left = |of: &dyn Fn(&Value) -> i64| -> i64 {
            all_sets(objects)
                .filter(|sibling| rollouts.counts_for(sibling, owner))
                .map(|sibling| of(sibling).min(rollouts.available(sibling)))
                .sum()
        };
        let now = left(&size);
        let then = left(&|sibling| if super::uid(sibling) == uid { was } else { size(sibling) });
        let least = known.iter().map(|fences| fences.least).min().unwrap_or(0);
        if now < then && now < least {
            return vec![format!(
                "{name} was scaled from {was} to {}: fewer are available than must be, {now} of {least}",
                size(set)
            )];
        }
    }
    Vec::new()
}
