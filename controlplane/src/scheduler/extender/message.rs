//! What extenders are sent, and what their answers mean. Pure.
//!
//! Keys are spelled as Go spells fields without tags, and read whatever their case, as Go reads them.

use crate::scheduler::pod::PodInfo;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

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
        None => json!({"Pod": *pod.pod, "Nodes": null, "NodeNames": names}),
        Some(items) => json!({"Pod": *pod.pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": null}),
    }
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
