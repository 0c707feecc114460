//! The scale subresource: autoscaling/v1 Scale over `spec.replicas`, or over what a definition names (control-plane contract §2.1, §9).

use super::apply::Configuration;
use super::owners::{Author, New, Old, Owners};
use super::patch::{self, Patch};
use super::update::{self, Make, OnConflict};
use super::{Answer, Call, object};
use crate::apiserver::status::ApiError;
use crate::managed_fields::{self, Live, Scope, Typing};
use crate::resource::field::{at, int, set, text};
use crate::resource::field_error::FieldError;
use crate::resource::{BodyType, Kind};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proto::api::selector::Selector;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The body's kind.
const SCALE: &str = "Scale";
const SCALE_VERSION: &str = "autoscaling/v1";

pub(super) async fn get(call: &Call<'_>) -> Result<Answer, ApiError> {
    let stored = call.current(&call.info.name).await?;
    let whole = call.whole(&stored);
    let paths = Paths::of(&call.kind);
    if let Some(why) = paths.missing(&whole) {
        return Err(ApiError::internal(format!(
            "the spec replicas field {why:?} does not exist"
        )));
    }
    let object = scale_of(&whole, &paths)?;
    Ok(Answer::Object { code: 200, object })
}

pub(super) async fn update(call: &mut Call<'_>, body: &[u8]) -> Result<Answer, ApiError> {
    let dry_run = call.query.dry_run("UpdateOptions")?;
    let name = call.info.name.clone();
    call.check_manager("UpdateOptions")?;
    let sent = call.decode_part(["autoscaling", "v1", SCALE], body).await?;
    update::check_name(&sent, &name)?;
    let (kind, owners) = (Arc::clone(&call.kind), ScaleOwners::of(call)?);
    let make = Make::small(move |old: &Old| {
        let mut scale = sent.clone();
        let owners = owners.track(&mut scale, old)?;
        scaled(old, &scale, owners.as_deref(), &kind)
    });
    let answer = update::change(call, &name, dry_run, OnConflict::Refuse, make).await?;
    as_scale(call, answer)
}

pub(super) async fn patch(call: &mut Call<'_>, body: &[u8]) -> Result<Answer, ApiError> {
    let dry_run = call.query.dry_run("PatchOptions")?;
    let name = call.info.name.clone();
    if patch::is_apply(call) {
        return apply(call, &name, body, dry_run).await;
    }
    let patch = Patch::read(call, body)?;
    patch.judged(call, ("autoscaling", SCALE))?;
    let (kind, owners) = (Arc::clone(&call.kind), ScaleOwners::of(call)?);
    let make = Make::patch(body.len(), move |old: &Old| {
        let before = scale_of(&old.object, &Paths::of(&kind))?;
        let before = unset(before, &old.object, &kind);
        let mut scale = patch.applied(&kind, &before)?;
        patch::check(&before, &scale)?;
        let owners = owners.track(&mut scale, old)?;
        scaled(old, &scale, owners.as_deref(), &kind)
    });
    let answer = update::change(call, &name, dry_run, OnConflict::Repeat, make).await?;
    as_scale(call, answer)
}

async fn apply(call: &mut Call<'_>, name: &str, body: &[u8], dry_run: bool) -> Result<Answer, ApiError> {
    let config = Configuration::read(call, body, (SCALE_VERSION, SCALE)).await?;
    let (kind, owners) = (Arc::clone(&call.kind), ScaleOwners::of(call)?);
    let make = Make::patch(body.len(), move |old: &Old| {
        let (before, before_owners) = owned_scale(old, &kind)?;
        let before = unset(before, &old.object, &kind);
        let before = Live {
            object: &before,
            owners: before_owners.as_deref(),
        };
        let scale = config.applied(owners.typing()?, Scope::WHOLE, before)?;
        patch::check(before.object, &scale.object)?;
        scaled(old, &scale.object, scale.owners.as_deref(), &kind)
    });
    let answer = update::change(call, name, dry_run, OnConflict::Repeat, make).await?;
    as_scale(call, answer)
}

/// What stands for replicas that an object does not have, which only those that came in may lack (upstream's mark).
const UNSET: i64 = i32::MIN as i64;

/// Where an object has what its Scale shows.
struct Paths<'k> {
    /// As the definition names the replicas; `None` for built-in kinds.
    text: Option<&'k str>,
    spec: Vec<&'k str>,
    status: Vec<&'k str>,
    selector: Option<Vec<&'k str>>,
}

impl<'k> Paths<'k> {
    fn of(kind: &'k Kind) -> Self {
        let steps = |path: &'k [Box<str>]| path.iter().map(|step| &**step).collect();
        match &kind.defined.scale {
            None => Self {
                text: None,
                spec: vec!["spec", "replicas"],
                status: vec!["status", "replicas"],
                selector: None,
            },
            Some(paths) => Self {
                text: Some(&paths.spec_text),
                spec: steps(&paths.spec),
                status: steps(&paths.status),
                selector: paths.selector.as_deref().map(steps),
            },
        }
    }

    /// Where the replicas should be, of an object that came in without.
    fn missing(&self, object: &Value) -> Option<&'k str> {
        self.text.filter(|_| at(object, &self.spec).is_null())
    }

    fn number(&self, object: &Value, path: &[&str]) -> Result<i64, ApiError> {
        match at(object, path) {
            Value::Null => Ok(0),
            value if self.text.is_some() && value.as_i64().is_none() => Err(accessor(path, value, "int64")),
            // As upstream's conversion to 32 bits; a built-in kind's number has no more.
            value => Ok(value.as_i64().map_or(0, |number| i64::from(number as i32))),
        }
    }

    fn selector(&self, object: &Value) -> Result<String, ApiError> {
        let Some(path) = &self.selector else {
            return match self.text {
                Some(_) => Ok(String::new()),
                None => selector_text(object),
            };
        };
        match at(object, path) {
            Value::Null => Ok(String::new()),
            Value::String(text) => Ok(text.clone()),
            other => Err(accessor(path, other, "string")),
        }
    }
}

