//! Custom resources: the kinds that a definition asks for, and what all of them share (control-plane contract §9). Pure.

pub(crate) mod defined;
mod ratchet;

pub(crate) use defined::Defined;
use defined::ScalePaths;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::columns::DefinedColumns;
use super::conversion::{Conversion, Converter};
use super::field::{at, flag, list, text};
use super::field_error::{FieldError, FieldErrorKind, FieldErrors};
use super::structural::judge::{BRIEF_WORK_MAX, WORK_MAX};
use super::structural::{self, Structural};
use super::{Kind, KindStrategy, Name, PrepareContext, Registry, STANDARD_VERBS, Strategy, Subresource, api_version};
use super::{clear_status, columns::KindPrinter, isolate, keep_metadata};
use crate::schema::{Definitions, SchemaTable};

const CHANGE: &[&str] = &["get", "patch", "update"];
/// What discovery says may be done to objects of a definition that ends; see [`Kind::is_ending`].
const ENDING_VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "watch"];

/// What is particular about a version of a custom resource.
struct Custom {
    schema: Arc<Structural>,
    has_status: bool,
    scale: Option<ScalePaths>,
}

impl Custom {
    /// What is wrong with an object, which was `old` before unless it is new, and whether all of it was looked at: the schema and
    /// its rules each have so much work to do.
    fn judged(&self, object: &Value, old: Option<&Value>, work: u64) -> (FieldErrors, bool) {
        let (mut for_schema, mut for_rules) = (work, work);
        let mut errors = FieldErrors::default();
        self.schema.validate_object(object, &mut for_schema, &mut errors);
        if let Some(scale) = &self.scale {
            scale.validate(object, &mut errors);
        }
        if let Some(old) = old {
            errors = ratchet::new_errors(errors, object, old);
        }
        let errors = match for_schema {
            0 => errors,
            _ => self.with_rules(errors, (object, old), &mut for_rules),
        };
        (errors, for_schema > 0 && for_rules > 0)
    }

    /// Adds what rules of expressions say. They are asked of nothing that has another form than they expect.
    fn with_rules(
        &self,
        mut errors: FieldErrors,
        (object, old): (&Value, Option<&Value>),
        work_left: &mut u64,
    ) -> FieldErrors {
        let is_blocking = |kind: FieldErrorKind| {
            matches!(
                kind,
                FieldErrorKind::NotSupported
                    | FieldErrorKind::Required
                    | FieldErrorKind::TooLong
                    | FieldErrorKind::TooMany
                    | FieldErrorKind::TypeInvalid
            )
        };
        if self.schema.has_rules() && errors.iter().any(|error| is_blocking(error.kind)) {
            let why = "some validation rules were not checked because the object was invalid; correct the existing errors to complete \
                       validation";
            errors.push(FieldError::invalid("<nil>", Value::Null, why));
        } else {
            self.schema.obey(object, old, work_left, &mut errors);
        }
        errors
    }
}

