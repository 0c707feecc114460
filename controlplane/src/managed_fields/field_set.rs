//! Sets of fields, kept in the form objects carry them in: FieldsV1. Pure.
//!
//! FieldsV1 is a tree of objects whose keys are steps ([`super::element`]). A node without members is itself in the set, a node
//! with members is so if one of them is `.`; the root stands for the whole object, which nobody owns. Since equal steps have
//! equal texts, the operations work on that tree as it is: nothing is converted when an object is read or written.

use serde_json::{Map, Value};

use super::element;
use crate::json_text;
use crate::tree;

/// Marks a node with members as being in the set itself.
const SELF: &str = ".";

type Tree = Map<String, Value>;

/// A tree that is no FieldsV1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a set of fields")]
pub struct BadFields;

/// A set of fields of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldSet(Tree);

/// A set in the making: one node, and what is below it.
#[derive(Debug, Default)]
pub(super) struct Node {
    below: Tree,
    is_member: bool,
}

impl Node {
    /// A node that is in the set, with nothing below.
    pub(super) fn member() -> Self {
        Self {
            below: Tree::new(),
            is_member: true,
        }
    }

    /// Puts the node itself into the set.
    pub(super) fn join(&mut self) {
        self.is_member = true;
    }

    /// Takes what was found at a step; the step's text is made only if that is something.
    pub(super) fn put(&mut self, step: impl FnOnce() -> String, found: Self) {
        if let Some(tree) = found.into_tree() {
            self.below.insert(step(), tree);
        }
    }

    fn into_tree(mut self) -> Option<Value> {
        match (self.is_member, self.below.is_empty()) {
            (false, true) => return None,
            (true, false) => {
                self.below.insert(SELF.to_owned(), Value::Object(Tree::new()));
            }
            _ => {}
        }
        Some(Value::Object(self.below))
    }

    /// The set, of whose object this is the root.
    pub(super) fn into_set(self) -> FieldSet {
        FieldSet(self.below)
    }
}

fn is_member(node: &Tree) -> bool {
    node.is_empty() || node.contains_key(SELF)
}

fn members(node: &Tree) -> impl Iterator<Item = (&String, &Tree)> {
    let members = node.iter().filter(|(step, _)| *step != SELF);
    members.filter_map(|(step, child)| Some((step, child.as_object()?)))
}

fn below<'n>(node: &'n Tree, step: &str) -> Option<&'n Tree> {
    node.get(step)?.as_object()
}

impl FieldSet {
    /// Reads what a client sent.
    ///
    /// # Errors
    /// If it is not FieldsV1, or nests deeper than objects may. Steps of unknown kinds are left out.
    pub fn parse(sent: &Value) -> Result<Self, BadFields> {
        if sent.is_null() {
            return Ok(Self::default());
        }
        if tree::depth(sent) > tree::DEPTH_MAX {
            return Err(BadFields);
        }
        parse(sent).map(Node::into_set)
    }

    /// Takes what was in the set before it was stored.
    pub(super) fn stored(fields: Value) -> Self {
        match fields {
            Value::Object(fields) => Self(fields),
            _ => Self::default(),
        }
    }

    /// Writes FieldsV1.
    pub(super) fn write(&self, out: &mut String) {
        out.push_str(&serde_json::to_string(&self.0).unwrap_or_default());
    }

    /// The set as FieldsV1.
    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    /// The set of one field.
    pub(super) fn of(path: &[&str]) -> Self {
        let mut node = Node::member();
        for name in path.iter().rev() {
            let mut above = Node::default();
            above.put(|| element::field(name), node);
            node = above;
        }
        node.into_set()
    }

    /// Whether no field is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the field at the path is in it.
    pub fn has<S: AsRef<str>>(&self, path: &[S]) -> bool {
        let mut at = &self.0;
        for step in path {
            match below(at, step.as_ref()) {
                Some(found) => at = found,
                None => return false,
            }
        }
        !path.is_empty() && is_member(at)
    }

    /// How many fields there are.
    pub(super) fn count(&self) -> usize {
        count(&self.0)
    }

    /// How many of the fields are in the set of which this is the text.
    pub(super) fn count_in(&self, fields: &str) -> usize {
        count_in(&self.0, fields)
    }

    /// Whether any field is in both.
    pub(super) fn meets(&self, other: &Self) -> bool {
        meets(&self.0, &other.0)
    }

    /// Whether all fields of `other` are in it.
    pub(super) fn covers(&self, other: &Self) -> bool {
        covers(&self.0, &other.0)
    }

    /// Adds the fields of `other`.
    pub fn unite(&mut self, other: &Self) {
        unite(&mut self.0, &other.0);
    }

    /// Takes the fields of `other` away; what is below one of them stays.
    pub fn subtract(&mut self, other: &Self) {
        subtract(&mut self.0, &other.0);
    }

    /// Keeps the fields that are in `other` as well.
    pub fn intersect(&mut self, other: &Self) {
        intersect(&mut self.0, &other.0);
    }

    /// The union of both.
    pub(super) fn united(mut self, other: &Self) -> Self {
        self.unite(other);
        self
    }

    /// What is not in `other`.
    pub(super) fn without(mut self, other: &Self) -> Self {
        self.subtract(other);
        self
    }

    /// The first fields, as steps: those of a node in order before those below them.
    pub(super) fn first_paths(&self, most: usize) -> Vec<Vec<&str>> {
        let mut found = Vec::new();
        paths(&self.0, &mut Vec::new(), &mut found, most);
        found
    }

    /// The set at its root, to walk over.
    pub(super) fn root(&self) -> Below<'_> {
        Below(&self.0)
    }
}

