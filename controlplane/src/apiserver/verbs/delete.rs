//! DELETE of one object: preconditions, propagation, grace, finalizers (control-plane contract §2.4).

use super::{ATTEMPTS, Answer, Call, Operation, Validation, misfits, object, store_failed};
use crate::apiserver::request::dry_run_problem;
use crate::apiserver::status::ApiError;
use crate::apiserver::{definitions, negotiate, reader};
use crate::resource::Kind;
use crate::resource::field::{at, int, list, set, text};
use crate::resource::field_error::FieldError;
use crate::schema::{self, DecodeError};
use crate::store::value::canonical;
use crate::store::window::Stored;
use crate::store::{Revision, StoreError};
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::sync::Arc;

/// How the garbage collector is to treat dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Propagation {
    Orphan,
    Background,
    Foreground,
}

/// DeleteOptions.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) grace_seconds: Option<i64>,
    pub(super) propagation: Option<Propagation>,
    pub(super) orphan_dependents: Option<bool>,
    pub(super) uid: Option<String>,
    pub(super) revision: Option<String>,
    pub(super) dry_run: bool,
    /// Remove what its key does not belong to ([`super::misfits`]), and nothing else.
    pub(super) ignores_read_error: bool,
}

/// The option by which what cannot be shown can be removed.
pub(super) const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

impl Options {
    /// From the body, or from the query if there is none. A dry run that the query asks for is one, whatever the body says
    /// (upstream reads one of the two).
    pub(super) async fn read(call: &mut Call<'_>, body: &[u8]) -> Result<Self, ApiError> {
        let query = call.query;
        let is_dry = query.dry_run("DeleteOptions")?;
        let given = if body.is_empty() {
            let mut given = json!({});
            if let Some(seconds) = query.number("gracePeriodSeconds")? {
                given["gracePeriodSeconds"] = json!(seconds);
            }
            if let Some(policy) = query.get("propagationPolicy") {
                given["propagationPolicy"] = json!(policy);
            }
            if query.get("orphanDependents").is_some() {
                given["orphanDependents"] = json!(query.flag("orphanDependents"));
            }
            if query.flag(IGNORE_READ_ERROR) {
                given[IGNORE_READ_ERROR] = json!(true);
            }
            given
        } else {
            decode(call, body).await?
        };
        let asked = dry_run_of(&given);
        let mut options = Self::checked(&given, dry_run_problem(&asked))?;
        options.dry_run |= is_dry;
        Ok(options)
    }

    /// Of DeleteOptions inside an Eviction: what `dryRun` says is not looked at, as upstream; whatever it says, nothing is done.
    pub(super) fn of_eviction(given: &Value) -> Result<Self, ApiError> {
        Self::checked(given, None)
    }

    /// Of a tree that was read as DeleteOptions, with what is known to be wrong with it already.
    fn checked(given: &Value, problem: Option<FieldError>) -> Result<Self, ApiError> {
        let text = |path: &[&str]| at(given, path).as_str().map(str::to_owned);
        let policy = text(&["propagationPolicy"]);
        let propagation = policy.as_deref().and_then(propagation);
        let orphan_dependents = given["orphanDependents"].as_bool();
        let mut errors = Vec::new();
        if let Some(policy) = policy.as_deref() {
            let field = "propagationPolicy";
            if orphan_dependents.is_some() {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid(field, policy, why));
            }
            if propagation.is_none() {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported(field, policy, &supported));
            }
        }
        errors.extend(problem);
        let ignores_read_error = given[IGNORE_READ_ERROR] == true;
        if ignores_read_error {
            errors.extend(beside_ignoring(given));
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", errors));
        }
        Ok(Self {
            grace_seconds: int(given, &["gracePeriodSeconds"]),
            propagation,
            orphan_dependents,
            uid: text(&["preconditions", "uid"]),
            revision: text(&["preconditions", "resourceVersion"]),
            dry_run: !dry_run_of(given).is_empty(),
            ignores_read_error,
        })
    }
}

