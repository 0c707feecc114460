//! What is noted about one request: its counter and its audit trail.
//!
//! Owns nothing that outlives the request, except the trail of a long answer, which ends with the answer's body. Never changes what
//! is answered.

use super::audit::{Audit, Trail};
use super::body::BodyError;
use super::flow::fairness::Flow;
use super::request::{Query, RequestInfo};
use super::status::ApiError;
use super::user::User;
use super::{Body, unstored};
use crate::metrics::{self, Metrics};
use crate::resource::Registry;
use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use serde_json::Value;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use tokio::time::Instant;

/// Replies up to this size are written to the log whole: any object. Of a larger one (a list) the log has the rest of the event.
const NOTED_BYTES: usize = 4 << 20;

/// How a request ended, beside its reply.
pub(super) enum RequestEnd {
    /// With a reply.
    Answered,
    /// With an error, whose Status this is.
    Failed(Box<Value>),
    /// The handler panicked.
    Panicked,
}

/// What is noted of one request for metrics and audit.
pub(super) struct RequestRecord {
    request: metrics::Request,
    began: Instant,
    is_long: bool,
    audit_id: String,
    trail: Mutex<Option<Trail>>,
    flow: OnceLock<Arc<Flow>>,
}

impl RequestRecord {
    pub(super) fn new(registry: &Registry, (info, query): (&RequestInfo, &Query), audit_id: &str) -> Self {
        Self {
            request: counted(registry, info, query),
            began: Instant::now(),
            is_long: info.is_long_running(),
            audit_id: audit_id.to_owned(),
            trail: Mutex::default(),
            flow: OnceLock::new(),
        }
    }

    fn with_trail<T>(&self, note: impl FnOnce(&mut Trail) -> T) -> Option<T> {
        let mut trail = self.trail.lock().unwrap_or_else(PoisonError::into_inner);
        trail.as_mut().map(note)
    }

    /// The sender is known (or nobody).
    pub(super) fn sent_by(
        &self,
        user: &User,
        info: &RequestInfo,
        parts: &http::request::Parts,
        audit: Option<&Arc<Audit>>,
    ) {
        if let Some(audit) = audit {
            let trail = audit.begin(user, info, parts, &self.audit_id);
            *self.trail.lock().unwrap_or_else(PoisonError::into_inner) = trail;
        }
    }

    /// Flow control knows where the request belongs.
    pub(super) fn sorted_into(&self, flow: Option<&Arc<Flow>>) {
        if let Some(flow) = flow {
            // Once for each request.
            let _ = self.flow.set(Arc::clone(flow));
        }
    }

    /// Where the request belongs, if flow control was asked.
    pub(super) fn flow(&self) -> Option<&Arc<Flow>> {
        self.flow.get()
    }

    /// The sender acts as somebody else.
    pub(super) fn acts_as(&self, other: &User) {
        self.with_trail(|trail| trail.acts_as(other));
    }

    /// What authorization said.
    pub(super) fn authorized(&self, allowed: bool) {
        self.with_trail(|trail| trail.authorized(allowed));
    }

    /// The body, read and noted first where it is wanted.
    ///
    /// # Errors
    /// As reading the body later would fail.
    pub(super) async fn body(&self, body: Body, headers: &HeaderMap) -> Result<Body, ApiError> {
        let is_wanted = self.with_trail(|trail| trail.wants_request()).unwrap_or(false);
        if self.is_long || !is_wanted || !is_json(headers) {
            return Ok(body);
        }
        let bytes = unstored::read(body).await?;
        if let Ok(object) = serde_json::from_slice(&bytes) {
            self.with_trail(|trail| trail.request(object));
        }
        Ok(super::body::full(bytes))
    }

    /// Counts the reply and completes the trail.
    pub(super) fn finish(self, response: Response<Body>, end: RequestEnd, metrics: &Metrics) -> Response<Body> {
        let code = response.status().as_u16();
        metrics.answered(&self.request, code, self.began.elapsed());
        let trail = self.trail.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some(trail) = trail else {
            return response;
        };
        match end {
            RequestEnd::Panicked => trail.panicked(),
            RequestEnd::Failed(status) => trail.complete(code, Some(&status), None),
            RequestEnd::Answered if self.is_long => {
                trail.started(code);
                return response.map(|body| {
                    // The trail ends when the body is dropped.
                    body.map_frame(move |frame| {
                        let _ = &trail;
                        frame
                    })
                    .boxed_unsync()
                });
            }
            RequestEnd::Answered if trail.wants_response() && is_json(response.headers()) => {
                return response.map(|body| {
                    let noted = Noted {
                        body,
                        code,
                        trail: Some(trail),
                        text: Vec::new(),
                    };
                    noted.boxed_unsync()
                });
            }
            RequestEnd::Answered => trail.complete(code, None, None),
        }
        response
    }
}

/// A reply that is noted on its way: nothing waits for it, and a list is not held for the log's sake.
struct Noted {
    body: Body,
    code: u16,
    /// `None` once it is complete, or without the reply because that is too large.
    trail: Option<Trail>,
    text: Vec<u8>,
}

impl Noted {
    fn note(&mut self, data: &[u8]) {
        if self.trail.is_none() {
            return;
        }
        if self.text.len() + data.len() <= NOTED_BYTES {
            self.text.extend_from_slice(data);
            return;
        }
        self.text = Vec::new();
        if let Some(mut trail) = self.trail.take() {
            trail.truncated();
            trail.complete(self.code, None, None);
        }
    }

    fn complete(&mut self) {
        if let Some(trail) = self.trail.take() {
            let text = std::mem::take(&mut self.text);
            trail.complete(self.code, None, serde_json::from_slice(&text).ok());
        }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.complete();
    }
}

impl http_body::Body for Noted {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = http_body::Body::poll_frame(Pin::new(&mut self.body), context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.note(data);
                }
            }
            Poll::Ready(None | Some(Err(_))) => self.complete(),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    // Patches are JSON of other names.
    let is_json = media.starts_with(b"application/") && media.windows(4).any(|part| part == b"json");
    is_json && !headers.contains_key(CONTENT_ENCODING)
}

/// The request as counters know it: texts of the table of kinds, none of the client's.
fn counted(registry: &Registry, info: &RequestInfo, query: &Query) -> metrics::Request {
    let verb = match info.verb.as_str() {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        "head" => "HEAD",
        "options" => "OPTIONS",
        _ => "other",
    };
    let verb = match info.subresource.as_str() {
        "proxy" | "attach" | "exec" | "portforward" => "CONNECT",
        _ => verb,
    };
    let dry_run = if query.get("dryRun").is_some() { "All" } else { "" };
    let unknown = metrics::Request {
        verb,
        dry_run,
        ..metrics::Request::default()
    };
    let Some(kind) = registry
        .by_resource(&info.group, &info.version, &info.resource)
        .filter(|_| info.is_resource)
    else {
        return unknown;
    };
    let part = kind.subresources.iter().find(|part| part.name == info.subresource);
    let scope = match (info.name.is_empty(), info.namespace.is_empty()) {
        (false, _) => "resource",
        (true, false) => "namespace",
        (true, true) => "cluster",
    };
    metrics::Request {
        group: kind.group.clone(),
        version: kind.version.clone(),
        resource: kind.plural.clone(),
        subresource: part.map_or("", |part| part.name),
        scope,
        ..unknown
    }
}
