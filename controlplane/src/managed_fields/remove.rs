//! An object without some of its fields. Pure.

use serde_json::Value;

use super::element;
use super::field_set::{Below, FieldSet};
use super::typing::{Form, Typing};

/// Takes the fields of `set` out of the object, each with all that is below it; containers that lose all their members go as well.
pub(super) fn remove(typing: Typing<'_>, object: &mut Value, set: &FieldSet) {
    take_out(typing, object, set.root());
}

/// Whether anything of the value is left. What is replaced as a whole goes as a whole.
fn take_out(typing: Typing<'_>, value: &mut Value, set: Below<'_>) -> bool {
    match (typing.form(value), &mut *value) {
        (Form::Struct(fields), Value::Object(map)) => {
            map.retain(|name, value| stays(fields.field(name), value, set.at(&element::field(name))));
            !map.is_empty()
        }
        (Form::Map(values), Value::Object(map)) => {
            map.retain(|name, value| stays(values, value, set.at(&element::field(name))));
            !map.is_empty()
        }
        (Form::List(members), Value::Array(list)) => {
            list.retain_mut(|member| {
                let set = members.step(member).ok().and_then(|step| set.at(&step));
                stays(members.items, member, set)
            });
            !list.is_empty()
        }
        (_, Value::Object(_) | Value::Array(_)) => false,
        _ => true,
    }
}

fn stays(typing: Typing<'_>, value: &mut Value, set: Option<Below<'_>>) -> bool {
    match set {
        None => true,
        Some(set) if set.is_member() => false,
        Some(set) => take_out(typing, value, set),
    }
}
