//! Changes of one object: PUT, and the engine that patches and subresources use as well (control-plane contract §2.3).

use super::Operation;
use super::owners::{New, Old, Owners};
use super::quota::Unwritten;
use super::shared;
use super::{ATTEMPTS, Answer, Call, addresses, create, object, parse_revision};
use crate::apiserver::heavy;
use crate::apiserver::quota::Entry;
use crate::apiserver::status::ApiError;
use crate::managed_fields;
use crate::resource::field::set;
use crate::resource::field_error::FieldError;
use crate::resource::{KindStrategy, deprecated, without_effect};
use crate::store::window::Stored;
use crate::store::{Expect, Revision, StoreError};
use crate::tree::SIZE_MAX_BYTES;
use bytes::Bytes;
use serde_json::Value;
use std::sync::Arc;

pub(super) async fn update(call: &mut Call<'_>, body: &[u8]) -> Result<Answer, ApiError> {
    let dry_run = call.query.dry_run("UpdateOptions")?;
    call.check_manager("UpdateOptions")?;
    let mut sent = call.decode(body).await?;
    create::place(call, &mut sent)?;
    let name = call.info.name.clone();
    check_name(&sent, &name)?;
    let is_main = call.info.subresource.is_empty();
    if is_main && call.kind.create_on_update && call.find(&name).await?.is_none() {
        // What is not there has no uid; its revision is not asked for, as upstream.
        check_identity(call, &name, &sent, &Value::Null)?;
        object::metadata_mut(&mut sent).remove("resourceVersion");
        let info = super::RequestInfo {
            verb: "create".to_owned(),
            ..call.info.clone()
        };
        call.server
            .gate()
            .authorize(call.user, &info, call.server.reader())
            .await?;
        return create::insert(call, sent, dry_run, Owners::Track).await;
    }
    let is_unpinned = !call.kind.unconditional_update && object::revision(&sent).is_empty();
    let kind = Arc::clone(&call.kind);
    let make = Make::small(move |old: &Old| {
        if is_unpinned {
            // Only now: what is not there is not found, whatever revision was sent.
            let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            let name = object::name(&old.object);
            return Err(ApiError::invalid(&kind.group, &kind.plural, name, vec![error]));
        }
        Ok(sent.clone().into())
    });
    change(call, &name, dry_run, OnConflict::Refuse, make).await
}

/// What is sent to a name must have that name.
pub(super) fn check_name(sent: &Value, name: &str) -> Result<(), ApiError> {
    let own = object::name(sent);
    let why = match own {
        "" => {
            format!("the name of the object ({name} based on URL) was undeterminable: name must be provided")
        }
        own if own == name => return Ok(()),
        own => format!("the name of the object ({own}) does not match the name on the URL ({name})"),
    };
    Err(ApiError::bad_request(why))
}

/// What a change does that was made from a revision which is no longer the newest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OnConflict {
    /// The client named the revision: 409.
    Refuse,
    /// The change is made again from the newest one.
    Repeat,
}

/// What a change keeps from others while it is made.
#[derive(Clone, Copy)]
enum Holds {
    Nothing,
    /// A quota is counted: what is made in its namespace waits for it, and may have a turn meanwhile.
    Counting,
    /// All writes of Services wait for it, so it waits for nobody.
    ServiceLock,
}

/// What there is when a change begins.
struct Begun {
    holds: Holds,
    /// Of a Service: the new object that was made of the named revision before the lock that is held now.
    made: Option<(Revision, New)>,
    /// Of a Service: what its namespace's counters wait for, taken before the lock that is held now.
    entry: Option<Entry>,
}

/// How the new object comes of the old one, which is complete.
pub(super) struct Make<F> {
    make: Arc<F>,
    /// The length of what is applied, if that takes work: a patch.
    bytes: Option<usize>,
}

impl<F: Fn(&Old) -> Result<New, ApiError> + Send + Sync + 'static> Make<F> {
    /// Something that takes no time to speak of.
    pub(super) fn small(make: F) -> Self {
        Self {
            make: Arc::new(make),
            bytes: None,
        }
    }

    /// The application of a patch of so many bytes.
    pub(super) fn patch(bytes: usize, make: F) -> Self {
        Self {
            make: Arc::new(make),
            bytes: Some(bytes),
        }
    }

    async fn from(&self, call: &Call<'_>, stored: &Stored, old: &Old, holds: Holds) -> Result<New, ApiError> {
        let bytes = self.bytes.map_or(0, |bytes| bytes + stored.size());
        if call.in_turn || !heavy::is_large(bytes) {
            return (self.make)(old);
        }
        let (make, old) = (Arc::clone(&self.make), old.clone());
        let work = move || make(&old);
        match holds {
            Holds::Nothing => heavy::run(call.server.flow(), call.user, call.info, work).await?,
            Holds::Counting => heavy::run_locked(call.server.flow(), call.user, call.info, work).await?,
            Holds::ServiceLock => heavy::run_without_turn(work).await?,
        }
    }
}

