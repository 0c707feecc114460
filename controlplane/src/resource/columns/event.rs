//! The Event row, of both groups' forms. Pure.

use jiff::Timestamp;
use serde_json::Value;

use super::format::{name, since};
use super::{Column, NAME, Printer, column, integer, wide};
use crate::resource::field::{at, int, text};

pub(super) fn printer(kind: &str) -> Option<Printer> {
    (kind == "Event").then_some(EVENT)
}

const EVENT: Printer = Printer {
    columns: &[
        column("Last Seen"),
        column("Type"),
        column("Reason"),
        column("Object"),
        wide("Subobject"),
        wide("Source"),
        column("Message"),
        wide("First Seen"),
        Column {
            wide: true,
            ..integer("Count")
        },
        Column { wide: true, ..NAME },
    ],
    cells,
};

/// The core form's value, or the newer form's.
fn either<'v>(event: &'v Value, core: &[&str], newer: &[&str]) -> &'v Value {
    let value = at(event, core);
    if value.is_null() { at(event, newer) } else { value }
}

fn cells(event: &Value, now: Timestamp) -> Vec<Value> {
    let time = |core: &str, newer: &str| {
        let value = either(event, &[core], &[newer]);
        (!value.is_null()).then(|| since(value, now))
    };
    let first =
        time("firstTimestamp", "deprecatedFirstTimestamp").unwrap_or_else(|| since(at(event, &["eventTime"]), now));
    let mut last = time("lastTimestamp", "deprecatedLastTimestamp").unwrap_or_else(|| first.clone());
    let mut count = either(event, &["count"], &["deprecatedCount"])
        .as_i64()
        .filter(|count| *count != 0)
        .unwrap_or(1);
    if !at(event, &["series"]).is_null() {
        last = since(at(event, &["series", "lastObservedTime"]), now);
        count = int(event, &["series", "count"]).unwrap_or(count);
    }
    let object = either(event, &["involvedObject"], &["regarding"]);
    let message = either(event, &["message"], &["note"]).as_str().unwrap_or("");
    vec![
        Value::from(last),
        Value::from(text(event, &["type"])),
        Value::from(text(event, &["reason"])),
        Value::from(target(object)),
        Value::from(text(object, &["fieldPath"])),
        Value::from(source(event)),
        Value::from(message.trim()),
        Value::from(first),
        Value::from(count),
        name(event),
    ]
}

fn target(object: &Value) -> String {
    let kind = text(object, &["kind"]).to_lowercase();
    match text(object, &["name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn source(event: &Value) -> String {
    let first = |paths: &[&[&str]]| {
        let found = paths.iter().map(|path| text(event, path)).find(|text| !text.is_empty());
        found.unwrap_or("").to_owned()
    };
    let component = first(&[
        &["source", "component"],
        &["deprecatedSource", "component"],
        &["reportingComponent"],
        &["reportingController"],
    ]);
    let host = first(&[
        &["source", "host"],
        &["deprecatedSource", "host"],
        &["reportingInstance"],
    ]);
    if host.is_empty() {
        component
    } else {
        format!("{component}, {host}")
    }
}
