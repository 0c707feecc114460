//! Events. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::field::text;
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
        let involved = text(object, &["involvedObject", "namespace"]);
        let own = text(object, &["metadata", "namespace"]);
        // Events about cluster-scoped objects live in "default" (or, from newer clients, kube-system).
        let fits = involved == own || (involved.is_empty() && ["default", "kube-system"].contains(&own));
        if fits {
            FieldErrors::default()
        } else {
            let why = "does not match event.namespace";
            FieldErrors::from(vec![FieldError::invalid("involvedObject.namespace", involved, why)])
        }
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