/// What may not stand beside [`IGNORE_READ_ERROR`], in upstream's order.
fn beside_ignoring(given: &Value) -> impl Iterator<Item = FieldError> {
    let others = [
        ("dryRun", !dry_run_of(given).is_empty()),
        ("propagationPolicy", !given["propagationPolicy"].is_null()),
        ("orphanDependents", !given["orphanDependents"].is_null()),
        ("gracePeriodSeconds", !given["gracePeriodSeconds"].is_null()),
        ("preconditions", !given["preconditions"].is_null()),
    ];
    let set = others.into_iter().filter(|(_, is_set)| *is_set);
    set.map(|(name, _)| {
        let why = format!("cannot be set together with .{name}");
        FieldError::invalid_value(IGNORE_READ_ERROR, &Value::Bool(true), why)
    })
}

/// What stands in `dryRun` of DeleteOptions.
pub(super) fn dry_run_of(given: &Value) -> Vec<&str> {
    list(given, &["dryRun"]).iter().filter_map(Value::as_str).collect()
}

/// The body as DeleteOptions. Fields they do not have are told about: upstream says nothing, and deletes for good what was sent with
/// a misspelt `dryRun`.
async fn decode(call: &mut Call<'_>, body: &[u8]) -> Result<Value, ApiError> {
    let media = negotiate::input(call.headers)?;
    let body_type = call.served.registry().body("", "v1", "DeleteOptions");
    let body_type = body_type.ok_or_else(|| ApiError::internal("no schema for DeleteOptions"))?;
    let read = move |body: &[u8]| schema::decode_options(&body_type, body, media);
    let decoded = call.reading(body, media, read).await?.map_err(|error| match error {
        DecodeError::Unreadable { reason, .. } | DecodeError::WrongType { reason, .. } => ApiError::bad_request(reason),
        other => other.into(),
    })?;
    Validation::Warn.judge(decoded, ("DeleteOptions", "v1"), &mut call.warnings)
}

fn propagation(text: &str) -> Option<Propagation> {
    match text {
        "Orphan" => Some(Propagation::Orphan),
        "Background" => Some(Propagation::Background),
        "Foreground" => Some(Propagation::Foreground),
        _ => None,
    }
}

pub(super) async fn delete(call: &mut Call<'_>, body: &[u8]) -> Result<Answer, ApiError> {
    let options = Options::read(call, body).await?;
    let name = call.info.name.clone();
    match options.ignores_read_error {
        true => misfits::remove(call, &name).await,
        false => remove(call, &name, &options).await,
    }
}

/// What a deletion does to the stored object.
#[derive(Debug, PartialEq)]
enum Step {
    /// Remove it.
    Remove,
    /// Keep it, changed (marked as deleting, finalizers set).
    Write(Value),
    /// Nothing: it is on its way already.
    Keep,
}

/// Deletes the named object as far as finalizers and grace allow now.
pub(super) async fn remove(call: &Call<'_>, name: &str, options: &Options) -> Result<Answer, ApiError> {
    if object::is_service(&call.kind) {
        // What it held is free for others once this is over, and not before.
        let _among_services = call.server.write_locks().write_service().await;
        let (answer, written) = remove_now(call, name, options).await?;
        if let Some(revision) = written {
            call.seen_to(revision).await?;
        }
        return Ok(answer);
    }
    if !object::is_namespace(&call.kind) {
        return remove_now(call, name, options).await.map(|(answer, _)| answer);
    }
    // Until nobody can make anything in it any more.
    let _ending = call.server.write_locks().end(name).await;
    let (answer, written) = remove_now(call, name, options).await?;
    if let Some(revision) = written {
        call.seen_to(revision).await?;
    }
    Ok(answer)
}

