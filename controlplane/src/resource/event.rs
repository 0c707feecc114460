//! Events. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::field::text;
use super::name::qualified_name;
use super::{PrepareContext, Strategy};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The core Event kind's strategy.
pub(super) struct Event;

const LABELS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

impl Strategy for Event {
    fn prepare_create(&self, _object: &mut Value, _ctx: &PrepareContext<'_>) {}

    fn prepare_update(&self, _new: &mut Value, _old: &Value, _subresource: &str) {}

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let involved = text(object, &["involvedObject", "namespace"]);
        let own = text(object, &["metadata", "namespace"]);
        let is_newer = !text(object, &["eventTime"]).is_empty();
        // Events about cluster-scoped objects live in "default" (or, from newer clients, kube-system).
        let fits = match involved {
            "" => ["default", "kube-system"].contains(&own),
            involved => is_newer || involved == own,
        };
        if !fits {
            let why = "does not match event.namespace";
            errors.push(FieldError::invalid("involvedObject.namespace", involved, why));
        }
        if is_newer {
            newer_rules(&mut errors, object);
        }
        errors
    }

    fn selectable_fields(&self, object: &Value) -> BTreeMap<&'static str, String> {
        let mut fields: BTreeMap<&'static str, String> = LABELS
            .iter()
            .map(|label| {
                let path: Vec<&str> = label.split('.').collect();
                (*label, text(object, &path).to_owned())
            })
            .collect();
        let component = match text(object, &["source", "component"]) {
            "" => text(object, &["reportingComponent"]),
            component => component,
        };
        fields.insert("source", component.to_owned());
        fields
    }

    fn field_labels(&self) -> &'static [&'static str] {
        LABELS
    }
}

/// What upstream asks of events with an `eventTime`, whichever version they come in.
fn newer_rules(errors: &mut FieldErrors, event: &Value) {
    let controller = text(event, &["reportingComponent"]);
    if controller.is_empty() {
        errors.push(FieldError::required("reportingController", ""));
    }
    for problem in qualified_name(controller) {
        errors.push(FieldError::invalid("reportingController", controller, problem));
    }
    for (field, most) in [
        ("reportingInstance", 128),
        ("action", 128),
        ("reason", 128),
        ("message", 1024),
    ] {
        let value = text(event, &[field]);
        if value.is_empty() && field != "message" {
            errors.push(FieldError::required(field, ""));
        }
        if value.len() > most {
            let why = format!("can have at most {most} characters");
            errors.push(FieldError::invalid(field, "", why));
        }
    }
}
