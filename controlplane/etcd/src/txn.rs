//! Conditional writes: one transaction that compares the key's revision, writes, and otherwise tells what is there.
//!
//! Owns the repetition of a write. One over a revision may be repeated because its condition ends with it, for good; what the answer to
//! a repetition means, when an earlier attempt may have been done, is found out in `settle`. A creation is not: what it asks for may
//! come back, and then a lost attempt is done at last, minutes later perhaps (a partition's buffers keep it), by the side of its
//! repetition. After a lost answer it is only looked whether it was done.

use crate::moving::Mark;
use crate::rpc::{Failed, unavailable};
use crate::verdict::Verdict;
use crate::{Etcd, fence, record, settle};
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

/// A conditional write, and what is known before it.
struct Wanted<'w> {
    key: &'w str,
    /// The key as etcd has it.
    theirs: Vec<u8>,
    unchanged: &'w [(String, Revision)],
    write: Write<'w>,
    is_creation: bool,
    /// Etcd's revision of the key's last write, for this one to be done; 0 if there is to be none.
    expected: i64,
    /// What this write does has a newer revision than this one.
    before: Revision,
    end: Instant,
}

/// Keys with the revisions they have to be of; the two notes are the last.
type Conditions = Vec<(Vec<u8>, i64)>;

impl Etcd {
    /// Writes, whichever member it takes, and tells the revision; only if the keys `unchanged` are still of these revisions.
    pub(crate) async fn write(
        &self,
        (key, unchanged): (&str, &[(String, Revision)]),
        write: Write<'_>,
        expect: Expect,
    ) -> Result<Revision, StoreError> {
        // It would be written by what is known of another time; nothing has been yet.
        if let Err(over) = self.fence.check() {
            return Err(StoreError::ReadOnly(over.to_string()));
        }
        let wanted = self.wanted((key, unchanged), write, expect);
        let mut others = self.conditions(unchanged);
        let (mut lease, mut is_unsure) = (self.lease(key, write).await?, false);
        loop {
            let is_only_looked_for = is_unsure && wanted.is_creation;
            let written = ((!is_only_looked_for).then_some(write), lease);
            let request = request(&wanted.theirs, written, wanted.expected, &others);
            let failed = match self.rpc.txn_once(request, wanted.end).await {
                Ok(answer) if answer.succeeded && is_only_looked_for => return Err(unknown("its key is not there")),
                Ok(answer) if answer.succeeded => return Ok(self.keys.ours_at(revision_of(&answer))),
                Ok(answer) => match self.refused(&wanted, &mut others, answer, is_unsure).await {
                    Some(done) => return done,
                    None => continue,
                },
                Err(failed) => failed,
            };
            is_unsure |= failed.verdict == Verdict::Unsure;
            if failed.verdict == Verdict::NoLease && !self.rpc.is_over(wanted.end) {
                lease = self.other_lease((key, lease), write, is_unsure).await?;
                continue;
            }
            if let Some(error) = ending(&failed, is_unsure, self.rpc.is_over(wanted.end)) {
                return Err(error);
            }
        }
    }

