//! Admission policies and their bindings, and which requests they and webhooks are about. Pure.
//!
//! Expressions are only asked to be there: what they say is not read here.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Strategy;
use super::check::{duplicate, has, invalid, itself, required, segment, supported, too_many, unique};
use super::field::{at, default_text, default_to, list, list_mut, text};
use super::name::{dns1035_label, dns1123_subdomain, qualified_name};
use super::selector;
use crate::cel;
use crate::resource::field_error::{FieldError, FieldErrors};

/// Strategy of both admission policies.
pub(super) struct Policy {
    /// Whether it mutates.
    pub(super) mutating: bool,
}

/// Strategy of both bindings of admission policies.
pub(super) struct PolicyBinding {
    /// Whether what it binds mutates.
    pub(super) mutating: bool,
}

const CONDITIONS_MAX: usize = 64;
const ANNOTATIONS_MAX: usize = 20;
/// Most bytes of the expression of an audit annotation's value.
const ANNOTATION_BYTES: usize = 5 << 10;
const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

impl Strategy for Policy {
    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec") else { return };
        default_text(spec, "failurePolicy", "Fail");
        if let Some(matching) = spec.get_mut("matchConstraints") {
            match_resources(matching);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let spec = at(object, &["spec"]);
        let policy = text(spec, &["failurePolicy"]);
        supported(&mut errors, "spec.failurePolicy", policy, &["Fail", "Ignore"]);
        check_param_kind(&mut errors, at(spec, &["paramKind"]));
        let constraints = at(spec, &["matchConstraints"]);
        if constraints.is_null() {
            errors.push(FieldError::required("spec.matchConstraints", ""));
        } else {
            check_match(&mut errors, constraints, "spec.matchConstraints");
            if list(constraints, &["resourceRules"]).is_empty() {
                errors.push(FieldError::required("spec.matchConstraints.resourceRules", ""));
            }
        }
        check_conditions(&mut errors, spec, "spec");
        for (i, variable) in list(spec, &["variables"]).iter().enumerate() {
            check_variable(&mut errors, variable, &format!("spec.variables[{i}]"));
        }
        if self.mutating {
            check_mutations(&mut errors, spec);
        } else {
            check_validations(&mut errors, object);
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if !subresource.is_empty() {
            return FieldErrors::default();
        }
        FieldErrors::of_update(new, old, |object| self.validate(object))
    }

    fn has_generation(&self) -> bool {
        true
    }
}

impl Strategy for PolicyBinding {
    fn default(&self, object: &mut Value) {
        if let Some(matching) = object.get_mut("spec").and_then(|spec| spec.get_mut("matchResources")) {
            match_resources(matching);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let spec = at(object, &["spec"]);
        let policy = text(spec, &["policyName"]);
        required(&mut errors, "spec.policyName", policy, dns1123_subdomain);
        check_param(&mut errors, at(spec, &["paramRef"]));
        let resources = at(spec, &["matchResources"]);
        if !resources.is_null() {
            // Upstream spells the field so.
            check_match(&mut errors, resources, "spec.matchResouces");
        }
        if !self.mutating {
            check_actions(&mut errors, at(spec, &["validationActions"]));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        FieldErrors::of_update(new, old, |object| self.validate(object))
    }

    fn has_generation(&self) -> bool {
        true
    }
}

fn match_resources(matching: &mut Value) {
    default_text(matching, "matchPolicy", "Equivalent");
    default_to(matching, "namespaceSelector", json!({}));
    default_to(matching, "objectSelector", json!({}));
    for key in ["resourceRules", "excludeResourceRules"] {
        for rule in list_mut(matching, &[key]).into_iter().flatten() {
            default_text(rule, "scope", "*");
        }
    }
}

fn check_match(errors: &mut FieldErrors, matching: &Value, path: &str) {
    let policy = text(matching, &["matchPolicy"]);
    supported(errors, &format!("{path}.matchPolicy"), policy, &["Equivalent", "Exact"]);
    for key in ["namespaceSelector", "objectSelector"] {
        selector::validate(errors, at(matching, &[key]), &format!("{path}.{key}"));
    }
    for key in ["resourceRules", "excludeResourceRules"] {
        for (i, rule) in list(matching, &[key]).iter().enumerate() {
            let base = format!("{path}.{key}[{i}]");
            let (names, field) = (list(rule, &["resourceNames"]), format!("{base}.resourceNames"));
            for (j, name) in names.iter().map(itself).enumerate() {
                invalid(errors, &format!("{field}[{j}]"), name, segment(name));
            }
            unique(errors, names, &field, "", itself);
            check_rule(errors, rule, &base);
        }
    }
}

/// What is wrong with a rule that says which requests are meant.
pub(super) fn check_rule(errors: &mut FieldErrors, rule: &Value, path: &str) {
    for (key, what) in [
        ("operations", "operations"),
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
    ] {
        let (items, field) = (list(rule, &[key]), format!("{path}.{key}"));
        if items.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if items.len() > 1 && has(items, "*") {
            let why = format!("if '*' is present, must not specify other {what}");
            errors.push(FieldError::invalid_value(field, at(rule, &[key]), why));
        }
    }
    for (i, operation) in list(rule, &["operations"]).iter().map(itself).enumerate() {
        supported(errors, &format!("{path}.operations[{i}]"), operation, OPERATIONS);
    }
    for (i, version) in list(rule, &["apiVersions"]).iter().map(itself).enumerate() {
        if version.is_empty() {
            errors.push(FieldError::required(format!("{path}.apiVersions[{i}]"), ""));
        }
    }
    check_resources(errors, at(rule, &["resources"]), &format!("{path}.resources"));
    let scope = text(rule, &["scope"]);
    supported(errors, &format!("{path}.scope"), scope, &["*", "Cluster", "Namespaced"]);
}

fn check_resources(errors: &mut FieldErrors, resources: &Value, path: &str) {
    let all = list(resources, &[]);
    if all.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let (mut whole, mut part) = (BTreeSet::new(), BTreeSet::new());
    let mut has_plain = false;
    for (i, name) in all.iter().map(itself).enumerate() {
        let field = format!("{path}[{i}]");
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
            continue;
        }
        let Some((resource, sub)) = name.split_once('/') else {
            has_plain = name != "*";
            continue;
        };
        if whole.contains(resource) {
            let why = format!("if '{resource}/*' is present, must not specify {name}");
            errors.push(FieldError::invalid(field.as_str(), name, why));
        }
        if part.contains(sub) {
            let why = format!("if '*/{sub}' is present, must not specify {name}");
            errors.push(FieldError::invalid(field, name, why));
        }
        if sub == "*" {
            whole.insert(resource);
        }
        if resource == "*" {
            part.insert(sub);
        }
    }
    if all.len() > 1 && has(all, "*/*") {
        let why = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid_value(path, resources, why));
    }
    if has(all, "*") && has_plain {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid_value(path, resources, why));
    }
}

