//! PATCH: JSON, merge and strategic merge patches over the update engine (control-plane contract §2.5). Configurations are applied in
//! [`super::apply`].

use super::super::negotiate;
use super::apply::{self, APPLY};
use super::owners::Old;
use super::update::{self, Make, OnConflict};
use super::{Answer, Call, Validation, not_read, object};
use crate::apiserver::status::ApiError;
use crate::managed_fields;
use crate::patch::{PatchError, json_patch, merge_patch, strategic_patch};
use crate::resource::Kind;
use crate::resource::field_error::{FieldError, FieldErrorKind, cut};
use crate::schema::{self, Media, Problem};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// Most members of operations that are told to be unknown, and the longest path of one.
const PROBLEMS_MAX: usize = 100;
const PATH_MAX_BYTES: usize = 1 << 10;

/// A patch as sent: how to apply it, and the document.
pub(super) struct Patch {
    apply: fn(&Kind, &Value, &Value) -> Result<Value, PatchError>,
    document: Value,
    /// Whether it may be about managedFields, which objects have no part in otherwise.
    names_owners: bool,
    /// What strict field validation says about the document itself, whatever it is applied to.
    problems: Vec<String>,
}

impl Patch {
    /// Reads the request's patch.
    pub(super) fn read(call: &Call<'_>, body: &[u8]) -> Result<Self, ApiError> {
        let apply = match negotiate::content_type(call.headers).as_str() {
            JSON => json_patch,
            MERGE => merge_patch,
            STRATEGIC if call.kind.structural.is_none() => strategic_patch,
            _ if call.kind.structural.is_some() => {
                return Err(negotiate::unsupported_media(&[JSON, MERGE, APPLY]));
            }
            _ => return Err(negotiate::unsupported_media(&[JSON, MERGE, STRATEGIC, APPLY])),
        };
        call.check_manager("PatchOptions")?;
        if call.query.get("force").is_some() {
            let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
            return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", vec![error]));
        }
        let (document, duplicates) = schema::parse_noting(body, Media::Json)
            .map_err(|error| ApiError::bad_request(format!("error decoding patch: {}", not_read(&error).message)))?;
        let text = String::from_utf8_lossy(body);
        let is_operations = negotiate::content_type(call.headers) == JSON;
        Ok(Self {
            apply,
            problems: match is_operations {
                true => problems_of_operations(&document, &duplicates),
                false => duplicates.iter().map(ToString::to_string).collect(),
            },
            document,
            names_owners: ["managedFields", "\"/metadata\"", "\\u"]
                .iter()
                .any(|name| text.contains(name)),
        })
    }

    /// Applies `fieldValidation` to the document alone, where the object that it makes is not judged.
    ///
    /// # Errors
    /// 422 for what strict validation refuses.
    pub(super) fn judged(&self, call: &mut Call<'_>, (group, kind): (&str, &str)) -> Result<(), ApiError> {
        match Validation::read(call.query, call.info)? {
            Validation::Strict if !self.problems.is_empty() => {
                Err(strict((group, kind), &call.info.name, self, &self.problems))
            }
            Validation::Warn => {
                call.warnings.extend_from_slice(&self.problems);
                Ok(())
            }
            Validation::Strict | Validation::Ignore => Ok(()),
        }
    }

    /// The patched object; the old one is complete.
    pub(super) fn applied(&self, kind: &Kind, old: &Value) -> Result<Value, ApiError> {
        Ok((self.apply)(kind, old, &self.document)?)
    }

    fn applied_to(&self, kind: &Kind, old: &Old) -> Result<Value, ApiError> {
        if !self.names_owners {
            return self.applied(kind, &old.object);
        }
        let mut owned = old.object.clone();
        managed_fields::put(&mut owned, old.owners.as_deref());
        self.applied(kind, &owned)
    }
}

/// Whether the request applies a configuration, which is no patch like the others.
pub(super) fn is_apply(call: &Call<'_>) -> bool {
    negotiate::content_type(call.headers) == APPLY
}

pub(super) async fn patch(call: &mut Call<'_>, body: &[u8]) -> Result<Answer, ApiError> {
    if is_apply(call) {
        return apply::apply(call, body).await;
    }
    let dry_run = call.query.dry_run("PatchOptions")?;
    let name = call.info.name.clone();
    let patch = Patch::read(call, body)?;
    let validation = Validation::read(call.query, call.info)?;
    let (kind, own_name) = (Arc::clone(&call.kind), name.clone());
    let warnings: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&warnings);
    let make = Make::patch(body.len(), move |old: &Old| {
        let mut new = patch.applied_to(&kind, old)?;
        let problems = schema::normalize(&kind, &mut new)?;
        let mut texts = patch.problems.clone();
        texts.extend(problems.iter().map(ToString::to_string));
        if validation == Validation::Strict && !texts.is_empty() {
            return Err(strict((&kind.group, &kind.kind), &own_name, &patch, &texts));
        }
        if validation != Validation::Ignore {
            *noted.lock().unwrap_or_else(PoisonError::into_inner) = texts;
        }
        check(&old.object, &new)?;
        Ok(new.into())
    });
    let answer = update::change(call, &name, dry_run, OnConflict::Repeat, make).await?;
    let mut warnings = warnings.lock().unwrap_or_else(PoisonError::into_inner);
    call.warnings.append(&mut warnings);
    Ok(answer)
}

/// 422 for such fields under strict validation.
fn strict((group, kind): (&str, &str), name: &str, patch: &Patch, texts: &[String]) -> ApiError {
    let error = FieldError::new(
        "patch",
        FieldErrorKind::Invalid,
        json!(patch.document.to_string()),
        format!("strict decoding error: {}", texts.join(", ")),
    );
    ApiError::invalid(group, kind, name, vec![error])
}

/// What strict validation says about the operations of a JSON patch.
fn problems_of_operations(document: &Value, duplicates: &[Problem]) -> Vec<String> {
    const MEMBERS: [&str; 4] = ["op", "path", "from", "value"];
    let operations = document.as_array().into_iter().flatten().enumerate();
    let unknown = operations.flat_map(|(at, operation)| {
        let members = operation.as_object().into_iter().flat_map(|operation| operation.keys());
        let unknown = members.filter(|member| !MEMBERS.contains(&member.as_str()));
        unknown.map(move |member| cut(format!("[{at}].{member}"), PATH_MAX_BYTES))
    });
    let unknown = unknown.take(PROBLEMS_MAX).map(Problem::Unknown);
    unknown
        .chain(duplicates.iter().cloned())
        .map(|problem| format!("json patch {problem}"))
        .collect()
}

/// A patch may not turn the object into another one.
pub(super) fn check(old: &Value, new: &Value) -> Result<(), ApiError> {
    for (field, what) in [("kind", "kind"), ("apiVersion", "API version")] {
        if !new[field].is_null() && new[field] != old[field] {
            return Err(ApiError::bad_request(format!(
                "the {what} in the data ({}) does not match the expected {what} ({})",
                new[field].as_str().unwrap_or(""),
                old[field].as_str().unwrap_or("")
            )));
        }
    }
    update::check_name(new, object::name(old))?;
    if new["metadata"]["namespace"] != old["metadata"]["namespace"] {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
