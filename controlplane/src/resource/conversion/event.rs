//! Events of `events.k8s.io/v1`, which are stored as core events: the same fields under newer names. Pure.

use serde_json::Value;

use super::Converter;
use crate::resource::field::{at, int, text};
use crate::resource::field_error::{FieldError, FieldErrors};

/// See the module.
pub(in crate::resource) struct EventsV1;

/// Newer names and stored ones.
const RENAMED: &[(&str, &str)] = &[
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// Field labels (control-plane contract §2.8) and the stored form's.
const LABELS: &[(&str, &str)] = &[
    ("reason", "reason"),
    ("regarding.kind", "involvedObject.kind"),
    ("regarding.namespace", "involvedObject.namespace"),
    ("regarding.name", "involvedObject.name"),
    ("regarding.uid", "involvedObject.uid"),
    ("regarding.apiVersion", "involvedObject.apiVersion"),
    ("regarding.resourceVersion", "involvedObject.resourceVersion"),
    ("regarding.fieldPath", "involvedObject.fieldPath"),
    ("reportingController", "reportingComponent"),
    ("type", "type"),
];

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(map) = object.as_object_mut()
        && let Some(value) = map.remove(from)
    {
        map.insert(to.to_owned(), value);
    }
}

impl Converter for EventsV1 {
    fn present(&self, object: &mut Value) {
        for (newer, stored) in RENAMED {
            rename(object, stored, newer);
        }
    }

    fn store(&self, object: &mut Value) {
        for (newer, stored) in RENAMED {
            rename(object, newer, stored);
        }
    }

    fn renamed(&self) -> Option<&'static [(&'static str, &'static str)]> {
        Some(RENAMED)
    }

    fn field_label(&self, label: &str) -> Option<&'static str> {
        let found = LABELS.iter().find(|(newer, _)| *newer == label);
        found.map(|(_, stored)| *stored)
    }

    fn validate(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        if at(new, &["series"]) != at(old, &["series"]) {
            series(&mut errors, new);
        }
        match old.is_null() {
            true => created(&mut errors, new),
            false => changed(&mut errors, new, old),
        }
        errors
    }
}

/// Upstream's rules of a series.
fn series(errors: &mut FieldErrors, event: &Value) {
    if at(event, &["series"]).is_null() {
        return;
    }
    if int(event, &["series", "count"]).unwrap_or(0) < 2 {
        let why = "should be at least 2";
        errors.push(FieldError::invalid("series.count", "", why));
    }
    if text(event, &["series", "lastObservedTime"]).is_empty() {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
}

fn created(errors: &mut FieldErrors, event: &Value) {
    if text(event, &["eventTime"]).is_empty() {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = text(event, &["type"]);
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(FieldError::invalid("type", "", format!("has invalid value: {kind}")));
    }
    let source = ["component", "host"].map(|key| text(event, &["source", key]));
    let is_set = [
        ("firstTimestamp", !text(event, &["firstTimestamp"]).is_empty()),
        ("lastTimestamp", !text(event, &["lastTimestamp"]).is_empty()),
        ("count", int(event, &["count"]).unwrap_or(0) != 0),
        ("source", source != ["", ""]),
    ];
    for (field, _) in is_set.into_iter().filter(|(_, is_set)| *is_set) {
        errors.push(FieldError::invalid(field, "", "needs to be unset"));
    }
}

fn changed(errors: &mut FieldErrors, new: &Value, old: &Value) {
    for (field, stored) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("note", "message"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("reportingController", "reportingComponent"),
        ("reportingInstance", "reportingInstance"),
        ("action", "action"),
        ("related", "related"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
    ] {
        let value = at(new, &[stored]);
        if value != at(old, &[stored]) {
            errors.push(FieldError::invalid(field, value.clone(), "field is immutable"));
        }
    }
}