/// A set as seen from one of its nodes.
#[derive(Clone, Copy)]
pub(super) struct Below<'s>(&'s Tree);

impl<'s> Below<'s> {
    /// What is at a step; `None` if neither that nor anything below is in the set.
    pub(super) fn at(self, step: &str) -> Option<Self> {
        below(self.0, step).map(Below)
    }

    /// Whether the node is in the set.
    pub(super) fn is_member(self) -> bool {
        is_member(self.0)
    }

    /// The steps below the node.
    pub(super) fn steps(self) -> impl Iterator<Item = (&'s str, Below<'s>)> {
        members(self.0).map(|(step, node)| (step.as_str(), Below(node)))
    }
}

fn parse(sent: &Value) -> Result<Node, BadFields> {
    let sent = sent.as_object().ok_or(BadFields)?;
    let mut node = Node::default();
    for (step, child) in sent {
        if step == SELF {
            node.join();
            continue;
        }
        let Some(step) = element::canonical(step).map_err(|_| BadFields)? else {
            continue;
        };
        let found = parse(child)?;
        match node.below.get_mut(&*step) {
            Some(Value::Object(known)) => join(known, &found),
            _ => node.put(|| step.into_owned(), found),
        }
    }
    if node.below.is_empty() {
        node.join();
    }
    Ok(node)
}

/// Adds what was read at another text of the same step; costs as much as that is, however much is known.
fn join(known: &mut Tree, found: &Node) {
    let is_member = found.is_member || is_member(known);
    unite(known, &found.below);
    if is_member && !known.is_empty() {
        known.insert(SELF.to_owned(), Value::Object(Tree::new()));
    }
}

fn count(tree: &Tree) -> usize {
    members(tree)
        .map(|(_, node)| usize::from(is_member(node)) + count(node))
        .sum()
}

fn count_in(asked: &Tree, fields: &str) -> usize {
    let mut left = members(asked).count();
    let mut found = 0;
    let mut all = json_text::members(fields);
    while left > 0 {
        let Some((step, fields)) = all.next() else { break };
        if step == SELF {
            continue;
        }
        let asked = match step.contains('\\') {
            false => below(asked, step),
            true => members(asked)
                .find(|(own, _)| json_text::is_escaped(step, own))
                .map(|(_, node)| node),
        };
        let Some(node) = asked else { continue };
        left -= 1;
        if is_member(node) && is_member_text(fields) {
            found += 1;
        }
        found += count_in(node, fields);
    }
    found
}

/// As [`is_member`]; steps are sorted, and nothing that is a step comes before the mark.
fn is_member_text(node: &str) -> bool {
    node == "{}" || node.starts_with("{\".\"")
}

fn meets(one: &Tree, other: &Tree) -> bool {
    let (few, many) = match one.len() <= other.len() {
        true => (one, other),
        false => (other, one),
    };
    members(few).any(|(step, node)| {
        below(many, step).is_some_and(|twin| (is_member(node) && is_member(twin)) || meets(node, twin))
    })
}

fn covers(all: &Tree, part: &Tree) -> bool {
    members(part).all(|(step, node)| {
        below(all, step).is_some_and(|twin| (!is_member(node) || is_member(twin)) && covers(twin, node))
    })
}

fn unite(into: &mut Tree, from: &Tree) {
    for (step, node) in members(from) {
        match into.get_mut(step) {
            Some(Value::Object(known)) => {
                let is_both = is_member(known) || is_member(node);
                unite(known, node);
                if is_both && !known.is_empty() {
                    known.insert(SELF.to_owned(), Value::Object(Tree::new()));
                }
            }
            _ => {
                into.insert(step.clone(), Value::Object(node.clone()));
            }
        }
    }
}

/// Keeps of each node that has a twin what `decide` says of the two, as (whether it is a member, what is below).
fn retain(tree: &mut Tree, mut decide: impl FnMut(&str, &mut Tree, bool) -> Option<bool>) {
    tree.retain(|step, child| {
        let Some(node) = child.as_object_mut().filter(|_| step != SELF) else {
            return step == SELF;
        };
        let was_member = is_member(node);
        let Some(is_member) = decide(step, node, was_member) else {
            return true;
        };
        node.remove(SELF);
        if is_member && !node.is_empty() {
            node.insert(SELF.to_owned(), Value::Object(Tree::new()));
        }
        is_member || !node.is_empty()
    });
}

fn subtract(from: &mut Tree, other: &Tree) {
    retain(from, |step, node, was_member| {
        let twin = below(other, step)?;
        subtract(node, twin);
        Some(was_member && !is_member(twin))
    });
}

fn intersect(with: &mut Tree, other: &Tree) {
    retain(with, |step, node, was_member| {
        let Some(twin) = below(other, step) else {
            node.clear();
            return Some(false);
        };
        intersect(node, twin);
        Some(was_member && is_member(twin))
    });
}

fn paths<'s>(tree: &'s Tree, above: &mut Vec<&'s str>, found: &mut Vec<Vec<&'s str>>, most: usize) {
    let mut all: Vec<(&str, &Tree)> = members(tree).map(|(step, node)| (step.as_str(), node)).collect();
    all.sort_by(|(one, _), (other, _)| element::order(one, other));
    let left = most.saturating_sub(found.len());
    for (step, _) in all.iter().filter(|(_, node)| is_member(node)).take(left) {
        found.push(above.iter().copied().chain([*step]).collect());
    }
    for (step, node) in all {
        if found.len() >= most {
            return;
        }
        above.push(step);
        paths(node, above, found, most);
        above.pop();
    }
}

#[cfg(test)]
mod tests;