/// The answer, and the revision of what was written.
async fn remove_now(call: &Call<'_>, name: &str, options: &Options) -> Result<(Answer, Option<Revision>), ApiError> {
    let mut stored = call.current(name).await?;
    for _ in 0..ATTEMPTS {
        let old = call.whole_as_stored(&stored);
        check_preconditions(call, name, options, &stored, &old)?;
        call.mutate(Operation::Delete, options.dry_run, &mut Value::Null, Some(&old))
            .await?;
        call.admit(Operation::Delete, options.dry_run, &Value::Null, Some(&old))
            .await?;
        let step = decide(&call.kind, &old, options, call.server.now());
        if options.dry_run {
            return Ok((dry_answer(call, step, old), None));
        }
        match perform(call, &stored, step).await? {
            Performed::Removed(revision) => {
                call.free_addresses((&old, stored.revision), None).await?;
                return Ok((removed(call, &stored, &old, revision), Some(revision)));
            }
            Performed::Kept(kept) => {
                let revision = kept.revision;
                return Ok((kept_answer(kept, options), Some(revision)));
            }
            Performed::Lost(Some(current)) => stored = current,
            Performed::Lost(None) => return Err(call.not_found(name)),
        }
    }
    Err(call.modified(name))
}

fn check_preconditions(
    call: &Call<'_>,
    name: &str,
    options: &Options,
    stored: &Stored,
    old: &Value,
) -> Result<(), ApiError> {
    let uid = object::uid(old);
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}");
        return Err(call.conflict(name, &why));
    }
    let revision = stored.revision.to_string();
    if let Some(wanted) = options.revision.as_deref().filter(|wanted| *wanted != revision) {
        let why = format!(
            "Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion in object meta: {revision}"
        );
        return Err(call.conflict(name, &why));
    }
    Ok(())
}

/// The heart of deletion (pure).
fn decide(kind: &Kind, old: &Value, options: &Options, now: Timestamp) -> Step {
    let mut new = old.clone();
    if object::is_namespace(kind) {
        set_finalizers(kind, &mut new, options);
        if !object::is_deleting(old) {
            set(&mut new, &["status", "phase"], "Terminating");
        }
        object::mark_deleting(&mut new, now, 0);
        // Deletion marks carry no grace there, as upstream.
        object::metadata_mut(&mut new).remove("deletionGracePeriodSeconds");
        return if object::completes_deletion(kind, &new) {
            Step::Remove
        } else {
            changed(old, new)
        };
    }
    if object::is_pod(kind) {
        match pod_grace(old, options) {
            PodGrace::Pending => return Step::Keep,
            PodGrace::Now => {}
            PodGrace::Seconds(seconds) => {
                set_finalizers(kind, &mut new, options);
                shorten(&mut new, now, seconds);
                return match seconds == 0 && object::finalizers(&new).is_empty() {
                    true => Step::Remove,
                    false => changed(old, new),
                };
            }
        }
    }
    set_finalizers(kind, &mut new, options);
    if object::is_definition(kind) && !object::is_deleting(old) {
        definitions::hold(&mut new);
    }
    if object::finalizers(&new).is_empty() {
        return Step::Remove;
    }
    object::mark_deleting(&mut new, now, 0);
    changed(old, new)
}

fn changed(old: &Value, new: Value) -> Step {
    if *old == new { Step::Keep } else { Step::Write(new) }
}

enum PodGrace {
    /// Already ending at least as soon.
    Pending,
    /// Marked before without a grace period.
    Now,
    /// End after so many seconds from the deletion's mark.
    Seconds(i64),
}

fn pod_grace(pod: &Value, options: &Options) -> PodGrace {
    let phase = text(pod, &["status", "phase"]);
    let is_idle = text(pod, &["spec", "nodeName"]).is_empty() || matches!(phase, "Succeeded" | "Failed");
    let wish = options
        .grace_seconds
        .map(|seconds| if seconds < 0 { 1 } else { seconds });
    if object::is_deleting(pod) {
        let Some(running) = int(pod, &["metadata", "deletionGracePeriodSeconds"]) else {
            return PodGrace::Now;
        };
        return match wish {
            Some(seconds) if seconds < running => PodGrace::Seconds(seconds),
            _ => PodGrace::Pending,
        };
    }
    let own = int(pod, &["spec", "terminationGracePeriodSeconds"]);
    let own = own.map(|seconds| if seconds < 0 { 1 } else { seconds });
    match is_idle {
        true => PodGrace::Seconds(0),
        false => PodGrace::Seconds(wish.or(own).unwrap_or(0)),
    }
}

