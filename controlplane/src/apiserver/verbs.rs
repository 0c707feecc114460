//! The storage verbs, written once for all kinds (control-plane contract §2).
//!
//! Each verb reads a snapshot, decides, and writes with the snapshot's revision as precondition; a conflict starts it again
//! from what is there now, unless the client pinned a revision. What is particular about a kind is its strategy's.

mod addresses;
mod apply;
mod binding;
mod collection;
mod create;
mod delete;
mod eviction;
mod field_validation;
mod filter;
mod finish;
mod form;
mod list;
mod misfits;
mod object;
mod owners;
mod patch;
mod quota;
mod revision;
mod scale;
mod shared;
mod token;
mod update;
mod watch;

use super::Body;
use super::admission::{Attributes, Operation};
use super::flow::ByteReservation;
use super::heavy;
use super::negotiate::{self, Encoding, Output};
use super::reader;
use super::reply::{self, Allowance, Answer};
use super::request::{Query, RequestInfo};
use super::served::Served;
use super::state::ServerState;
use super::status::ApiError;
use super::user::User;
use crate::resource::{Kind, deprecated};
use crate::schema::{self, DecodeError, Media};
use crate::store::window::{ResourceWindow, Stored};
use crate::store::{Revision, StoreError};
use crate::tree;
use bytes::{Bytes, BytesMut};
pub(in crate::apiserver) use field_validation::Validation;
pub(super) use filter::Filter;
pub(super) use finish::Keeps;
use http::request::Parts;
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
pub(super) use object::mark_gracelessly as mark_deleting;
use revision::{parse_revision, too_large};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Largest request body (contract §2.2).
pub(super) const BODY_LIMIT_BYTES: usize = 3 << 20;
/// Longest wait for a revision that has not been seen yet (contract §2.6).
const FUTURE_WAIT: Duration = Duration::from_secs(3);
/// How often a write without a pinned revision starts again after losing a race.
const ATTEMPTS: usize = 100;

/// Subresources answered here: parts of a stored object.
const STORED_PARTS: &[&str] = &[
    "status",
    "scale",
    "binding",
    "ephemeralcontainers",
    "eviction",
    "finalize",
    "approval",
    "resize",
];

/// Whether [`serve`] answers this request.
pub(super) fn serves(kind: &Kind, info: &RequestInfo) -> bool {
    if kind.plural == "bindings" && kind.group.is_empty() {
        return info.subresource.is_empty();
    }
    kind.is_stored() && (info.subresource.is_empty() || STORED_PARTS.contains(&info.subresource.as_str()))
}

/// A request on its way through a verb.
struct Call<'a> {
    server: &'a Arc<ServerState>,
    user: &'a User,
    info: &'a RequestInfo,
    query: &'a Query,
    headers: &'a HeaderMap,
    /// What objects are sent and answered as; see [`Kind::storage`] for what they are prepared, validated and stored as.
    kind: Arc<Kind>,
    /// The kind of the path; another than `kind` for bindings.
    kind_asked: Arc<Kind>,
    served: &'a Arc<Served>,
    window: Arc<ResourceWindow>,
    /// `/registry/<prefix>/`.
    prefix: String,
    /// Empty for kinds at cluster scope, whatever the path says.
    namespace: &'a str,
    output: Output,
    warnings: Vec<String>,
    /// Whether all of it is done in a turn of [`heavy`], where it may take its time and waits for no other turn.
    in_turn: bool,
}

/// Who serves whom.
pub(super) struct Serving<'a> {
    pub(super) server: &'a Arc<ServerState>,
    /// What was served when the request came.
    pub(super) served: &'a Arc<Served>,
    pub(super) user: &'a User,
    /// Whether the request came over the network.
    pub(super) is_remote: bool,
}

impl Serving<'_> {
    /// Waits until there is room for the page as a reply, where that is counted.
    ///
    /// # Errors
    /// 429 when its turn does not come in time, or too many wait.
    async fn room(&self, info: &RequestInfo, bytes: usize) -> Result<Option<ByteReservation>, ApiError> {
        if !self.is_remote || bytes == 0 {
            return Ok(None);
        }
        let room = self.server.flow().reply(self.user, info, bytes).await?;
        Ok(Some(room))
    }
}

