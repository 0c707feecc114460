//! A checksummed log with snapshots, as a store that has everything in memory anyway could write it.
//!
//! `log-N` holds framed batches, `snapshot-N` the state before `log-N`. A log longer than the last snapshot (and than a minimum) is
//! closed: the next one begins at once, and a thread writes the state from a copy that shares its values.

use super::{Engine, State, Write};
use anyhow::{Context, bail};
use bytes::Bytes;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A log shorter than this is never worth a snapshot.
const LEAST_LOG_BYTES: u64 = 16 << 20;
/// Length of the deletion's value, which no value has.
const DELETED: u32 = u32::MAX;

pub struct Log {
    directory: PathBuf,
    number: u64,
    file: File,
    length: u64,
    last_snapshot: u64,
    frame: Vec<u8>,
    snapshot: Option<JoinHandle<anyhow::Result<u64>>>,
    recovered: Option<State>,
}

impl Log {
    pub fn open(directory: &Path) -> anyhow::Result<Self> {
        let numbers = |prefix: &str| -> anyhow::Result<Vec<u64>> {
            let mut found = Vec::new();
            for entry in std::fs::read_dir(directory)? {
                let name = entry?.file_name();
                found.extend(
                    name.to_str()
                        .and_then(|name| name.strip_prefix(prefix)?.parse::<u64>().ok()),
                );
            }
            found.sort_unstable();
            Ok(found)
        };
        let base = numbers("snapshot-")?.last().copied();
        let mut state = State::new();
        let mut last_snapshot = 0;
        if let Some(base) = base {
            let bytes = std::fs::read(directory.join(format!("snapshot-{base}")))?;
            last_snapshot = bytes.len() as u64;
            let good = replay(&Bytes::from(bytes), &mut state);
            if good != last_snapshot {
                bail!("snapshot-{base} is damaged at byte {good}");
            }
        }
        let logs: Vec<u64> = numbers("log-")?
            .into_iter()
            .filter(|n| *n >= base.unwrap_or(0))
            .collect();
        let number = logs.last().copied().unwrap_or(0);
        let mut length = 0;
        for log in &logs {
            let bytes = std::fs::read(directory.join(format!("log-{log}")))?;
            length = replay(&Bytes::from(bytes.clone()), &mut state);
            if length != bytes.len() as u64 && *log != number {
                bail!("log-{log} is damaged at byte {length}");
            }
        }
        let file = open_log(directory, number)?;
        // A frame that was cut off was never acknowledged.
        file.set_len(length)?;
        Ok(Self {
            directory: directory.to_owned(),
            number,
            file,
            length,
            last_snapshot,
            frame: Vec::new(),
            snapshot: None,
            recovered: Some(state),
        })
    }

    fn roll(&mut self, state: &State) -> anyhow::Result<()> {
        if self.length < LEAST_LOG_BYTES.max(self.last_snapshot) {
            return Ok(());
        }
        if let Some(running) = self.snapshot.take() {
            if !running.is_finished() {
                self.snapshot = Some(running);
                return Ok(());
            }
            self.last_snapshot = running.join().ok().context("the snapshot's thread failed")??;
            return self.roll(state);
        }
        self.number += 1;
        self.file = open_log(&self.directory, self.number)?;
        File::open(&self.directory)?.sync_all()?;
        self.length = 0;
        let (directory, number, state) = (self.directory.clone(), self.number, state.clone());
        self.snapshot = Some(std::thread::spawn(move || write_snapshot(&directory, number, &state)));
        Ok(())
    }
}

impl Engine for Log {
    fn load(&mut self) -> anyhow::Result<State> {
        self.recovered.take().context("loaded twice")
    }

    fn commit(&mut self, batch: &[Write], state: &State) -> anyhow::Result<()> {
        self.frame.clear();
        encode(
            &mut self.frame,
            batch.iter().map(|(key, value)| (&**key, value.as_ref())),
        );
        self.file.write_all(&self.frame)?;
        self.file.sync_data()?;
        self.length += self.frame.len() as u64;
        self.roll(state)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Some(running) = self.snapshot.take() {
            // A snapshot that fails leaves the logs, which hold everything.
            let _ = running.join();
        }
    }
}

fn open_log(directory: &Path, number: u64) -> anyhow::Result<File> {
    Ok(File::options()
        .append(true)
        .create(true)
        .open(directory.join(format!("log-{number}")))?)
}

fn write_snapshot(directory: &Path, number: u64, state: &State) -> anyhow::Result<u64> {
    let partial = directory.join("partial-snapshot");
    let mut out = BufWriter::with_capacity(1 << 16, File::create(&partial)?);
    let mut frame = Vec::new();
    let mut length = 0;
    let mut entries = state.iter().peekable();
    while entries.peek().is_some() {
        frame.clear();
        encode(
            &mut frame,
            entries.by_ref().take(64).map(|(key, value)| (&**key, Some(value))),
        );
        out.write_all(&frame)?;
        length += frame.len() as u64;
    }
    out.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    std::fs::rename(&partial, directory.join(format!("snapshot-{number}")))?;
    File::open(directory)?.sync_all()?;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let old = name
            .to_str()
            .and_then(|name| name.rsplit_once('-')?.1.parse::<u64>().ok());
        if old.is_some_and(|old| old < number) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(length)
}

/// Frame: payload length, checksum, payload; in it per write: key length, value length, key, value.
fn encode<'a>(out: &mut Vec<u8>, writes: impl Iterator<Item = (&'a str, Option<&'a Bytes>)>) {
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    for (key, value) in writes {
        out.extend_from_slice(&(key.len() as u32).to_le_bytes());
        out.extend_from_slice(&value.map_or(DELETED, |value| value.len() as u32).to_le_bytes());
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(value.map_or(&[], |value| &value[..]));
    }
    let payload = out.len() - start - 8;
    let checksum = crc32fast::hash(&out[start + 8..]);
    out[start..start + 4].copy_from_slice(&(payload as u32).to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
}

/// Applies every whole frame; returns where the first one that is not whole begins.
fn replay(bytes: &Bytes, state: &mut State) -> u64 {
    let mut at = 0;
    while let Some(next) = frame(bytes, at, state) {
        at = next;
    }
    at as u64
}

fn frame(bytes: &Bytes, at: usize, state: &mut State) -> Option<usize> {
    let length = number(bytes, at)? as usize;
    let payload = bytes.get(at + 8..at + 8 + length)?;
    if crc32fast::hash(payload) != number(bytes, at + 4)? {
        return None;
    }
    let mut at_write = at + 8;
    let end = at_write + length;
    while at_write < end {
        let (key_length, value_length) = (number(bytes, at_write)? as usize, number(bytes, at_write + 4)?);
        let value_at = at_write + 8 + key_length;
        let key = std::str::from_utf8(bytes.get(at_write + 8..value_at)?).ok()?;
        if value_length == DELETED {
            state.remove(key);
            at_write = value_at;
        } else {
            at_write = value_at + value_length as usize;
            state.insert(Arc::from(key), Bytes::copy_from_slice(bytes.get(value_at..at_write)?));
        }
    }
    Some(end)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
