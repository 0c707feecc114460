//! The text of an object under the names of a version that differs in nothing else, made of the stored text without a tree. Pure.

use bytes::Bytes;
use client::json_text::members;

/// The text of an object in two parts, as [`super::json_of`] gives it, whose members have other names: `names` are the new ones and those
/// that are replaced. `None` if the text is not laid out as programs do: it has to be read then.
pub(super) fn text((head, rest): (Bytes, Bytes), names: &[(&str, &str)]) -> Option<String> {
    let stored = [head, rest].concat();
    let stored = std::str::from_utf8(&stored).ok()?;
    let mut text = String::with_capacity(stored.len() + 16 * names.len());
    text.push('{');
    let mut left = stored.strip_prefix('{')?;
    for (key, value) in members(stored) {
        if text.len() > 1 {
            left = left.strip_prefix(',')?;
            text.push(',');
        }
        // All of it has to be understood, or something would be left out.
        left = left.strip_prefix('"')?.strip_prefix(key)?;
        left = left.strip_prefix("\":")?.strip_prefix(value)?;
        let name = names.iter().find(|(_, stored)| *stored == key);
        text.push('"');
        text.push_str(name.map_or(key, |(new, _)| new));
        text.push_str("\":");
        text.push_str(value);
    }
    text.push('}');
    (left == "}").then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const NAMES: &[(&str, &str)] = &[("note", "message"), ("new", "old")];

    fn of(text: &str) -> Option<Value> {
        let (head, rest) = text.split_at(text.len() / 2);
        let parts = (Bytes::from(head.to_owned()), Bytes::from(rest.to_owned()));
        super::text(parts, NAMES).map(|text| serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn members_have_their_new_names_and_nothing_else_is_touched() {
        let stored = json!({"kind": "Event", "message": "a\"message\":{", "old": {"old": [1]}, "x": null, "metadata": {"message": ""}});
        let shown = json!({"kind": "Event", "note": "a\"message\":{", "new": {"old": [1]}, "x": null, "metadata": {"message": ""}});
        assert_eq!(of(&stored.to_string()), Some(shown));
    }

    #[test]
    fn text_of_another_layout_is_left_to_who_reads_it() {
        for text in [
            r#"{ "a":1}"#,
            r#"{ "a":1,"b":2}"#,
            r#"{"a" :1}"#,
            r#"{"a":"b" ,"c":2}"#,
            r#"{"a":"b" }"#,
            r#"{"a":1}x"#,
            r#"{"a":"#,
            "[]",
            "",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(of(r#"{"message": 1}"#), Some(json!({"note": 1})));
        assert_eq!(of("{}"), Some(json!({})));
    }
}
