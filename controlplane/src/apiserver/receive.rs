//! Reading a request's body within the room its user has ([`super::flow`]). Knows nothing of what is in it.
//!
//! A body is charged as it grows, in two steps: a little at first, so that one who sends slowly, or names a length and sends
//! nothing, holds little; and once it is longer, all that it may still become. Whoever has the second step lacks nothing more and
//! comes to an end, so that bodies which have begun never wait for one another in a circle.

use super::flow::{ByteReservation, Flow};
use super::request::RequestInfo;
use super::status::ApiError;
use super::user::User;
use super::verbs::BODY_LIMIT_BYTES;
use super::{Body, body::BodyError, deadline};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::time::Instant;

/// What every body is charged at first, or its length if that is less.
const FIRST_BYTES: usize = 64 << 10;

/// The room a body takes; given back when dropped.
pub(super) struct Room {
    _first: ByteReservation,
    _rest: Option<ByteReservation>,
}

/// The whole body, and its room; no room for a request without one.
///
/// # Errors
/// 429 when there is no room in time, 413 beyond [`BODY_LIMIT_BYTES`], 400 when it breaks off, 504 when it is not there within
/// a request's longest time.
pub(super) async fn receive(
    flow: &Flow,
    user: &User,
    info: &RequestInfo,
    mut body: Body,
) -> Result<(Bytes, Option<Room>), ApiError> {
    if http_body::Body::is_end_stream(&body) {
        return Ok((Bytes::new(), None));
    }
    let ends_at = Instant::now() + deadline::DEADLINE;
    let named = http_body::Body::size_hint(&body).exact();
    let named = named.and_then(|length| usize::try_from(length).ok());
    let most = named.map_or(BODY_LIMIT_BYTES, |length| length.min(BODY_LIMIT_BYTES));
    let first = most.min(FIRST_BYTES);
    let mut room = Room {
        _first: flow.body(user, info, first).await?,
        _rest: None,
    };
    let mut all = BytesMut::new();
    while let Some(data) = next(&mut body, ends_at).await? {
        let length = all.len() + data.len();
        if length > BODY_LIMIT_BYTES {
            let text = format!("Request entity too large: limit is {BODY_LIMIT_BYTES}");
            return Err(ApiError::new(413, "RequestEntityTooLarge", text));
        }
        if length > first && room._rest.is_none() {
            room._rest = Some(flow.body(user, info, most.max(length) - first).await?);
            // Once, so that growing takes no more than was granted.
            all.reserve(most.max(length) - all.len());
        }
        all.extend_from_slice(&data);
    }
    Ok((all.freeze(), Some(room)))
}

/// The next piece; `None` at the end.
async fn next(body: &mut Body, ends_at: Instant) -> Result<Option<Bytes>, ApiError> {
    loop {
        let frame = tokio::time::timeout_at(ends_at, body.frame()).await;
        let frame: Option<Result<_, BodyError>> = frame.map_err(|_| deadline::exceeded())?;
        let frame = frame
            .transpose()
            .map_err(|error| ApiError::bad_request(format!("cannot read the request body: {error}")))?;
        match frame.map(http_body::Frame::into_data) {
            None => return Ok(None),
            Some(Ok(data)) => return Ok(Some(data)),
            // Trailers say nothing here.
            Some(Err(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests;
