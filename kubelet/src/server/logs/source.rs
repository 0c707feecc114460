//! One of the files a log is spread over: as it was written, or compressed by rotation.

use super::rotation::open;
use flate2::read::GzDecoder;
use std::fs;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// How much of a log's beginning tells it from every other: its first line begins with a time in nanoseconds.
const BEGINNING: usize = 64;

/// A file that is being read. Clones share the place at which.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Plain(Arc<fs::File>),
    Compressed(Arc<Mutex<GzDecoder<fs::File>>>),
}

impl Source {
    pub(super) fn plain(file: fs::File) -> Self {
        Self::Plain(Arc::new(file))
    }

    /// What rotation compressed.
    ///
    /// # Errors
    /// It is no plain file.
    pub(super) fn compressed(path: &Path) -> io::Result<Self> {
        Ok(Self::Compressed(Arc::new(Mutex::new(GzDecoder::new(open(path)?)))))
    }

    /// The next block; empty at the end. A compressed log that is broken ends where it is.
    ///
    /// # Errors
    /// The file's.
    pub(super) fn block(&self, size: usize) -> io::Result<Vec<u8>> {
        let mut block = vec![0; size];
        let read = match self {
            Self::Plain(file) => (&**file).read(&mut block)?,
            Self::Compressed(decoder) => {
                let mut decoder = decoder.lock().unwrap_or_else(PoisonError::into_inner);
                decoder.read(&mut block).unwrap_or(0)
            }
        };
        block.truncate(read);
        Ok(block)
    }

    /// Whether a compressed log is the one that `plain` was before: then it has been read.
    pub(super) fn is_of(path: &Path, plain: &fs::File) -> io::Result<bool> {
        let mut own = [0; BEGINNING];
        let size = plain.read_at(&mut own, 0)?;
        let mut theirs = vec![0; size];
        let mut file = open(path)?;
        file.rewind()?;
        let read = GzDecoder::new(file).read_exact(&mut theirs);
        Ok(size > 0 && read.is_ok() && theirs == own[..size])
    }
}
