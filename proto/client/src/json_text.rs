//! Looks into JSON text as programs write it, without blanks, and makes no tree of it: whoever asks for one member need not read the
//! others. Pure. Text of another form is safe, too: what is not understood is not there.

use std::borrow::Cow;

/// The members of an object's text: key, with its escapes, and the text of the value.
pub fn members(object: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut at = opened(object, b'{');
    std::iter::from_fn(move || {
        let key_end = end(object.as_bytes(), at?)?;
        let key = object.get(at? + 1..key_end - 1)?;
        let value_at = key_end + 1;
        let value_end = end(object.as_bytes(), value_at)?;
        at = after(object, value_end);
        Some((key, object.get(value_at..value_end)?))
    })
}

/// Where the key of the member of this name begins, and its value, in a text that begins with an object: what follows them is not read.
pub fn place_of(text: &str, name: &str) -> Option<(usize, usize)> {
    let mut at = opened(text, b'{')?;
    loop {
        let key_end = end(text.as_bytes(), at)?;
        let value_at = key_end + 1;
        if text.get(at + 1..key_end - 1)? == name {
            return Some((at, value_at));
        }
        at = after(text, end(text.as_bytes(), value_at)?)?;
    }
}

/// The texts of a list's items.
pub fn items(list: &str) -> impl Iterator<Item = &str> {
    let mut at = opened(list, b'[');
    std::iter::from_fn(move || {
        let from = at?;
        let to = end(list.as_bytes(), from)?;
        at = after(list, to);
        list.get(from..to)
    })
}

/// A key or a string, with its escapes read.
pub fn unescaped(text: &str) -> Cow<'_, str> {
    match text.contains('\\') {
        false => Cow::Borrowed(text),
        true => Cow::Owned(serde_json::from_str(&format!("\"{text}\"")).unwrap_or_default()),
    }
}

/// Whether the text is the string with its quotes and backslashes escaped, as in keys that are JSON themselves.
pub fn is_escaped(text: &str, string: &str) -> bool {
    let mut own = string.bytes();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'\\' => match bytes.next() {
                Some(escaped @ (b'"' | b'\\')) => escaped,
                _ => return unescaped(text) == string,
            },
            byte => byte,
        };
        if own.next() != Some(byte) {
            return false;
        }
    }
    own.next().is_none()
}

/// The string that a value's text is; empty if it is none.
pub fn string(value: &str) -> Cow<'_, str> {
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.map_or(Cow::Borrowed(""), unescaped)
}

/// Where the first member begins.
fn opened(text: &str, bracket: u8) -> Option<usize> {
    let bytes = text.as_bytes();
    (bytes.first() == Some(&bracket) && !matches!(bytes.get(1), Some(b'}' | b']') | None)).then_some(1)
}

/// Where the next member begins after one that ended at `at`.
fn after(text: &str, at: usize) -> Option<usize> {
    (text.as_bytes().get(at) == Some(&b',')).then_some(at + 1)
}

/// Where the value ends that begins at `at`.
pub fn end(bytes: &[u8], at: usize) -> Option<usize> {
    let (mut at, mut depth) = (at, 0_usize);
    loop {
        match bytes.get(at)? {
            b'"' => {
                at += 1;
                loop {
                    match bytes.get(at)? {
                        b'"' => break,
                        b'\\' => at += 2,
                        _ => at += 1,
                    }
                }
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            _ if depth == 0 => {
                // A number or a word.
                let rest = bytes.get(at..)?;
                let length = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']'));
                return Some(length.map_or(bytes.len(), |length| at + length));
            }
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn a_members_place_is_found_and_nothing_is_read_behind_it() {
        let text = r#"{"a\"b":"{\"n\":1}","l":[{"n":2}],"n":{"m":3},"#;
        let found = place_of(text, "n").unwrap();
        assert_eq!(
            (&text[found.0..found.0 + 3], &text[found.1..]),
            (r#""n""#, r#"{"m":3},"#)
        );
        for (text, name) in [
            (text, "m"),
            (text, "a"),
            ("{}", "n"),
            ("[1]", "n"),
            ("", "n"),
            (r#"{"x":[1,"#, "n"),
            ("{\"n", "n"),
        ] {
            assert_eq!(place_of(text, name), None, "{text}");
        }
    }

    #[test]
    fn members_and_items_are_found_as_they_were_written() {
        let object = json!({"a": [1, {"b": "}]\\\""}], "k:{\"x\":1}": {}, "n": 12, "t": true, "z": "\u{7}"});
        let text = object.to_string();
        let found: Vec<(String, Value)> = members(&text)
            .map(|(key, value)| (unescaped(key).into_owned(), serde_json::from_str(value).unwrap()))
            .collect();
        let expected: Vec<(String, Value)> = object.as_object().unwrap().clone().into_iter().collect();
        assert_eq!(found, expected);
        assert_eq!(items("[1,[2],\"x\"]").collect::<Vec<_>>(), ["1", "[2]", "\"x\""]);
        assert_eq!(items("[]").chain(items("{}")).chain(items("")).count(), 0);
        assert_eq!((string("\"a\\\"\""), string("1")), ("a\"".into(), "".into()));
    }

    proptest! {
        #[test]
        fn any_text_is_safe(text in "[\\[\\]{}:,\"\\\\a-c0-9]{0,24}") {
            for (key, value) in members(&text) {
                prop_assert!(text.contains(key) && text.contains(value));
            }
            prop_assert!(items(&text).all(|item| text.contains(item)));
        }

        #[test]
        fn keys_are_compared_as_if_they_were_read(key in "[a-b\"\\\\\u{7}]{0,6}", other in "[a-b\"\\\\\u{7}]{0,6}") {
            let quoted = Value::from(key.as_str()).to_string();
            let text = &quoted[1..quoted.len() - 1];
            prop_assert_eq!(&unescaped(text), &key);
            prop_assert!(is_escaped(text, &key));
            prop_assert_eq!(is_escaped(text, &other), key == other);
        }
    }
}
