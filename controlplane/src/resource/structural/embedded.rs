//! Objects within objects (`x-kubernetes-embedded-resource`): they say what they are, and their metadata is as any object's. Pure.

use serde_json::{Value, json};

use super::Structural;
use super::judge::{Judge, Path};
use crate::resource::field::text;
use crate::resource::field_error::{FieldError, FieldErrors};
use crate::resource::metadata;
use crate::resource::name::{NameRule, dns1035_label};

impl Structural {
    /// Notes where objects are within objects, so that nothing else is looked through.
    pub(super) fn note_embedded(&mut self) {
        let inner = self
            .properties
            .values()
            .chain(self.items.as_deref())
            .chain(self.values.as_deref());
        let is_below = inner.into_iter().any(|inner| inner.has_embedded);
        self.has_embedded = self.embedded || is_below;
    }

    /// What is wrong with objects within the value.
    pub(super) fn validate_embedded(&self, value: &Value, path: &Path<'_>, judge: &mut Judge<'_>) {
        if !self.has_embedded || judge.is_done() || !judge.spend(1) {
            return;
        }
        match value {
            Value::Object(map) => {
                if self.embedded {
                    validate_one(value, path, judge);
                }
                for (key, member) in map {
                    match (self.properties.get(key.as_str()), &self.values) {
                        (Some(property), _) => property.validate_embedded(member, &path.key(key), judge),
                        (None, Some(values)) => values.validate_embedded(member, &path.map_key(key), judge),
                        (None, None) => {}
                    }
                }
            }
            Value::Array(members) => {
                for (i, member) in members.iter().enumerate() {
                    if let Some(items) = &self.items {
                        items.validate_embedded(member, &path.index(i), judge);
                    }
                }
            }
            _ => {}
        }
    }
}

fn validate_one(object: &Value, path: &Path<'_>, judge: &mut Judge<'_>) {
    for key in ["apiVersion", "kind"] {
        let there = || path.key(key).to_string();
        match object.get(key) {
            None => judge.fail(|| FieldError::required(there(), "")),
            Some(Value::String(own)) if own.is_empty() => {
                judge.fail(|| FieldError::invalid(there(), "", "must not be empty"));
            }
            Some(Value::String(own)) if key == "kind" => {
                let problems = dns1035_label(&own.to_lowercase());
                if !problems.is_empty() {
                    let why = format!(
                        "may have mixed case, but should otherwise match: {}",
                        problems.join(",")
                    );
                    judge.fail(|| FieldError::invalid(there(), own.as_str(), why));
                }
            }
            Some(Value::String(own)) if own.matches('/').count() > 1 => {
                let why = format!("unexpected GroupVersion string: {own}");
                judge.fail(|| FieldError::invalid(there(), own.as_str(), why));
            }
            Some(Value::String(_)) => {}
            Some(other) => judge.fail(|| FieldError::invalid(there(), other.clone(), "must be a string")),
        }
    }
    let Some(own) = object.get("metadata") else { return };
    if !own.is_object() {
        let there = path.key("metadata").to_string();
        judge.fail(|| FieldError::invalid(there, own.clone(), "must be an object"));
        return;
    }
    // A name may be missing here.
    let mut named = json!({"metadata": own});
    if text(&named, &["metadata", "name"]).is_empty() {
        named["metadata"]["name"] = json!("fakename");
    }
    let is_namespaced = !text(own, &["namespace"]).is_empty();
    let errors: FieldErrors = metadata::validate(&named, is_namespaced, NameRule::PathSegment);
    for error in errors.below(&format!("{path}.")).iter() {
        judge.fail(|| error.clone());
    }
}
