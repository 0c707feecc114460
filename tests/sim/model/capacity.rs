//! No node has more than it can bear: by what is bound to it, and by what runs on it.

use crate::checker::RuntimeView;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// An amount of each resource, in its smallest unit (CPU in thousandths).
type Amounts = BTreeMap<String, i64>;

/// Judges a pod that has just been given a node.
pub fn judge_binding(
    objects: &BTreeMap<String, Value>,
    unknown: &BTreeSet<String>,
    before: Option<&Value>,
    after: Option<&Value>,
) -> Vec<String> {
    let node_of = |pod: Option<&Value>| {
        pod.and_then(|pod| pod["spec"]["nodeName"].as_str())
            .unwrap_or_default()
            .to_owned()
    };
    let node = node_of(after);
    if node.is_empty() || node == node_of(before) {
        return Vec::new();
    }
    let bound = pods(objects).filter(|(name, pod)| {
        let is_over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        pod["spec"]["nodeName"] == node.as_str() && !is_over && !unknown.contains(*name)
    });
    judge(objects, &node, bound.map(|(_, pod)| pod), "by what is bound to it")
}

/// Judges what runs on each node.
pub fn judge_running(
    objects: &BTreeMap<String, Value>,
    keys_by_uid: &BTreeMap<String, String>,
    runtimes: &BTreeMap<String, RuntimeView>,
) -> Vec<String> {
    let mut told = Vec::new();
    for (node, view) in runtimes {
        let running = view.containers.iter().filter(|container| container.running);
        let uids: BTreeSet<&String> = running.map(|container| &container.uid).collect();
        let running = uids.into_iter().filter_map(|uid| objects.get(keys_by_uid.get(uid)?));
        told.extend(judge(objects, node, running, "by what runs on it"));
    }
    told
}

fn pods(objects: &BTreeMap<String, Value>) -> impl Iterator<Item = (&str, &Value)> {
    let prefix = "/registry/pods/";
    let under = objects
        .range(prefix.to_owned()..)
        .take_while(move |(key, _)| key.starts_with(prefix));
    under.map(move |(key, pod)| (&key[prefix.len()..], pod))
}

fn judge<'a>(
    objects: &BTreeMap<String, Value>,
    node: &str,
    pods: impl Iterator<Item = &'a Value>,
    how: &str,
) -> Vec<String> {
    let Some(allocatable) = objects.get(&format!("/registry/minions/{node}")) else {
        return Vec::new();
    };
    let have = amounts(&allocatable["status"]["allocatable"]);
    let mut want = Amounts::from([("pods".to_owned(), 0)]);
    for pod in pods {
        *want.entry("pods".to_owned()).or_default() += 1000;
        for (name, amount) in requests(pod) {
            *want.entry(name).or_default() += amount;
        }
    }
    let over = want
        .iter()
        .filter(|(name, amount)| have.get(*name).is_some_and(|have| *amount > have));
    over.map(|(name, amount)| {
        let have = have[name];
        format!("{node} is overcommitted {how}: {name} {amount} of {have} (thousandths)")
    })
    .collect()
}

/// What a pod asks for: its containers and sidecars together, or its largest init container with the sidecars before it.
fn requests(pod: &Value) -> Amounts {
    let list = |name: &str| pod["spec"][name].as_array().cloned().unwrap_or_default();
    let mut total = Amounts::new();
    let add = |total: &mut Amounts, more: &Amounts| {
        more.iter()
            .for_each(|(name, amount)| *total.entry(name.clone()).or_default() += amount);
    };
    list("containers")
        .iter()
        .for_each(|c| add(&mut total, &amounts(&c["resources"]["requests"])));
    let (mut sidecars, mut largest) = (Amounts::new(), Amounts::new());
    for init in list("initContainers") {
        let own = amounts(&init["resources"]["requests"]);
        let mut now = sidecars.clone();
        add(&mut now, &own);
        if init["restartPolicy"] == "Always" {
            add(&mut sidecars, &own);
        }
        for (name, amount) in now {
            let most = largest.entry(name).or_default();
            *most = (*most).max(amount);
        }
    }
    add(&mut total, &sidecars);
    for (name, amount) in largest {
        let most = total.entry(name).or_default();
        *most = (*most).max(amount);
    }
    total
}

fn amounts(list: &Value) -> Amounts {
    let list = list.as_object().into_iter().flatten();
    list.filter_map(|(name, amount)| Some((name.clone(), thousandths(amount.as_str()?)?)))
        .collect()
}

/// A quantity, in thousandths of its unit.
pub fn thousandths(text: &str) -> Option<i64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: i64 = text[..digits].parse().ok()?;
    let factor = match &text[digits..] {
        "m" => 1,
        "" => 1000,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        _ => return None,
    };
    number.checked_mul(factor)
}
