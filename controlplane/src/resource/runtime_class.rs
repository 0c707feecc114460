//! Runtime classes: which handler of a node's runtime pods are run by, what that costs, and where it is to be had. Pure.

use serde_json::{Value, json};

use super::field::{at, immutable, invalid_each, list};
use super::metadata::validate_labels;
use super::name::dns1123_label;
use super::pod_spec::validate;
use super::{PrepareContext, Strategy};
use crate::resource::field_error::FieldErrors;

/// The RuntimeClass kind's strategy.
pub(super) struct RuntimeClass;

impl Strategy for RuntimeClass {
    fn prepare_create(&self, _object: &mut Value, _ctx: &PrepareContext<'_>) {}

    fn prepare_update(&self, _new: &mut Value, _old: &Value, _subresource: &str) {}

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let handler = at(object, &["handler"]);
        invalid_each(
            &mut errors,
            "handler",
            handler,
            dns1123_label(handler.as_str().unwrap_or("")),
        );
        // Upstream judges it as the limits of a container, path included.
        let overhead = json!({"limits": at(object, &["overhead", "podFixed"])});
        validate::resources(&mut errors, &overhead, "overhead");
        validate_labels(
            at(object, &["scheduling", "nodeSelector"]),
            "scheduling.nodeSelector",
            &mut errors,
        );
        let tolerations = list(object, &["scheduling", "tolerations"]);
        validate::tolerations(&mut errors, tolerations, "scheduling.tolerations");
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = self.validate(new);
        immutable(&mut errors, new, old, &["handler"]);
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_names_a_handler_for_good() {
        let class = |handler: &str| json!({"handler": handler, "overhead": {"podFixed": {"memory": "64Mi"}}});
        let told = |errors: FieldErrors| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(told(RuntimeClass.validate(&class("kata"))), [""; 0]);
        assert!(told(RuntimeClass.validate(&class("Kata!")))[0].starts_with("handler: Invalid value: \"Kata!\""));
        assert_eq!(
            told(RuntimeClass.validate_update(&class("b"), &class("a"), "")),
            ["handler: Invalid value: \"b\": field is immutable"]
        );
        let mut negative = class("kata");
        negative["overhead"]["podFixed"]["memory"] = json!("-1");
        assert_eq!(
            told(RuntimeClass.validate(&negative)),
            ["overhead.limits[memory]: Invalid value: \"-1\": must be greater than or equal to 0"]
        );
    }
}