/// Applies `make` to the named object until it is stored or refused. A new object that carries a resourceVersion other than the
/// old one's is pinned to it and conflicts.
pub(super) async fn change(
    call: &mut Call<'_>,
    name: &str,
    dry_run: bool,
    on_conflict: OnConflict,
    make: Make<impl Fn(&Old) -> Result<New, ApiError> + Send + Sync + 'static>,
) -> Result<Answer, ApiError> {
    if !object::is_service(&call.kind) {
        let counting = call.counting().await;
        let begun = Begun {
            holds: counting.as_ref().map_or(Holds::Nothing, |_| Holds::Counting),
            made: None,
            entry: None,
        };
        let answer = change_now(call, name, dry_run, on_conflict, make, begun).await?;
        return call.noticed(counting, answer).await;
    }
    // Made before the turn, which all Services share; made again in it if the Service has changed meanwhile.
    let stored = call.current(name).await?;
    let made = make.from(call, &stored, &call.old(&stored), Holds::Nothing).await?;
    let server = call.server;
    let entry = call.enter(Operation::Update, dry_run).await;
    let _among_services = server.write_locks().write_service().await;
    let begun = Begun {
        holds: Holds::ServiceLock,
        made: Some((stored.revision, made)),
        entry,
    };
    let answer = change_now(call, name, dry_run, on_conflict, make, begun).await?;
    call.seen(answer).await
}

async fn change_now(
    call: &mut Call<'_>,
    name: &str,
    dry_run: bool,
    on_conflict: OnConflict,
    make: Make<impl Fn(&Old) -> Result<New, ApiError> + Send + Sync + 'static>,
    begun: Begun,
) -> Result<Answer, ApiError> {
    let mut stored = call.current(name).await?;
    let Begun { holds, mut made, entry } = begun;
    let mut contentions = 0;
    for _ in 0..ATTEMPTS {
        let old = call.old(&stored);
        let New { object: new, owners } = match made.take().filter(|(revision, _)| *revision == stored.revision) {
            Some((_, new)) => new,
            None => make.from(call, &stored, &old, holds).await?,
        };
        let mut new = call.stored_form(new)?;
        let old = match call.kind.conversion {
            None => old,
            Some(_) => call.old_as_stored(&stored),
        };
        let pinned = parse_revision(object::revision(&new))?;
        if pinned.is_some_and(|pinned| pinned != stored.revision) {
            return Err(call.modified(name));
        }
        check_identity(call, name, &new, &old.object)?;
        let mut warnings = Vec::new();
        let owners = prepare(call, &mut new, &old, dry_run, owners, &mut warnings).await?;
        if call.info.subresource.is_empty() {
            warnings.extend(deprecated::fields(call.kind.storage(), &new));
            warnings.extend(without_effect::warnings(call.kind.storage(), &new));
        }
        let asked = (&new, Some(&old.object));
        let charge = call.charge(Operation::Update, dry_run, entry.as_ref(), asked).await?;
        let lost = match store(call, &stored, new, owners.as_deref(), dry_run).await {
            Ok(Outcome::Done(answer)) => {
                call.warnings.extend(warnings);
                return Ok(answer);
            }
            Ok(Outcome::Lost(current)) => {
                call.give_back(charge).await;
                current
            }
            // Another API server was faster with an address or a port that was chosen here.
            Err(why) if why.error.is_contended && contentions < shared::CONTENTIONS => {
                contentions += 1;
                call.give_back(charge).await;
                call.caught_up().await?;
                continue;
            }
            Err(why) => return Err(call.unwritten(charge, why).await),
        };
        // What was deleted meanwhile is gone, whatever revision the sender knew.
        stored = lost.ok_or_else(|| call.not_found(name))?;
        if pinned.is_some() && on_conflict == OnConflict::Refuse {
            return Err(call.modified(name));
        }
    }
    Err(call.modified(name))
}

fn check_identity(call: &Call<'_>, name: &str, new: &Value, old: &Value) -> Result<(), ApiError> {
    let (sent, own) = (object::uid(new), object::uid(old));
    if !sent.is_empty() && sent != own {
        let why = format!("Precondition failed: UID in precondition: {sent}, UID in object meta: {own}");
        return Err(call.conflict(name, &why));
    }
    Ok(())
}

