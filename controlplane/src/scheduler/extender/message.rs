//! What extenders are sent, and what their answers mean. Pure.
//!
//! Keys are spelled as Go spells fields without tags, and read whatever their case, as Go reads them.

use crate::scheduler::plugin::default_preemption::{Preemption, in_order, order_victims};
use crate::scheduler::pod::PodInfo;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;

/// The highest score of an extender.
const SCORE_MAX: i64 = 10;
/// The longest of an extender's words that are shown.
const WORDS_MAX: usize = 256;

/// What an extender lets through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filtered {
    /// Nodes that will do.
    pub nodes: BTreeSet<String>,
    /// Why others will not.
    pub failed: BTreeMap<String, String>,
}

/// The question for nodes or scores: names, or whole nodes.
pub fn question(pod: &PodInfo, names: &[String], nodes: Option<Vec<Value>>) -> Value {
    match nodes {
        None => json!({"Pod": pod.pod.shown(), "Nodes": null, "NodeNames": names}),
        Some(items) => json!({"Pod": pod.pod.shown(), "Nodes": {"metadata": {}, "items": items}, "NodeNames": null}),
    }
}

/// The question who should go for the pod, by node: whole pods, or their UIDs for an extender that `knows` them. It is about the first of
/// the candidates, as many as fit into `most` bytes, but one at least: how many that are is said, too.
pub fn victims(pod: &PodInfo, candidates: &[Preemption], knows: bool, most: usize) -> (Value, usize) {
    let shown = |victim: &Arc<PodInfo>| match knows {
        true => json!({"UID": victim.uid}),
        false => victim.pod.shown(),
    };
    let (mut each, mut bytes) = (Map::new(), 0);
    for candidate in candidates {
        let pods: Vec<Value> = candidate.victims.iter().map(shown).collect();
        let words = json!({"Pods": pods, "NumPDBViolations": candidate.violations});
        bytes += length(&words);
        if bytes > most && !each.is_empty() {
            break;
        }
        each.insert(candidate.node.clone(), words);
    }
    let asked = each.len();
    let each = Value::Object(each);
    let (whole, meta) = if knows {
        (Value::Null, each)
    } else {
        (each, Value::Null)
    };
    let question = json!({"Pod": pod.pod.shown(), "NodeNameToVictims": whole, "NodeNameToMetaVictims": meta});
    (question, asked)
}

/// Bytes of a value's text.
fn length(value: &Value) -> usize {
    struct Counted(usize);
    impl Write for Counted {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counted = Counted(0);
    // Counting cannot fail.
    let _ = serde_json::to_writer(&mut counted, value);
    counted.0
}

/// The question to bind.
pub fn binding(pod: &PodInfo, node: &str) -> Value {
    json!({"PodName": pod.key.name, "PodNamespace": pod.key.namespace, "PodUID": pod.uid, "Node": node})
}

fn field<'v>(object: &'v Map<String, Value>, name: &str) -> &'v Value {
    let found = object.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map_or(&Value::Null, |(_, value)| value)
}

fn object(answer: &Value) -> Result<&Map<String, Value>, String> {
    answer.as_object().ok_or_else(|| "the answer is no object".to_owned())
}

/// Some of an extender's words, on one line.
fn words(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let end = plain.floor_char_boundary(WORDS_MAX.min(plain.len()));
    plain[..end].to_owned()
}

/// What an answer says went wrong.
fn error(answer: &Map<String, Value>) -> Result<(), String> {
    match field(answer, "Error") {
        Value::Null => Ok(()),
        Value::String(text) if text.is_empty() => Ok(()),
        Value::String(text) => Err(words(text)),
        _ => Err("Error is no text".to_owned()),
    }
}

/// Which of the nodes an extender lets through, by its answer.
///
/// # Errors
/// What is wrong with the answer, or what it says went wrong.
pub fn filtered(answer: &Value, asked: &[String]) -> Result<Filtered, String> {
    let answer = object(answer)?;
    error(answer)?;
    let asked: BTreeSet<&str> = asked.iter().map(String::as_str).collect();
    let known = |name: &str| match asked.contains(name) {
        true => Ok(name.to_owned()),
        false => Err(format!("node {:?} was not asked about", words(name))),
    };
    let mut filtered = Filtered::default();
    let names: Vec<&str> = match (field(answer, "NodeNames"), field(answer, "Nodes")) {
        (Value::Array(names), _) => texts(names, |name| name, "NodeNames")?,
        (Value::Null, Value::Object(list)) => match field(list, "items") {
            Value::Null => Vec::new(),
            Value::Array(items) => texts(items, |node| &node["metadata"]["name"], "Nodes.items")?,
            _ => return Err("Nodes.items is no list".to_owned()),
        },
        (Value::Null, Value::Null) => Vec::new(),
        _ => return Err("neither NodeNames nor Nodes is a list of nodes".to_owned()),
    };
    for name in names {
        filtered.nodes.insert(known(name)?);
    }
    for key in ["FailedNodes", "FailedAndUnresolvableNodes"] {
        match field(answer, key) {
            Value::Null => {}
            Value::Object(failed) => {
                for (name, why) in failed {
                    let why = why.as_str().unwrap_or_default();
                    filtered.failed.insert(known(name)?, words(why));
                }
            }
            _ => return Err(format!("{key} is no object")),
        }
    }
    Ok(filtered)
}

