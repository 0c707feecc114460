//! Texts shared by several kinds' cells: durations, ages, lists, labels. Pure.

use jiff::Timestamp;
use serde_json::Value;

use crate::resource::field::{at, entries, list, text};

/// Upstream's short duration: two units at most, coarser as it grows.
pub(crate) fn human_duration(seconds: i64) -> String {
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{big}{unit}")
        } else {
            format!("{big}{unit}{small}{small_unit}")
        }
    };
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two(minutes, "m", seconds % 60, "s")
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        two(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        two(days, "d", hours % 24, "h")
    } else if days < 730 {
        format!("{days}d")
    } else if days < 365 * 8 {
        two(days / 365, "y", days % 365, "d")
    } else {
        format!("{}y", days / 365)
    }
}

/// The moment a string names.
pub(super) fn moment(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// Time since the moment a value names, `<unknown>` for none.
pub(super) fn since(value: &Value, now: Timestamp) -> String {
    match moment(value) {
        Some(then) => human_duration(now.duration_since(then).as_secs()),
        None => "<unknown>".to_owned(),
    }
}

/// The object's age.
pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    Value::from(since(at(object, &["metadata", "creationTimestamp"]), now))
}

/// The object's name.
pub(super) fn name(object: &Value) -> Value {
    at(object, &["metadata", "name"]).clone()
}

/// The text, or a placeholder for an empty one.
pub(super) fn or(text: &str, placeholder: &str) -> Value {
    Value::from(if text.is_empty() { placeholder } else { text })
}

/// An integer, 0 where missing.
pub(super) fn count(object: &Value, path: &[&str]) -> Value {
    Value::from(at(object, path).as_i64().unwrap_or(0))
}

/// `a=1,b=2`, `<none>` for none.
pub(super) fn labels(value: &Value) -> Value {
    let pairs: Vec<String> = entries(value, &[])
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")))
        .collect();
    or(&pairs.join(","), "<none>")
}

/// A label selector in its string form.
pub(super) fn selector(value: &Value) -> Value {
    if value.is_null() {
        return Value::from("<none>");
    }
    let mut parts: Vec<String> = entries(value, &["matchLabels"])
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")))
        .collect();
    for rule in list(value, &["matchExpressions"]) {
        let key = text(rule, &["key"]);
        let mut values: Vec<&str> = list(rule, &["values"]).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        parts.push(match text(rule, &["operator"]) {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    or(&parts.join(","), "<none>")
}

/// Names and images of a pod spec's containers, each joined by commas.
pub(super) fn containers(pod_spec: &Value) -> [Value; 2] {
    ["name", "image"].map(|key| {
        let items: Vec<&str> = list(pod_spec, &["containers"])
            .iter()
            .map(|container| text(container, &[key]))
            .collect();
        Value::from(items.join(","))
    })
}

/// The first `max` items joined by commas, and how many more there are.
pub(super) fn shortened(items: &[String], max: usize) -> String {
    let head = items.iter().take(max).cloned().collect::<Vec<_>>().join(",");
    match items.len().checked_sub(max) {
        Some(more) if more > 0 => format!("{head} + {more} more..."),
        _ => head,
    }
}

/// `True` or `False`.
pub(super) fn title_bool(value: bool) -> Value {
    Value::from(if value { "True" } else { "False" })
}
