//! A cluster's keys on their way into etcd, or out of it.
//!
//! A mark beside the keys says that they are on their way: as long as it is there no server of ours begins to use them, and none that
//! uses them already writes (`txn`: every write depends on its absence). On a source it has a lease, so that whoever moves and dies
//! leaves a cluster that goes on; on a target it has none, so that what is not whole stays known as that. A target also gets a note of
//! its own (`form`), which servers of before do not know: they are done for, whatever becomes of the mark. Owns the marks and their
//! order. Never knows the other store.
//!
//! What is asked of etcd may be done minutes after nobody waits for it any more. So nothing is asked for that could be done later than
//! meant: each step depends on the revision that the step before it has made, and nothing is removed where no mark was found.

use crate::form;
use crate::form::Note;
use crate::keys::Keys;
use crate::leases::Lease;
use crate::options::{OpenError, Options};
use crate::pages::{Pages, RECORDS};
use crate::rpc::{At, Rpc};
use crate::txn::{delete, equal, none_in, present, put, read};
use bytes::Bytes;
use proto::etcd::{Compare, KeyValue, RangeRequest, RequestOp, TxnRequest, TxnResponse};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::{Record, Revision, StoreError};

/// How long a source stays closed to writes after who moves it has died.
const LIFETIME: Duration = Duration::from_secs(30);
/// Writes of one transaction, below etcd's own limit of 128; and bytes beyond which there is no further one.
const STEP: (usize, usize) = (100, 512 << 10);

/// No further conditions, no further writes.
const NOTHING: (Vec<Compare>, Vec<RequestOp>) = (Vec::new(), Vec::new());

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A target: some of it is there.
    Copying,
    /// A target: all of it is there, and has been compared.
    Whole,
    /// A source that is read.
    Leaving,
    /// A source whose objects are elsewhere now.
    Gone,
}

const STATES: [(State, &str); 4] = [
    (State::Copying, "copying"),
    (State::Whole, "whole"),
    (State::Leaving, "leaving"),
    (State::Gone, "gone"),
];

/// What is said beside keys that are being moved, or have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Which move.
    pub id: String,
    /// How far it is.
    pub state: State,
    /// For people; one line.
    pub text: String,
}

impl Mark {
    fn bytes(&self) -> Vec<u8> {
        let state = STATES.iter().find(|(state, _)| *state == self.state);
        let state = state.map_or("", |(_, name)| name);
        format!("{} {state} {}", self.id, self.text).into_bytes()
    }

    /// Of its bytes; what cannot be read is taken for the beginning of a move, which nothing is done with.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut words = text.splitn(3, ' ');
        let (id, state, text) = (words.next(), words.next(), words.next());
        let state = STATES.iter().find(|(_, name)| Some(*name) == state);
        Self {
            id: id.unwrap_or_default().to_owned(),
            state: state.map_or(State::Copying, |(state, _)| *state),
            text: text.unwrap_or("they are being moved").to_owned(),
        }
    }
}

/// A mark that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) mark: Mark,
    /// Etcd's revision of its last write.
    modified: i64,
}

/// The mark beside the keys, if there is one.
pub(crate) async fn mark(rpc: &Rpc, keys: &Keys) -> Result<Option<Found>, StoreError> {
    let request = RangeRequest {
        key: keys.mark(),
        ..RangeRequest::default()
    };
    let found = rpc.range(request).await?.kvs.into_iter().next();
    Ok(found.map(|kv| Found {
        mark: Mark::parse(&kv.value),
        modified: kv.mod_revision,
    }))
}

/// The keys under a prefix, as one side of a move.
pub struct Side {
    rpc: Arc<Rpc>,
    keys: Keys,
    /// What the present mark of this move was written at; 0 if there is none.
    marked: i64,
    /// How many of the keys that were read last go by themselves.
    leased: AtomicU64,
    /// All that etcd was asked to change: what tests ask once more, too late.
    #[cfg(test)]
    asked: std::sync::Mutex<Vec<TxnRequest>>,
}