impl Strategy for Custom {
    fn default(&self, object: &mut Value) {
        self.schema.fill_in(object);
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        if self.has_status {
            clear_status(object);
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, subresource: &str) {
        if self.has_status {
            isolate(new, old, subresource);
        }
        if subresource == "status" {
            keep_metadata(new, old);
        }
    }

    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn stamp(&self, _new: &mut Value, _old: &Value, _now: Timestamp) {}

    fn validate(&self, object: &Value) -> FieldErrors {
        self.judged(object, None, WORK_MAX).0
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        self.judged(new, Some(old), WORK_MAX).0
    }

    fn validate_briefly(&self, new: &Value, old: Option<&Value>, _subresource: &str) -> Option<FieldErrors> {
        let (errors, is_done) = self.judged(new, old, BRIEF_WORK_MAX);
        is_done.then_some(errors)
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn bumps_generation(&self, new: &Value, old: &Value) -> bool {
        let own = |object: &Value| -> Map<String, Value> {
            let pairs = object.as_object().into_iter().flatten();
            let is_own = |key: &str| match key {
                "metadata" | "apiVersion" | "kind" => false,
                "status" => !self.has_status,
                _ => true,
            };
            pairs
                .filter(|(key, _)| is_own(key))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        };
        own(new) != own(old)
    }
}

/// Conversion `None`: all versions have one form, of which each shows what its schema knows.
struct SameForm {
    schema: Arc<Structural>,
}

impl Converter for SameForm {
    fn present(&self, object: &mut Value) {
        self.schema.prune_object(object, &mut Vec::new());
        self.schema.fill_in(object);
    }

    fn store(&self, _object: &mut Value) {}
}

fn name(text: &str) -> Name {
    Name::Owned(text.to_owned())
}

fn names(all: &[Value]) -> Box<[Name]> {
    all.iter().filter_map(Value::as_str).map(name).collect()
}

/// The kinds of an established definition, one for each version that is served; all of them share the objects.
pub(crate) fn kinds(definition: &Value) -> Vec<Arc<Kind>> {
    let versions = list(definition, &["spec", "versions"]);
    let Some(storage) = versions.iter().find(|version| flag(version, &["storage"])) else {
        return Vec::new();
    };
    let form = form(definition);
    let storage = Arc::new(kind(definition, storage, form, None));
    let served = versions.iter().filter(|version| flag(version, &["served"]));
    served
        .map(|version| match flag(version, &["storage"]) {
            true => Arc::clone(&storage),
            false => Arc::new(kind(definition, version, form, Some(Arc::clone(&storage)))),
        })
        .collect()
}

/// Where the objects of a definition are kept, below `/registry/`.
pub(crate) fn storage_prefix(group: &str, plural: &str) -> String {
    format!("{group}/{plural}")
}

/// What the kinds of a definition are made of, as a number: another one, other kinds.
pub(crate) fn form(definition: &Value) -> u64 {
    let mut hash = Sha256::new();
    for part in [&["spec"][..], &["status", "acceptedNames"]] {
        hash.update(at(definition, part).to_string().as_bytes());
        hash.update(b"\n");
    }
    let first = hash.finalize().first_chunk().copied().unwrap_or_default();
    // 0 is the form of what is built in.
    u64::from_le_bytes(first).max(1)
}

fn kind(definition: &Value, version: &Value, form: u64, storage: Option<Arc<Kind>>) -> Kind {
    let group = text(definition, &["spec", "group"]);
    let accepted = at(definition, &["status", "acceptedNames"]);
    let (version_name, kind_name) = (text(version, &["name"]), text(accepted, &["kind"]));
    let schema = at(version, &["schema", "openAPIV3Schema"]);
    let structural = Arc::new(structural::read(schema, "", &mut FieldErrors::default()));
    let shown = Arc::clone(&structural);
    let has_status = !at(version, &["subresources", "status"]).is_null();
    let is_ending = !at(definition, &["metadata", "deletionTimestamp"]).is_null();
    let defined = Defined::read(version, form);
    let scale = defined.scale.as_ref().map(|_| Subresource {
        name: "scale",
        verbs: CHANGE,
        group: name("autoscaling"),
        version: name("v1"),
        kind: name("Scale"),
    });
    let status = has_status.then(|| Subresource {
        name: "status",
        verbs: CHANGE,
        group: name(group),
        version: name(version_name),
        kind: name(kind_name),
    });
    let plural = text(definition, &["spec", "names", "plural"]);
    let definition_name = definition_name(group, version_name, kind_name);
    let published = published(version, &definition_name);
    let (own, base, root) = (
        Arc::clone(&structural),
        Arc::clone(Registry::built_in().types()),
        definition_name.clone(),
    );
    let types = SchemaTable::made(move || own.table(&root, base.get()));
    Kind {
        group: name(group),
        version: name(version_name),
        api_version: api_version(group, version_name).into(),
        kind: name(kind_name),
        list_kind: name(text(accepted, &["listKind"])),
        plural: name(plural),
        singular: name(text(accepted, &["singular"])),
        short_names: names(list(accepted, &["shortNames"])),
        categories: names(list(accepted, &["categories"])),
        namespaced: text(definition, &["spec", "scope"]) == "Namespaced",
        verbs: if is_ending { ENDING_VERBS } else { STANDARD_VERBS },
        subresources: scale.into_iter().chain(status).collect(),
        storage_prefix: storage_prefix(group, plural).into(),
        create_on_update: false,
        unconditional_update: false,
        returns_object_on_delete: false,
        default_propagation_orphan: false,
        definition: definition_name.into(),
        types: Arc::new(types),
        published: Definitions::Own(Value::Object(published).to_string().into()),
        printer: KindPrinter::Defined(DefinedColumns::read(list(version, &["additionalPrinterColumns"]))),
        strategy: KindStrategy::Defined(Arc::new(Custom {
            schema: Arc::clone(&structural),
            has_status,
            scale: defined.scale.clone(),
        })),
        structural: Some(structural),
        defined,
        deprecation: deprecation(version, group, version_name, kind_name),
        conversion: storage.map(|storage| Conversion {
            storage,
            converter: Arc::new(SameForm { schema: shown }),
        }),
    }
}

/// The warning that replies of a deprecated version carry.
fn deprecation(version: &Value, group: &str, name: &str, kind: &str) -> Option<Box<str>> {
    let own = text(version, &["deprecationWarning"]);
    flag(version, &["deprecated"]).then(|| match own {
        "" => format!("{group}/{name} {kind} is deprecated").into(),
        own => own.into(),
    })
}

/// Such as `com.example.v1.Foo`.
fn definition_name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<&str> = group.rsplit('.').collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

/// The schema as OpenAPI publishes it: with what every object has.
fn published(version: &Value, definition: &str) -> Map<String, Value> {
    let mut schema = at(version, &["schema", "openAPIV3Schema"]).clone();
    let selectable = list(version, &["selectableFields"]);
    if !selectable.is_empty() {
        let name = |one: &Value| json!({"fieldPath": text(one, &["jsonPath"]).trim_start_matches('.')});
        schema["x-kubernetes-selectable-fields"] = selectable.iter().map(name).collect();
    }
    let described = |text: &str| json!({"type": "string", "description": text});
    if let Some(own) = schema.as_object_mut() {
        let properties = own.entry("properties").or_insert_with(|| json!({}));
        if !properties.is_object() {
            *properties = json!({});
        }
        properties["apiVersion"] =
            described("APIVersion defines the versioned schema of this representation of an object.");
        properties["kind"] = described("Kind is a string value representing the REST resource this object represents.");
        properties["metadata"] = json!({"$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
            "description": "Standard object's metadata."});
    }
    Map::from_iter([(definition.to_owned(), schema)])
}

#[cfg(test)]
mod tests;
