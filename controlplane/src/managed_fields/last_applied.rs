//! Objects that kubectl applied on its own side before it applied on the server's: it may take what its annotation says it set, and
//! the annotation is kept up to date. Pure.

use serde_json::{Map, Value};

use super::compare::compare;
use super::conflict::Conflicts;
use super::extract::extract;
use super::scope::Scope;
use super::typing::Typing;
use crate::resource::metadata::ANNOTATIONS_MAX_BYTES;

/// The one manager this is done for.
pub(super) const MANAGER: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn annotation(object: &Value) -> Option<&str> {
    let text = object["metadata"]["annotations"][ANNOTATION].as_str();
    text.filter(|text| !text.is_empty())
}

fn annotations_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.pointer_mut("/metadata/annotations")?.as_object_mut()
}

/// The conflicts that remain: those about fields that the annotation does not have, or not as the object has them.
pub(super) fn disputed(typing: Typing<'_>, api_version: &str, live: &Value, mut conflicts: Conflicts) -> Conflicts {
    let applied: Option<Value> = annotation(live).and_then(|text| serde_json::from_str(text).ok());
    let Some(applied) = applied.filter(|applied| applied["apiVersion"] == api_version) else {
        return conflicts;
    };
    let found = compare(typing, Scope::EVERYTHING, Some(&applied), live);
    let own = extract(typing, Scope::EVERYTHING, &applied);
    let own = own.without(&found.changed).without(&found.removed);
    conflicts.forget(&own);
    conflicts
}

/// Makes the annotation, if there is one, say what has been applied now.
pub(super) fn renew(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = annotations_mut(&mut config) {
        annotations.remove(ANNOTATION);
    }
    let Some(annotations) = annotations_mut(object) else {
        return;
    };
    annotations.insert(ANNOTATION.to_owned(), Value::from(format!("{config}\n")));
    let texts = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len));
    if texts.sum::<usize>() > ANNOTATIONS_MAX_BYTES {
        annotations.remove(ANNOTATION);
    }
}
