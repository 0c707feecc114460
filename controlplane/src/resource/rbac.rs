//! Roles and bindings. Pure.

use serde_json::Value;

use super::check::{invalid, required, segment};
use super::field::{at, default_text, immutable, list, list_mut, one_of, text};
use super::name::dns1123_subdomain;
use super::{NameRule, PrepareContext, Strategy};
use crate::resource::field_error::{FieldError, FieldErrors};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Strategy of Role and ClusterRole.
pub(super) struct Role {
    /// Whether rules may name paths that are not resources.
    pub(super) cluster: bool,
}

/// Strategy of RoleBinding and ClusterRoleBinding.
pub(super) struct Binding {
    /// Whether it grants in all namespaces.
    pub(super) cluster: bool,
}

impl Strategy for Role {
    fn prepare_create(&self, _object: &mut Value, _ctx: &PrepareContext<'_>) {}

    fn prepare_update(&self, _new: &mut Value, _old: &Value, _subresource: &str) {}

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        for (i, rule) in list(object, &["rules"]).iter().enumerate() {
            let path = format!("rules[{i}]");
            if list(rule, &["verbs"]).is_empty() {
                errors.push(FieldError::required(
                    format!("{path}.verbs"),
                    "verbs must contain at least one value",
                ));
            }
            let urls = list(rule, &["nonResourceURLs"]);
            let named = ["apiGroups", "resources", "resourceNames"]
                .iter()
                .any(|key| !list(rule, &[key]).is_empty());
            if !urls.is_empty() {
                if !self.cluster {
                    errors.push(FieldError::invalid(
                        format!("{path}.nonResourceURLs"),
                        Value::from(urls.to_vec()),
                        "namespaced rules cannot apply to non-resource URLs",
                    ));
                }
                if named {
                    errors.push(FieldError::invalid(
                        format!("{path}.nonResourceURLs"),
                        Value::from(urls.to_vec()),
                        "rules cannot apply to both regular resources and non-resource URLs",
                    ));
                }
                continue;
            }
            if list(rule, &["apiGroups"]).is_empty() {
                errors.push(FieldError::required(
                    format!("{path}.apiGroups"),
                    "resource rules must supply at least one api group",
                ));
            }
            if list(rule, &["resources"]).is_empty() {
                errors.push(FieldError::required(
                    format!("{path}.resources"),
                    "resource rules must supply at least one resource",
                ));
            }
        }
        errors
    }

    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }
}

impl Strategy for Binding {
    fn default(&self, object: &mut Value) {
        if let Some(role) = object.get_mut("roleRef") {
            default_text(role, "apiGroup", GROUP);
        }
        for subject in list_mut(object, &["subjects"]).into_iter().flatten() {
            if matches!(text(subject, &["kind"]), "User" | "Group") {
                default_text(subject, "apiGroup", GROUP);
            }
        }
    }

    fn prepare_create(&self, _object: &mut Value, _ctx: &PrepareContext<'_>) {}

    fn prepare_update(&self, _new: &mut Value, _old: &Value, _subresource: &str) {}

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let role = at(object, &["roleRef"]);
        if text(role, &["apiGroup"]) != GROUP {
            errors.push(FieldError::not_supported(
                "roleRef.apiGroup",
                text(role, &["apiGroup"]),
                &[GROUP],
            ));
        }
        let kinds: &[&str] = if self.cluster {
            &["ClusterRole"]
        } else {
            &["ClusterRole", "Role"]
        };
        if !kinds.contains(&text(role, &["kind"])) {
            errors.push(FieldError::not_supported("roleRef.kind", text(role, &["kind"]), kinds));
        }
        required(&mut errors, "roleRef.name", text(role, &["name"]), segment);
        for (i, subject) in list(object, &["subjects"]).iter().enumerate() {
            let path = format!("subjects[{i}]");
            if text(subject, &["name"]).is_empty() {
                errors.push(FieldError::required(format!("{path}.name"), ""));
            }
            let kind = text(subject, &["kind"]);
            one_of(
                &mut errors,
                &format!("{path}.kind"),
                kind,
                &["ServiceAccount", "User", "Group"],
            );
            let group = text(subject, &["apiGroup"]);
            let expected = if kind == "ServiceAccount" { "" } else { GROUP };
            if group != expected {
                errors.push(FieldError::not_supported(
                    format!("{path}.apiGroup"),
                    group,
                    &[expected],
                ));
            }
            if kind == "ServiceAccount" {
                let name = text(subject, &["name"]);
                let problems = if name.is_empty() {
                    Vec::new()
                } else {
                    dns1123_subdomain(name)
                };
                invalid(&mut errors, &format!("{path}.name"), name, problems);
            }
            if self.cluster && kind == "ServiceAccount" && text(subject, &["namespace"]).is_empty() {
                errors.push(FieldError::required(format!("{path}.namespace"), ""));
            }
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
        if at(new, &["roleRef"]) != at(old, &["roleRef"]) {
            errors.push(FieldError::invalid(
                "roleRef",
                at(new, &["roleRef"]).clone(),
                "cannot change roleRef",
            ));
        }
        immutable(&mut errors, new, old, &["metadata", "namespace"]);
        errors
    }

    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }
}
