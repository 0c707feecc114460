//! CustomResourceDefinitions: their defaults and rules (control-plane contract §9). Messages are upstream's. Pure.
//!
//! What a definition asks for that this server does not do is refused here by name, never stored and ignored.

pub(crate) mod status;

use serde_json::{Value, json};

use super::custom::defined::{validate_scale, validate_selectable};
use super::field::{at, default_text, default_to, flag, list, list_mut, text};
use super::name::{dns1035_label, dns1123_subdomain};
use super::structural;
use super::{PrepareContext, Strategy, clear_status};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The CustomResourceDefinition kind's strategy.
pub(super) struct Definition;

/// The annotation that groups of upstream's own need.
const APPROVED: &str = "api-approved.kubernetes.io";
/// Versions a definition may have.
const VERSIONS_MAX: usize = 32;

impl Strategy for Definition {
    fn default(&self, object: &mut Value) {
        let kind = text(object, &["spec", "names", "kind"]).to_owned();
        if let Some(names) = object.get_mut("spec").and_then(|spec| spec.get_mut("names")) {
            default_text(names, "singular", &kind.to_lowercase());
            default_text(names, "listKind", &format!("{kind}List"));
        }
        if let Some(spec) = object.get_mut("spec") {
            default_to(spec, "conversion", json!({"strategy": "None"}));
        }
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        clear_status(object);
        let storage = list(object, &["spec", "versions"])
            .iter()
            .find(|version| flag(version, &["storage"]));
        let stored: Vec<&str> = storage.map(|version| text(version, &["name"])).into_iter().collect();
        object["status"] =
            json!({"storedVersions": stored, "conditions": [], "acceptedNames": {"plural": "", "kind": ""}});
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, subresource: &str) {
        super::isolate(new, old, subresource);
        let storage = list(new, &["spec", "versions"])
            .iter()
            .find(|version| flag(version, &["storage"]));
        let storage = storage.map(|version| version["name"].clone());
        if subresource.is_empty()
            && let (Some(storage), Some(stored)) = (storage, list_mut(new, &["status", "storedVersions"]))
            && !stored.contains(&storage)
        {
            stored.push(storage);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let [name, group] = [&["metadata", "name"][..], &["spec", "group"]].map(|path| text(object, path));
        let plural = text(object, &["spec", "names", "plural"]);
        if name != format!("{plural}.{group}") {
            let why = "must be spec.names.plural+\".\"+spec.group";
            errors.push(FieldError::invalid("metadata.name", name, why));
        }
        validate_group(&mut errors, object, group);
        match text(object, &["spec", "scope"]) {
            "Cluster" | "Namespaced" => {}
            "" => errors.push(FieldError::required("spec.scope", "")),
            other => errors.push(FieldError::not_supported(
                "spec.scope",
                other,
                &["Cluster", "Namespaced"],
            )),
        }
        validate_names(&mut errors, at(object, &["spec", "names"]), "spec.names");
        validate_versions(&mut errors, object);
        validate_conversion(&mut errors, object);
        if flag(object, &["spec", "preserveUnknownFields"]) {
            let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
            errors.push(FieldError::invalid("spec.preserveUnknownFields", true, why));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        let mut errors = match subresource {
            "" => self.validate(new),
            _ => FieldErrors::default(),
        };
        let is_established = status::is_true(old, "Established");
        for path in [
            ["spec", "group"].as_slice(),
            &["spec", "names", "plural"],
            &["spec", "scope"],
            &["spec", "names", "kind"],
        ] {
            let is_fixed = is_established || path == ["spec", "group"] || path == ["spec", "names", "plural"];
            if is_fixed && at(new, path) != at(old, path) {
                let value = at(new, path).clone();
                errors.push(FieldError::invalid(path.join("."), value, "field is immutable"));
            }
        }
        let versions: Vec<&str> = list(new, &["spec", "versions"])
            .iter()
            .map(|version| text(version, &["name"]))
            .collect();
        for (i, stored) in list(new, &["status", "storedVersions"]).iter().enumerate() {
            if let Some(stored) = stored.as_str().filter(|stored| !versions.contains(stored)) {
                let why = format!(
                    "missing from spec.versions; {stored} was previously a storage version, and must remain in spec.versions \
                     until a storage migration ensures no data remains persisted in {stored} and removes {stored} from \
                     status.storedVersions"
                );
                errors.push(FieldError::invalid(format!("status.storedVersions[{i}]"), stored, why));
            }
        }
        errors
    }

    fn has_generation(&self) -> bool {
        true
    }
}

fn validate_group(errors: &mut FieldErrors, object: &Value, group: &str) {
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
        return;
    }
    for problem in dns1123_subdomain(group) {
        errors.push(FieldError::invalid("spec.group", group, problem));
    }
    if !group.contains('.') {
        let why = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", group, why));
    }
    let is_protected = [".k8s.io", ".kubernetes.io"]
        .iter()
        .any(|suffix| group.ends_with(suffix));
    if is_protected && text(object, &["metadata", "annotations", APPROVED]).is_empty() {
        let why = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
                   https://github.com/kubernetes/enhancements/pull/1111";
        errors.push(FieldError::required(format!("metadata.annotations[{APPROVED}]"), why));
    }
}

fn validate_names(errors: &mut FieldErrors, names: &Value, path: &str) {
    let below = |key: &str| format!("{path}.{key}");
    for key in ["plural", "singular", "kind", "listKind"] {
        let name = text(names, &[key]);
        if name.is_empty() {
            errors.push(FieldError::required(below(key), ""));
            continue;
        }
        let may_be_mixed = matches!(key, "kind" | "listKind");
        let judged = if may_be_mixed {
            name.to_lowercase()
        } else {
            name.to_owned()
        };
        let problems = dns1035_label(&judged);
        if !problems.is_empty() {
            let why = problems.join(",");
            let why = match may_be_mixed {
                true => format!("may have mixed case, but should otherwise match: {why}"),
                false => why,
            };
            errors.push(FieldError::invalid(below(key), name, why));
        }
    }
    let kind = text(names, &["kind"]);
    if !kind.is_empty() && kind == text(names, &["listKind"]) {
        let why = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(below("listKind"), kind, why));
    }
    for key in ["shortNames", "categories"] {
        for (i, name) in list(names, &[key]).iter().enumerate() {
            let problems = dns1035_label(name.as_str().unwrap_or_default());
            if !problems.is_empty() {
                let path = below(&format!("{key}[{i}]"));
                errors.push(FieldError::invalid(path, name.clone(), problems.join(",")));
            }
        }
    }
}

