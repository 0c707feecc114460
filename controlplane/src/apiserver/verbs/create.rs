//! POST to a collection: a new object (control-plane contract §2.2).

use super::Operation;
use super::owners::Owners;
use super::quota::Unwritten;
use super::shared::{self, NotPut};
use super::{Answer, Call, addresses, object, patch};
use crate::apiserver::quota::{Charge, Entry};
use crate::apiserver::reader;
use crate::apiserver::status::ApiError;
use crate::managed_fields;
use crate::resource::field::{set, text};
use crate::resource::{PrepareContext, deprecated, without_effect};
use crate::store::value::canonical_owned;
use crate::store::window::Stored;
use crate::tree::{self, TreeError};
use bytes::Bytes;
use proto::api::names::generate_name;
use serde_json::{Value, json};
use std::sync::Arc;

/// Names tried before a `generateName` gives up.
const NAME_ATTEMPTS: usize = 8;

pub(super) async fn create(call: &mut Call<'_>, body: &[u8]) -> Result<Answer, ApiError> {
    let dry_run = call.query.dry_run("CreateOptions")?;
    call.check_manager("CreateOptions")?;
    let mut object = call.decode(body).await?;
    place(call, &mut object)?;
    insert(call, object, dry_run, Owners::Track).await
}

/// Puts the object into the request's namespace.
pub(super) fn place(call: &Call<'_>, object: &mut Value) -> Result<(), ApiError> {
    let given = text(object, &["metadata", "namespace"]);
    if !given.is_empty() && given != call.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    object::metadata_mut(object);
    if call.namespace.is_empty() {
        object::metadata_mut(object).remove("namespace");
    } else {
        set(object, &["metadata", "namespace"], call.namespace);
    }
    Ok(())
}

/// Takes a decoded object through admission, preparation and validation into the store, under the locks that order it among other writes ([`super::super::write_locks`]).
pub(super) async fn insert(
    call: &mut Call<'_>,
    object: Value,
    dry_run: bool,
    owners: Owners,
) -> Result<Answer, ApiError> {
    let server = call.server;
    call.quotas_known(Operation::Create, dry_run).await;
    let _in_namespace = match call.namespace {
        "" => None,
        namespace => Some(server.write_locks().create_in(namespace).await),
    };
    let _of_definition = match call.kind.structural.is_some() {
        true => {
            let guard = server.write_locks().create_of(&call.kind.storage_prefix).await;
            still_taken(call)?;
            Some(guard)
        }
        false => None,
    };
    if object::is_address(&call.kind) {
        let _among_services = server.write_locks().write_service().await;
        let answer = insert_now(call, object, dry_run, owners, None).await?;
        return call.seen(answer).await;
    }
    if !object::is_service(&call.kind) {
        let answer = insert_now(call, object, dry_run, owners, None).await?;
        return call.noticed(None, answer).await;
    }
    let entry = call.enter(Operation::Create, dry_run).await;
    let _among_services = server.write_locks().write_service().await;
    let mut contentions = 0;
    let answer = loop {
        let (object, owners) = (object.clone(), owners.clone());
        match insert_now(call, object, dry_run, owners, entry.clone()).await {
            // Another API server was faster with what was chosen here; what was asked for is refused by what is seen then.
            Err(error) if error.is_contended && contentions < shared::CONTENTIONS => {
                contentions += 1;
                call.caught_up().await?;
            }
            done => break done?,
        }
    };
    call.seen(answer).await
}

/// A definition may have begun to end, or be gone, since the request came.
fn still_taken(call: &Call<'_>) -> Result<(), ApiError> {
    let (kind, served) = (&call.kind, call.server.served());
    match served.registry().by_resource(&kind.group, &kind.version, &kind.plural) {
        Some(now) if now.namespaced == kind.namespaced && now.verbs.contains(&"create") => Ok(()),
        Some(now) if now.namespaced == kind.namespaced => Err(super::definition_ends()),
        _ => Err(ApiError::not_found(&kind.group, &kind.plural, &call.info.name)),
    }
}

async fn insert_now(
    call: &mut Call<'_>,
    object: Value,
    dry_run: bool,
    owners: Owners,
    entry: Option<Entry>,
) -> Result<Answer, ApiError> {
    if !object::revision(&object).is_empty() {
        return Err(ApiError::new(
            500,
            "",
            "resourceVersion should not be set on objects to be created",
        ));
    }
    let mut object = call.stored_form(object)?;
    let kind = Arc::clone(call.kind.storage());
    object::clear_system_fields(&mut object);
    kind.strategy.default(&mut object);
    // Of what a patch makes, upstream says the same as of what admission makes.
    let sent_twice = object::drop_repeated_owners(&mut object, call.info.verb == "patch");
    let owners = call.owners_of(&mut object, None, owners);
    call.mutate(Operation::Create, dry_run, &mut object, None).await?;
    let admitted_twice = object::drop_repeated_owners(&mut object, true);
    let mut warnings: Vec<String> = sent_twice.into_iter().chain(admitted_twice).collect();
    let mut charge = None;
    match named(call, (object, owners.as_deref()), dry_run, entry, &mut charge).await {
        Ok((answer, said)) => {
            warnings.extend(said);
            call.warnings.extend(warnings);
            Ok(answer)
        }
        Err(why) => Err(call.unwritten(charge, why).await),
    }
}

