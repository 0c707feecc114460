//! Writes that are finished whether or not anybody waits for them, each in a task of its own.
//!
//! Owns what a request keeps meanwhile. Never decides what is written.

use super::{Answer, Call, Serving, collection, not_supported};
use crate::apiserver::heavy;
use crate::apiserver::status::ApiError;
use bytes::Bytes;
use http::request::Parts;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What a request keeps until it is done: its place and the room of its body. Travels in its extensions.
#[derive(Clone)]
pub(in crate::apiserver) struct Keeps {
    pub(in crate::apiserver) seat: Option<Arc<crate::apiserver::flow::Seat>>,
    pub(in crate::apiserver) _room: Option<Arc<crate::apiserver::receive::Room>>,
}

impl Keeps {
    /// Whether the request came over the network: those have places.
    pub(in crate::apiserver) fn is_remote(&self) -> bool {
        self.seat.is_some()
    }
}

impl Call<'_> {
    pub(super) fn writes(&self) -> bool {
        matches!(
            self.info.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        )
    }

    /// As [`Call::dispatch`], to the end whether or not anybody waits for it: a request that is given up keeps its turns
    /// ([`crate::apiserver::write_locks`]), its place and its room until its write is stored, or refused. Of a deletion of many that is the
    /// deletion in hand; the next is not begun, as upstream, whose deletions end with their request. What is large is read, judged
    /// and written down in its turn, on a thread that serves nobody.
    pub(super) async fn finished_anyway(
        &self,
        serving: &Serving<'_>,
        parts: &Parts,
        body: Bytes,
        is_large: bool,
    ) -> (Result<Answer, ApiError>, Vec<String>) {
        let (server, user, info, query) = (
            self.server.clone(),
            self.user.clone(),
            self.info.clone(),
            self.query.clone(),
        );
        let (kind, output, headers) = (Arc::clone(&self.kind_asked), self.output, self.headers.clone());
        let served = Arc::clone(self.served);
        let keeps = parts.extensions.get::<Keeps>().cloned();
        let given_up = CancellationToken::new();
        let _awaited = given_up.clone().drop_guard();
        let is_remote = serving.is_remote;
        let in_turn = is_large && matches!(info.verb.as_str(), "create" | "update" | "patch");
        let work = async move {
            let _keeps = keeps;
            let serving = Serving {
                server: &server,
                served: &served,
                user: &user,
                is_remote,
            };
            let Some(mut call) = Call::new(&serving, (&info, &query), &kind, &headers, output) else {
                return (Err(not_supported(&kind, &info)), Vec::new());
            };
            call.in_turn = in_turn;
            let answer = match info.verb.as_str() {
                "deletecollection" => collection::delete(&mut call, &serving, &body, &given_up).await,
                _ => call.dispatch(crate::apiserver::body::full(body)).await,
            };
            (answer, call.warnings)
        };
        let begun = match in_turn {
            false => tokio::spawn(work),
            true => match heavy::begin(self.server.flow(), self.user, self.info, work).await {
                Ok(begun) => begun,
                Err(refused) => return (Err(refused), Vec::new()),
            },
        };
        match begun.await {
            Ok(done) => done,
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            Err(failed) => (Err(ApiError::internal(failed)), Vec::new()),
        }
    }
}