/// Defaults, admission, preparation and validation of a change; gives the managedFields it leaves.
async fn prepare(
    call: &Call<'_>,
    new: &mut Value,
    before: &Old,
    dry_run: bool,
    owners: Owners,
    warnings: &mut Vec<String>,
) -> Result<Option<String>, ApiError> {
    let strategy = &call.kind.strategy;
    let part = call.info.subresource.as_str();
    strategy.default(new);
    let filled = with_defaults(strategy, before, new);
    let before = filled.as_ref().unwrap_or(before);
    let old = &before.object;
    if part == "finalize" {
        // The one way to change spec.finalizers, and nothing else.
        let finalizers = new["spec"]["finalizers"].take();
        *new = old.clone();
        set(new, &["spec", "finalizers"], finalizers);
    }
    object::keep_system_fields(new, old);
    // Of what a patch makes, upstream says the same as of what admission makes.
    warnings.extend(object::drop_repeated_owners(new, call.info.verb == "patch"));
    let owners = call.owners_of(new, Some(before), owners);
    call.mutate(Operation::Update, dry_run, new, Some(old)).await?;
    warnings.extend(object::drop_repeated_owners(new, true));
    if part != "finalize" {
        strategy.prepare_update(new, old, part);
        strategy.stamp(new, old, call.server.now());
    }
    object::keep_system_fields(new, old);
    if strategy.has_generation()
        && matches!(part, "" | "scale" | "ephemeralcontainers" | "resize")
        && raises_generation(call, new, old)
    {
        object::raise_generation(new);
    }
    let mut errors = call.problems(new, Some(old)).await?;
    if owners.as_deref() != before.owners.as_deref() {
        errors.extend(managed_fields::problems(owners.as_deref()));
    }
    if !errors.is_empty() {
        return Err(ApiError::invalid(
            &call.kind.group,
            &call.kind.kind,
            object::name(old),
            errors,
        ));
    }
    call.admit(Operation::Update, dry_run, new, Some(old)).await?;
    if call.writes_count() {
        call.never_less(new, old).await?;
    }
    Ok(managed_fields::settled(new, owners, before.live()))
}

/// What was stored before there was a default has it, too, as upstream has it of all that it reads: nothing has changed by that, and nobody
/// owns it for it. Absent where nothing is other but metadata and status, which is what most writes change.
fn with_defaults(strategy: &KindStrategy, before: &Old, new: &Value) -> Option<Old> {
    let is_content = |key: &str| !matches!(key, "metadata" | "status");
    let keys = [&before.object, new].map(|object| object.as_object().into_iter().flat_map(|all| all.keys()));
    let mut content = keys.into_iter().flatten().filter(|key| is_content(key));
    if content.all(|key| before.object.get(key) == new.get(key)) {
        return None;
    }
    let mut object = before.object.clone();
    strategy.default(&mut object);
    let owners = before.owners.clone();
    Some(Old { object, owners })
}

/// Whether a change raises the generation. Versions are asked as the request sees them, as upstream does: what another
/// version lacks, or fills in, has not changed.
fn raises_generation(call: &Call<'_>, new: &Value, old: &Value) -> bool {
    let (kind, strategy) = (&call.kind, &call.kind.strategy);
    match kind.conversion {
        None => strategy.bumps_generation(new, old),
        Some(_) => strategy.bumps_generation(&kind.presented(new.clone()), &kind.presented(old.clone())),
    }
}

enum Outcome {
    Done(Answer),
    /// Someone else was faster; carries what is there now.
    Lost(Option<Arc<Stored>>),
}