fn validate_versions(errors: &mut FieldErrors, object: &Value) {
    let versions = list(object, &["spec", "versions"]);
    let names: Vec<&str> = versions.iter().map(|version| text(version, &["name"])).collect();
    if versions.len() > VERSIONS_MAX {
        errors.push(FieldError::forbidden(
            "spec.versions",
            format!("this server takes at most {VERSIONS_MAX} versions"),
        ));
        return;
    }
    for (i, name) in names.iter().enumerate() {
        let problems = dns1035_label(name);
        if !problems.is_empty() {
            errors.push(FieldError::invalid(
                format!("spec.versions[{i}].name"),
                *name,
                problems.join(","),
            ));
        }
        if names.iter().position(|other| other == name) != Some(i) {
            errors.push(FieldError::invalid(
                "spec.versions",
                json!(names),
                "must contain unique version names",
            ));
        }
    }
    let storage = versions.iter().filter(|version| flag(version, &["storage"])).count();
    if storage != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", json!(names), why));
    }
    for (i, version) in versions.iter().enumerate() {
        validate_version(errors, version, &format!("spec.versions[{i}]"));
    }
}

fn validate_version(errors: &mut FieldErrors, version: &Value, path: &str) {
    let schema = at(version, &["schema", "openAPIV3Schema"]);
    let schema_path = format!("{path}.schema.openAPIV3Schema");
    if schema.is_null() {
        errors.push(FieldError::required(schema_path, "schemas are required"));
    } else {
        let read = structural::read(schema, &schema_path, errors);
        let fields = list(version, &["selectableFields"]);
        validate_selectable(errors, fields, &read, &format!("{path}.selectableFields"));
    }
    let warning = text(version, &["deprecationWarning"]);
    if !warning.is_empty() && !flag(version, &["deprecated"]) {
        let why = "can only be set for deprecated versions";
        errors.push(FieldError::invalid(format!("{path}.deprecationWarning"), warning, why));
    }
    for (i, column) in list(version, &["additionalPrinterColumns"]).iter().enumerate() {
        validate_column(errors, column, &format!("{path}.additionalPrinterColumns[{i}]"));
    }
    let scale = at(version, &["subresources", "scale"]);
    if !scale.is_null() {
        validate_scale(errors, scale, &format!("{path}.subresources.scale"));
    }
}

fn validate_column(errors: &mut FieldErrors, column: &Value, path: &str) {
    let types = ["boolean", "date", "integer", "number", "string"];
    match text(column, &["type"]) {
        "" => errors.push(FieldError::required(format!("{path}.type"), "")),
        known if types.contains(&known) => {}
        other => errors.push(FieldError::not_supported(format!("{path}.type"), other, &types)),
    }
    if text(column, &["name"]).is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let path_text = text(column, &["jsonPath"]);
    let path = format!("{path}.jsonPath");
    if path_text.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if let Err(why) = super::json_path::JsonPath::parse(path_text) {
        errors.push(FieldError::invalid(
            path,
            path_text,
            format!("is an invalid or unsupported JSONPath: {why}"),
        ));
    }
}

fn validate_conversion(errors: &mut FieldErrors, object: &Value) {
    match text(object, &["spec", "conversion", "strategy"]) {
        "None" => {}
        "Webhook" => {
            let why = "this server calls no webhooks yet, so versions are not converted by one";
            errors.push(FieldError::forbidden("spec.conversion.strategy", why));
        }
        "" => errors.push(FieldError::required("spec.conversion.strategy", "")),
        other => errors.push(FieldError::not_supported(
            "spec.conversion.strategy",
            other,
            &["None", "Webhook"],
        )),
    }
}

#[cfg(test)]
mod tests;