/// Answers a storage request.
pub(super) async fn serve(
    serving: Serving<'_>,
    info: &RequestInfo,
    query: &Query,
    kind: &Arc<Kind>,
    parts: &Parts,
    body: Body,
) -> Result<Response<Body>, ApiError> {
    let server = serving.server;
    let verbs = match info.subresource.as_str() {
        "" => kind.verbs,
        part => kind.subresource(part).map_or(&[][..], |part| part.verbs),
    };
    let (is_ending, verb) = (kind.is_ending() && info.subresource.is_empty(), info.verb.as_str());
    match verbs.contains(&verb) {
        true => {}
        false if is_ending && matches!(verb, "patch" | "update") => {}
        false if is_ending && verb == "create" => return Err(definition_ends()),
        false => return Err(not_supported(kind, info)),
    }
    let output = Output::negotiate_of(&parts.headers, query, reply::has_protobuf(kind))?;
    let Some(mut call) = Call::new(&serving, (info, query), kind, &parts.headers, output) else {
        return Err(not_supported(kind, info));
    };
    let mut allowance = Allowance::default();
    let answer = match call.writes() {
        true => {
            let body = call.bytes(body).await?;
            let at_stake = call.at_stake(body.len());
            allowance = call.allowance(&serving, at_stake).await?;
            let (answer, warnings) = call
                .finished_anyway(&serving, parts, body, heavy::is_large(at_stake))
                .await;
            call.warnings = warnings;
            answer
        }
        false => call.read_out(body).await,
    };
    let mut answer = match answer {
        Ok(answer) => answer,
        Err(mut error) => {
            error.warnings = std::mem::take(&mut call.warnings);
            return Err(error);
        }
    };
    let reserved = match &mut answer {
        // A deletion of many has taken it before it began.
        Answer::List(page) if info.verb == "deletecollection" => page.room.take(),
        answer if matches!(info.verb.as_str(), "get" | "list" | "watch") => {
            serving.room(info, answer.cost(output)).await?
        }
        // What a write answers has been done: it waits for nothing any more.
        _ => allowance.room,
    };
    let context = reply::Context {
        kind,
        forms: server.forms(),
        output,
        headers: &parts.headers,
        include: query.text("includeObject"),
        now: server.now(),
        warnings: &call.warnings,
        most_bytes: allowance.most_bytes,
    };
    let mut response = reply::write(answer, &context)?;
    if let Some(reserved) = reserved {
        // Taken out by whoever sends the reply, who keeps it until then.
        response.extensions_mut().insert(Arc::new(reserved));
    }
    Ok(response)
}

/// The refusal of new objects of a definition that ends.
fn definition_ends() -> ApiError {
    let why = "create not allowed while custom resource definition is terminating";
    ApiError::new(403, "Forbidden", why)
}

impl<'a> Call<'a> {
    fn new(
        serving: &Serving<'a>,
        (info, query): (&'a RequestInfo, &'a Query),
        kind: &Arc<Kind>,
        headers: &'a HeaderMap,
        output: Output,
    ) -> Option<Self> {
        // Bindings are not stored themselves: they change pods.
        let stored = match &*kind.plural {
            "bindings" if kind.group.is_empty() => serving.served.registry().by_resource("", "v1", "pods")?,
            _ => kind,
        };
        let resource = serving.served.resource(&stored.group, &stored.plural)?;
        Some(Self {
            server: serving.server,
            served: serving.served,
            user: serving.user,
            info,
            query,
            headers,
            kind: Arc::clone(stored),
            kind_asked: Arc::clone(kind),
            window: Arc::clone(&resource.window),
            prefix: resource.prefix.clone(),
            namespace: if kind.namespaced { &info.namespace } else { "" },
            output,
            warnings: deprecated::kind(stored).map(str::to_owned).into_iter().collect(),
            in_turn: false,
        })
    }

    /// The bytes that a write is about: the object there is, and what is sent for it.
    fn at_stake(&self, body: usize) -> usize {
        let key = self.key(&self.info.name);
        let snapshot = self.window.cached();
        let there = snapshot.objects.get(key.as_str());
        there.map_or(0, |stored| stored.size()) + body
    }

