//! Compaction of etcd's history, agreed on between all that use the cluster (control-plane contract §10).
//!
//! Each interval everybody tries to write the present revision to `compact_rev_key`, on condition that nobody has since they last
//! looked; who succeeds compacts what was newest an interval ago. So history is kept for one interval at least, and compacted once.

use crate::rpc::{COMPACT_KEY, Rpc};
use proto::etcd::compare::{CompareResult, CompareTarget, TargetUnion};
use proto::etcd::request_op::Request;
use proto::etcd::response_op::Response;
use proto::etcd::{Compare, PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse};
use std::sync::Arc;
use std::time::Duration;
use store::Revision;
use tokio::time::Instant;

/// What is known of the last compaction: the version of the key, and the revision that was newest then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    version: i64,
    revision: Revision,
}

/// Takes part until it is aborted.
pub(crate) async fn run(rpc: Arc<Rpc>, interval: Duration) {
    let mut known = Known::default();
    loop {
        tokio::time::sleep(interval).await;
        known = round(&rpc, known).await;
    }
}

/// One interval's turn.
pub(crate) async fn round(rpc: &Rpc, known: Known) -> Known {
    let end = Instant::now() + rpc.deadlines.request;
    let answer = match rpc.txn_once(request(known), end).await {
        Ok(answer) => answer,
        Err(failed) => {
            tracing::warn!(reason = %failed.text, "etcd cannot be compacted");
            return known;
        }
    };
    let (next, compacted) = decide(known, &answer);
    if let Some(revision) = compacted {
        match rpc.compact(revision).await {
            Ok(()) => tracing::debug!(revision, "etcd's history is compacted"),
            Err(error) => tracing::warn!(%error, revision, "etcd cannot be compacted"),
        }
    }
    next
}

fn request(known: Known) -> TxnRequest {
    let op = |request| RequestOp { request: Some(request) };
    TxnRequest {
        compare: vec![Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Version.into(),
            key: COMPACT_KEY.to_vec(),
            target_union: Some(TargetUnion::Version(known.version)),
            range_end: Vec::new(),
        }],
        success: vec![op(Request::RequestPut(PutRequest {
            key: COMPACT_KEY.to_vec(),
            value: known.revision.to_string().into_bytes(),
            lease: 0,
        }))],
        failure: vec![op(Request::RequestRange(RangeRequest {
            key: COMPACT_KEY.to_vec(),
            ..RangeRequest::default()
        }))],
    }
}

/// What is known after an answer, and what is to be compacted.
fn decide(known: Known, answer: &TxnResponse) -> (Known, Option<Revision>) {
    let revision = answer.header.as_ref().map_or(0, |header| header.revision) as Revision;
    if answer.succeeded {
        let version = known.version + 1;
        // The first time nothing is known to be old.
        let compacted = (known.revision > 0).then_some(known.revision);
        return (Known { version, revision }, compacted);
    }
    let first = answer.responses.first().and_then(|op| op.response.as_ref());
    let version = match first {
        Some(Response::ResponseRange(range)) => range.kvs.first().map_or(0, |kv| kv.version),
        _ => 0,
    };
    (Known { version, revision }, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::etcd::{KeyValue, RangeResponse, ResponseHeader, ResponseOp};

    fn answer(revision: i64, found: Option<i64>) -> TxnResponse {
        let range = |version| RangeResponse {
            kvs: vec![KeyValue {
                version,
                ..KeyValue::default()
            }],
            ..RangeResponse::default()
        };
        let responses = found.map(|version| ResponseOp {
            response: Some(Response::ResponseRange(range(version))),
        });
        TxnResponse {
            header: Some(ResponseHeader {
                revision,
                ..ResponseHeader::default()
            }),
            succeeded: found.is_none(),
            responses: responses.into_iter().collect(),
        }
    }

    #[test]
    fn what_was_newest_an_interval_ago_is_compacted_by_one() {
        let (first, compacted) = decide(Known::default(), &answer(10, None));
        assert_eq!((first.version, first.revision, compacted), (1, 10, None));
        let (second, compacted) = decide(first, &answer(25, None));
        assert_eq!((second.version, second.revision, compacted), (2, 25, Some(10)));
        // Somebody else was faster.
        let (third, compacted) = decide(second, &answer(40, Some(3)));
        assert_eq!((third.version, third.revision, compacted), (3, 40, None));
        let (_, compacted) = decide(third, &answer(60, None));
        assert_eq!(compacted, Some(40));
    }
}
