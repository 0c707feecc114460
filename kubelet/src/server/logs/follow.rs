//! Reading a log file to its end and beyond: new lines, and the next file after a rotation.

use super::line;
use super::options::LogOptions;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use inotify::{EventStream, Inotify, WatchMask};
use nix::libc;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;

const READ_SIZE: usize = 64 << 10;
/// Longest line looked at as one; the runtime splits lines at 16 KiB.
const LINE_MAX: usize = 1 << 20;
/// How often a silent file is looked at again: whether its container still runs, in case a change was not reported.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// One pass over a container's log.
pub(super) struct Reader {
    path: PathBuf,
    options: LogOptions,
    file: fs::File,
    watch: Option<EventStream<[u8; 4096]>>,
    pending: BytesMut,
    left: Option<u64>,
}

/// Opens a log without following a link a container may have planted in its place.
fn open(path: &Path) -> io::Result<fs::File> {
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the log is not a regular file",
        ))
    }
}

/// Where the last `lines` complete lines (and what follows them) begin.
fn tail_offset(file: &mut fs::File, lines: u64) -> io::Result<u64> {
    let end = file.seek(SeekFrom::End(0))?;
    if lines == 0 {
        return Ok(end);
    }
    let mut found = 0;
    let mut at = end;
    let mut block = vec![0; READ_SIZE];
    while at > 0 {
        let size = at.min(READ_SIZE as u64);
        at -= size;
        file.seek(SeekFrom::Start(at))?;
        let part = &mut block[..usize::try_from(size).unwrap_or(READ_SIZE)];
        file.read_exact(part)?;
        for (index, byte) in part.iter().enumerate().rev() {
            let position = at + index as u64;
            // The newline that ends the file ends its last line; it does not begin another.
            if *byte == b'\n' && position + 1 != end {
                found += 1;
                if found == lines {
                    return Ok(position + 1);
                }
            }
        }
    }
    Ok(0)
}

fn watch(directory: &Path) -> io::Result<EventStream<[u8; 4096]>> {
    let inotify = Inotify::init()?;
    let mask = WatchMask::MODIFY | WatchMask::CREATE | WatchMask::MOVED_FROM | WatchMask::MOVED_TO | WatchMask::DELETE;
    inotify.watches().add(directory, mask)?;
    inotify.into_event_stream([0; 4096])
}

/// What one read of the file brought.
enum Took {
    Some,
    End,
}

impl Reader {
    /// Opens the log at the place the options ask for.
    pub(super) async fn open(path: PathBuf, options: LogOptions) -> io::Result<Self> {
        // The watch comes before the first read, so that no change falls between.
        let watch = match (options.follow, path.parent()) {
            (true, Some(directory)) => watch(directory).ok(),
            _ => None,
        };
        let (tail, opened) = (options.tail, path.clone());
        let file = client::blocking::spawn(move || {
            let mut file = open(&opened)?;
            let offset = match tail {
                Some(lines) => tail_offset(&mut file, lines)?,
                None => 0,
            };
            file.seek(SeekFrom::Start(offset))?;
            Ok::<_, io::Error>(file)
        })
        .await
        .map_err(io::Error::other)??;
        Ok(Self {
            left: options.limit,
            path,
            options,
            file,
            watch,
            pending: BytesMut::new(),
        })
    }