/// What keeps a source closed.
pub struct Held {
    lease: Lease,
    mark: Mark,
}

impl Side {
    /// Connects, whatever is there.
    ///
    /// # Errors
    /// As [`crate::Etcd::open`], but for the mark; and the members have different data, and nobody can say whose are right.
    pub async fn open(options: &Options) -> Result<Self, OpenError> {
        let rpc = Arc::new(Rpc::new(options)?);
        rpc.first_answer(options.deadlines.start).await?;
        // What is moved out of one member's damaged files would be all there is.
        rpc.compare_hashes(At::Start).await.map_err(OpenError::Unusable)?;
        let (keys, _) = form::read(&rpc, Keys::under(&options.prefix), &options.prefix).await?;
        Ok(Self {
            rpc,
            keys,
            marked: 0,
            leased: AtomicU64::new(0),
            #[cfg(test)]
            asked: std::sync::Mutex::default(),
        })
    }

    /// The mark that is there, which is taken for this move's.
    ///
    /// # Errors
    /// etcd does not answer.
    pub async fn mark(&mut self) -> Result<Option<Mark>, StoreError> {
        let found = mark(&self.rpc, &self.keys).await?;
        self.marked = found.as_ref().map_or(0, |found| found.modified);
        Ok(found.map(|found| found.mark))
    }

    /// How many keys are there beside what is noted of them.
    ///
    /// # Errors
    /// etcd does not answer.
    pub async fn count(&self) -> Result<u64, StoreError> {
        let mut count = 0;
        for (from, end) in self.keys.objects() {
            count += self.count_of(from, end).await?;
        }
        Ok(count)
    }

    async fn count_of(&self, key: Vec<u8>, range_end: Vec<u8>) -> Result<u64, StoreError> {
        let request = RangeRequest {
            key,
            range_end,
            count_only: true,
            ..RangeRequest::default()
        };
        Ok(self.rpc.range(request).await?.count as u64)
    }

    /// Marks an empty target, or one that is to be emptied because what is there is not whole or has been moved away; its revisions
    /// will be higher than `above`. `id` is a number in hexadecimal.
    ///
    /// # Errors
    /// There are objects, others move here, or etcd does not answer.
    pub async fn begin(&mut self, id: &str, text: &str, above: Revision, empties: bool) -> Result<(), StoreError> {
        let present = self.mark().await?;
        if present.is_none() && self.count().await? > 0 {
            return Err(StoreError::Refused("there are objects under the prefix".to_owned()));
        }
        if present
            .as_ref()
            .is_some_and(|mark| !empties || mark.state == State::Leaving)
        {
            return Err(StoreError::Refused(
                "the objects under the prefix are being moved".to_owned(),
            ));
        }
        let origin = u64::from_str_radix(id, 16);
        let origin = origin.map_err(|_| StoreError::Refused(format!("{id} names no move")))?;
        let noted = form::found(&self.rpc, &self.keys).await?;
        let mut compare = vec![equal(self.keys.form(), noted.map_or(0, |noted| noted.mod_revision))];
        let mut writes = Vec::new();
        match present {
            // What was not there a moment ago is somebody's who has just come.
            None => compare.extend(self.keys.objects().map(none_in)),
            Some(_) => writes.extend(self.keys.objects().map(|(from, end)| delete(from, end))),
        }
        let note = Note {
            shift: above,
            origin,
            ..Note::default()
        };
        writes.push(put(self.keys.form(), note.bytes(), 0));
        let mark = Mark {
            id: id.to_owned(),
            state: State::Copying,
            text: text.to_owned(),
        };
        self.set(Some(&mark), 0, (compare, writes)).await?;
        self.keys = self.keys.clone().noted(above, origin);
        Ok(())
    }

    /// The newest revision, as our servers tell it.
    ///
    /// # Errors
    /// etcd does not answer.
    pub async fn revision(&self) -> Result<Revision, StoreError> {
        let revision = self.rpc.revision().await?;
        Ok(self.keys.ours_at(revision as i64))
    }