    /// What the reply of a write may take, before it begins: as much as it is about. A deletion of many asks for itself.
    async fn allowance(&self, serving: &Serving<'_>, at_stake: usize) -> Result<Allowance, ApiError> {
        if !serving.is_remote || self.info.verb == "deletecollection" {
            return Ok(Allowance::default());
        }
        let wanted = Allowance::wanted(at_stake.min(tree::SIZE_MAX_BYTES), self.output);
        Ok(Allowance::granted(wanted, serving.room(self.info, wanted).await?))
    }

    async fn dispatch(&mut self, body: Body) -> Result<Answer, ApiError> {
        let is_binding = self.info.resource == "bindings" || self.info.subresource == "binding";
        match (self.info.subresource.as_str(), self.info.verb.as_str()) {
            _ if is_binding => binding::bind(self, &self.bytes(body).await?).await,
            ("", "get") | ("status" | "approval" | "ephemeralcontainers" | "resize", "get") => self.get().await,
            ("", "list") => list::list(self).await,
            ("", "watch") if self.output.encoding == Encoding::Yaml => Err(negotiate::not_acceptable()),
            ("", "watch") => watch::watch(self).await,
            ("", "create") => create::create(self, &self.bytes(body).await?).await,
            ("eviction", "create") => eviction::evict(self, &self.bytes(body).await?).await,
            ("scale", "get") => scale::get(self).await,
            ("scale", "update") => scale::update(self, &self.bytes(body).await?).await,
            ("scale", "patch") => scale::patch(self, &self.bytes(body).await?).await,
            (_, "update") => update::update(self, &self.bytes(body).await?).await,
            (_, "patch") => patch::patch(self, &self.bytes(body).await?).await,
            ("", "delete") => delete::delete(self, &self.bytes(body).await?).await,
            _ => Err(not_supported(&self.kind, self.info)),
        }
    }

    /// The whole body, up to the limit.
    async fn bytes(&self, mut body: Body) -> Result<Bytes, ApiError> {
        let mut all = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame
                .map_err(|error| ApiError::bad_request(format!("the body of the request cannot be read: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if all.len() + data.len() > BODY_LIMIT_BYTES {
                let text = format!("Request entity too large: limit is {BODY_LIMIT_BYTES}");
                return Err(ApiError::new(413, "RequestEntityTooLarge", text));
            }
            all.extend_from_slice(&data);
        }
        Ok(all.freeze())
    }

    /// The body as an object of the call's kind, with field validation applied.
    async fn decode(&mut self, body: &[u8]) -> Result<Value, ApiError> {
        let validation = Validation::read(self.query, self.info)?;
        let media = negotiate::input(self.headers)?;
        let kind = Arc::clone(&self.kind);
        let read = move |body: &[u8]| schema::decode(&kind, body, media);
        let decoded = self.reading(body, media, read).await??;
        validation.judge(decoded, (&self.kind.kind, &self.kind.version), &mut self.warnings)
    }

    /// The body as an object of a subresource's kind, named by group, version and kind.
    async fn decode_part(&mut self, of: [&'static str; 3], body: &[u8]) -> Result<Value, ApiError> {
        let validation = Validation::read(self.query, self.info)?;
        let media = negotiate::input(self.headers)?;
        let [group, version, kind] = of;
        let body_type = self.served.registry().body(group, version, kind);
        let body_type = body_type.ok_or_else(|| DecodeError::NoSchema(format!("{group}/{version} {kind}")))?;
        let read = move |body: &[u8]| schema::decode_body(&body_type, body, media);
        let decoded = self.reading(body, media, read).await??;
        validation.judge(decoded, (kind, version), &mut self.warnings)
    }

    /// Runs what takes long where that holds up nobody, in the user's turn.
    async fn heavy<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
        match self.in_turn {
            true => Ok(work()),
            false => heavy::run(self.server.flow(), self.user, self.info, work).await,
        }
    }

    /// Reads a body; what takes long is read in its turn on a thread that serves nobody.
    async fn reading<T: Send + 'static>(
        &self,
        body: &[u8],
        media: Media,
        read: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        match self.in_turn {
            true => Ok(read(body)),
            false => heavy::read(self.server.flow(), self.user, self.info, (body, media), read).await,
        }
    }

    fn key(&self, name: &str) -> String {
        reader::key(&self.prefix, self.namespace, name)
    }

    /// The object as of the latest revision.
    async fn current(&self, name: &str) -> Result<Arc<Stored>, ApiError> {
        self.find(name).await?.ok_or_else(|| self.not_found(name))
    }

