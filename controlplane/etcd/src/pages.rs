//! Ranges are read page by page: so many records at a time as make an answer of a few MiB, however large they are.
//!
//! Owns the size of a page. One of a fixed number of records would be a gigabyte of large ones: more than a member sends within the time
//! an answer is given, and more than anybody wants to hold at once.

use crate::keys::Keys;
use crate::record;
use crate::rpc::Rpc;
use proto::etcd::{KeyValue, RangeRequest};
use store::{Record, StoreError};

/// Records of the first page, of which nobody knows how large they are; most of one.
pub(crate) const RECORDS: (i64, i64) = (100, 1000);
/// What a page is to hold of values, in bytes.
const BYTES: usize = 4 << 20;

/// A part of a range.
pub(crate) struct Page {
    /// etcd's revision of it.
    pub(crate) revision: i64,
    pub(crate) records: Vec<Record>,
    /// How many of them go by themselves.
    pub(crate) leased: u64,
}

/// A range that is being read.
pub(crate) struct Pages {
    /// Where the next one begins; `None` after the last.
    next: Option<Vec<u8>>,
    end: Vec<u8>,
    /// What all are read at; 0 for the newest of when each is read.
    revision: i64,
    is_of_one: bool,
    records: i64,
}

impl Pages {
    /// All of one revision, that of the first.
    pub(crate) fn of_one_revision((from, end): (Vec<u8>, Vec<u8>)) -> Self {
        Self {
            is_of_one: true,
            ..Self::each_as_it_is((from, end))
        }
    }

    /// Each as it is when it is read.
    pub(crate) fn each_as_it_is((from, end): (Vec<u8>, Vec<u8>)) -> Self {
        Self {
            next: Some(from),
            end,
            revision: 0,
            is_of_one: false,
            records: RECORDS.0,
        }
    }

    /// The next page; `None` after the last.
    ///
    /// # Errors
    /// etcd does not answer, or has compacted the revision.
    pub(crate) async fn next(&mut self, rpc: &Rpc, keys: &Keys) -> Result<Option<Page>, StoreError> {
        let Some(key) = self.next.take() else { return Ok(None) };
        let request = |limit| RangeRequest {
            key: key.clone(),
            range_end: self.end.clone(),
            limit,
            revision: self.revision,
            ..RangeRequest::default()
        };
        let page = match rpc.range(request(self.records)).await {
            // Large records after small ones may be too much within the time.
            Err(StoreError::Unavailable(_)) if self.records > RECORDS.0 => {
                self.records = RECORDS.0;
                rpc.range(request(self.records)).await?
            }
            page => page?,
        };
        if self.is_of_one && self.revision == 0 {
            self.revision = page.header.as_ref().map_or(0, |header| header.revision);
        }
        let last = page.kvs.last().filter(|_| page.more);
        self.next = last.map(|last| [&last.key, &b"\0"[..]].concat());
        let bytes = page.kvs.iter().map(|kv| kv.value.len()).sum();
        self.records = records(self.records, page.kvs.len(), bytes);
        Ok(Some(Page {
            revision: match self.is_of_one {
                true => self.revision,
                false => page.header.map_or(0, |header| header.revision),
            },
            leased: page.kvs.iter().filter(|kv: &&KeyValue| kv.lease != 0).count() as u64,
            records: page.kvs.into_iter().filter_map(|kv| record(keys, kv)).collect(),
        }))
    }
}

/// How many records are asked for after a page of so many, which had so many bytes: as many as fit if they are alike, and not more than
/// twice as many as before.
fn records(asked: i64, found: usize, bytes: usize) -> i64 {
    let fit = BYTES.saturating_mul(found) / bytes.max(1);
    let fit = i64::try_from(fit).unwrap_or(i64::MAX);
    fit.clamp(1, asked.saturating_mul(2).min(RECORDS.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_as_many_as_make_a_few_mebibytes() {
        assert_eq!(records(100, 100, 100 << 10), 200, "twice as many small ones");
        assert_eq!(records(800, 800, 0), 1000, "and never more than that");
        assert_eq!(records(1000, 1000, 1000 << 20), 4, "large ones");
        assert_eq!(records(4, 4, 6 << 20), 2);
        assert_eq!(records(1, 1, 64 << 20), 1, "one at least");
        assert_eq!(records(2, 2, 2), 4, "and back");
    }
}