/// What is wrong with the conditions under which an object's owner is asked at all.
pub(super) fn check_conditions(errors: &mut FieldErrors, owner: &Value, path: &str) {
    let base = format!("{path}.matchConditions");
    let conditions = list(owner, &["matchConditions"]);
    too_many(errors, &base, conditions.len(), CONDITIONS_MAX);
    let mut seen = BTreeSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let field = format!("{base}[{i}]");
        if text(condition, &["expression"]).trim().is_empty() {
            errors.push(FieldError::required(format!("{field}.expression"), ""));
        }
        let (name, field) = (text(condition, &["name"]), format!("{field}.name"));
        required(errors, &field, name, qualified_name);
        if !name.is_empty() && !seen.insert(name) {
            duplicate(errors, field, name);
        }
    }
}

fn check_param_kind(errors: &mut FieldErrors, kind: &Value) {
    const VERSION: &str = "spec.paramKind.apiVersion";
    if kind.is_null() {
        return;
    }
    let version = text(kind, &["apiVersion"]);
    match version.split('/').collect::<Vec<_>>().as_slice() {
        [""] => errors.push(FieldError::required(VERSION, "")),
        [version] => param_version(errors, version, version),
        [group, short] => {
            if !group.is_empty() {
                let problems = dns1123_subdomain(group);
                invalid(errors, VERSION, group, joined(problems));
            }
            param_version(errors, short, version);
        }
        _ => errors.push(FieldError::invalid(
            VERSION,
            version,
            format!("unexpected GroupVersion string: {version}"),
        )),
    }
    let name = text(kind, &["kind"]);
    let problems = dns1035_label(&name.to_lowercase());
    if name.is_empty() {
        errors.push(FieldError::required("spec.paramKind.kind", ""));
    } else if !problems.is_empty() {
        let why = format!(
            "may have mixed case, but should otherwise match: {}",
            problems.join(",")
        );
        errors.push(FieldError::invalid("spec.paramKind.kind", name, why));
    }
}

