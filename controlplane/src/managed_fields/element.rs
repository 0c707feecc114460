//! One step of a path into an object, in the text FieldsV1 has for it: `f:name`, `k:{"key":"value"}`, `v:"value"`, `i:3`. Pure.
//!
//! Equal steps have equal texts: keys are sorted and numbers written one way, so that sets of fields compare texts alone.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Map, Value};

/// A text that is no step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an element of a field path")]
pub(super) struct BadElement;

/// The step to a field.
pub(super) fn field(name: &str) -> String {
    format!("f:{name}")
}

/// The step to a member of a set; `None` for what cannot be one (lists, objects, null).
pub(super) fn value(member: &Value) -> Option<String> {
    match member {
        Value::Null | Value::Array(_) | Value::Object(_) => None,
        scalar => Some(format!("v:{scalar}")),
    }
}

/// The step to a member of a keyed list; `keys` in any order, none twice.
pub(super) fn keyed(keys: Vec<(&str, &Value)>) -> String {
    let mut keys = keys;
    keys.sort_by_key(|(name, _)| *name);
    let mut text = String::from("k:{");
    for (i, (name, value)) in keys.into_iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        text.push_str(&format!("{comma}{}:{value}", Value::from(name)));
    }
    text.push('}');
    text
}

/// The one text of a step that somebody sent; `None` for kinds of steps nobody knows yet, which upstream leaves out as well.
///
/// # Errors
/// If it is none.
pub(super) fn canonical(text: &str) -> Result<Option<Cow<'_, str>>, BadElement> {
    let (kind, rest) = text.split_at_checked(2).ok_or(BadElement)?;
    let canonical = match kind {
        "f:" => return Ok(Some(Cow::Borrowed(text))),
        "k:" => {
            let keys: Map<String, Value> = serde_json::from_str(rest).map_err(|_| BadElement)?;
            if keys.is_empty() || keys.values().any(|key| key.is_array() || key.is_object()) {
                return Err(BadElement);
            }
            keyed(keys.iter().map(|(name, value)| (name.as_str(), value)).collect())
        }
        "v:" => {
            let member: Value = serde_json::from_str(rest).map_err(|_| BadElement)?;
            value(&member).ok_or(BadElement)?
        }
        "i:" => format!("i:{}", rest.parse::<i64>().map_err(|_| BadElement)?),
        other if other.ends_with(':') => return Ok(None),
        _ => return Err(BadElement),
    };
    Ok(Some(match canonical == text {
        true => Cow::Borrowed(text),
        false => Cow::Owned(canonical),
    }))
}

/// The step as errors show it: `.name`, `[key="value"]`, `[="value"]`, `[3]`.
pub(super) fn shown(element: &str) -> String {
    match element.split_at_checked(2) {
        Some(("f:", name)) => format!(".{name}"),
        Some(("k:", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let texts: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", texts.join(","))
        }
        Some(("v:", value)) => format!("[={value}]"),
        Some((_, index)) => format!("[{index}]"),
        None => element.to_owned(),
    }
}

/// The order in which errors name steps: numbers by value, all else by text.
pub(super) fn order(a: &str, b: &str) -> Ordering {
    fn keys(element: &str) -> Option<Map<String, Value>> {
        serde_json::from_str(element.strip_prefix("k:")?).ok()
    }
    let (Some(left), Some(right)) = (keys(a), keys(b)) else {
        return a.cmp(b);
    };
    for (one, other) in left.iter().zip(&right) {
        let by_value = match (one.1.as_i64(), other.1.as_i64()) {
            (Some(one), Some(other)) => one.cmp(&other),
            _ => one.1.to_string().cmp(&other.1.to_string()),
        };
        let order = one.0.cmp(other.0).then(by_value);
        if order.is_ne() {
            return order;
        }
    }
    left.len().cmp(&right.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn steps_have_one_text_each() {
        let (port, protocol) = (json!(80), json!("TCP"));
        let text = keyed(vec![("protocol", &protocol), ("containerPort", &port)]);
        assert_eq!(text, r#"k:{"containerPort":80,"protocol":"TCP"}"#);
        assert_eq!(value(&json!("a\"b")).as_deref(), Some(r#"v:"a\"b""#));
        assert_eq!(value(&json!({})), None);
        for (sent, expected) in [
            ("f:a:b", Ok(Some("f:a:b"))),
            (r#"k:{"b": 1, "a":"x"}"#, Ok(Some(r#"k:{"a":"x","b":1}"#))),
            ("v: true", Ok(Some("v:true"))),
            ("i:03", Ok(Some("i:3"))),
            ("z:later", Ok(None)),
            ("k:{}", Err(BadElement)),
            (r#"k:{"a":[]}"#, Err(BadElement)),
            ("k:1", Err(BadElement)),
            ("v:[1]", Err(BadElement)),
            ("v:1 2", Err(BadElement)),
            ("i:x", Err(BadElement)),
            ("name", Err(BadElement)),
            ("f", Err(BadElement)),
            ("", Err(BadElement)),
        ] {
            let found = canonical(sent);
            assert_eq!(found, expected.map(|text| text.map(Cow::Borrowed)), "{sent}");
        }
    }

    #[test]
    fn errors_show_and_order_steps_as_upstream_does() {
        for (element, text) in [
            ("f:spec", ".spec"),
            (
                r#"k:{"containerPort":80,"protocol":"TCP"}"#,
                r#"[containerPort=80,protocol="TCP"]"#,
            ),
            (r#"v:"a""#, r#"[="a"]"#),
            ("i:3", "[3]"),
        ] {
            assert_eq!(shown(element), text);
        }
        let (low, high) = (r#"k:{"port":443}"#, r#"k:{"port":8080}"#);
        assert!(order(low, high).is_lt());
        assert!(order(r#"k:{"name":"a"}"#, r#"k:{"name":"b"}"#).is_lt());
    }
}