/// A field that a Scale shows is of another type.
fn accessor(path: &[&str], value: &Value, wanted: &str) -> ApiError {
    let found = match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::Array(_) => "[]interface {}",
        _ => "map[string]interface {}",
    };
    let path = path.join(".");
    ApiError::internal(format!(
        ".{path} accessor error: {value} is of the type {found}, expected {wanted}"
    ))
}

/// A Scale that says so where its object has no replicas.
fn unset(mut scale: Value, object: &Value, kind: &Kind) -> Value {
    if Paths::of(kind).missing(object).is_some() {
        set(&mut scale, &["spec", "replicas"], UNSET);
    }
    scale
}

/// What tells who owns the replicas after a write of a Scale.
struct ScaleOwners {
    body: BodyType,
    author: Author,
    kind: Arc<Kind>,
}

impl ScaleOwners {
    fn of(call: &Call<'_>) -> Result<Self, ApiError> {
        let body = call.served.registry().body("autoscaling", "v1", SCALE);
        Ok(Self {
            body: body.ok_or_else(|| ApiError::internal("no schema for Scale"))?,
            author: call.author(SCALE_VERSION),
            kind: Arc::clone(&call.kind),
        })
    }

    fn typing(&self) -> Result<Typing<'_>, ApiError> {
        let schema = self.body.types.get();
        let scale = schema.type_of(&self.body.definition);
        let scale = scale.ok_or_else(|| ApiError::internal("no schema for Scale"))?;
        Ok(Typing::of(schema, scale))
    }

    /// The managedFields of the Scale after the request.
    fn track(&self, scale: &mut Value, old: &Old) -> Result<Option<String>, ApiError> {
        let (before, owners) = owned_scale(old, &self.kind)?;
        let before = Live {
            object: &before,
            owners: owners.as_deref(),
        };
        let writer = self.author.writer();
        Ok(managed_fields::track(
            self.typing()?,
            Scope::WHOLE,
            Some(before),
            scale,
            &writer,
        ))
    }
}

/// The Scale of an object, and its managedFields: who owns the replicas.
fn owned_scale(old: &Old, kind: &Kind) -> Result<(Value, Option<String>), ApiError> {
    let paths = Paths::of(kind);
    let owners = managed_fields::to_scale(old.owners.as_deref(), &paths.spec);
    Ok((scale_of(&old.object, &paths)?, owners))
}

fn as_scale(call: &Call<'_>, answer: Answer) -> Result<Answer, ApiError> {
    let whole = match answer {
        Answer::Stored { stored, .. } => call.whole(&stored),
        Answer::Object { object, .. } => object,
        other => return Ok(other),
    };
    let object = scale_of(&whole, &Paths::of(&call.kind))?;
    Ok(Answer::Object { code: 200, object })
}

/// The object with the replicas of the Scale and their owners, pinned to its revision and uid if it has any.
fn scaled(before: &Old, scale: &Value, owners: Option<&str>, kind: &Kind) -> Result<New, ApiError> {
    let paths = Paths::of(kind);
    let old = &before.object;
    let replicas = int(scale, &["spec", "replicas"]).unwrap_or(0);
    if let Some(path) = paths.text.filter(|_| replicas == UNSET) {
        let why = format!("the spec replicas field {path:?} cannot be empty");
        return Err(ApiError::bad_request(why));
    }
    if replicas < 0 && paths.text.is_none() {
        let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        return Err(ApiError::invalid(
            "autoscaling",
            "Scale",
            object::name(old),
            vec![error],
        ));
    }
    let mut new = old.clone();
    set(&mut new, &paths.spec, replicas);
    set(&mut new, &["metadata", "resourceVersion"], object::revision(scale));
    let uid = object::uid(scale);
    if !uid.is_empty() {
        set(&mut new, &["metadata", "uid"], uid);
    }
    let owners = managed_fields::to_object(
        owners,
        before.owners.as_deref(),
        text(old, &["apiVersion"]),
        &paths.spec,
    );
    Ok(New {
        object: new,
        owners: Owners::Settled(owners),
    })
}

/// The Scale of an object.
fn scale_of(object: &Value, paths: &Paths<'_>) -> Result<Value, ApiError> {
    let mut metadata = json!({});
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        let value = at(object, &["metadata", key]);
        if !value.is_null() {
            metadata[key] = value.clone();
        }
    }
    let mut status = json!({"replicas": paths.number(object, &paths.status)?});
    let selector = paths.selector(object)?;
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    let replicas = paths.number(object, &paths.spec)?;
    let spec = if replicas == 0 {
        json!({})
    } else {
        json!({"replicas": replicas})
    };
    Ok(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status,
    }))
}

fn selector_text(object: &Value) -> Result<String, ApiError> {
    let selector = at(object, &["spec", "selector"]);
    if selector.is_null() {
        return Ok(String::new());
    }
    // Replication controllers select by plain pairs.
    let is_plain = text(object, &["kind"]) == "ReplicationController";
    let parsed = if is_plain {
        let pairs: BTreeMap<String, String> = serde_json::from_value(selector.clone()).map_err(ApiError::internal)?;
        Selector::from_pairs(&pairs)
    } else {
        let typed: LabelSelector = serde_json::from_value(selector.clone()).map_err(ApiError::internal)?;
        Selector::from_api(&typed).map_err(ApiError::internal)?
    };
    Ok(parsed.to_string())
}
