//! The audit log's file: one JSON line per event, turned over by size, old ones removed by number and age.
//!
//! Owns one thread and the file. Lines wait in a bounded queue; when the disk cannot follow, lines are dropped and counted in the
//! log of the process rather than holding requests up.

use client::Clock;
use jiff::Timestamp;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, SystemTime};

/// Lines that may wait for the disk.
const QUEUE: usize = 4096;
const SECONDS_PER_DAY: u64 = 86_400;

/// `--audit-log-*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// The file; `None` is standard output.
    pub path: Option<PathBuf>,
    /// Size in MB at which the file is turned over.
    pub max_size_mb: u64,
    /// Old files kept; 0 keeps all.
    pub max_backups: usize,
    /// Days old files are kept; 0 keeps them for ever.
    pub max_age_days: u64,
}

/// The log. Ends, with everything written, when the last handle is dropped.
#[derive(Clone)]
pub struct AuditLog {
    lines: SyncSender<String>,
}

impl AuditLog {
    /// Opens the log.
    ///
    /// # Errors
    /// If the file cannot be made or appended to.
    pub fn open(options: LogOptions, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let out = match &options.path {
            None => Out::Standard,
            Some(path) => Out::File(Rotating::open(path, &options)?),
        };
        let (lines, queue) = sync_channel(QUEUE);
        std::thread::Builder::new()
            .name("audit-log".to_owned())
            .spawn(move || write_all(out, &queue, &*clock))?;
        Ok(Self { lines })
    }

    /// Writes a line, in the order of the calls.
    pub(super) fn write(&self, line: String) {
        match self.lines.try_send(line) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => tracing::error!("the audit log cannot follow; an event is lost"),
            Err(TrySendError::Disconnected(_)) => tracing::error!("the audit log has ended; an event is lost"),
        }
    }
}

enum Out {
    Standard,
    File(Rotating),
}

fn write_all(mut out: Out, queue: &Receiver<String>, clock: &dyn Clock) {
    for mut line in queue {
        line.push('\n');
        let written = match &mut out {
            Out::Standard => io::stdout().lock().write_all(line.as_bytes()),
            Out::File(file) => file.write(line.as_bytes(), clock.now()),
        };
        if let Err(error) = written {
            tracing::error!(%error, "an audit event cannot be written");
        }
    }
}

/// A file that makes room for itself.
struct Rotating {
    path: PathBuf,
    file: File,
    length: u64,
    max_bytes: u64,
    max_backups: usize,
    max_age: Option<Duration>,
}

impl Rotating {
    fn open(path: &Path, options: &LogOptions) -> io::Result<Self> {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent)?;
        }
        let file = append(path)?;
        Ok(Self {
            path: path.to_owned(),
            length: file.metadata()?.len(),
            file,
            max_bytes: options.max_size_mb.saturating_mul(1 << 20),
            max_backups: options.max_backups,
            max_age: (options.max_age_days > 0)
                .then(|| Duration::from_secs(options.max_age_days.saturating_mul(SECONDS_PER_DAY))),
        })
    }

    fn write(&mut self, line: &[u8], now: Timestamp) -> io::Result<()> {
        let length = line.len() as u64;
        if self.length > 0 && self.length + length > self.max_bytes {
            self.turn_over(now)?;
        }
        self.file.write_all(line)?;
        self.length += length;
        Ok(())
    }

    /// The full file gets the time into its name, and a new one begins.
    fn turn_over(&mut self, now: Timestamp) -> io::Result<()> {
        let (stem, extension) = self.name();
        let time = now.strftime("%Y-%m-%dT%H-%M-%S.%3f");
        let mut full = self.path.with_file_name(format!("{stem}-{time}{extension}"));
        // Two within a millisecond.
        let mut number = 1;
        while full.exists() {
            full = self.path.with_file_name(format!("{stem}-{time}.{number}{extension}"));
            number += 1;
        }
        std::fs::rename(&self.path, full)?;
        self.file = append(&self.path)?;
        self.length = 0;
        self.remove_old(now)
    }

    fn name(&self) -> (String, String) {
        let text = |part: Option<&std::ffi::OsStr>| part.map_or_else(String::new, |p| p.to_string_lossy().into_owned());
        let extension = match text(self.path.extension()) {
            none if none.is_empty() => none,
            some => format!(".{some}"),
        };
        (text(self.path.file_stem()), extension)
    }

    /// Old files, newest first: their names carry the time.
    fn backups(&self) -> io::Result<Vec<PathBuf>> {
        let (stem, extension) = self.name();
        let directory = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut found = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let time = name
                .strip_prefix(&format!("{stem}-"))
                .and_then(|rest| rest.strip_suffix(&extension));
            // Somebody else's file that begins alike is none of ours.
            if time.is_some_and(|time| time.len() >= 23 && time.as_bytes().get(10) == Some(&b'T')) {
                found.push(entry.path());
            }
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        Ok(found)
    }

    fn remove_old(&self, now: Timestamp) -> io::Result<()> {
        let limit = self.max_age.and_then(|age| SystemTime::from(now).checked_sub(age));
        for (index, path) in self.backups()?.iter().enumerate() {
            let too_many = self.max_backups > 0 && index >= self.max_backups;
            let too_old = limit.is_some_and(|limit| {
                let written = std::fs::metadata(path).and_then(|found| found.modified());
                written.is_ok_and(|written| written < limit)
            });
            if too_many || too_old {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Only its owner may read who did what.
fn append(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_full_file_is_turned_over_and_the_oldest_go() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("logs/audit.log");
        let options = LogOptions {
            path: None,
            max_size_mb: 1,
            max_backups: 2,
            max_age_days: 0,
        };
        let mut log = Rotating::open(&path, &options).unwrap();
        std::fs::write(path.with_file_name("audit-other.log"), "").unwrap();
        let line = vec![b'x'; 700 << 10];
        for second in 0..5 {
            log.write(&line, time(1_800_000_000 + second)).unwrap();
        }
        let names: Vec<String> = log
            .backups()
            .unwrap()
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(
            names,
            ["audit-2027-01-15T08-00-04.000.log", "audit-2027-01-15T08-00-03.000.log"]
        );
        assert_eq!(std::fs::metadata(&path).unwrap().len(), line.len() as u64);
        assert!(path.with_file_name("audit-other.log").exists());
    }

    #[test]
    fn old_files_go_by_age_and_a_reopened_file_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let options = LogOptions {
            path: None,
            max_size_mb: 1,
            max_backups: 0,
            max_age_days: 3,
        };
        let now = Timestamp::now().as_second();
        let line = vec![b'x'; 700 << 10];
        Rotating::open(&path, &options)
            .unwrap()
            .write(&line, time(now))
            .unwrap();
        let mut log = Rotating::open(&path, &options).unwrap();
        log.write(&line, time(now)).unwrap();
        assert_eq!(log.backups().unwrap().len(), 1);
        log.write(&line, time(now + 4 * 86_400)).unwrap();
        assert!(
            log.backups().unwrap().is_empty(),
            "all were written more than three days ago"
        );
    }
}
