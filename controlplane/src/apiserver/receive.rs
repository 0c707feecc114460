//! Reading a request's body within the room its user has ([`super::flow`]). Knows nothing of what is in it.
//!
//! A body is charged as it grows, in three steps: very little at first, so that one who sends slowly, or names a length and sends
//! nothing, holds next to nothing; then a little; and once it is longer, all that it may still become. Bodies never wait for one
//! another in a circle: at most [`WAITING_MAX`] wait for a step, [`WAITING_OF_USER`] of one user, and what these have is half of
//! the room, a tenth of a user's. The rest is with bodies that lack nothing and come to an end, and it holds the largest.
//!
//! A body of which nothing comes for [`SILENCE`] is given up when somebody waits for room that it has a part of.

use super::flow::{BODIES_BYTES, ByteReservation, Flow, PARTS, WAITING_MAX, WAITING_OF_USER};
use super::request::RequestInfo;
use super::status::ApiError;
use super::user::User;
use super::verbs::BODY_LIMIT_BYTES;
use super::{Body, body::BodyError, deadline};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use std::time::Duration;
use tokio::time::Instant;

/// What every body is charged at first, or its length if that is less.
const FIRST_BYTES: usize = 4 << 10;
/// What a body that is longer is charged next, in all, or its length if that is less.
const SECOND_BYTES: usize = 32 << 10;
/// How long a body may be silent while its room is wanted.
const SILENCE: Duration = Duration::from_secs(10);
/// How often a silent body looks whether its room is wanted.
const LOOK: Duration = Duration::from_secs(1);

// Whatever those have that wait, there is room for the largest beside it.
const _: () = assert!(WAITING_MAX * SECOND_BYTES + BODY_LIMIT_BYTES <= BODIES_BYTES);
const _: () = assert!(WAITING_OF_USER * SECOND_BYTES + BODY_LIMIT_BYTES <= BODIES_BYTES / PARTS);

/// The room a body takes; given back when dropped.
#[derive(Default)]
pub(super) struct Room {
    /// One for each step.
    steps: Vec<ByteReservation>,
    bytes: usize,
}

impl Room {
    /// Waits until the body has room for so many bytes.
    async fn grow(&mut self, owner: &Owner<'_>, bytes: usize) -> Result<(), ApiError> {
        let more = bytes - self.bytes;
        self.steps.push(owner.flow.body(owner.user, owner.info, more).await?);
        self.bytes = bytes;
        Ok(())
    }
}

/// Whose body it is.
struct Owner<'a> {
    flow: &'a Flow,
    user: &'a User,
    info: &'a RequestInfo,
}

impl Owner<'_> {
    /// Returns when the body has been silent for too long; `silent_from` is when something of it came last.
    async fn has_no_patience(&self, silent_from: Instant) {
        tokio::time::sleep_until(silent_from + SILENCE).await;
        while !self.flow.wants_room_of(self.user, self.info) {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The whole body, and its room; no room for a request without one.
///
/// # Errors
/// 429 when there is no room in time, 413 beyond [`BODY_LIMIT_BYTES`], 400 when it breaks off, 504 when it is not there within
/// a request's longest time, 408 when nothing of it comes while others wait.
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
    let owner = Owner { flow, user, info };
    let mut room = Room::default();
    room.grow(&owner, most.min(FIRST_BYTES)).await?;
    let mut all = BytesMut::new();
    while let Some(data) = next(&mut body, &owner, ends_at).await? {
        let length = all.len() + data.len();
        if length > BODY_LIMIT_BYTES {
            let text = format!("Request entity too large: limit is {BODY_LIMIT_BYTES}");
            return Err(ApiError::new(413, "RequestEntityTooLarge", text));
        }
        if length > room.bytes {
            let step = match length <= SECOND_BYTES {
                true => most.min(SECOND_BYTES),
                false => most,
            };
            room.grow(&owner, step.max(length)).await?;
            // Once for each step, so that growing takes no more than was granted.
            all.reserve(room.bytes - all.len());
        }
        all.extend_from_slice(&data);
    }
    Ok((all.freeze(), Some(room)))
}

/// The next piece; `None` at the end.
async fn next(body: &mut Body, owner: &Owner<'_>, ends_at: Instant) -> Result<Option<Bytes>, ApiError> {
    let silent_from = Instant::now();
    loop {
        let frame = tokio::select! {
            biased;
            frame = tokio::time::timeout_at(ends_at, body.frame()) => frame,
            () = owner.has_no_patience(silent_from) => return Err(silent()),
        };
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

fn silent() -> ApiError {
    let seconds = SILENCE.as_secs();
    let text = format!("Nothing of the request body came for {seconds} seconds, and others wait for room.");
    ApiError::new(408, "Timeout", text)
}

#[cfg(test)]
mod tests;
