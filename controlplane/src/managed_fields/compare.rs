//! What a write changed: the fields that are new or have another value, and those that are gone. Pure.
//!
//! Only what differs is put into words: where both objects have the same value no path is made, and lists that are equal are not
//! looked into.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element;
use super::field_set::{FieldSet, Node};
use super::scope::{At, Scope};
use super::typing::{Form, Members, Struct, Typing};

/// What a write changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Comparison {
    /// Fields that are new, or have another value.
    pub(super) changed: FieldSet,
    /// Fields that are gone.
    pub(super) removed: FieldSet,
}

impl Comparison {
    /// Whether nothing differs.
    pub(super) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}

/// Compares two objects as far as `scope` goes; `None` is an object that is not there yet.
pub(super) fn compare(typing: Typing<'_>, scope: Scope, before: Option<&Value>, after: &Value) -> Comparison {
    let nothing = Value::Object(Map::new());
    let mut found = Difference::default();
    found.values(typing, scope.root(), Some(before.unwrap_or(&nothing)), Some(after));
    Comparison {
        changed: found.changed.into_set(),
        removed: found.removed.into_set(),
    }
}

/// What differs at one node and below.
#[derive(Default)]
struct Difference {
    changed: Node,
    removed: Node,
}

type Object = Map<String, Value>;

impl Difference {
    fn values(&mut self, typing: Typing<'_>, scope: At, before: Option<&Value>, after: Option<&Value>) {
        let form = match (is_empty(before), is_empty(after)) {
            (true, true) => Form::Leaf,
            _ => typing.form_of_both(before, after),
        };
        match form {
            Form::Leaf => {
                if before != after {
                    self.differs(scope, before, after);
                }
                return;
            }
            Form::Struct(fields) => self.fields(fields, scope, before, after),
            Form::Map(values) => self.entries(values, scope, before, after),
            Form::List(members) => {
                if before == after {
                    return;
                }
                if self.members(members, scope, before, after).is_none() {
                    self.differs(scope, before, after);
                    return;
                }
            }
        }
        if before.is_none() || after.is_none() {
            self.differs(scope, before, after);
        }
    }

    /// The node itself is new, gone or another.
    fn differs(&mut self, scope: At, before: Option<&Value>, after: Option<&Value>) {
        if !scope.is_inside() {
            return;
        }
        match (before, after) {
            (_, Some(_)) => self.changed.join(),
            (Some(_), None) => self.removed.join(),
            (None, None) => {}
        }
    }

    fn put(&mut self, step: impl Fn() -> String, found: Self) {
        self.changed.put(&step, found.changed);
        self.removed.put(&step, found.removed);
    }

    fn at(&mut self, step: impl Fn() -> String, compare: impl FnOnce(&mut Self)) {
        let mut found = Self::default();
        compare(&mut found);
        self.put(step, found);
    }

    fn fields(&mut self, fields: Struct<'_>, scope: At, before: Option<&Value>, after: Option<&Value>) {
        let both = before.is_some() && after.is_some();
        each(before, after, |name, before, after| {
            // Most fields are scalars that nobody changed.
            if before == after && !before.is_some_and(|value| value.is_object() || value.is_array()) {
                return;
            }
            let Some(scope) = scope.down(name) else { return };
            let absent = match both && (before.is_none() || after.is_none()) {
                true => fields.absent(name),
                false => None,
            };
            let (before, after) = (before.or(absent.as_ref()), after.or(absent.as_ref()));
            let typing = fields.field(name);
            self.at(
                || element::field(name),
                |found| found.values(typing, scope, before, after),
            );
        });
    }

    fn entries(&mut self, values: Typing<'_>, scope: At, before: Option<&Value>, after: Option<&Value>) {
        each(before, after, |name, before, after| {
            let Some(scope) = scope.down(name) else { return };
            self.at(
                || element::field(name),
                |found| found.values(values, scope, before, after),
            );
        });
    }

    /// `None` if a member of either list has no step: then the lists are two values.
    fn members(
        &mut self,
        members: Members<'_>,
        scope: At,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> Option<()> {
        let (before, after) = (index(members, before)?, index(members, after)?);
        let Some(scope) = scope.member() else { return Some(()) };
        let steps = before
            .keys()
            .chain(after.keys().filter(|step| !before.contains_key(*step)));
        for step in steps {
            let before = before.get(step).map_or(&[][..], Vec::as_slice);
            let after = after.get(step).map_or(&[][..], Vec::as_slice);
            self.at(
                || step.clone(),
                |found| found.twins(members.items, scope, before, after),
            );
        }
        Some(())
    }

    /// Compares the members of one step. Several of one step count as one value.
    fn twins(&mut self, items: Typing<'_>, scope: At, before: &[&Value], after: &[&Value]) {
        match (before, after) {
            ([_, _, ..], [_, _, ..]) => {
                if before != after {
                    self.changed.join();
                }
            }
            ([_, _, ..], after) => {
                if let Some(after) = after.first() {
                    self.values(items, scope, None, Some(after));
                }
                self.removed.join();
            }
            (before, [_, _, ..]) => {
                if let Some(before) = before.first() {
                    self.values(items, scope, Some(before), None);
                }
                self.changed.join();
            }
            (before, after) => self.values(items, scope, before.first().copied(), after.first().copied()),
        }
    }
}

/// Whether there is nothing in it that could be compared: no value, null, or an object or list without members.
fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    }
}

/// Calls `visit` with every key of the two objects, once each, and what they have there.
fn each<'v>(
    before: Option<&'v Value>,
    after: Option<&'v Value>,
    mut visit: impl FnMut(&'v str, Option<&'v Value>, Option<&'v Value>),
) {
    let object = |value: Option<&'v Value>| -> Option<&'v Object> { value?.as_object() };
    let (before, after) = (object(before), object(after));
    let mut later = after.into_iter().flatten().peekable();
    for (name, value) in before.into_iter().flatten() {
        while let Some((only, new)) = later.next_if(|(own, _)| *own < name) {
            visit(only, None, Some(new));
        }
        let twin = later.next_if(|(own, _)| *own == name);
        visit(name, Some(value), twin.map(|(_, new)| new));
    }
    for (only, new) in later {
        visit(only, None, Some(new));
    }
}

fn index<'v>(members: Members<'_>, list: Option<&'v Value>) -> Option<BTreeMap<String, Vec<&'v Value>>> {
    let mut found: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for member in list.and_then(Value::as_array).into_iter().flatten() {
        found.entry(members.step(member).ok()?).or_default().push(member);
    }
    Some(found)
}
