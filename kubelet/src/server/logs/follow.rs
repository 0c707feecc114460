//! Reading a log file to its end and beyond: new lines, and the next file after a rotation.

use super::files::LogFiles;
use super::line::Renderer;
use super::options::LogOptions;
use super::rotation;
use super::source::Source;
use super::tail::tail_offset;
use super::watch::Watched;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{self, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendTimeoutError;

pub(super) const READ_SIZE: usize = 32 << 10;
/// Longest line looked at as one; the runtime splits lines at 16 KiB.
const LINE_MAX: usize = 1 << 20;
/// How long a client may take nothing, such as somebody who reads page by page.
pub(super) const SEND_DEADLINE: Duration = Duration::from_secs(600);
/// How often a silent file is looked at again: whether its container still runs, in case a change was not reported.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// One pass over a container's log.
pub(super) struct Reader {
    files: LogFiles,
    path: PathBuf,
    options: LogOptions,
    renderer: Renderer,
    file: Source,
    /// What is to be read after it, once it was read to its end again.
    next: VecDeque<Source>,
    /// The newest name beside it when it was opened.
    newest_aside: Option<String>,
    watch: Option<Watched>,
    pending: BytesMut,
    left: Option<u64>,
}

/// What one read of the file brought.
enum Took {
    Some,
    End,
}

impl Reader {
    /// Opens the log at the place the options ask for.
    pub(super) async fn begin(files: &LogFiles, path: PathBuf, options: LogOptions) -> io::Result<Self> {
        // The watch comes before the first read, so that no change falls between.
        let watch = match (options.follow, path.parent()) {
            (true, Some(directory)) => files.watches.watch(directory).ok(),
            _ => None,
        };
        let (mut file, newest_aside) = rotation::open_present(files, &path).await?;
        if let Some(lines) = options.tail {
            let offset = tail_offset(files, &file, lines).await?;
            file.seek(SeekFrom::Start(offset))?;
        }
        Ok(Self {
            files: files.clone(),
            left: options.limit,
            path,
            renderer: Renderer::new(options.clone()),
            options,
            file: Source::plain(file),
            next: VecDeque::new(),
            newest_aside,
            watch,
            pending: BytesMut::new(),
        })
    }

    /// Sends the log, and when following also what comes, until the container has ended, the limit is reached or nobody listens.
    pub(super) async fn stream(mut self, chunks: mpsc::Sender<Bytes>, alive: impl Fn() -> bool) -> io::Result<()> {
        loop {
            // Asked before reading: what the container wrote last is then read for certain.
            let running = self.options.follow && alive();
            if !self.read_to_end(&chunks).await? {
                return Ok(());
            }
            if self.options.follow && self.next_file().await? {
                continue;
            }
            if !running {
                self.send_rest(&chunks).await?;
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

    /// Sends what the file has; false when there is no more to do.
    async fn read_to_end(&mut self, chunks: &mpsc::Sender<Bytes>) -> io::Result<bool> {
        while let Took::Some = self.take().await? {
            if !self.send(chunks).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads one block.
    async fn take(&mut self) -> io::Result<Took> {
        let file = self.file.clone();
        let block = self.files.run(move || file.block(READ_SIZE)).await?;
        if block.is_empty() {
            return Ok(Took::End);
        }
        self.pending.extend_from_slice(&block);
        Ok(Took::Some)
    }

    /// Sends every complete line; false when there is no more to do. An error when nobody takes it.
    async fn send(&mut self, chunks: &mpsc::Sender<Bytes>) -> io::Result<bool> {
        let mut out = BytesMut::new();
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line = self.pending.split_to(end + 1);
            if let Some(text) = self.renderer.render(&line) {
                out.extend_from_slice(&text);
            }
        }
        if self.pending.len() > LINE_MAX {
            self.pending.clear();
        }
        self.send_text(out, chunks).await
    }

    /// Sends a last line that nobody ended.
    async fn send_rest(&mut self, chunks: &mpsc::Sender<Bytes>) -> io::Result<bool> {
        let line = self.pending.split();
        let text = self.renderer.render(&line).unwrap_or_default();
        self.send_text(BytesMut::from(text.as_slice()), chunks).await
    }

    async fn send_text(&mut self, mut out: BytesMut, chunks: &mpsc::Sender<Bytes>) -> io::Result<bool> {
        if let Some(left) = &mut self.left {
            let size = usize::try_from(*left).unwrap_or(usize::MAX).min(out.len());
            out.truncate(size);
            *left -= size as u64;
        }
        if !out.is_empty() {
            match chunks.send_timeout(out.freeze(), SEND_DEADLINE).await {
                Ok(()) => {}
                Err(SendTimeoutError::Closed(_)) => return Ok(false),
                Err(SendTimeoutError::Timeout(_)) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        Ok(self.left != Some(0))
    }

    /// Whether there is more to read, once this file was read to its end: what came to it until something was in the next, then
    /// the next.
    async fn next_file(&mut self) -> io::Result<bool> {
        if let Some(next) = self.next.pop_front() {
            self.file = next;
            if !self.pending.is_empty() {
                // What follows is no part of a line that was left in the middle.
                self.pending.extend_from_slice(b"\n");
            }
            return Ok(true);
        }
        let (path, file, newest_aside) = (self.path.clone(), self.file.clone(), self.newest_aside.clone());
        let look = move || rotation::following(&path, &file, newest_aside.as_deref());
        let found = self.files.run(look).await?;
        if found.files.is_empty() {
            return Ok(false);
        }
        (self.next, self.newest_aside) = (found.files, found.newest_aside);
        Ok(true)
    }
}

/// Waits for the next change of the directory; forever without a watch.
async fn changed(watch: &mut Option<Watched>) {
    match watch {
        Some(watched) => watched.changed().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    impl Reader {
        /// Whether changes wake it.
        pub(in crate::server::logs) fn is_told_of_changes(&self) -> bool {
            self.watch.is_some()
        }

        /// Alone.
        async fn open(path: PathBuf, options: LogOptions) -> io::Result<Self> {
            Self::begin(&LogFiles::default(), path, options).await
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
            let got = all(
                &path,
                LogOptions {
                    tail,
                    ..LogOptions::default()
                },
            )
            .await;
            assert_eq!(got, expected, "{tail:?}");
        }
        assert_eq!(
            all(
                &path,
                LogOptions {
                    limit: Some(3),
                    ..LogOptions::default()
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
                ..LogOptions::default()
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
        assert!(Reader::open(path, LogOptions::default()).await.is_err());
        assert!(
            Reader::open(dir.path().to_owned(), LogOptions::default())
                .await
                .is_err()
        );
    }

    /// Following sees every line once and in order, through any number of rotations, and ends with the container.
    #[tokio::test]
    async fn following_survives_rotation() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("0.log");
        write(&path, &["0"]);
        let follow = LogOptions {
            follow: true,
            ..LogOptions::default()
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

    /// A reader of the log at `path` that follows it, at its end, and what it sends.
    async fn at_end(path: &Path, expected: &str) -> (Reader, mpsc::Sender<Bytes>, mpsc::Receiver<Bytes>) {
        let follow = LogOptions {
            follow: true,
            ..LogOptions::default()
        };
        let mut reader = Reader::open(path.to_owned(), follow).await.expect("open");
        let (sender, mut receiver) = mpsc::channel(64);
        assert!(reader.read_to_end(&sender).await.expect("read"));
        assert_eq!(sent(&mut receiver), expected);
        (reader, sender, receiver)
    }

    fn sent(receiver: &mut mpsc::Receiver<Bytes>) -> String {
        let mut text = Vec::new();
        while let Ok(chunk) = receiver.try_recv() {
            text.extend_from_slice(&chunk);
        }
        String::from_utf8(text).expect("text")
    }

    /// Compresses a file as rotation does.
    fn compress(path: &Path) {
        let target = fs::File::create(path.with_added_extension("gz")).expect("file");
        let mut encoder = flate2::write::GzEncoder::new(target, flate2::Compression::default());
        encoder.write_all(&fs::read(path).expect("read")).expect("written");
        encoder.finish().expect("finished");
        fs::remove_file(path).expect("compressed");
    }

    /// Reads on until nothing follows.
    async fn read_on(reader: &mut Reader, sender: &mpsc::Sender<Bytes>) {
        while reader.next_file().await.expect("look") {
            assert!(reader.read_to_end(sender).await.expect("read"));
        }
    }

    /// The new file is there before the runtime writes to it, and the reader has just seen the old one's end.
    #[tokio::test]
    async fn what_comes_to_the_old_file_after_the_new_one_is_there_is_read() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (path, old) = (dir.path().join("0.log"), dir.path().join("0.log.20261120-100000"));
        write(&path, &["0"]);
        let (mut reader, sender, mut receiver) = at_end(&path, "0\n").await;
        write(&path, &["1"]);
        fs::rename(&path, &old).expect("rotate");
        write(&path, &[]);
        read_on(&mut reader, &sender).await;
        write(&old, &["2"]);
        write(&path, &["3"]);
        read_on(&mut reader, &sender).await;
        write(&path, &["4"]);
        assert!(reader.read_to_end(&sender).await.expect("read"));
        assert_eq!(sent(&mut receiver), "1\n2\n3\n4\n");
    }

    /// Rotations while the reader waited for its client. What it reads is compressed at the second one.
    #[tokio::test]
    async fn files_between_two_rotations_are_read() {
        for compressed in [false, true] {
            let dir = tempfile::tempdir().expect("temp dir");
            let path = dir.path().join("0.log");
            let aside = |second| dir.path().join(format!("0.log.20261120-10000{second}"));
            write(&aside(0), &["before"]);
            write(&path, &["0"]);
            let (mut reader, sender, mut receiver) = at_end(&path, "0\n").await;
            for second in 1..4 {
                write(&path, &[&format!("end {second}")]);
                fs::rename(&path, aside(second)).expect("rotate");
                write(&path, &[&format!("begin {second}")]);
            }
            write(&dir.path().join("10.log"), &["another"]);
            if compressed {
                compress(&aside(1));
                compress(&aside(2));
            }
            read_on(&mut reader, &sender).await;
            let expected = "end 1\nbegin 1\nend 2\nbegin 2\nend 3\nbegin 3\n";
            assert_eq!(sent(&mut receiver), expected, "{compressed}");
            read_on(&mut reader, &sender).await;
            assert_eq!(sent(&mut receiver), "", "nothing twice");
        }
    }

    /// Its old name is gone, and the runtime has not opened the new file yet.
    #[tokio::test(start_paused = true)]
    async fn a_log_between_two_names_is_waited_for() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("0.log");
        assert!(
            Reader::open(path.clone(), LogOptions::default()).await.is_err(),
            "there is none"
        );
        write(&dir.path().join("0.log.20261120-100000"), &["a"]);
        let later = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            write(&path, &["b"]);
        };
        let both = futures::future::join(all(&path, LogOptions::default()), later);
        assert_eq!(both.await.0, "b\n");
    }

    #[tokio::test]
    async fn a_last_line_that_is_not_ended_is_sent_at_the_end() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("0.log");
        fs::write(
            &path,
            "2026-11-20T10:00:00Z stdout F a\n2026-11-20T10:00:00Z stdout F b",
        )
        .expect("written");
        assert_eq!(all(&path, LogOptions::default()).await, "a\nb");
        let follow = LogOptions {
            follow: true,
            ..LogOptions::default()
        };
        assert_eq!(all(&path, follow).await, "a\nb", "its container has ended");
        let limited = LogOptions {
            limit: Some(2),
            ..LogOptions::default()
        };
        assert_eq!(all(&path, limited).await, "a\n");
        let (mut reader, sender, mut receiver) = at_end(&path, "a\n").await;
        fs::rename(&path, dir.path().join("0.log.20261120-100000")).expect("rotate");
        write(&path, &["c"]);
        read_on(&mut reader, &sender).await;
        assert_eq!(sent(&mut receiver), "b\nc\n", "the next file begins another");
    }
}
