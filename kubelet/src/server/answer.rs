//! Answers in the few forms there are.

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::Response;
use hyper::body::{Frame, SizeHint};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// The body of an answer; one that fails ends its HTTP/2 stream or its connection, so that it is not taken for complete.
pub type Body = BoxBody<Bytes, io::Error>;
/// An answer.
pub type Answer = Response<Body>;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const METRICS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

pub(super) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
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

/// There is no room now, and perhaps in that time.
pub(super) fn busy(why: &str, wait: Duration) -> Answer {
    let mut answer = text(429, why);
    answer.headers_mut().insert(RETRY_AFTER, wait.as_secs().into());
    answer
}

/// There is nothing at that path.
pub(super) fn not_found() -> Answer {
    text(404, "404 page not found\n")
}

/// It is elsewhere, said against the path that was asked for.
pub(super) fn moved(location: &str) -> Answer {
    let mut answer = text(301, "Moved Permanently\n");
    if let Ok(location) = HeaderValue::from_str(location) {
        answer.headers_mut().insert(LOCATION, location);
    }
    answer
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
pub(super) fn metrics(text: String) -> Answer {
    with(200, METRICS, whole(text))
}

/// Text that is not complete yet.
pub(super) fn stream(body: Body) -> Answer {
    with(200, TEXT, body)
}

/// Text of so many bytes: a body that ends before is an error to whoever reads it.
pub(super) fn sized(body: Body, bytes: u64) -> Answer {
    let mut answer = stream(body);
    answer.headers_mut().insert(CONTENT_LENGTH, bytes.into());
    answer
}

/// Raw bytes.
pub(super) fn bytes(bytes: Vec<u8>) -> Answer {
    with(200, TEXT, whole(bytes))
}

/// A body that keeps something until its last part is sent, or nobody wants it any more.
struct Holding<T> {
    body: Body,
    _held: T,
}

impl<T: Unpin> hyper::body::Body for Holding<T> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The same answer, which keeps `held` until it is sent.
pub(super) fn holding(answer: Answer, held: impl Send + Sync + Unpin + 'static) -> Answer {
    answer.map(|body| Holding { body, _held: held }.boxed())
}