fn param_version(errors: &mut FieldErrors, short: &str, whole: &str) {
    const VERSION: &str = "spec.paramKind.apiVersion";
    if short.is_empty() {
        errors.push(FieldError::invalid(VERSION, whole, "version must be specified"));
    } else {
        invalid(errors, VERSION, short, joined(dns1035_label(short)));
    }
}

/// All problems as one.
fn joined(problems: Vec<String>) -> Vec<String> {
    if problems.is_empty() {
        problems
    } else {
        vec![problems.join(",")]
    }
}

fn check_variable(errors: &mut FieldErrors, variable: &Value, path: &str) {
    let name = text(variable, &["name"]);
    let field = format!("{path}.name");
    if name.trim().is_empty() {
        errors.push(FieldError::required(field, "name is not specified"));
    } else if !is_identifier(name) {
        errors.push(FieldError::invalid(field, name, "name is not a valid CEL identifier"));
    }
    check_expression(errors, variable, path);
}

fn check_expression(errors: &mut FieldErrors, owner: &Value, path: &str) {
    if text(owner, &["expression"]).trim().is_empty() {
        let field = format!("{path}.expression");
        errors.push(FieldError::required(field, "expression is not specified"));
    }
}

fn is_identifier(name: &str) -> bool {
    let starts = name.starts_with(|first: char| first == '_' || first.is_ascii_alphabetic());
    starts && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()) && !cel::is_reserved(name)
}

fn check_validations(errors: &mut FieldErrors, object: &Value) {
    let spec = at(object, &["spec"]);
    let (validations, annotations) = (list(spec, &["validations"]), list(spec, &["auditAnnotations"]));
    if validations.is_empty() && annotations.is_empty() {
        for key in ["validations", "auditAnnotations"] {
            let why = "validations or auditAnnotations must contain at least one item";
            errors.push(FieldError::required(format!("spec.{key}"), why));
        }
        return;
    }
    for (i, validation) in validations.iter().enumerate() {
        check_validation(errors, validation, &format!("spec.validations[{i}]"));
    }
    if annotations.len() > ANNOTATIONS_MAX {
        let why = format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations");
        errors.push(FieldError::invalid_value(
            "spec.auditAnnotations",
            at(spec, &["auditAnnotations"]),
            why,
        ));
    }
    let policy = text(object, &["metadata", "name"]);
    for (i, annotation) in annotations.iter().enumerate() {
        let path = format!("spec.auditAnnotations[{i}]");
        let key = format!("{policy}/{}", text(annotation, &["key"]));
        invalid(errors, &format!("{path}.key"), &key, qualified_name(&key));
        let bytes = text(annotation, &["valueExpression"]).trim().len();
        let field = format!("{path}.valueExpression");
        if bytes == 0 {
            errors.push(FieldError::required(field, "valueExpression is not specified"));
        } else if bytes > ANNOTATION_BYTES {
            let why = format!("must not exceed {ANNOTATION_BYTES} bytes in length");
            errors.push(FieldError::required(field, why));
        }
    }
    unique(errors, annotations, "spec.auditAnnotations", ".key", |item| {
        text(item, &["key"])
    });
}