    fn wanted<'w>(
        &self,
        (key, unchanged): (&'w str, &'w [(String, Revision)]),
        write: Write<'w>,
        expect: Expect,
    ) -> Wanted<'w> {
        let (expected, before) = match expect {
            // No key has been written at revision 0.
            Expect::Absent => (0, self.rpc.newest()),
            Expect::At(revision) => {
                let expected = self.keys.theirs_at(revision);
                (expected, expected.max(0) as Revision)
            }
        };
        Wanted {
            key,
            theirs: self.keys.theirs(key),
            unchanged,
            write,
            is_creation: expect == Expect::Absent,
            expected,
            before,
            end: Instant::now() + self.rpc.deadlines.request,
        }
    }

    /// What a write comes to whose condition was false; `None` if it is to be tried once more, by the side of another note.
    async fn refused(
        &self,
        wanted: &Wanted<'_>,
        others: &mut Conditions,
        answer: TxnResponse,
        is_unsure: bool,
    ) -> Option<Result<Revision, StoreError>> {
        let mut found = present(answer);
        // As they were pushed: the two notes are the last.
        let (note, mark) = (found.pop().flatten(), found.pop().flatten());
        let noted = note.as_ref().map_or(0, |note| note.mod_revision);
        if noted == others.last().map_or(0, |(_, noted)| *noted) {
            return Some(self.conflict(wanted, found, mark, is_unsure).await);
        }
        match self.fence.take(fence::found(note.as_ref())) {
            // It may have been done by the side of the note, or may be yet.
            Err(error) if is_unsure => Some(Err(unknown(&error.to_string()))),
            Err(error) => Some(Err(error)),
            Ok(()) => {
                others.pop();
                others.push((self.keys.form(), self.fence.noted()));
                None
            }
        }
    }

    /// What a write comes to that a mark, the key itself or another key stood against; `found` are the key and the others.
    async fn conflict(
        &self,
        wanted: &Wanted<'_>,
        found: Vec<Option<KeyValue>>,
        mark: Option<KeyValue>,
        is_unsure: bool,
    ) -> Result<Revision, StoreError> {
        let mut found = found.into_iter();
        let current = found.next().flatten();
        let is_only_looked_for = is_unsure && wanted.is_creation;
        if current.as_ref().map_or(0, |current| current.mod_revision) == wanted.expected {
            return Err(match mark {
                _ if is_only_looked_for => unknown("its key is not there"),
                Some(_) if is_unsure => {
                    unknown("the mark that forbids writes may go, and an earlier attempt be done then")
                }
                Some(mark) => StoreError::ReadOnly(Mark::parse(&mark.value).text),
                None => self.other_conflict(wanted.unchanged, found),
            });
        }
        if is_unsure {
            let since = (wanted.before, wanted.is_creation);
            let (theirs, write) = (&wanted.theirs, wanted.write);
            let settled = settle::settle(&self.rpc, theirs, write, since, current.as_ref(), wanted.end);
            if let Some(revision) = settled.await? {
                return Ok(self.keys.ours_at(revision as i64));
            }
        }
        if is_only_looked_for {
            return Err(unknown("its key is another's now, and may be free again"));
        }
        Err(StoreError::Conflict {
            key: wanted.key.to_owned(),
            current: current.and_then(|current| record(&self.keys, current)),
        })
    }

    /// What has to be so beside the key: other keys are of these revisions, and then the two notes are as they were.
    fn conditions(&self, unchanged: &[(String, Revision)]) -> Conditions {
        let others = unchanged
            .iter()
            .map(|(other, revision)| (self.keys.theirs(other), self.keys.theirs_at(*revision)));
        // Nothing is written where a mark says so: it has not been written. Nor by who does not know what is there.
        others
            .chain([(self.keys.mark(), 0), (self.keys.form(), self.fence.noted())])
            .collect()
    }

    /// Another lease in the place of one that ended while this process, or its machine, stood still.
    async fn other_lease(
        &self,
        (key, gone): (&str, i64),
        write: Write<'_>,
        is_unsure: bool,
    ) -> Result<i64, StoreError> {
        self.lifetimes.is_gone(key, gone).await;
        let next = self.lease(key, write).await;
        next.map_err(|error| if is_unsure { unknown(&error.to_string()) } else { error })
    }

    /// What a write is done with so that it goes by itself; 0 if it is to stay.
    async fn lease(&self, key: &str, write: Write<'_>) -> Result<i64, StoreError> {
        match write {
            Write::Put(_) => self.lifetimes.lease(&self.rpc, key).await,
            Write::Delete => Ok(0),
        }
    }

    /// The first of the other keys that is not as it was.
    fn other_conflict(
        &self,
        unchanged: &[(String, Revision)],
        found: impl Iterator<Item = Option<KeyValue>>,
    ) -> StoreError {
        let of = |current: &Option<KeyValue>| Some(self.keys.ours_at(current.as_ref()?.mod_revision));
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

fn unknown(why: &str) -> StoreError {
    StoreError::OutcomeUnknown(format!("whether the write was done is not known: {why}"))
}

/// With which error a write ends after a failed attempt; `None` to try again.
fn ending(failed: &Failed, is_unsure: bool, is_late: bool) -> Option<StoreError> {
    let text = &failed.text;
    match failed.verdict {
        Verdict::Over => Some(StoreError::Unusable(text.clone())),
        Verdict::Refused | Verdict::Compacted | Verdict::NoLease if !is_unsure => {
            Some(StoreError::Refused(text.clone()))
        }
        Verdict::Refused | Verdict::Compacted | Verdict::NoLease => Some(StoreError::OutcomeUnknown(text.clone())),
        Verdict::NotDone | Verdict::Unsure if !is_late => None,
        _ if is_unsure => Some(StoreError::OutcomeUnknown(unavailable(text).to_string())),
        _ => Some(unavailable(text)),
    }
}

/// The transaction; one that writes nothing only tells.
fn request(
    key: &[u8],
    (write, lease): (Option<Write<'_>>, i64),
    revision: i64,
    others: &[(Vec<u8>, i64)],
) -> TxnRequest {
    let key = key.to_vec();
    let write = write.map(|write| match write {
        Write::Put(value) => put(key.clone(), value.to_vec(), lease),
        Write::Delete => delete(key.clone(), Vec::new()),
    });
    let mut conditions = vec![(key, revision)];
    conditions.extend(others.iter().cloned());
    let failure = conditions.iter().map(|(key, _)| read(key.clone())).collect();
    TxnRequest {
        compare: conditions
            .into_iter()
            .map(|(key, revision)| equal(key, revision))
            .collect(),
        success: write.into_iter().collect(),
        failure,
    }
}

fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

/// A condition: the key was written last at this revision of etcd's; 0 if there is none.
pub(crate) fn equal(key: Vec<u8>, revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key,
        target_union: Some(TargetUnion::ModRevision(revision)),
        range_end: Vec::new(),
    }
}

/// A condition: there is no key from one to before another.
pub(crate) fn none_in((key, range_end): (Vec<u8>, Vec<u8>)) -> Compare {
    Compare {
        result: CompareResult::Less.into(),
        range_end,
        // Nothing has been written before etcd's first revision.
        ..equal(key, 1)
    }
}

/// A key is written, with a lease unless that is 0.
pub(crate) fn put(key: Vec<u8>, value: Vec<u8>, lease: i64) -> RequestOp {
    op(Request::RequestPut(PutRequest { key, value, lease }))
}

/// A key goes, or a range up to its end.
pub(crate) fn delete(key: Vec<u8>, range_end: Vec<u8>) -> RequestOp {
    op(Request::RequestDeleteRange(DeleteRangeRequest { key, range_end }))
}

/// A key is read.
pub(crate) fn read(key: Vec<u8>) -> RequestOp {
    op(Request::RequestRange(RangeRequest {
        key,
        ..RangeRequest::default()
    }))
}

fn revision_of(answer: &TxnResponse) -> i64 {
    answer.header.as_ref().map_or(0, |header| header.revision)
}

/// What the key, and then each of the others, held when a condition was false.
pub(crate) fn present(answer: TxnResponse) -> Vec<Option<KeyValue>> {
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