/// Stores the object under its name, or one that is made for it; gives the warnings about it. What is charged for it is left in `charge`.
async fn named(
    call: &Call<'_>,
    (mut object, owners): (Value, Option<&str>),
    dry_run: bool,
    entry: Option<Entry>,
    charge: &mut Option<Charge>,
) -> Result<(Answer, Vec<String>), Unwritten> {
    let kind = call.kind.storage();
    let is_generated = object::name(&object).is_empty() && !text(&object, &["metadata", "generateName"]).is_empty();
    let mut attempts = 0;
    loop {
        attempts += 1;
        // Only what may need another name is tried again.
        let mut candidate = match is_generated {
            true => object.clone(),
            false => object.take(),
        };
        if is_generated {
            let base = text(&candidate, &["metadata", "generateName"]).to_owned();
            let name = generate_name(&base, call.server.random());
            set(&mut candidate, &["metadata", "name"], name);
        }
        // With its name: strategies put it into labels and selectors.
        prepare(call, &mut candidate);
        let mut errors = call.problems(&candidate, None).await?;
        errors.extend(managed_fields::problems(owners));
        if !errors.is_empty() {
            let name = object::name(&candidate);
            return Err(ApiError::invalid(&call.kind.group, &call.kind.kind, name, errors).into());
        }
        call.admit(Operation::Create, dry_run, &candidate, None).await?;
        if charge.is_none() {
            let asked = (&candidate, None);
            *charge = call.charge(Operation::Create, dry_run, entry.as_ref(), asked).await?;
        }
        let mut warnings = kind.strategy.warnings(&candidate);
        warnings.extend(deprecated::fields(kind, &candidate));
        warnings.extend(without_effect::warnings(kind, &candidate));
        match store(call, candidate, owners, dry_run).await {
            Ok(answer) => return Ok((answer, warnings)),
            Err(why) if !is_generated || why.error.reason != "AlreadyExists" => return Err(why),
            Err(why) if attempts == NAME_ATTEMPTS => return Err(exhausted(why.error).into()),
            Err(_) => {}
        }
    }
}

fn prepare(call: &Call<'_>, object: &mut Value) {
    let now = call.server.now();
    let uid = call.server.uuid();
    let strategy = &call.kind.strategy;
    strategy.prepare_create(object, &PrepareContext { uid: &uid, now });
    let metadata = object::metadata_mut(object);
    metadata.insert("uid".to_owned(), json!(uid));
    metadata.insert("creationTimestamp".to_owned(), json!(object::time(now)));
    if strategy.has_generation() {
        metadata.insert("generation".to_owned(), json!(1));
    }
}

async fn store(call: &Call<'_>, mut object: Value, owners: Option<&str>, dry_run: bool) -> Result<Answer, Unwritten> {
    let name = object::name(&object);
    let (raw, owners) = fitting(call, &object, owners, tree::SIZE_MAX_BYTES)?;
    if dry_run {
        if let Some(existing) = call.find(name).await? {
            return Err(exists(call, name, &existing.tree()).into());
        }
        managed_fields::put(&mut object, owners);
        return Ok(Answer::Object { code: 201, object });
    }
    let key = call.key(name);
    let is_there = call.window.cached().objects.contains_key(key.as_str());
    let put = async |noted: &addresses::Noted| call.put_new(&key, &object, raw.clone(), noted).await;
    let unclaimed = addresses::Noted::default();
    let (noted, put) = match (is_there, call.is_shared()) {
        (true, _) => (addresses::Noted::default(), put(&unclaimed).await),
        (false, true) => {
            let noted = call.claim(&object, None).await?;
            let done = put(&noted).await;
            (noted, done)
        }
        (false, false) => futures::join!(call.note_addresses(&object, None), put(&unclaimed)),
    };
    match put {
        Ok(revision) => Ok(Answer::Stored {
            code: 201,
            stored: Arc::new(Stored::new(Arc::from(key), revision, revision, raw)),
            revision,
        }),
        Err(NotPut::Exists(existing)) => {
            call.forget_addresses(noted, Some(&existing)).await;
            Err(exists(call, name, &existing).into())
        }
        Err(NotPut::Failed(why)) => {
            call.forget_unwritten(noted, &why).await;
            Err(why)
        }
    }
}

/// The text of an object, with its owners. Those go if it is too large only with them, unless the request is about them.
pub(super) fn fitting<'o>(
    call: &Call<'_>,
    object: &Value,
    owners: Option<&'o str>,
    most: usize,
) -> Result<(Bytes, Option<&'o str>), ApiError> {
    let raw = Bytes::from(canonical_owned(&reader::stored_as(&call.kind), object, owners));
    match owners {
        _ if raw.len() <= most => Ok((raw, owners)),
        Some(_) if !patch::is_apply(call) => fitting(call, object, None, most),
        _ => Err(too_large()),
    }
}

/// An object with all the server adds to it is larger than a body may be.
fn too_large() -> ApiError {
    let text = format!("Request entity too large: {}", TreeError::TooLarge);
    ApiError::new(413, "RequestEntityTooLarge", text)
}

fn exists(call: &Call<'_>, name: &str, existing: &Value) -> ApiError {
    let mut error = ApiError::already_exists(&call.kind.group, &call.kind.plural, name);
    if object::is_deleting(existing) {
        error.message = format!("object is being deleted: {}", error.message);
    }
    error
}

/// All generated names were taken.
fn exhausted(mut error: ApiError) -> ApiError {
    error
        .message
        .push_str(", the server was not able to generate a unique name for the object");
    error.retry_after_seconds = Some(1);
    error
}
