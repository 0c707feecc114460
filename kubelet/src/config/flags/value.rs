//! What the text of a flag means. Pure.

use super::table::Kind::{self, Bool, Gates, Headers, Int, List, Memory, Modules, Pairs, Taints, Text, Thresholds};
use client::ordered::CollectOrdered;
use serde_json::{Map, Value, json};

fn truth(text: &str) -> Result<Value, String> {
    match text {
        "true" | "1" | "t" | "T" | "TRUE" | "True" => Ok(Value::Bool(true)),
        "false" | "0" | "f" | "F" | "FALSE" | "False" => Ok(Value::Bool(false)),
        _ => Err(format!("{text:?} is not a truth value")),
    }
}

/// `key=value,...`, each value read by itself.
fn each_pair(text: &str, read: fn(&str, &str) -> Result<Value, String>) -> Result<Map<String, Value>, String> {
    words(text)
        .map(|word| match word.split_once('=') {
            Some((key, value)) => Ok((key.trim().to_owned(), read(key, value.trim())?)),
            None => Err(format!("{word:?} is not of the form key=value")),
        })
        .collect_ordered()
}

/// `memory.available<100Mi,...`
fn thresholds(text: &str) -> Result<Value, String> {
    words(text)
        .map(|word| match word.split_once('<') {
            Some((signal, amount)) => Ok((signal.trim().to_owned(), Value::from(amount.trim()))),
            None => Err(format!("{word:?} is not of the form signal<amount")),
        })
        .collect_ordered::<Result<Map<_, _>, _>>()
        .map(Value::Object)
}

/// `0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=2Gi`
fn reserved_memory(text: &str) -> Result<Value, String> {
    let nodes = text.split(';').map(str::trim).filter(|part| !part.is_empty());
    nodes
        .map(|part| {
            let (node, limits) = part
                .split_once(':')
                .and_then(|(node, limits)| Some((node.trim().parse::<i64>().ok()?, limits)))
                .ok_or_else(|| format!("{part:?} is not of the form node:resource=amount"))?;
            let limits = each_pair(limits, |_, value| Ok(Value::from(value)))?;
            Ok(json!({"numaNode": node, "limits": limits}))
        })
        .collect()
}

/// `pattern=verbosity,...`
fn modules(text: &str) -> Result<Value, String> {
    words(text)
        .map(|word| {
            let pair = word.split_once('=');
            let pair = pair.and_then(|(files, verbosity)| Some((files, verbosity.parse::<i64>().ok()?)));
            let (files, verbosity) = pair.ok_or_else(|| format!("{word:?} is not of the form pattern=N"))?;
            Ok(json!({"filePattern": files, "verbosity": verbosity}))
        })
        .collect()
}

fn taint(text: &str) -> Option<Value> {
    let (key_value, effect) = text.rsplit_once(':')?;
    let (key, value) = key_value.split_once('=').unwrap_or((key_value, ""));
    if key.is_empty() || !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        return None;
    }
    let mut taint = Map::new();
    taint.insert("key".into(), key.into());
    if !value.is_empty() {
        taint.insert("value".into(), value.into());
    }
    taint.insert("effect".into(), effect.into());
    Some(Value::Object(taint))
}

/// Headers by name, each with all its values.
fn headers(text: &str) -> Result<Value, String> {
    let mut out = Map::new();
    for word in words(text) {
        let Some((name, value)) = word.split_once(':') else {
            return Err(format!("{word:?} is not of the form name:value"));
        };
        let values = out.entry(name.trim()).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(values) = values {
            values.push(value.trim().into());
        }
    }
    Ok(Value::Object(out))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

pub(super) fn value(kind: Kind, text: &str) -> Result<Value, String> {
    match kind {
        Bool => truth(text),
        Int => text
            .parse::<i64>()
            .map(Value::from)
            .map_err(|_| "not a whole number".into()),
        Text => Ok(Value::from(text)),
        List => Ok(words(text).map(Value::from).collect()),
        Pairs => each_pair(text, |_, value| Ok(Value::from(value))).map(Value::Object),
        Headers => headers(text),
        Gates => each_pair(text, |_, value| truth(value)).map(Value::Object),
        Thresholds => thresholds(text),
        Memory => reserved_memory(text),
        Modules => modules(text),
        Taints => words(text)
            .map(|word| taint(word).ok_or_else(|| format!("{word:?} is not of the form key=value:effect")))
            .collect(),
    }
}
