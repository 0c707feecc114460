//! A configuration laid over an object: objects member by member, lists by their members' keys, all else replaced. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::typing::{Form, Members, Typing};

/// Lays `config` over `live`. Nothing of `live` goes.
pub(super) fn merge(typing: Typing<'_>, live: &mut Value, config: &Value) {
    if is_empty(live) && is_empty(config) {
        *live = config.clone();
        return;
    }
    match typing.form_of_both(Some(live), Some(config)) {
        Form::Leaf => *live = config.clone(),
        Form::Struct(fields) => over(live, config, |name| fields.field(name)),
        Form::Map(values) => over(live, config, |_| values),
        Form::List(members) => {
            let Some(config) = config.as_array() else { return };
            let old = match live.take() {
                Value::Array(old) => old,
                _ => Vec::new(),
            };
            *live = Value::Array(lists(members, old, config));
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

fn over<'s>(live: &mut Value, config: &Value, typing: impl Fn(&str) -> Typing<'s>) {
    if live.is_null() {
        *live = Value::Object(Map::new());
    }
    let (Some(live), Some(config)) = (live.as_object_mut(), config.as_object()) else {
        return;
    };
    for (name, value) in config {
        match live.get_mut(name) {
            Some(known) => merge(typing(name), known, value),
            None => {
                live.insert(name.clone(), value.clone());
            }
        }
    }
}

/// The members of both lists, each step once. The configuration's come in its order; what it does not name stays before the
/// shared member it stood before (control-plane contract §2.5: upstream's order).
fn lists(members: Members<'_>, old: Vec<Value>, config: &[Value]) -> Vec<Value> {
    let steps = |list: &[Value]| -> Option<Vec<String>> { list.iter().map(|one| members.step(one).ok()).collect() };
    let (Some(old_steps), Some(new_steps)) = (steps(&old), steps(config)) else {
        return config.to_vec();
    };
    let wanted: BTreeSet<&str> = new_steps.iter().map(String::as_str).collect();
    let mut known = Known::of(&old_steps, old);
    let shared: Vec<&String> = new_steps.iter().filter(|step| known.has(step)).collect();
    let mut shared = shared.into_iter().map(String::as_str).peekable();
    let mut merged = Vec::with_capacity(old_steps.len().max(config.len()));
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut at = 0;
    let mut news = new_steps.iter().zip(config).peekable();
    loop {
        let old_step = old_steps.get(at).map(String::as_str);
        let new_step = news.peek().map(|(step, _)| step.as_str());
        match (old_step, new_step) {
            (None, None) => return merged,
            // The configuration's next member stands here.
            (Some(old), Some(new)) if old == new => at += 1,
            // One of its later members: it is waited for, and comes in the configuration's order.
            (Some(old), Some(_)) if wanted.contains(old) && shared.peek().is_some_and(|next| *next != old) => {
                at += 1;
                continue;
            }
            (Some(old), _) if !wanted.contains(old) => {
                merged.extend(known.take_at(at));
                at += 1;
                continue;
            }
            (Some(old), _) if done.contains(old) => at += 1,
            _ => {}
        }
        let Some((step, value)) = news.next() else { continue };
        done.insert(step);
        shared.next_if(|next| next == step);
        let mut member = known.take(step).unwrap_or(Value::Null);
        match member.is_null() {
            true => member = value.clone(),
            false => merge(members.items, &mut member, value),
        }
        merged.push(member);
    }
}

/// The members of the old list, and where those stand that are there once.
struct Known {
    members: Vec<Value>,
    by_step: BTreeMap<String, Option<usize>>,
}

impl Known {
    fn of(steps: &[String], members: Vec<Value>) -> Self {
        let mut by_step = BTreeMap::new();
        for (at, step) in steps.iter().enumerate() {
            let place = by_step.entry(step.clone());
            place.and_modify(|known| *known = None).or_insert(Some(at));
        }
        Self { members, by_step }
    }

    fn has(&self, step: &str) -> bool {
        self.by_step.contains_key(step)
    }

    /// The member of the step; `None` if there is none, or several that cannot be told apart.
    fn take(&mut self, step: &str) -> Option<Value> {
        let at = (*self.by_step.get(step)?)?;
        self.take_at(at)
    }

    fn take_at(&mut self, at: usize) -> Option<Value> {
        self.members.get_mut(at).map(Value::take)
    }
}
