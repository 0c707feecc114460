//! Endpoints whose answers are not stored objects: health, version, metrics, reviews, service account
//! tokens, their public keys (control-plane contract §1, §6). Requests come here authorized.

mod component_status;
pub mod health;
pub(crate) mod metrics;
mod openid;
mod review;
mod root;

pub use root::git_version;
mod token_request;

use super::admission::{Attributes, Operation};
use super::authn::Authn;
use super::authn::service_account::Tokens;
use super::authz::Authz;
use super::negotiate::{self, Output, Shape};
use super::reply::Allowance;
use super::request::{Query, RequestInfo};
use super::status::ApiError;
use super::usage::{self, Usage};
use super::user::User;
use super::verbs::Validation;
use super::{ApiServer, Body, body, heavy, reply, verbs};
use crate::resource::BodyType;
use crate::schema::{self, Decoded};
use bytes::Bytes;
use health::Health;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;

/// Largest body read here (contract §2.2).
const BODY_LIMIT_BYTES: usize = 3 * 1024 * 1024;

/// What the answers are made from.
pub struct UnstoredEndpoints {
    /// Judges tokens under review.
    pub authn: Arc<Authn>,
    /// Judges access under review.
    pub authz: Arc<Authz>,
    /// Signs service account tokens.
    pub tokens: Arc<Tokens>,
    /// Whether the daemon is ready.
    pub health: Health,
    /// The URL this server is known by, such as `https://192.0.2.1:6443`.
    pub url: String,
    /// Where /proc is.
    pub proc: PathBuf,
    /// What nodes and pods use, where this server serves metrics.k8s.io.
    pub usage: Option<Arc<Usage>>,
}

type Outcome = Result<Response<Body>, ApiError>;

impl UnstoredEndpoints {
    /// Answers the request, or gives it back when it is none of these.
    pub(super) async fn handle(
        &self,
        server: &ApiServer,
        user: &User,
        info: &RequestInfo,
        request: Request<Body>,
    ) -> Answered {
        let outcome = if info.is_resource {
            if info.resource == "componentstatuses" && matches!(info.verb.as_str(), "get" | "list") {
                let query = Query::parse(request.uri().query().unwrap_or(""));
                let answer = component_status::answer(server, info, &query, request.headers());
                return Answered::Yes(answer);
            }
            if let Some(usage) = self.usage.as_ref().filter(|_| usage::serves(info)) {
                let (parts, _) = request.into_parts();
                return Answered::Yes(usage::answer(usage, server, user, info, &parts).await);
            }
            if info.verb != "create" {
                return Answered::Not(request);
            }
            let part = (info.group.as_str(), info.resource.as_str(), info.subresource.as_str());
            match part {
                ("authentication.k8s.io" | "authorization.k8s.io", _, "") | ("", "serviceaccounts", "token") => {
                    self.create(server, user, info, request).await
                }
                _ => return Answered::Not(request),
            }
        } else {
            let query = Query::parse(request.uri().query().unwrap_or(""));
            let reads = request.method() == http::Method::GET || request.method() == http::Method::HEAD;
            match self.path(server, info, &query).await.filter(|_| reads) {
                Some(response) => Ok(response),
                None => return Answered::Not(request),
            }
        };
        Answered::Yes(outcome)
    }

    async fn path(&self, server: &ApiServer, info: &RequestInfo, query: &Query) -> Option<Response<Body>> {
        let path = info.path.trim_end_matches('/');
        let json = "application/json";
        Some(match path {
            "" => text(200, json, root::paths(&server.registry()).to_string()),
            "/version" => text(200, json, root::version_text()),
            "/metrics" => text(200, metrics::CONTENT_TYPE, metrics::render(server, &self.proc)),
            "/openid/v1/jwks" => public(text(200, "application/jwk-set+json", self.tokens.jwks().to_string())),
            "/.well-known/openid-configuration" => public(text(
                200,
                json,
                openid::configuration(self.tokens.issuer(), &self.url).to_string(),
            )),
            path if path.starts_with("/debug/") => {
                let dump = server.flow().dump(path, query, server.now())?;
                text(200, "text/plain; charset=utf-8", dump)
            }
            _ => {
                let (code, body) = self.health.answer(path, query, server.window()).await?;
                text(code, "text/plain; charset=utf-8", body)
            }
        })
    }