/// Marks a pod, or moves an earlier mark forward.
fn shorten(pod: &mut Value, now: Timestamp, seconds: i64) {
    if !object::is_deleting(pod) {
        object::mark_deleting(pod, now, seconds);
        return;
    }
    let running = int(pod, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0);
    let end: Option<Timestamp> = text(pod, &["metadata", "deletionTimestamp"]).parse().ok();
    if let Some(end) = end.and_then(|end| end.checked_add(SignedDuration::from_secs(seconds - running)).ok()) {
        set(pod, &["metadata", "deletionTimestamp"], object::time(end));
    }
    set(pod, &["metadata", "deletionGracePeriodSeconds"], seconds);
}

/// Sets or removes the garbage collector's finalizers as the options, the object and the kind's default say.
fn set_finalizers(kind: &Kind, new: &mut Value, options: &Options) {
    if kind.plural == "events" {
        return;
    }
    let present = object::finalizers(new);
    let (orphan, foreground) = match (options.propagation, options.orphan_dependents) {
        (Some(propagation), _) => (
            propagation == Propagation::Orphan,
            propagation == Propagation::Foreground,
        ),
        (None, Some(orphan)) => (orphan, false),
        (None, None) => {
            let foreground = present.contains(&object::FOREGROUND);
            let orphan = present.contains(&object::ORPHAN) || (kind.default_propagation_orphan && !foreground);
            (orphan, foreground)
        }
    };
    let mut wanted: Vec<String> = present
        .iter()
        .filter(|name| **name != object::ORPHAN && **name != object::FOREGROUND)
        .map(|name| (*name).to_owned())
        .collect();
    if orphan {
        wanted.push(object::ORPHAN.to_owned());
    }
    if foreground {
        wanted.push(object::FOREGROUND.to_owned());
    }
    // The order of finalizers means nothing: the same set is no change.
    let is_same = wanted.len() == present.len() && wanted.iter().all(|name| present.contains(&name.as_str()));
    if is_same {
        return;
    }
    if wanted.is_empty() {
        object::metadata_mut(new).remove("finalizers");
    } else {
        set(new, &["metadata", "finalizers"], json!(wanted));
    }
}

enum Performed {
    Removed(Revision),
    Kept(Arc<Stored>),
    Lost(Option<Arc<Stored>>),
}

async fn perform(call: &Call<'_>, stored: &Arc<Stored>, step: Step) -> Result<Performed, ApiError> {
    let store = call.server.store();
    let outcome = match step {
        Step::Keep => return Ok(Performed::Kept(Arc::clone(stored))),
        Step::Remove => store.delete(&stored.key, stored.revision).await.map(Performed::Removed),
        Step::Write(new) => {
            let raw = Bytes::from(canonical(&reader::stored_as(&call.kind), &new));
            let put = store.put_for_deletion(&stored.key, raw.clone(), stored.revision).await;
            put.map(|revision| {
                let kept = Stored::new(Arc::clone(&stored.key), revision, stored.created, raw);
                Performed::Kept(Arc::new(kept))
            })
        }
    };
    match outcome {
        Err(StoreError::Conflict { current, .. }) => {
            Ok(Performed::Lost(current.map(|record| Arc::new(Stored::from(record)))))
        }
        Err(error) => Err(store_failed(&error)),
        Ok(performed) => Ok(performed),
    }
}

fn removed(call: &Call<'_>, stored: &Arc<Stored>, old: &Value, revision: Revision) -> Answer {
    if call.kind.returns_object_on_delete {
        return Answer::Stored {
            code: 200,
            stored: Arc::clone(stored),
            revision,
        };
    }
    Answer::Object {
        code: 200,
        object: object::deleted_status(&call.kind, old),
    }
}

fn kept_answer(stored: Arc<Stored>, options: &Options) -> Answer {
    Answer::Stored {
        code: if options.orphan_dependents == Some(false) {
            202
        } else {
            200
        },
        revision: stored.revision,
        stored,
    }
}

fn dry_answer(call: &Call<'_>, step: Step, old: Value) -> Answer {
    let object = match step {
        Step::Remove if !call.kind.returns_object_on_delete => object::deleted_status(&call.kind, &old),
        Step::Remove | Step::Keep => old,
        Step::Write(new) => new,
    };
    Answer::Object { code: 200, object }
}

#[cfg(test)]
mod tests;
