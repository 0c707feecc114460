//! Endpoints whose answers are not stored objects: health, version, metrics, reviews, service account
//! tokens, their public keys (control-plane contract §1, §6). Requests come here authorized.

mod component_status;
pub mod health;
mod metrics;
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
use super::request::{Query, RequestInfo};
use super::status::ApiError;
use super::user::User;
use super::{ApiServer, Body, body, heavy, reply};
use crate::resource::registry;
use crate::schema;
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
                let answer = component_status::answer(info, &query, request.headers(), server.now());
                return Answered::Yes(answer);
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
            "" => text(200, json, root::paths().to_string()),
            "/version" => text(200, json, root::version_text()),
            "/metrics" => text(200, metrics::CONTENT_TYPE, metrics::render(server, &self.proc)),
            "/openid/v1/jwks" => public(text(200, "application/jwk-set+json", self.tokens.jwks().to_string())),
            "/.well-known/openid-configuration" => public(text(
                200,
                json,
                openid::configuration(self.tokens.issuer(), &self.url).to_string(),
            )),
            _ => {
                let (code, body) = self.health.answer(path, query, server.store()).await?;
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
        let bytes = read(body).await?;
        let object = decode(server, user, info, &parts.headers, &bytes).await?;
        let answer = match info.subresource.as_str() {
            "token" => {
                let object = admit_token(server, user, info, object).await?;
                token_request::create(self, server, info, object).await?
            }
            _ => review::create(self, server.reader(), user, info, object)?,
        };
        let bytes = reply::encode(&answer, output);
        Ok(reply::finish(201, bytes, output.encoding, &parts.headers))
    }
}

/// A request for a token is not stored, but judged like everything that is.
async fn admit_token(
    server: &ApiServer,
    user: &User,
    info: &RequestInfo,
    mut object: Value,
) -> Result<Value, ApiError> {
    let kind = registry().by_resource("", "v1", "serviceaccounts");
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

/// The body as the kind this endpoint takes.
async fn decode(
    server: &ApiServer,
    user: &User,
    info: &RequestInfo,
    headers: &HeaderMap,
    bytes: &[u8],
) -> Result<Value, ApiError> {
    let media = negotiate::input(headers)?;
    let (group, version, kind) = match info.subresource.as_str() {
        "token" => ("authentication.k8s.io", "v1", "TokenRequest"),
        _ => {
            let kind = registry().by_resource(&info.group, &info.version, &info.resource);
            let kind = kind.ok_or_else(|| ApiError::not_found(&info.group, &info.resource, ""))?;
            (kind.group, kind.version, kind.kind)
        }
    };
    let read = move |bytes: &[u8]| parse(bytes, media);
    let object = heavy::read(server.flow(), user, info, (bytes, media), read).await??;
    for (field, expected) in [("kind", kind.to_owned()), ("apiVersion", format!("{group}/{version}"))] {
        let found = object[field].as_str().unwrap_or_default();
        if !found.is_empty() && found != expected {
            return Err(ApiError::bad_request(format!(
                "the {field} in the data ({found}) does not match the expected {field} ({expected})"
            )));
        }
    }
    let mut object = object;
    object["kind"] = kind.into();
    object["apiVersion"] = format!("{group}/{version}").into();
    Ok(object)
}

fn parse(bytes: &[u8], media: schema::Media) -> Result<Value, ApiError> {
    let wrong = |error: String| ApiError::bad_request(format!("the object provided is unrecognized: {error}"));
    let object = schema::parse(bytes, media).map_err(wrong)?;
    if object.is_object() {
        Ok(object)
    } else {
        Err(wrong("it is not an object".to_owned()))
    }
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