    /// Creates an object that is answered and never stored.
    async fn create(&self, server: &ApiServer, user: &User, info: &RequestInfo, request: Request<Body>) -> Outcome {
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or(""));
        let output = Output::negotiate(&parts.headers, &query)?;
        if output.shape != Shape::Whole {
            return Err(negotiate::not_acceptable());
        }
        let is_remote = parts
            .extensions
            .get::<verbs::Keeps>()
            .is_some_and(verbs::Keeps::is_remote);
        let bytes = read(body).await?;
        let allowance = match is_remote {
            true => {
                let wanted = Allowance::wanted(bytes.len(), output);
                let room = match wanted {
                    0 => None,
                    bytes => Some(server.flow().reply(user, info, bytes).await?),
                };
                Allowance::granted(wanted, room)
            }
            false => Allowance::default(),
        };
        let mut warnings = Vec::new();
        let answer = self.answer(server, user, (info, &query), &parts.headers, &bytes, &mut warnings);
        let answer = match answer.await {
            Ok(answer) => answer,
            Err(mut error) => {
                error.warnings = warnings;
                return Err(error);
            }
        };
        let bytes = reply::encode_within(&answer, output, allowance.most_bytes)?;
        let mut response = reply::finish(201, bytes, output.encoding, &parts.headers);
        reply::add_warnings(response.headers_mut(), &warnings);
        if let Some(room) = allowance.room {
            response.extensions_mut().insert(Arc::new(room));
        }
        Ok(response)
    }

    /// The object that is answered to the one in the body.
    async fn answer(
        &self,
        server: &ApiServer,
        user: &User,
        (info, query): (&RequestInfo, &Query),
        headers: &HeaderMap,
        bytes: &[u8],
        warnings: &mut Vec<String>,
    ) -> Result<Value, ApiError> {
        // Of a dry run nothing would differ: nothing is stored.
        query.dry_run("CreateOptions")?;
        let validation = Validation::read(query, info)?;
        let (decoded, body) = decode(server, user, info, headers, bytes).await?;
        let version = body.api_version.rsplit('/').next().unwrap_or_default();
        let object = validation.judge(decoded, (&body.kind, version), warnings)?;
        match info.subresource.as_str() {
            "token" => {
                let object = admit_token(server, user, info, object).await?;
                token_request::create(self, server, info, object).await
            }
            _ => review::create(self, server.reader(), user, info, object),
        }
    }
}

/// A request for a token is not stored, but judged like everything that is.
async fn admit_token(
    server: &ApiServer,
    user: &User,
    info: &RequestInfo,
    mut object: Value,
) -> Result<Value, ApiError> {
    let registry = server.registry();
    let kind = registry.by_resource("", "v1", "serviceaccounts");
    let attributes = Attributes {
        user,
        info,
        kind: kind.ok_or_else(|| ApiError::not_found("", "serviceaccounts", ""))?,
        operation: Operation::Create,
        namespace: &info.namespace,
        name: &info.name,
        dry_run: false,
    };
    let (gate, reader) = (server.gate(), server.reader());
    gate.mutate(&attributes, &mut object, None, reader).await?;
    gate.validate(&attributes, &object, None, reader).await?;
    Ok(object)
}

/// Whether a request was answered here.
pub(super) enum Answered {
    /// With a reply or an error.
    Yes(Outcome),
    /// It belongs to somebody else.
    Not(Request<Body>),
}

fn concrete(error: body::BodyError) -> std::io::Error {
    std::io::Error::other(error)
}

/// The whole body.
pub(super) async fn read(body: Body) -> Result<Bytes, ApiError> {
    // A concrete error type: with the boxed one the compiler cannot prove this future Send.
    let body = body.map_err(concrete).boxed_unsync();
    let collected = Limited::new(body, BODY_LIMIT_BYTES).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            let text = format!("Request entity too large: limit is {BODY_LIMIT_BYTES}");
            ApiError::new(413, "RequestEntityTooLarge", text)
        } else {
            ApiError::bad_request(format!("cannot read the request body: {error}"))
        }
    })?;
    Ok(collected.to_bytes())
}

/// The body as the kind this endpoint takes, and that kind.
async fn decode(
    server: &ApiServer,
    user: &User,
    info: &RequestInfo,
    headers: &HeaderMap,
    bytes: &[u8],
) -> Result<(Decoded, BodyType), ApiError> {
    let media = negotiate::input(headers)?;
    let registry = server.registry();
    let body = match info.subresource.as_str() {
        "token" => registry.body("authentication.k8s.io", "v1", "TokenRequest"),
        _ => {
            let kind = registry.by_resource(&info.group, &info.version, &info.resource);
            kind.and_then(|kind| registry.body(&kind.group, &kind.version, &kind.kind))
        }
    };
    let body = body.ok_or_else(|| ApiError::not_found(&info.group, &info.resource, ""))?;
    let of = body.clone();
    let read = move |bytes: &[u8]| schema::decode_body(&of, bytes, media);
    let decoded = heavy::read(server.flow(), user, info, (bytes, media), read).await??;
    Ok((decoded, body))
}

fn text(code: u16, content_type: &'static str, content: String) -> Response<Body> {
    let mut response = Response::new(body::full(content));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// Marks a reply that anybody may keep for an hour.
fn public(mut response: Response<Body>) -> Response<Body> {
    let value = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(CACHE_CONTROL, value);
    response
}

#[cfg(test)]
mod tests;
