//! What stands in the file: the layout of a record, and one write or one reading of it.
//!
//! Owns the bytes. Never begins or ends a transaction of the writer's, and never decides when one is due.

use super::{Job, Operation};
use crate::store::{Change, Expect, Record, Revision, StoreError};
use bytes::Bytes;
use redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition};
use std::path::Path;
use std::sync::Arc;

/// Key to 8 bytes of creation revision, 8 bytes of last revision (both big-endian) and the value.
pub(super) const RECORDS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("records");
/// `format` and `revision`.
pub(super) const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
/// The data format this binary writes; it refuses newer ones, and upgrades older ones (`upgrade`). In format 1 values said neither kind
/// nor apiVersion.
pub(super) const FORMAT: u64 = ::store::form::PRESENT;

/// Applies one write inside the open transaction; a precondition that does not hold is an answer, not a failure. Beside the change
/// stands what it took the place of.
pub(super) fn apply(
    records: &mut Table<'_, &'static str, &'static [u8]>,
    job: &Job,
    revision: Revision,
) -> Result<Result<(Change, Option<Record>), StoreError>, redb::Error> {
    let key: Arc<str> = Arc::from(job.key.as_str());
    let current = records
        .get(job.key.as_str())?
        .map(|found| decode(Arc::clone(&key), found.value()));
    let expect = match &job.write {
        Operation::Put { expect, .. } => *expect,
        Operation::Delete { expect } => Expect::At(*expect),
    };
    if !expect.holds(current.as_ref().map(|record| record.modified)) {
        return Ok(Err(StoreError::Conflict {
            key: job.key.clone(),
            current,
        }));
    }
    let value = match &job.write {
        Operation::Put { value, .. } => {
            let created = current.as_ref().map_or(revision, |record| record.created);
            let mut bytes = Vec::with_capacity(16 + value.len());
            bytes.extend_from_slice(&created.to_be_bytes());
            bytes.extend_from_slice(&revision.to_be_bytes());
            bytes.extend_from_slice(value);
            records.insert(job.key.as_str(), bytes.as_slice())?;
            Some(value.clone())
        }
        Operation::Delete { .. } => {
            records.remove(job.key.as_str())?;
            None
        }
    };
    let change = Change {
        revision,
        key,
        created: value.is_some() && current.is_none(),
        value,
    };
    Ok(Ok((change, current)))
}

/// The length of the key's value; 0 if there is none.
pub(super) fn value_bytes(records: &Table<'_, &'static str, &'static [u8]>, key: &str) -> Result<usize, redb::Error> {
    Ok(records
        .get(key)?
        .map_or(0, |found| found.value().len().saturating_sub(16)))
}

fn decode(key: Arc<str>, bytes: &[u8]) -> Record {
    let number = |at: usize| {
        let mut eight = [0; 8];
        if let Some(found) = bytes.get(at..at + 8) {
            eight.copy_from_slice(found);
        }
        u64::from_be_bytes(eight)
    };
    Record {
        key,
        created: number(0),
        modified: number(8),
        value: Bytes::copy_from_slice(bytes.get(16..).unwrap_or_default()),
    }
}

/// The record of a key.
pub(super) fn get(database: &Database, key: &str) -> Result<Option<Record>, redb::Error> {
    let records = database.begin_read()?.open_table(RECORDS)?;
    let found = records.get(key)?;
    Ok(found.map(|found| decode(Arc::from(key), found.value())))
}

/// Every record under `prefix` in key order, with the revision of the reading.
pub(super) fn range(database: &Database, prefix: &str) -> Result<(Revision, Vec<Record>), redb::Error> {
    let transaction = database.begin_read()?;
    let revision = transaction
        .open_table(META)?
        .get("revision")?
        .map_or(1, |found| found.value());
    let mut found = Vec::new();
    for entry in transaction.open_table(RECORDS)?.range(prefix..)? {
        let (key, value) = entry?;
        if !key.value().starts_with(prefix) {
            break;
        }
        found.push(decode(Arc::from(key.value()), value.value()));
    }
    Ok((revision, found))
}

/// Makes the tables, checks the format, and returns the newest revision.
///
/// # Errors
/// `Unusable`, also for data of a newer format; `Older` for those of an older one. Both are left as they are.
pub(super) fn prepare(database: &Database, directory: &Path) -> Result<Revision, StoreError> {
    let attempt = || -> Result<(u64, Revision), redb::Error> {
        let transaction = database.begin_write()?;
        let answer = {
            transaction.open_table(RECORDS)?;
            let mut meta = transaction.open_table(META)?;
            let format = meta.get("format")?.map(|found| found.value());
            if format.is_none() {
                meta.insert("format", FORMAT)?;
                meta.insert("revision", 1)?;
            }
            let revision = meta.get("revision")?.map_or(1, |found| found.value());
            (format.unwrap_or(FORMAT), revision)
        };
        if answer.0 == FORMAT {
            transaction.commit()?;
        } else {
            transaction.abort()?;
        }
        Ok(answer)
    };
    let (format, revision) = attempt().map_err(|error| {
        let what = match error {
            redb::Error::Corrupted(_) => super::intact::DAMAGED,
            _ => "cannot be prepared",
        };
        super::directory::unusable(directory, what, &error)
    })?;
    check_format(format, directory)?;
    Ok(revision)
}

/// Refuses data that are not of this binary's format.
///
/// # Errors
/// `Unusable` for a newer format, `Older` for an older one.
pub(super) fn check_format(format: u64, directory: &Path) -> Result<(), StoreError> {
    match format {
        FORMAT => Ok(()),
        newer if newer > FORMAT => Err(StoreError::Unusable(format!(
            "data in {} has format {newer}, newer than the {FORMAT} this binary knows: use a newer binary",
            directory.display()
        ))),
        format => Err(StoreError::Older {
            directory: directory.to_owned(),
            format,
            present: FORMAT,
        }),
    }
}
