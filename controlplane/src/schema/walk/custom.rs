//! Objects of custom resources: metadata is walked as that of built-in kinds, the rest is pruned and defaulted as the structural
//! schema says. Pure.

use serde_json::{Map, Value};

use super::{Walk, check_identity, read_tree, summary};
use crate::resource::Kind;
use crate::resource::field_error::cut;
use crate::resource::structural::Structural;
use crate::schema::{DecodeError, Decoded, Media, Problem};

/// Bytes shown of an object that does not say what it is.
const SHOWN_BYTES: usize = 1 << 10;
const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// As [`super::decode`].
pub(super) fn decode(kind: &Kind, schema: &Structural, bytes: &[u8], media: Media) -> Result<Decoded, DecodeError> {
    if media == Media::Protobuf {
        let (version, name) = (&kind.api_version, &kind.kind);
        return Err(DecodeError::Unreadable {
            kind: name.to_string(),
            reason: format!("no kind \"{name}\" is registered for version \"{version}\""),
            summary: summary(bytes),
        });
    }
    let (mut value, duplicates) = read_tree(&kind.kind, bytes, media)?;
    check_named(kind, &value)?;
    check_identity(&mut value, &kind.api_version, &kind.kind)?;
    let mut problems = normalize(kind, schema, &mut value)?;
    problems.extend(duplicates.into_iter().map(Problem::Duplicate));
    Ok(Decoded { value, problems })
}

/// What a custom resource is stands in it: nothing is filled in, as upstream.
fn check_named(kind: &Kind, value: &Value) -> Result<(), DecodeError> {
    let is_missing = |key: &str| value[key].as_str().is_none_or(str::is_empty);
    if is_missing("kind") {
        return Err(DecodeError::WrongType {
            kind: kind.kind.to_string(),
            version: kind.version.to_string(),
            reason: format!("Object 'Kind' is missing in '{}'", cut(value.to_string(), SHOWN_BYTES)),
        });
    }
    if is_missing("apiVersion") {
        return Err(DecodeError::WrongVersion {
            expected: kind.api_version.to_string(),
            found: String::new(),
        });
    }
    Ok(())
}

/// As [`super::normalize`].
pub(super) fn normalize(kind: &Kind, schema: &Structural, value: &mut Value) -> Result<Vec<Problem>, DecodeError> {
    let wrong = |reason| DecodeError::WrongType {
        kind: kind.kind.to_string(),
        version: kind.version.to_string(),
        reason,
    };
    let mut problems = Vec::new();
    let Some(map) = value.as_object_mut() else {
        return Err(wrong(
            "the object provided is unrecognized: it must be an object".to_owned(),
        ));
    };
    if let Some(metadata) = map.get_mut("metadata").filter(|metadata| !metadata.is_null()) {
        problems = walk_metadata(kind, metadata).map_err(wrong)?;
    }
    let mut unknown = Vec::new();
    schema.prune_object(value, &mut unknown);
    schema.try_fill_in(value)?;
    problems.extend(unknown.into_iter().map(Problem::Unknown));
    Ok(problems)
}

fn walk_metadata(kind: &Kind, metadata: &mut Value) -> Result<Vec<Problem>, String> {
    let table = kind.types.get();
    let mut walk = Walk::new(table);
    let id = table
        .type_of(METADATA)
        .ok_or_else(|| format!("no schema for {METADATA}"))?;
    let metadata: &mut Map<String, Value> = metadata
        .as_object_mut()
        .ok_or_else(|| "json: cannot unmarshal into Go struct field .metadata of type v1.ObjectMeta".to_owned())?;
    walk.object(id, metadata)?;
    let below = |problem| match problem {
        Problem::Unknown(path) => Problem::Unknown(format!("metadata.{path}")),
        Problem::Duplicate(path) => Problem::Duplicate(format!("metadata.{path}")),
    };
    Ok(walk.problems.into_iter().map(below).collect())
}