    /// Writes records of a target, in steps; what is there of the same key is written over.
    ///
    /// # Errors
    /// A value is too large for etcd, the mark is not this move's any more, or etcd does not answer.
    pub async fn fill(&self, records: &[(String, Bytes)]) -> Result<(), StoreError> {
        let mut rest = records;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take(STEP.0).take_while(|(key, value)| {
                bytes += key.len() + value.len();
                bytes <= STEP.1
            });
            let (step, behind) = rest.split_at(fits.count().max(1));
            let request = TxnRequest {
                compare: vec![equal(self.keys.mark(), self.marked)],
                success: step
                    .iter()
                    .map(|(key, value)| put(self.keys.theirs(key), value.to_vec(), 0))
                    .collect(),
                failure: Vec::new(),
            };
            let written = self.ask(request).await.map_err(|error| match (error, step) {
                (StoreError::Refused(why), [(key, _)]) => StoreError::Refused(format!("{key}: {why}")),
                (error, _) => error,
            });
            if !written?.succeeded {
                return Err(lost());
            }
            rest = behind;
        }
        Ok(())
    }

    /// What a target holds has been compared.
    ///
    /// # Errors
    /// The mark is not this move's any more, or etcd does not answer.
    pub async fn whole(&mut self, id: &str, text: &str) -> Result<(), StoreError> {
        let mark = Mark {
            id: id.to_owned(),
            state: State::Whole,
            text: text.to_owned(),
        };
        self.set(Some(&mark), 0, NOTHING).await
    }

    /// A target is for use from now on.
    ///
    /// # Errors
    /// As [`Side::whole`].
    pub async fn publish(&mut self) -> Result<(), StoreError> {
        self.set(None, 0, NOTHING).await
    }

    /// Closes a source to all writes of our servers, until the value is dropped and a while longer.
    ///
    /// # Errors
    /// It is closed already, or etcd does not answer.
    pub async fn hold(&mut self, id: &str, text: &str) -> Result<Held, StoreError> {
        let lease = Lease::grant(&self.rpc, LIFETIME).await?;
        let mark = Mark {
            id: id.to_owned(),
            state: State::Leaving,
            text: text.to_owned(),
        };
        self.marked = 0;
        self.set(Some(&mark), lease.id, NOTHING).await?;
        Ok(Held { lease, mark })
    }

    /// A source stays closed for good: its objects are elsewhere now, so many as they were read at this revision. It has been closed
    /// without a pause until here.
    ///
    /// # Errors
    /// It was not, others have written nevertheless (then it is open again), or etcd does not answer.
    pub async fn leave(&mut self, held: Held, text: &str, read: (u64, Revision)) -> Result<(), StoreError> {
        let mark = Mark {
            state: State::Gone,
            text: text.to_owned(),
            ..held.mark.clone()
        };
        self.set(Some(&mark), 0, NOTHING).await?;
        // The mark is without it now. Whoever asked for the first one late finds none; it ends by itself, too.
        let _ = held.lease.revoke().await;
        self.stay_left(read).await
    }

    /// The end of [`Side::leave`], also for who comes after a kill.
    ///
    /// # Errors
    /// As of that.
    pub async fn stay_left(&mut self, read: (u64, Revision)) -> Result<(), StoreError> {
        let checked = self.check_unchanged(read).await;
        if let Err(StoreError::Refused(_)) = checked {
            self.set(None, 0, NOTHING).await?;
        }
        checked
    }

    /// Whether there are still the objects that were read: so many, none of them newer than that revision. Others than our servers
    /// of this version know nothing of marks.
    ///
    /// # Errors
    /// `Refused`: somebody has written. Or etcd does not answer.
    pub async fn check_unchanged(&self, (count, revision): (u64, Revision)) -> Result<(), StoreError> {
        let revision = self.keys.theirs_at(revision);
        let mut found = 0;
        for (from, range_end) in self.keys.objects() {
            let mut next = Some(from);
            while let Some(key) = next {
                let request = RangeRequest {
                    key,
                    range_end: range_end.clone(),
                    limit: RECORDS.1,
                    keys_only: true,
                    ..RangeRequest::default()
                };
                let page = self.rpc.range(request).await?;
                if let Some(newer) = page.kvs.iter().find(|kv| kv.mod_revision > revision) {
                    return Err(written_by_others(&String::from_utf8_lossy(&newer.key)));
                }
                let is_ours = |kv: &&KeyValue| self.keys.ours(&kv.key).is_some();
                found += page.kvs.iter().filter(is_ours).count() as u64;
                next = page
                    .kvs
                    .last()
                    .filter(|_| page.more)
                    .map(|kv| [&kv.key[..], b"\0"].concat());
            }
        }
        // An hour after upstream's API server wrote them, events have gone.
        let may_have_gone = self.leased.load(Ordering::Relaxed);
        match found <= count && count - found <= may_have_gone {
            true => Ok(()),
            false => Err(written_by_others("some object")),
        }
    }

    /// A source is open again.
    ///
    /// # Errors
    /// etcd does not answer: it is open once the lease is over.
    pub async fn release(held: Held) -> Result<(), StoreError> {
        held.lease.revoke().await
    }

    /// Reads all that is there but the notes, page by page, and gives the revision of the first. Each page is of when it is read, since a
    /// compaction waits for nobody: it is closed to writes, and [`Side::check_unchanged`] tells afterwards whether there were any.
    ///
    /// # Errors
    /// `take` refuses, or etcd does not answer.
    pub async fn read<F>(&self, mut take: impl FnMut(Vec<Record>) -> F) -> Result<Revision, StoreError>
    where
        F: Future<Output = Result<(), StoreError>>,
    {
        let (mut first, mut leased) = (None, 0);
        for (from, end) in self.keys.objects() {
            let mut pages = Pages::each_as_it_is((from, end));
            while let Some(page) = pages.next(&self.rpc, &self.keys).await? {
                first.get_or_insert(page.revision);
                leased += page.leased;
                take(page.records).await?;
            }
        }
        self.leased.store(leased, Ordering::Relaxed);
        Ok(self.keys.ours_at(first.unwrap_or_default()))
    }

    async fn ask(&self, request: TxnRequest) -> Result<TxnResponse, StoreError> {
        #[cfg(test)]
        self.asked
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(request.clone());
        self.rpc.txn(request).await
    }

    /// Writes the mark, or takes it away, if it is still as this move left it; on further conditions, and with further writes in the
    /// same moment.
    async fn set(
        &mut self,
        mark: Option<&Mark>,
        lease: i64,
        (mut compare, mut success): (Vec<Compare>, Vec<RequestOp>),
    ) -> Result<(), StoreError> {
        let key = self.keys.mark();
        compare.push(equal(key.clone(), self.marked));
        success.push(match mark {
            Some(mark) => put(key.clone(), mark.bytes(), lease),
            None => delete(key.clone(), Vec::new()),
        });
        let request = TxnRequest {
            compare,
            success,
            failure: vec![read(key)],
        };
        let answer = self.ask(request).await?;
        let revision = answer.header.as_ref().map_or(0, |header| header.revision);
        if answer.succeeded {
            self.marked = mark.map_or(0, |_| revision);
            return Ok(());
        }
        // It was written, perhaps, and the answer lost.
        let found = present(answer).into_iter().next().flatten();
        let is_done = match (&found, mark) {
            (Some(found), Some(mark)) => found.value == mark.bytes() && found.lease == lease,
            (found, mark) => found.is_none() && mark.is_none(),
        };
        if !is_done {
            return Err(lost());
        }
        self.marked = found.map_or(0, |found| found.mod_revision);
        Ok(())
    }
}

fn written_by_others(what: &str) -> StoreError {
    StoreError::Refused(format!(
        "{what} was written or deleted by others while the objects were moved: stop everything else that writes there (API servers of \
         another make, control planes of another version) and run it again"
    ))
}

fn lost() -> StoreError {
    StoreError::Refused("the keys are being moved by somebody else, or were opened to writes meanwhile".to_owned())
}

#[cfg(test)]
mod tests;