    async fn find(&self, name: &str) -> Result<Option<Arc<Stored>>, ApiError> {
        let snapshot = self.window.latest().await.map_err(|error| store_failed(&error))?;
        self.object_of(&snapshot, name)
    }

    fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(&self.kind.group, &self.kind.plural, name)
    }

    fn conflict(&self, name: &str, why: &str) -> ApiError {
        ApiError::conflict(&self.kind.group, &self.kind.plural, name, why)
    }

    /// Upstream's words for a lost race on a pinned revision.
    fn modified(&self, name: &str) -> ApiError {
        self.conflict(
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    async fn get(&self) -> Result<Answer, ApiError> {
        let name = &self.info.name;
        let snapshot = match parse_revision(self.query.text("resourceVersion"))? {
            None => self.window.latest().await.map_err(|error| store_failed(&error))?,
            Some(0) => self.window.cached(),
            Some(revision) => {
                self.reach(revision).await?;
                self.window.cached()
            }
        };
        let stored = self.object_of(&snapshot, name)?.ok_or_else(|| self.not_found(name))?;
        let revision = stored.revision;
        Ok(Answer::Stored {
            code: 200,
            stored,
            revision,
        })
    }

    /// Waits until readers see what was answered, so that whoever takes the lock next does.
    async fn seen(&self, answer: Answer) -> Result<Answer, ApiError> {
        if let Answer::Stored { revision, .. } = answer {
            self.seen_to(revision).await?;
        }
        Ok(answer)
    }

    /// Waits until readers see what was written at the revision.
    async fn seen_to(&self, revision: Revision) -> Result<(), ApiError> {
        let reached = self.window.reach(revision).await;
        reached.map_err(|error| store_failed(&error))
    }

    /// Waits a little for a revision that has not been seen yet.
    async fn reach(&self, revision: Revision) -> Result<(), ApiError> {
        match tokio::time::timeout(FUTURE_WAIT, self.window.reach(revision)).await {
            Ok(reached) => reached.map_err(|error| store_failed(&error)),
            Err(_) => Err(too_large(revision, self.window.cached().revision)),
        }
    }

    /// Runs mutating or validating admission over `object`.
    async fn mutate(
        &self,
        operation: Operation,
        dry_run: bool,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let name = object::name(if object.is_null() {
            old.unwrap_or(object)
        } else {
            object
        })
        .to_owned();
        let attributes = self.attributes(operation, &name, dry_run);
        self.server
            .gate()
            .mutate(&attributes, object, old, self.server.reader())
            .await
    }

    async fn admit(
        &self,
        operation: Operation,
        dry_run: bool,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let name = object::name(if object.is_null() {
            old.unwrap_or(object)
        } else {
            object
        });
        let attributes = self.attributes(operation, name, dry_run);
        self.server
            .gate()
            .validate(&attributes, object, old, self.server.reader())
            .await
    }

    fn attributes<'b>(&'b self, operation: Operation, name: &'b str, dry_run: bool) -> Attributes<'b> {
        Attributes {
            user: self.user,
            info: self.info,
            kind: self.kind.storage(),
            operation,
            namespace: self.namespace,
            name,
            dry_run,
        }
    }
}

fn not_read(error: &str) -> ApiError {
    ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
}

/// What who asked is told. The log has been told by the store (`store::told`), not line by line.
fn store_failed(error: &StoreError) -> ApiError {
    match error {
        StoreError::ReadOnly(why) => ApiError::read_only(why),
        StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_) => ApiError::new(504, "Timeout", error.to_string()),
        _ => ApiError::internal(error),
    }
}

/// 405 with upstream's text.
pub(super) fn not_supported(kind: &Kind, info: &RequestInfo) -> ApiError {
    let mut resource = kind.plural.to_string();
    if !info.subresource.is_empty() {
        resource = format!("{resource}/{}", info.subresource);
    }
    if !kind.group.is_empty() {
        resource = format!("{resource}.{}", kind.group);
    }
    let text = format!("{} is not supported on resources of kind \"{resource}\"", info.verb);
    ApiError::new(405, "MethodNotAllowed", text).about(&kind.group, &kind.plural, "")
}

#[cfg(test)]
mod tests;