fn texts<'v>(items: &'v [Value], name: impl Fn(&'v Value) -> &'v Value, of: &str) -> Result<Vec<&'v str>, String> {
    let each = items.iter().map(|item| name(item).as_str());
    each.map(|name| name.ok_or_else(|| format!("{of} has something that is no name")))
        .collect()
}

/// What an extender's answer adds to the scores of nodes: each between 0 and 10.
///
/// # Errors
/// What is wrong with the answer.
pub fn scores(answer: &Value, asked: &[String]) -> Result<BTreeMap<String, i64>, String> {
    let asked: BTreeSet<&str> = asked.iter().map(String::as_str).collect();
    let list = answer.as_array().ok_or("the answer is no list")?;
    let mut scores = BTreeMap::new();
    for entry in list {
        let entry = object(entry)?;
        let host = field(entry, "Host").as_str().ok_or("Host is no text")?;
        let score = field(entry, "Score").as_i64().ok_or("Score is no number")?;
        if !asked.contains(host) {
            return Err(format!("node {:?} was not asked about", words(host)));
        }
        if !(0..=SCORE_MAX).contains(&score) {
            return Err(format!("Score {score} of {host:?} is not between 0 and {SCORE_MAX}"));
        }
        scores.insert(host.to_owned(), score);
    }
    Ok(scores)
}

/// Who should go for the pod by an extender's answer, the best choice first: on nodes it was asked about, and of the pods these
/// have, which `on` finds by UID. It may choose other pods than those it was asked about, but none of the pod's own priority.
/// A node without victims is left out if the extender is `ignorable`.
///
/// # Errors
/// What is wrong with the answer.
pub fn preempted(
    answer: &Value,
    pod: &PodInfo,
    asked: &[Preemption],
    on: &dyn Fn(&str, &str) -> Option<Arc<PodInfo>>,
    ignorable: bool,
) -> Result<Vec<Preemption>, String> {
    let answer = object(answer)?;
    let nodes = match field(answer, "NodeNameToMetaVictims") {
        Value::Null => return Ok(Vec::new()),
        Value::Object(nodes) => nodes,
        _ => return Err("NodeNameToMetaVictims is no object".to_owned()),
    };
    if let Some(stranger) = nodes.keys().find(|name| asked.iter().all(|known| known.node != **name)) {
        return Err(format!("node {:?} was not asked about", words(stranger)));
    }
    let mut left = Vec::new();
    for candidate in asked {
        let Some(given) = nodes.get(&candidate.node) else {
            continue;
        };
        let (mut victims, violations) = victims_of(given, candidate, on)?;
        if victims.is_empty() && ignorable {
            continue;
        }
        if victims.is_empty() {
            return Err(format!("expected at least one victim pod on node {:?}", candidate.node));
        }
        if let Some(victim) = victims.iter().find(|victim| victim.priority >= pod.priority) {
            return Err(format!(
                "pod {} on node {:?} has no lower priority",
                victim.key, candidate.node
            ));
        }
        order_victims(&mut victims);
        left.push(Preemption {
            victims,
            violations,
            ..candidate.clone()
        });
    }
    Ok(in_order(left))
}

/// Victims on one node, and how many of them budgets do not allow.
fn victims_of(
    given: &Value,
    candidate: &Preemption,
    on: &dyn Fn(&str, &str) -> Option<Arc<PodInfo>>,
) -> Result<(Vec<Arc<PodInfo>>, usize), String> {
    let node = &candidate.node;
    let given = match given {
        Value::Null => return Ok((Vec::new(), 0)),
        given => object(given)?,
    };
    let violations = match field(given, "NumPDBViolations") {
        Value::Null => Some(0),
        number => number.as_u64().and_then(|number| usize::try_from(number).ok()),
    };
    let violations = violations.ok_or_else(|| format!("NumPDBViolations of {node:?} is no count"))?;
    let pods = match field(given, "Pods") {
        Value::Null => &Vec::new(),
        Value::Array(pods) => pods,
        _ => return Err(format!("Pods of {node:?} is no list")),
    };
    let mut victims: Vec<Arc<PodInfo>> = Vec::new();
    for given in pods {
        let uid = given.as_object().and_then(|given| field(given, "UID").as_str());
        let uid = uid.ok_or_else(|| format!("UID of a pod on {node:?} is no text"))?;
        let victim = on(node, uid).ok_or_else(|| format!("pod (UID: {}) is not on node {node:?}", words(uid)))?;
        if victims.iter().all(|known| known.uid != victim.uid) {
            victims.push(victim);
        }
    }
    Ok((victims, violations))
}

/// Whether the extender bound the pod.
///
/// # Errors
/// What it says went wrong.
pub fn bound(answer: &Value) -> Result<(), String> {
    match answer {
        Value::Null => Ok(()),
        answer => error(object(answer)?),
    }
}
