//! Backups: the store's records at one revision in a file, and a store made of such a file.
//!
//! Owns the file's form: a line that names it, a header in JSON, the records, and at the end their number and a SHA-256 over all that
//! is before it. Written and read as a stream. Values are in it as they are stored. Never a certificate or key: those are files.

pub mod command;
pub mod socket;

use crate::store::disk::snapshot::{Part, Snapshots};
use crate::store::{Revision, StoreError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::{ErrorKind, Read, Write};

/// How a backup begins; the number is the form's.
const MAGIC: &[u8] = b"skiff-backup 1\n";
/// Longest header, in bytes.
const HEADER_MAX: usize = 64 << 10;
/// Longest key, in bytes.
const KEY_MAX: usize = 64 << 10;
/// Longest record, in bytes: far more than an object may have.
const RECORD_MAX: usize = 64 << 20;
/// Stands before a record, and before the end.
const RECORD: u8 = 1;
const END: u8 = 0;

/// What a backup says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The form of the values.
    pub format: u64,
    /// The revision of all of it.
    pub revision: Revision,
    /// Which cluster's it is ([`crate::pki::fingerprint`]); empty if nobody knows.
    pub cluster: String,
}

/// Why a backup is none, or not whole.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Reading failed, or it ends too early.
    #[error("cannot be read: {0}")]
    Read(std::io::Error),
    /// It is another file.
    #[error("is no backup of this program's")]
    NoBackup,
    /// Its bytes have changed.
    #[error("is damaged: {0}")]
    Damaged(&'static str),
}

/// Writes all of a store.
///
/// # Errors
/// It cannot be read, or the backup not be written.
pub fn write(snapshots: &Snapshots, cluster: &str, out: &mut dyn Write) -> Result<(), StoreError> {
    let mut out = Summed::new(out);
    let mut count: u64 = 0;
    snapshots.read(&mut |part| match part {
        Part::Begin { format, revision } => {
            let cluster = cluster.to_owned();
            let header = serde_json::to_vec(&Header {
                format,
                revision,
                cluster,
            })?;
            out.write_all(MAGIC)?;
            out.sized(&header)
        }
        Part::Record(key, record) => {
            count += 1;
            out.write_all(&[RECORD])?;
            out.sized(key.as_bytes())?;
            out.sized(record)
        }
    })?;
    let mut end = || {
        out.write_all(&[END])?;
        out.write_all(&count.to_be_bytes())?;
        let sum = out.sum.clone().finalize();
        out.inner.write_all(&sum)?;
        out.inner.flush()
    };
    end().map_err(|error| StoreError::Unusable(format!("the backup cannot be written: {error}")))
}

/// Bytes on their way, and their sum.
struct Summed<T> {
    inner: T,
    sum: Sha256,
}

impl<T> Summed<T> {
    fn new(inner: T) -> Self {
        Self {
            inner,
            sum: Sha256::new(),
        }
    }
}

impl Summed<&mut dyn Write> {
    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.sum.update(bytes);
        self.inner.write_all(bytes)
    }

    fn sized(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(|_| std::io::Error::from(ErrorKind::FileTooLarge))?;
        self.write_all(&length.to_be_bytes())?;
        self.write_all(bytes)
    }
}

impl<R: Read> Summed<R> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BackupError> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes).map_err(BackupError::Read)?;
        self.sum.update(bytes);
        Ok(bytes)
    }

    fn take_sized(&mut self, most: usize) -> Result<Vec<u8>, BackupError> {
        let length = u32::from_be_bytes(self.take()?) as usize;
        if length > most {
            return Err(BackupError::Damaged("a length is too large"));
        }
        let mut bytes = vec![0; length];
        self.inner.read_exact(&mut bytes).map_err(BackupError::Read)?;
        self.sum.update(&bytes);
        Ok(bytes)
    }
}

/// A backup that is being read. That it is whole is known at its end only.
pub struct Backup<R> {
    from: Summed<R>,
    /// What it says of itself.
    pub header: Header,
    count: u64,
    /// Whether nothing may follow it.
    is_alone: bool,
}

impl<R: Read> Backup<R> {
    /// Reads the beginning.
    ///
    /// # Errors
    /// It is no backup.
    pub fn open(from: R) -> Result<Self, BackupError> {
        let mut from = Summed::new(from);
        let magic: [u8; MAGIC.len()] = from.take().map_err(|_| BackupError::NoBackup)?;
        if magic != *MAGIC {
            return Err(BackupError::NoBackup);
        }
        let header = from.take_sized(HEADER_MAX)?;
        let header = serde_json::from_slice(&header).map_err(|_| BackupError::Damaged("the header is none"))?;
        Ok(Self {
            from,
            header,
            count: 0,
            is_alone: true,
        })
    }

    /// As [`Backup::open`], of a backup that others may follow or that somebody still talks to.
    ///
    /// # Errors
    /// It is no backup.
    pub fn open_within(from: R) -> Result<Self, BackupError> {
        let backup = Self::open(from)?;
        Ok(Self {
            is_alone: false,
            ..backup
        })
    }

    /// The next record; nothing at the end, if all before it is as it was written.
    ///
    /// # Errors
    /// It ends too early, or its bytes have changed.
    pub fn next_record(&mut self) -> Result<Option<(String, Vec<u8>)>, BackupError> {
        match self.from.take()? {
            [RECORD] => {
                let key = self.from.take_sized(KEY_MAX)?;
                let key = String::from_utf8(key).map_err(|_| BackupError::Damaged("a key is no text"))?;
                let record = self.from.take_sized(RECORD_MAX)?;
                self.count += 1;
                Ok(Some((key, record)))
            }
            [END] => {
                let count = u64::from_be_bytes(self.from.take()?);
                let sum = self.from.sum.clone().finalize();
                let told: [u8; 32] = self.from.take()?;
                if *sum != told || count != self.count {
                    return Err(BackupError::Damaged("its checksum is another"));
                }
                if !self.is_alone {
                    return Ok(None);
                }
                match self.from.inner.read(&mut [0]) {
                    Ok(0) => Ok(None),
                    Ok(_) => Err(BackupError::Damaged("something follows its end")),
                    Err(error) => Err(BackupError::Read(error)),
                }
            }
            _ => Err(BackupError::Damaged("a record has no beginning")),
        }
    }

    /// What it was read from, behind its end.
    pub fn into_inner(self) -> R {
        self.from.inner
    }

    /// Reads to the end; gives the header and how many records there are.
    ///
    /// # Errors
    /// As [`Backup::next_record`].
    pub fn verify(mut self) -> Result<(Header, u64), BackupError> {
        while self.next_record()?.is_some() {}
        Ok((self.header, self.count))
    }
}

#[cfg(test)]
mod tests;
