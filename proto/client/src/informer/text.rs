//! Cuts the texts of lists and events to what informers read: managedFields take as long to be read as all the rest, and none keeps
//! them. Pure. Where a text is not written as programs write it, it stays as it is.

use super::sink::Metadata;
use crate::json_text::{end, items, members, place_of};
use std::borrow::Cow;

/// Where a part of the text begins in it.
fn offset(text: &str, part: &str) -> Option<usize> {
    part.as_ptr().addr().checked_sub(text.as_ptr().addr())
}

/// The text without the managedFields of the object that begins at `at`. No more of it is read than up to these.
fn without(text: &str, at: usize) -> Option<String> {
    let (_, metadata) = place_of(text.get(at..)?, "metadata")?;
    let at = at + metadata;
    let (key, list) = place_of(text.get(at..)?, "managedFields")?;
    let (head, list) = (text.get(..at + key)?, at + list);
    let end = end(text.as_bytes(), list)?;
    // Where brackets do not belong together, who reads all of it is to say so.
    if text[list..].starts_with('[') && !text.get(..end)?.ends_with(']') {
        return None;
    }
    let tail = text.get(end..)?;
    Some(match tail.strip_prefix(',') {
        Some(tail) => [head, tail].concat(),
        None => [head.strip_suffix(',').unwrap_or(head), tail].concat(),
    })
}

/// An object's text without managedFields.
pub(super) fn without_owners(object: &str) -> Cow<'_, str> {
    without(object, 0).map_or(Cow::Borrowed(object), Cow::Owned)
}

/// An event's text without the managedFields of its object.
pub(super) fn event_without_owners(event: &str) -> Cow<'_, str> {
    let without = place_of(event, "object").and_then(|(_, object)| without(event, object));
    without.map_or(Cow::Borrowed(event), Cow::Owned)
}

/// Whether the last part is followed by the end of the text alone; by its beginning, where there is none.
fn is_all(text: &str, last: Option<&str>, bracket: char) -> bool {
    let rest = match last {
        None => text.get(1..),
        Some(last) => offset(text, last).and_then(|at| text.get(at + last.len()..)),
    };
    rest.is_some_and(|rest| rest.chars().eq([bracket]))
}

/// The revision of a list, and the texts of its objects; `None` where not all of the text is understood.
pub(super) fn parts(list: &str) -> Option<(String, Vec<&str>)> {
    let list = list.trim_end();
    let (mut revision, mut objects, mut last) = (None, None, None);
    for (key, value) in members(list) {
        match key {
            "metadata" => revision = serde_json::from_str::<Metadata>(value).ok()?.resource_version,
            "items" => objects = Some(value),
            _ => {}
        }
        last = Some(value);
    }
    let objects = objects.filter(|_| is_all(list, last, '}'))?;
    let each: Vec<&str> = items(objects).collect();
    is_all(objects, each.last().copied(), ']').then(|| (revision.unwrap_or_default(), each))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_left_out_wherever_they_stand_and_nothing_else() {
        let owned = |metadata: &str| {
            format!(
                r#"{{"type":"ADDED","object":{{"kind":"Pod","metadata":{metadata},"spec":{{"managedFields":[1]}}}}}}"#
            )
        };
        for (metadata, left) in [
            (
                r#"{"managedFields":[{"fieldsV1":{"f:a":{"k:{\"n\":\"}]\"}":{}}}}],"name":"b"}"#,
                r#"{"name":"b"}"#,
            ),
            (r#"{"name":"b","managedFields":[]}"#, r#"{"name":"b"}"#),
            (
                r#"{"a":"ä","managedFields":[[{}]],"name":"b"}"#,
                r#"{"a":"ä","name":"b"}"#,
            ),
            (r#"{"managedFields":null}"#, "{}"),
            (
                r#"{"name":"\"managedFields\":[]"}"#,
                r#"{"name":"\"managedFields\":[]"}"#,
            ),
            (
                r#"{"labels":{"managedFields":"x"}}"#,
                r#"{"labels":{"managedFields":"x"}}"#,
            ),
            (r#"{"managedFields":[{"#, r#"{"managedFields":[{"#),
        ] {
            assert_eq!(event_without_owners(&owned(metadata)), owned(left), "{metadata}");
        }
        for text in [
            "",
            "{",
            "{}",
            "[]",
            r#"{"object":1}"#,
            r#"{"object":{"metadata":[]}}"#,
            "ä",
        ] {
            assert_eq!(event_without_owners(text), text);
            assert_eq!(without_owners(text), text);
        }
    }

    #[test]
    fn lists_are_taken_apart_or_left_alone() {
        let object = r#"{"metadata":{"name":"a","managedFields":[]},"data":{"items":"[]"}}"#;
        let list =
            |items: &str| format!(r#"{{"kind":"L","metadata":{{"resourceVersion":"7","x":[]}},"items":{items}}}"#);
        for (text, objects) in [
            (list(&format!("[{object},{object}]")), Some(vec![object, object])),
            (list(&format!("[{object}]")) + "\n", Some(vec![object])),
            (list("[]"), Some(vec![])),
            (
                format!(r#"{{"items":[{object}],"metadata":{{"resourceVersion":"7"}}}}"#),
                Some(vec![object]),
            ),
            // Somebody else is to say what is wrong with these, if something is.
            (list("null"), None),
            (list(&format!("[{object}, {object}]")), None),
            (list(&format!("[{object}")), None),
            (list("{}"), None),
            (list("[]") + "x", None),
            (list("[]").replace("\"7\"", "7"), None),
            (list("[]").replace("{\"kind\"", "{ \"kind\""), None),
            ("{}".to_owned(), None),
            ("[]".to_owned(), None),
            (String::new(), None),
            ("busy".to_owned(), None),
        ] {
            let expected = objects.map(|objects| ("7".to_owned(), objects));
            assert_eq!(parts(&text), expected, "{text}");
        }
        assert_eq!(
            without_owners(object),
            r#"{"metadata":{"name":"a"},"data":{"items":"[]"}}"#
        );
    }
}
