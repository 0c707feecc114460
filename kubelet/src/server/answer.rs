//! Answers in the few forms there are.

use crate::metrics::Begun;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::Response;
use hyper::body::{Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of an answer; a stream that fails just ends.
pub type Body = BoxBody<Bytes, Infallible>;
/// An answer.
pub type Answer = Response<Body>;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const METRICS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

pub(super) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed()
}

fn with(code: u16, kind: HeaderValue, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = hyper::StatusCode::from_u16(code).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

/// Plain text.
pub(super) fn text(code: u16, text: &str) -> Answer {
    with(code, TEXT, whole(text.to_owned()))
}

/// There is nothing at that path.
pub(super) fn not_found() -> Answer {
    text(404, "404 page not found\n")
}

/// A page.
pub(super) fn html(page: &str) -> Answer {
    with(200, HTML, whole(page.to_owned()))
}

/// A JSON document.
pub(super) fn json(text: String) -> Answer {
    with(200, JSON, whole(text))
}

/// Prometheus text.
pub(super) fn metrics(text: &str) -> Answer {
    with(200, METRICS, whole(text.to_owned()))
}

/// Text that is not complete yet.
pub(super) fn stream(body: Body) -> Answer {
    with(200, TEXT, body)
}

/// Raw bytes.
pub(super) fn bytes(bytes: Vec<u8>) -> Answer {
    with(200, TEXT, whole(bytes))
}

/// A body whose request is under way until its last part is sent, or nobody wants it any more.
struct Counted {
    body: Body,
    _begun: Begun,
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The same answer, counted as under way until it is sent.
pub(super) fn counted(answer: Answer, begun: Begun) -> Answer {
    answer.map(|body| Counted { body, _begun: begun }.boxed())
}
