//! Whether a configuration has the form its schema asks for: all its fields declared, each of the right JSON type, members of
//! lists told apart. Pure; the texts are upstream's.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::Value;

use super::conflict;
use super::element;
use super::typing::{Declared, Form, Struct, Typing};
use crate::resource::field_error::cut;
use crate::schema::Shape;
use crate::tree;

/// Most things named.
const PROBLEMS_MAX: usize = 100;
/// Longest text of a value, or a path.
const SHOWN_MAX_BYTES: usize = 1024;
/// Longest text of what is wrong, which may name a value.
const PROBLEM_MAX_BYTES: usize = 2 * SHOWN_MAX_BYTES;

/// Everything wrong with a configuration, in upstream's words: one line, or a list under `errors:`; `None` if nothing is.
pub(super) fn problems(typing: Typing<'_>, config: &Value) -> Option<String> {
    let mut check = Check::default();
    check.value(typing, config);
    match check.found.as_slice() {
        [] => None,
        [only] => Some(only.clone()),
        all => Some(all.iter().fold("errors:".to_owned(), |text, one| text + "\n  " + one)),
    }
}

#[derive(Default)]
struct Check {
    path: Vec<String>,
    found: Vec<String>,
}

impl Check {
    fn note(&mut self, problem: impl std::fmt::Display) {
        if self.found.len() < PROBLEMS_MAX {
            let path = conflict::shown(self.path.iter().map(String::as_str), SHOWN_MAX_BYTES);
            let problem = cut(problem.to_string(), PROBLEM_MAX_BYTES);
            self.found.push(match path.is_empty() {
                true => problem,
                false => format!("{path}: {problem}"),
            });
        }
    }

    fn below(&mut self, step: String, typing: Typing<'_>, value: &Value) {
        self.path.push(step);
        self.value(typing, value);
        self.path.pop();
    }

    fn value(&mut self, typing: Typing<'_>, value: &Value) {
        let Some(declared) = typing.declared() else { return };
        match (declared, value) {
            (_, Value::Null) => {}
            (Declared::Object(id), Value::Object(_)) => self.fields(typing.fields(id), value),
            (Declared::Shape(Shape::Map(_)), Value::Object(map)) => {
                for (name, value) in map {
                    self.below(element::field(name), typing.values(), value);
                }
            }
            (Declared::Shape(Shape::List(_)), Value::Array(list)) => self.members(typing, value, list),
            (Declared::Object(_) | Declared::Shape(Shape::Map(_)), other) => {
                self.note(format_args!("expected map, got &{{{}}}", go(other)));
            }
            (Declared::Shape(Shape::List(_)), other) => {
                self.note(format_args!("expected list, got &{{{}}}", go(other)));
            }
            (Declared::Shape(shape), other) => self.scalar(shape, other),
        }
    }

    fn fields(&mut self, fields: Struct<'_>, value: &Value) {
        for (name, value) in value.as_object().into_iter().flatten() {
            match fields.declared(name) {
                Some(typing) => self.below(element::field(name), typing, value),
                None => {
                    self.path.push(element::field(name));
                    self.note("field not declared in schema");
                    self.path.pop();
                }
            }
        }
    }

    fn members(&mut self, typing: Typing<'_>, value: &Value, list: &[Value]) {
        let Form::List(members) = typing.form(value) else {
            for (i, member) in list.iter().enumerate() {
                self.below(format!("i:{i}"), typing.items(), member);
            }
            return;
        };
        let mut seen = BTreeSet::new();
        for (i, member) in list.iter().enumerate() {
            let step = match members.step(member) {
                Ok(step) => step,
                Err(problem) => return self.note(format_args!("element {i}: {problem}")),
            };
            if !seen.insert(step.clone()) {
                self.note(format_args!("duplicate entries for key {}", element::shown(&step)));
            }
            self.below(step, members.items, member);
        }
    }

    fn scalar(&mut self, shape: &Shape, value: &Value) {
        let is_scalar = !(value.is_object() || value.is_array());
        match shape {
            Shape::String | Shape::Bytes if !value.is_string() => self.note(format_args!(
                "expected string, got &value.valueUnstructured{{Value:{}}}",
                go_syntax(value)
            )),
            Shape::Int32 | Shape::Int64 | Shape::Number if !value.is_number() => {
                self.note(format_args!(
                    "expected numeric (int or float), got {}",
                    tree::go_type(value)
                ));
            }
            Shape::Boolean if !value.is_boolean() => {
                self.note(format_args!("expected boolean, got &{{{}}}", go(value)));
            }
            _ if !is_scalar => self.note(format_args!("expected any scalar, got &{{{}}}", go(value))),
            _ => {}
        }
    }
}

/// A value as Go prints it (`%v`), cut after a while.
fn go(value: &Value) -> String {
    let mut text = String::new();
    print(&mut text, value);
    cut(text, SHOWN_MAX_BYTES)
}

fn print(text: &mut String, value: &Value) {
    if text.len() > SHOWN_MAX_BYTES {
        return;
    }
    match value {
        Value::Null => text.push_str("<nil>"),
        Value::String(own) => text.push_str(own),
        Value::Array(list) => {
            for (i, member) in list.iter().enumerate() {
                text.push(if i == 0 { '[' } else { ' ' });
                print(text, member);
            }
            text.push_str(if list.is_empty() { "[]" } else { "]" });
        }
        Value::Object(map) => {
            text.push_str("map[");
            for (i, (name, member)) in map.iter().enumerate() {
                let blank = if i == 0 { "" } else { " " };
                // Writing to a string cannot fail.
                let _ = write!(text, "{blank}{name}:");
                print(text, member);
            }
            text.push(']');
        }
        other => text.push_str(&other.to_string()),
    }
}

/// A value in Go's own syntax (`%#v`); of lists and objects only the type.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => format!("{}{{{}}}", tree::go_type(value), go(value)),
        other => go(other),
    }
}
