//! The one body type of requests and replies.

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};

/// What a body may fail with.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A request's or reply's body.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// A body of known bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body without bytes.
pub fn empty() -> Body {
    full(Bytes::new())
}

/// A body that comes piece by piece.
pub fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    StreamBody::new(pieces.map(|piece| Ok(Frame::data(piece)))).boxed_unsync()
}

/// Any body as this one.
pub fn boxed<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    body.map_err(Into::into).boxed_unsync()
}
