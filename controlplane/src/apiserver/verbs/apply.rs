//! Server-side apply: a configuration laid over the object there is, or made one (control-plane contract §2.5).

use super::owners::{Author, New, Old, Owners};
use super::patch;
use super::update::{self, Make, OnConflict};
use super::{ATTEMPTS, Answer, Call, Validation, create, object};
use crate::apiserver::heavy;
use crate::apiserver::status::{ApiError, Cause};
use crate::managed_fields::{self, Applied, Apply, ApplyError, Live, Scope, Typing};
use crate::resource::Kind;
use crate::resource::field::text;
use crate::resource::field_error::FieldError;
use crate::schema::{self, Media};
use serde_json::Value;
use std::sync::Arc;

/// The content type of configurations.
pub(super) const APPLY: &str = "application/apply-patch+yaml";

/// A configuration, and who applies it how.
pub(super) struct Configuration {
    pub(super) document: Value,
    pub(super) author: Author,
    pub(super) force: bool,
    /// The length of what was sent.
    bytes: usize,
}

impl Configuration {
    /// Reads the request's: of the API version and kind given, without managedFields.
    ///
    /// # Errors
    /// 400 for what is none, 422 for options.
    pub(super) async fn read(call: &mut Call<'_>, body: &[u8], of: (&str, &str)) -> Result<Self, ApiError> {
        let validation = options(call)?;
        let read = match call
            .reading(body, Media::Json, |body| schema::parse_noting(body, Media::Json))
            .await?
        {
            Ok(read) => Ok(read),
            Err(_) => {
                call.reading(body, Media::Yaml, |body| schema::parse_noting(body, Media::Yaml))
                    .await?
            }
        };
        let (document, problems) =
            read.map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?;
        let (api_version, kind) = of;
        let found = (text(&document, &["apiVersion"]), text(&document, &["kind"]));
        if found != (api_version, kind) {
            let found = type_text(found.0, found.1);
            return Err(ApiError::bad_request(format!("invalid object type: {found}")));
        }
        if document["metadata"]
            .get("managedFields")
            .is_some_and(|list| !list.is_null())
        {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        match validation {
            Validation::Strict if !problems.is_empty() => {
                let text = format!("error strict decoding YAML: {}", problems.join(", "));
                return Err(ApiError::bad_request(text));
            }
            Validation::Warn => call.warnings.extend(problems),
            Validation::Strict | Validation::Ignore => {}
        }
        Ok(Self {
            document,
            author: call.author(api_version),
            force: call.query.flag("force"),
            bytes: body.len(),
        })
    }

    /// The object after the configuration was applied, its owners settled.
    ///
    /// # Errors
    /// 409 for fields that others own, 500 for fields and values the type does not have.
    pub(super) fn applied(&self, typing: Typing<'_>, scope: Scope, old: Live<'_>) -> Result<Applied, ApiError> {
        let apply = Apply {
            typing,
            scope,
            writer: self.author.writer(),
            force: self.force,
        };
        apply.to(old, &self.document).map_err(|error| self.refused(error))
    }

    fn refused(&self, error: ApplyError) -> ApiError {
        match error {
            ApplyError::Untyped(problems) => {
                let config = &self.document;
                let (namespace, name) = (text(config, &["metadata", "namespace"]), object::name(config));
                let kind = type_text(text(config, &["apiVersion"]), text(config, &["kind"]));
                let text = format!("failed to create typed patch object ({namespace}/{name}; {kind}): {problems}");
                ApiError::new(500, "", text)
            }
            ApplyError::Conflicts(all) => {
                let causes = all.first().into_iter().map(|conflict| Cause {
                    kind: "FieldManagerConflict".to_owned(),
                    message: format!("conflict with {}", conflict.manager),
                    field: conflict.field,
                });
                ApiError::new(409, "Conflict", all.message()).with_causes(causes)
            }
        }
    }
}

/// `group/version, Kind=kind`.
fn type_text(api_version: &str, kind: &str) -> String {
    let group = if api_version.contains('/') { "" } else { "/" };
    format!("{group}{api_version}, Kind={kind}")
}

fn options(call: &Call<'_>) -> Result<Validation, ApiError> {
    let manager = call.query.text("fieldManager");
    if manager.is_empty() {
        let error = FieldError::required("fieldManager", "is required for apply patch");
        return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", vec![error]));
    }
    call.check_manager("PatchOptions")?;
    Validation::read(call.query, call.info)
}

/// Applies the body to the named object, which need not be there.
pub(super) async fn apply(call: &mut Call<'_>, body: &[u8]) -> Result<Answer, ApiError> {
    let dry_run = call.query.dry_run("PatchOptions")?;
    let kind = Arc::clone(&call.kind);
    let config = Configuration::read(call, body, (&kind.api_version, &kind.kind)).await?;
    let config = Arc::new(config);
    let name = call.info.name.clone();
    for _ in 0..ATTEMPTS {
        let is_there = call.find(&name).await?.is_some();
        let done = match is_there {
            true => change(call, &name, &config, dry_run).await,
            false if call.info.subresource.is_empty() => make(call, &name, &config, dry_run).await,
            false => return Err(call.not_found(&name)),
        };
        match done {
            // Somebody else made or deleted it meanwhile.
            Err(error) if is_there && error.reason == "NotFound" && call.find(&name).await?.is_none() => {}
            Err(error) if !is_there && error.reason == "AlreadyExists" => {}
            done => return done,
        }
    }
    Err(call.modified(&name))
}

async fn change(
    call: &mut Call<'_>,
    name: &str,
    config: &Arc<Configuration>,
    dry_run: bool,
) -> Result<Answer, ApiError> {
    let (kind, config, part) = (
        Arc::clone(&call.kind),
        Arc::clone(config),
        call.info.subresource.clone(),
    );
    let make = Make::patch(config.bytes, move |old: &Old| {
        let new = laid_over(&kind, &config, &part, old.live())?;
        patch::check(&old.object, &new.object)?;
        Ok(new)
    });
    update::change(call, name, dry_run, OnConflict::Repeat, make).await
}

/// Makes the object of the configuration alone; whoever does must be allowed to create it.
async fn make(call: &mut Call<'_>, name: &str, config: &Arc<Configuration>, dry_run: bool) -> Result<Answer, ApiError> {
    let info = super::RequestInfo {
        verb: "create".to_owned(),
        ..call.info.clone()
    };
    let gate = call.server.gate();
    gate.authorize(call.user, &info, call.server.reader()).await?;
    let (kind, config, bytes) = (Arc::clone(&call.kind), Arc::clone(config), config.bytes);
    let work = move || {
        let nothing = managed_fields::nothing(&kind.api_version, &kind.kind);
        let nothing = Live {
            object: &nothing,
            owners: None,
        };
        laid_over(&kind, &config, "", nothing)
    };
    let New {
        object: mut new,
        owners,
    } = match heavy::is_large(bytes) {
        true => call.heavy(work).await??,
        false => work()?,
    };
    update::check_name(&new, name)?;
    let uid = object::uid(&new);
    if !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(call.conflict(name, &why));
    }
    create::place(call, &mut new)?;
    create::insert(call, new, dry_run, owners).await
}

fn laid_over(kind: &Kind, config: &Configuration, part: &str, old: Live<'_>) -> Result<New, ApiError> {
    let typing = Typing::of_kind(kind).ok_or_else(|| ApiError::internal(format!("no schema for {kind:?}")))?;
    let mut new = config.applied(typing, Scope::of(kind, part), old)?;
    // Whatever the type does not have was refused already.
    schema::normalize(kind, &mut new.object)?;
    Ok(New {
        object: new.object,
        owners: Owners::Settled(new.owners),
    })
}