fn check_validation(errors: &mut FieldErrors, validation: &Value, path: &str) {
    check_expression(errors, validation, path);
    let told = text(validation, &["messageExpression"]);
    if !told.is_empty() && told.trim().is_empty() {
        let field = format!("{path}.messageExpression");
        errors.push(FieldError::invalid(field, told, "must be non-empty if specified"));
    }
    let (message, field) = (text(validation, &["message"]), format!("{path}.message"));
    if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(
            field,
            message,
            "message must be non-empty if specified",
        ));
    } else if message.trim().contains(['\n', '\r']) {
        errors.push(FieldError::invalid(
            field,
            message,
            "message must not contain line breaks",
        ));
    }
    if let Some(reason) = at(validation, &["reason"]).as_str() {
        let reasons = &["Forbidden", "Invalid", "RequestEntityTooLarge"];
        supported(errors, &format!("{path}.reason"), reason, reasons);
    }
}

fn check_mutations(errors: &mut FieldErrors, spec: &Value) {
    let mutations = list(spec, &["mutations"]);
    if mutations.is_empty() {
        let why = "mutations must contain at least one item";
        errors.push(FieldError::required("spec.mutations", why));
    }
    for (i, mutation) in mutations.iter().enumerate() {
        let path = format!("spec.mutations[{i}]");
        let kind = text(mutation, &["patchType"]);
        let kinds = [("ApplyConfiguration", "applyConfiguration"), ("JSONPatch", "jsonPatch")];
        let field = format!("{path}.patchType");
        if kind.is_empty() {
            errors.push(FieldError::required(field, ""));
            continue;
        }
        let Some((_, part)) = kinds.iter().find(|(name, _)| *name == kind) else {
            supported(errors, &field, kind, &["ApplyConfiguration", "JSONPatch"]);
            continue;
        };
        for (name, other) in kinds {
            let patch = at(mutation, &[other]);
            let field = format!("{path}.{other}");
            if other == *part && patch.is_null() {
                let why = format!("must be specified when patchType is {name}");
                errors.push(FieldError::required(field, why));
            } else if other == *part {
                check_expression(errors, patch, &field);
            } else if !patch.is_null() {
                let why = format!("must not be specified when patchType is {kind}");
                errors.push(FieldError::invalid(field, "", why));
            }
        }
    }
    let again = text(spec, &["reinvocationPolicy"]);
    if again.is_empty() {
        errors.push(FieldError::required("spec.reinvocationPolicy", ""));
    } else {
        supported(errors, "spec.reinvocationPolicy", again, &["IfNeeded", "Never"]);
    }
}

fn check_param(errors: &mut FieldErrors, param: &Value) {
    const BOTH: &str = "name and selector are mutually exclusive";
    const PATH: &str = "spec.paramRef";
    if param.is_null() {
        return;
    }
    let (name, chosen) = (text(param, &["name"]), at(param, &["selector"]));
    invalid(errors, "spec.paramRef.name", name, segment(name));
    selector::validate(errors, chosen, "spec.paramRef.selector");
    match (name.is_empty(), chosen.is_null()) {
        (false, false) => {
            for key in ["name", "selector"] {
                errors.push(FieldError::forbidden(format!("{PATH}.{key}"), BOTH));
            }
        }
        (true, true) => errors.push(FieldError::required(PATH, "one of name or selector must be specified")),
        _ => {}
    }
    let action = text(param, &["parameterNotFoundAction"]);
    super::field::one_of(
        errors,
        "spec.paramRef.parameterNotFoundAction",
        action,
        &["Deny", "Allow"],
    );
}

fn check_actions(errors: &mut FieldErrors, actions: &Value) {
    const PATH: &str = "spec.validationActions";
    let all = list(actions, &[]);
    for (i, action) in all.iter().map(itself).enumerate() {
        supported(errors, &format!("{PATH}[{i}]"), action, &["Audit", "Deny", "Warn"]);
    }
    unique(errors, all, PATH, "", itself);
    if has(all, "Deny") && has(all, "Warn") {
        errors.push(FieldError::invalid_value(
            PATH,
            actions,
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response \
             and headers serves no purpose)",
        ));
    }
    if all.is_empty() {
        errors.push(FieldError::required(PATH, "at least one validation action is required"));
    }
}
