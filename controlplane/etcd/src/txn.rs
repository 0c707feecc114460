//! Conditional writes: one transaction that compares the key's revision, writes, and otherwise tells what is there.
//!
//! Owns the repetition of a write. It may be repeated because its condition ends with it; what the answer to a repetition means, when
//! an earlier attempt may have been done, is found out in `settle`.

use crate::rpc::{Failed, unavailable};
use crate::verdict::Verdict;
use crate::{Etcd, record, settle};
use bytes::Bytes;
use proto::etcd::compare::{CompareResult, CompareTarget, TargetUnion};
use proto::etcd::request_op::Request;
use proto::etcd::response_op::Response;
use proto::etcd::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, ResponseOp, TxnRequest, TxnResponse,
};
use store::{Expect, Revision, StoreError};
use tokio::time::Instant;

/// What is done to a key.
#[derive(Clone, Copy)]
pub(crate) enum Write<'a> {
    /// It gets this value.
    Put(&'a Bytes),
    /// It goes.
    Delete,
}

impl Etcd {
    /// Writes, whichever member it takes, and tells the revision; only if the keys `unchanged` are still of these revisions.
    pub(crate) async fn write(
        &self,
        (key, unchanged): (&str, &[(String, Revision)]),
        write: Write<'_>,
        expect: Expect,
    ) -> Result<Revision, StoreError> {
        let theirs = &self.keys.theirs(key)[..];
        let others: Vec<(Vec<u8>, Revision)> = unchanged
            .iter()
            .map(|(other, revision)| (self.keys.theirs(other), *revision))
            .collect();
        // What this write does has a newer revision than this one.
        let before = match expect {
            Expect::Absent => self.rpc.newest(),
            Expect::At(revision) => revision,
        };
        let end = Instant::now() + self.rpc.deadlines.request;
        let mut is_unsure = false;
        loop {
            let failed = match self.rpc.txn_once(request(theirs, write, expect, &others), end).await {
                Ok(answer) if answer.succeeded => return Ok(revision_of(&answer)),
                Ok(answer) => {
                    let mut found = present(answer).into_iter();
                    let current = found.next().flatten();
                    if expect.holds(current.as_ref().map(|current| current.mod_revision as Revision)) {
                        if is_unsure && expect == Expect::Absent {
                            let why = "whether the write was done is not known: its key is not there".to_owned();
                            return Err(StoreError::OutcomeUnknown(why));
                        }
                        return Err(self.other_conflict(unchanged, found));
                    }
                    if is_unsure {
                        let since = (before, expect == Expect::Absent);
                        let settled = settle::settle(&self.rpc, theirs, write, since, current.as_ref(), end);
                        if let Some(revision) = settled.await? {
                            return Ok(revision);
                        }
                    }
                    return Err(StoreError::Conflict {
                        key: key.to_owned(),
                        current: current.and_then(|current| record(&self.keys, current)),
                    });
                }
                Err(failed) => failed,
            };
            is_unsure |= failed.verdict == Verdict::Unsure;
            if let Some(error) = ending(&failed, is_unsure, self.rpc.is_over(end)) {
                return Err(error);
            }
        }
    }

    /// The first of the other keys that is not as it was.
    fn other_conflict(
        &self,
        unchanged: &[(String, Revision)],
        found: impl Iterator<Item = Option<KeyValue>>,
    ) -> StoreError {
        let of = |current: &Option<KeyValue>| current.as_ref().map(|current| current.mod_revision as Revision);
        let mut pairs = unchanged.iter().zip(found);
        match pairs.find(|((_, revision), current)| of(current) != Some(*revision)) {
            Some(((key, _), current)) => StoreError::Conflict {
                key: key.clone(),
                current: current.and_then(|current| record(&self.keys, current)),
            },
            None => StoreError::Refused("etcd refused a write whose conditions hold".to_owned()),
        }
    }
}

/// With which error a write ends after a failed attempt; `None` to try again.
fn ending(failed: &Failed, is_unsure: bool, is_late: bool) -> Option<StoreError> {
    let text = &failed.text;
    match failed.verdict {
        Verdict::Refused | Verdict::Compacted if !is_unsure => Some(StoreError::Refused(text.clone())),
        Verdict::Refused | Verdict::Compacted => Some(StoreError::OutcomeUnknown(text.clone())),
        Verdict::NotDone | Verdict::Unsure if !is_late => None,
        _ if is_unsure => Some(StoreError::OutcomeUnknown(unavailable(text).to_string())),
        _ => Some(unavailable(text)),
    }
}

fn request(key: &[u8], write: Write<'_>, expect: Expect, others: &[(Vec<u8>, Revision)]) -> TxnRequest {
    let revision = match expect {
        // No key has been written at revision 0.
        Expect::Absent => 0,
        Expect::At(revision) => revision as i64,
    };
    let op = |request| RequestOp { request: Some(request) };
    let key = key.to_vec();
    let write = match write {
        Write::Put(value) => Request::RequestPut(PutRequest {
            key: key.clone(),
            value: value.to_vec(),
            lease: 0,
        }),
        Write::Delete => Request::RequestDeleteRange(DeleteRangeRequest {
            key: key.clone(),
            range_end: Vec::new(),
        }),
    };
    let mut conditions = vec![(key, revision)];
    conditions.extend(others.iter().map(|(key, revision)| (key.clone(), *revision as i64)));
    let read = |(key, _): &(Vec<u8>, i64)| {
        op(Request::RequestRange(RangeRequest {
            key: key.clone(),
            ..RangeRequest::default()
        }))
    };
    let failure = conditions.iter().map(read).collect();
    let compare = |(key, revision)| Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key,
        target_union: Some(TargetUnion::ModRevision(revision)),
    };
    TxnRequest {
        compare: conditions.into_iter().map(compare).collect(),
        success: vec![op(write)],
        failure,
    }
}

fn revision_of(answer: &TxnResponse) -> Revision {
    answer.header.as_ref().map_or(0, |header| header.revision) as Revision
}

/// What the key, and then each of the others, held when a condition was false.
fn present(answer: TxnResponse) -> Vec<Option<KeyValue>> {
    let read = |response: ResponseOp| match response.response? {
        Response::ResponseRange(range) => range.kvs.into_iter().next(),
        _ => None,
    };
    answer.responses.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_ends_with_what_is_certain() {
        let failed = |verdict| Failed {
            verdict,
            text: "why".to_owned(),
        };
        let ends = |verdict, is_unsure, is_late| ending(&failed(verdict), is_unsure, is_late);
        assert!(ends(Verdict::NotDone, false, false).is_none() && ends(Verdict::Unsure, true, false).is_none());
        assert!(matches!(
            ends(Verdict::NotDone, false, true),
            Some(StoreError::Unavailable(_))
        ));
        assert!(matches!(
            ends(Verdict::NotDone, true, true),
            Some(StoreError::OutcomeUnknown(_))
        ));
        assert!(matches!(
            ends(Verdict::Unsure, true, true),
            Some(StoreError::OutcomeUnknown(_))
        ));
        assert!(matches!(
            ends(Verdict::Refused, false, false),
            Some(StoreError::Refused(_))
        ));
        assert!(matches!(
            ends(Verdict::Refused, true, false),
            Some(StoreError::OutcomeUnknown(_))
        ));
    }
}