async fn store(
    call: &Call<'_>,
    stored: &Arc<Stored>,
    mut new: Value,
    owners: Option<&str>,
    dry_run: bool,
) -> Result<Outcome, Unwritten> {
    // What is too large already may shrink, or stay as large.
    let most = SIZE_MAX_BYTES.max(stored.size());
    let (raw, owners) = create::fitting(call, &new, owners, most)?;
    let is_deletion = object::completes_deletion(&call.kind, &new);
    // Steps of a deletion are written even when the disk is nearly full; the store bounds how far the object may grow.
    let frees_space = raw.len() <= stored.size() || object::is_deleting(&new);
    if dry_run {
        managed_fields::put(&mut new, owners);
        return Ok(Outcome::Done(Answer::Object { code: 200, object: new }));
    }
    let store = call.server.store();
    if raw == stored.raw() && !is_deletion && !store.is_stale(&stored.key, stored.revision).await {
        return Ok(Outcome::Done(Answer::Stored {
            code: 200,
            revision: stored.revision,
            stored: Arc::clone(stored),
        }));
    }
    let old = object::is_service(&call.kind).then(|| stored.tree());
    let noting = async {
        match (&old, is_deletion) {
            (Some(old), false) => call.note_addresses(&new, Some(old)).await,
            _ => addresses::Noted::default(),
        }
    };
    let writing = async |claims: &[(String, Revision)]| {
        let expect = Expect::At(stored.revision);
        match is_deletion {
            true => store.delete(&stored.key, stored.revision).await,
            false if !claims.is_empty() => store.put_if(&stored.key, raw.clone(), expect, claims).await,
            false if frees_space => store.put_for_deletion(&stored.key, raw.clone(), stored.revision).await,
            false => store.put(&stored.key, raw.clone(), expect).await,
        }
    };
    let (noted, outcome) = match (&old, call.is_shared() && !is_deletion) {
        (Some(old), true) => {
            let noted = call.claim(&new, Some(old)).await?;
            let done = writing(&noted.claims).await;
            (noted, done)
        }
        _ => futures::join!(noting, writing(&[])),
    };
    match (&outcome, &old) {
        (Ok(_), Some(old)) => {
            call.free_addresses((old, stored.revision), (!is_deletion).then_some(&new))
                .await?
        }
        (Ok(_), None) => {}
        (Err(StoreError::Conflict { key, .. }), _) if noted.is_claim(key) => {
            let why = shared::claim_lost(&new, key);
            call.forget_addresses(noted, None).await;
            return Err(why.into());
        }
        (Err(StoreError::Conflict { current, .. }), _) => {
            let holder = current.as_ref().map(|record| Stored::from(record.clone()).tree());
            call.forget_addresses(noted, holder.as_ref()).await;
        }
        (Err(error), _) => call.forget_unwritten(noted, &Unwritten::by_store(error)).await,
    }
    outcome_of(stored, raw, outcome)
}

/// What came of storing `raw` in the place of what is `stored`.
fn outcome_of(stored: &Stored, raw: Bytes, written: Result<Revision, StoreError>) -> Result<Outcome, Unwritten> {
    match written {
        Ok(revision) => {
            let stored = Stored::new(Arc::clone(&stored.key), revision, stored.created, raw);
            Ok(Outcome::Done(Answer::Stored {
                code: 200,
                stored: Arc::new(stored),
                revision,
            }))
        }
        Err(StoreError::Conflict { current, .. }) => {
            Ok(Outcome::Lost(current.map(|record| Arc::new(Stored::from(record)))))
        }
        Err(error) => Err(Unwritten::by_store(&error)),
    }
}

/// Stores the bytes of a changed object that holds no addresses and is not being deleted.
async fn store_bytes(call: &Call<'_>, stored: &Stored, raw: Bytes) -> Result<Outcome, Unwritten> {
    let store = call.server.store();
    let written = match raw.len() <= stored.size() {
        true => store.put_for_deletion(&stored.key, raw.clone(), stored.revision).await,
        false => store.put(&stored.key, raw.clone(), Expect::At(stored.revision)).await,
    };
    outcome_of(stored, raw, written)
}

/// Changes the named object without admission, strategy and validation, and leaves its owners as they are: for subresources that decide
/// everything themselves. Gives its revision, unless nothing is to be written.
pub(super) async fn write_part(
    call: &Call<'_>,
    name: &str,
    dry_run: bool,
    make: impl Fn(Value) -> Result<Value, ApiError>,
) -> Result<Option<Revision>, ApiError> {
    write_spliced(call, name, dry_run, |_| None, make).await
}

/// As [`write_part`], of an object that is not being deleted then, nor holds addresses. Where `splice` gives the new bytes, which are those
/// of what `make` makes, no tree is made.
pub(super) async fn write_spliced(
    call: &Call<'_>,
    name: &str,
    dry_run: bool,
    splice: impl Fn(&Stored) -> Option<Result<Vec<u8>, ApiError>>,
    make: impl Fn(Value) -> Result<Value, ApiError>,
) -> Result<Option<Revision>, ApiError> {
    let mut stored = call.current(name).await?;
    for _ in 0..ATTEMPTS {
        let spliced = match dry_run {
            true => None,
            false => splice(&stored).transpose()?,
        };
        let outcome = match spliced.filter(|raw| raw.len() <= SIZE_MAX_BYTES.max(stored.size())) {
            Some(raw) => store_bytes(call, &stored, Bytes::from(raw)).await?,
            None => {
                let Old { object, owners } = call.old(&stored);
                store(call, &stored, make(object)?, owners.as_deref(), dry_run).await?
            }
        };
        match outcome {
            Outcome::Done(Answer::Stored { revision, .. }) => return Ok(Some(revision)),
            Outcome::Done(_) => return Ok(None),
            Outcome::Lost(current) => stored = current.ok_or_else(|| call.not_found(name))?,
        }
    }
    Err(call.modified(name))
}