    /// Sends the log, and when following also what comes, until the container has ended, the limit is reached or nobody listens.
    pub(super) async fn stream(mut self, chunks: mpsc::Sender<Bytes>, alive: impl Fn() -> bool) -> io::Result<()> {
        loop {
            // Asked before reading: what the container wrote last is then read for certain.
            let running = self.options.follow && alive();
            while let Took::Some = self.take().await? {
                if !self.send(&chunks).await {
                    return Ok(());
                }
            }
            if !self.options.follow {
                return Ok(());
            }
            if self.next_file()? {
                continue;
            }
            if !running {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = chunks.closed() => return Ok(()),
                () = changed(&mut self.watch) => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
    }

    /// Reads one block.
    async fn take(&mut self) -> io::Result<Took> {
        let mut file = self.file.try_clone()?;
        let block = client::blocking::spawn(move || {
            let mut block = vec![0; READ_SIZE];
            let size = file.read(&mut block)?;
            block.truncate(size);
            Ok::<_, io::Error>(block)
        })
        .await
        .map_err(io::Error::other)??;
        if block.is_empty() {
            return Ok(Took::End);
        }
        self.pending.extend_from_slice(&block);
        Ok(Took::Some)
    }

    /// Sends every complete line; false when there is no more to do.
    async fn send(&mut self, chunks: &mpsc::Sender<Bytes>) -> bool {
        let mut out = BytesMut::new();
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line = self.pending.split_to(end + 1);
            if let Some(text) = line::render(&line, &self.options) {
                out.extend_from_slice(&text);
            }
        }
        if self.pending.len() > LINE_MAX {
            self.pending.clear();
        }
        if let Some(left) = &mut self.left {
            let size = usize::try_from(*left).unwrap_or(usize::MAX).min(out.len());
            out.truncate(size);
            *left -= size as u64;
        }
        let sent = out.is_empty() || chunks.send(out.freeze()).await.is_ok();
        sent && self.left != Some(0)
    }

    /// Goes on with the file now at the path, if the one being read was rotated away.
    fn next_file(&mut self) -> io::Result<bool> {
        let next = match open(&self.path) {
            Ok(next) => next,
            // Between the rename and the runtime's reopening there is none.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let (old, new) = (self.file.metadata()?, next.metadata()?);
        if (old.dev(), old.ino()) == (new.dev(), new.ino()) {
            return Ok(false);
        }
        self.file = next;
        Ok(true)
    }
}

/// Waits for the next change of the directory; forever without a watch.
async fn changed(watch: &mut Option<EventStream<[u8; 4096]>>) {
    match watch {
        Some(events) => {
            if events.next().await.is_none() {
                *watch = None;
            }
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::Streams;
    use super::*;
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn options() -> LogOptions {
        LogOptions {
            tail: None,
            limit: None,
            follow: false,
            timestamps: false,
            since: None,
            previous: false,
            streams: Streams::All,
        }
    }

    fn write(path: &Path, texts: &[&str]) {
        let mut file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .expect("file");
        for text in texts {
            writeln!(file, "2026-11-20T10:00:00Z stdout F {text}").expect("write");
        }
    }

    async fn all(path: &Path, options: LogOptions) -> String {
        let reader = Reader::open(path.to_owned(), options).await.expect("open");
        let (sender, mut receiver) = mpsc::channel(4);
        let task = tokio::spawn(reader.stream(sender, || false));
        let mut out = Vec::new();
        while let Some(chunk) = receiver.recv().await {
            out.extend_from_slice(&chunk);
        }
        task.await.expect("task").expect("stream");
        String::from_utf8(out).expect("text")
    }

    #[tokio::test]
    async fn tails_and_limits() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("0.log");
        write(&path, &["a", "b", "c"]);
        for (tail, expected) in [
            (None, "a\nb\nc\n"),
            (Some(0), ""),
            (Some(1), "c\n"),
            (Some(2), "b\nc\n"),
            (Some(9), "a\nb\nc\n"),
        ] {
            let got = all(&path, LogOptions { tail, ..options() }).await;
            assert_eq!(got, expected, "{tail:?}");
        }
        assert_eq!(
            all(
                &path,
                LogOptions {
                    limit: Some(3),
                    ..options()
                }
            )
            .await,
            "a\nb"
        );
    }

    #[tokio::test]
    async fn a_long_file_is_tailed_across_blocks() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("0.log");
        let lines: Vec<String> = (0..20_000).map(|n| format!("line {n}")).collect();
        write(&path, &lines.iter().map(String::as_str).collect::<Vec<_>>());
        let got = all(
            &path,
            LogOptions {
                tail: Some(5000),
                ..options()
            },
        )
        .await;
        assert_eq!(got.lines().count(), 5000);
        assert_eq!(got.lines().next(), Some("line 15000"));
    }

    #[tokio::test]
    async fn links_are_refused() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("0.log");
        std::os::unix::fs::symlink("/etc/passwd", &path).expect("link");
        assert!(Reader::open(path, options()).await.is_err());
        assert!(Reader::open(dir.path().to_owned(), options()).await.is_err());
    }

    /// Following sees every line once and in order, through any number of rotations, and ends with the container.
    #[tokio::test]
    async fn following_survives_rotation() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("0.log");
        write(&path, &["0"]);
        let follow = LogOptions {
            follow: true,
            ..options()
        };
        let reader = Reader::open(path.clone(), follow).await.expect("open");
        let running = Arc::new(AtomicBool::new(true));
        let alive = running.clone();
        let (sender, mut receiver) = mpsc::channel(4);
        let task = tokio::spawn(reader.stream(sender, move || alive.load(Ordering::SeqCst)));
        let mut got = String::new();
        for round in 1..4 {
            // Wait until everything so far has arrived: a rotation loses nothing that was read.
            let so_far: String = (0..round).map(|n| format!("{n}\n")).collect();
            while got != so_far {
                let chunk = tokio::time::timeout(Duration::from_secs(20), receiver.recv()).await;
                let chunk = chunk.expect("in time").expect("open");
                got.push_str(std::str::from_utf8(&chunk).expect("text"));
            }
            fs::rename(&path, dir.path().join(format!("0.log.{round}"))).expect("rotate");
            write(&path, &[&round.to_string()]);
        }
        write(&path, &["last"]);
        running.store(false, Ordering::SeqCst);
        while let Some(chunk) = receiver.recv().await {
            got.push_str(std::str::from_utf8(&chunk).expect("text"));
        }
        task.await.expect("task").expect("stream");
        assert_eq!(got, "0\n1\n2\n3\nlast\n");
    }
}
