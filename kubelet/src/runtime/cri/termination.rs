//! The message a container leaves behind when it ends: its termination file, or the end of its log.

use crate::host::FileWork;
use crate::reason;
use crate::runtime::observed::ObservedContainer;
use nix::libc;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// The most that is read of a termination file, bytes (kubelet contract §5).
const FILE_BYTES_MAX: u64 = 4096;
/// The most that is taken from the log when there is no file, bytes and lines.
const LOG_BYTES_MAX: usize = 2048;
const LOG_LINES_MAX: usize = 80;
/// How much of the log's end is searched for those lines: twice what a runtime writes into one, so that the last is whole.
const LOG_WINDOW_BYTES: u64 = 40 * 1024;
/// How long the files of one container are waited for: they may be on a file system that hangs, and the status is not.
pub(super) const DEADLINE: Duration = Duration::from_secs(5);

/// Replaces the runtime's message by the container's own, if it left one that can be read in time.
pub(super) async fn read_message(files: &FileWork, container: &mut ObservedContainer) {
    let file = container.termination_file.clone();
    let falls_back = container.termination_policy == "FallbackToLogsOnError"
        && container.exit_code != 0
        && container.reason != reason::terminated::CONTAINER_CANNOT_RUN;
    let log = falls_back.then(|| container.log_path.clone());
    if file.is_none() && log.is_none() {
        return;
    }
    let read = files.run(container.id.as_str(), move || {
        let own = file.and_then(|path| head(Path::new(&path)).ok());
        let own = own.filter(|message| !message.is_empty());
        own.or_else(|| log_tail(Path::new(&log?)).ok()).unwrap_or_default()
    });
    match read.await {
        Ok(message) if !message.is_empty() => container.message = message,
        Ok(_) => {}
        Err(error) => tracing::warn!(container = %container.id, %error, "reading a container's last message failed"),
    }
}

/// Opens a regular file. Containers may put anything in its place, also in place of a log where the node's logs are mounted: a
/// pipe would be waited for, a link leads to what they may not read.
fn open(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
    let file = options.open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

fn head(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The end of a log.
fn log_tail(path: &Path) -> io::Result<String> {
    let mut file = open(path)?;
    let from = file.metadata()?.len().saturating_sub(LOG_WINDOW_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(LOG_WINDOW_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // A line that begins before the window has lost its columns.
    let whole = match text.split_once('\n') {
        Some((_, rest)) if from > 0 => rest,
        _ => &text,
    };
    Ok(messages(whole))
}

/// The last messages of a CRI log, without the runtime's columns. A line the container did not end (tag `P`) is not ended
/// here either.
fn messages(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let from = lines.len().saturating_sub(LOG_LINES_MAX);
    let mut text = String::new();
    for line in &lines[from..] {
        let mut columns = line.splitn(4, ' ').skip(2);
        let (Some(tags), Some(message)) = (columns.next(), columns.next()) else {
            continue;
        };
        text.push_str(message);
        // More tags may follow the first, after colons.
        if tags.split(':').next() != Some("P") {
            text.push('\n');
        }
    }
    let mut cut = text.len().saturating_sub(LOG_BYTES_MAX);
    while !text.is_char_boundary(cut) {
        cut += 1;
    }
    text[cut..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_messages_only_and_bounded() {
        let line = |n: usize| format!("2026-01-01T00:00:00.0Z stdout F line {n}\n");
        let short: String = (0..3).map(line).collect();
        assert_eq!(messages(&short), "line 0\nline 1\nline 2\n");
        let long: String = (0..200).map(line).collect();
        let tail = messages(&long);
        assert!(tail.starts_with("line 120\n") && tail.ends_with("line 199\n"), "{tail}");
        let wide: String = (0..80)
            .map(|n| format!("t stdout F {n} {}\n", "x".repeat(100)))
            .collect();
        assert_eq!(messages(&wide).len(), LOG_BYTES_MAX);
    }

    #[test]
    fn a_line_that_was_not_ended_stays_so() {
        assert_eq!(messages("t stdout P DONE\n"), "DONE");
        assert_eq!(
            messages("t stdout F one\nt stderr P two \nt stderr P:x three\n"),
            "one\ntwo three"
        );
        assert_eq!(
            messages("t stdout P a\nt stdout F \n"),
            "a\n",
            "its end alone in a line"
        );
        assert_eq!(messages("t stdout F\nnonsense\n"), "");
    }

    #[test]
    fn only_a_regular_file_is_a_message() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (pipe, link, file) = (dir.path().join("p"), dir.path().join("l"), dir.path().join("f"));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        std::fs::write(&file, "t stdout F secret\n").expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        assert!(head(&pipe).is_err(), "nobody ever writes into it");
        assert!(log_tail(&pipe).is_err());
        assert!(head(dir.path()).is_err() && head(Path::new("/dev/zero")).is_err());
        assert_eq!(head(&file).expect("read"), "t stdout F secret\n");
        assert_eq!(log_tail(&file).expect("read"), "secret\n");
        assert!(head(&link).is_err());
        assert!(log_tail(&link).is_err(), "what it leads to may be somebody else's");
    }

    #[test]
    fn a_file_cut_within_a_line_gives_whole_lines() {
        let dir = tempfile::tempdir().expect("temp dir");
        let log = dir.path().join("0.log");
        let long = "x".repeat(LOG_WINDOW_BYTES as usize);
        std::fs::write(&log, format!("t stdout F {long} a b c d\nt stdout P end\n")).expect("written");
        assert_eq!(log_tail(&log).expect("read"), "end");
        std::fs::write(&log, "t stdout F only\n").expect("written");
        assert_eq!(log_tail(&log).expect("read"), "only\n");
    }
}
