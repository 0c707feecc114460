//! `/logs/`: the node's own logs, `/var/log` as a tree of files, and what services wrote into the journal (`NodeLogQuery`).
//!
//! What is opened is inside `/var/log` ([`crate::host::beneath`]): links that containers may have put there lead nowhere else. Only plain
//! files are read. Changes nothing.

mod query;

use super::answer::{self, Answer};
use super::request::{Query, RequestPath};
use crate::host::beneath;
use bytes::Bytes;
use client::ordered::Arrange;
use futures::FutureExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use query::{Asked, LogQuery};
use std::fmt::Write;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

/// Where the node's logs are.
pub(super) const DIRECTORY: &str = "/var/log";
/// Names of one directory that are listed.
const NAMES_MAX: usize = 10_000;
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks that wait for a slow reader.
const CHUNKS_MAX: usize = 4;
/// How long a query of the journal may take.
const QUERY_DEADLINE: Duration = Duration::from_secs(30);
/// How long a reader may take for a chunk.
const SEND_DEADLINE: Duration = Duration::from_secs(60);

/// Readers of files at a time, and queries: each of those runs programs.
const READERS_MAX: usize = 32;
const QUERIES_MAX: usize = 2;
/// What is told of a program's complaints, bytes.
const COMPLAINT_BYTES_MAX: u64 = 4096;

/// Places for who reads the node's logs.
pub(super) struct Places {
    readers: Arc<Semaphore>,
    queries: Arc<Semaphore>,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            queries: Arc::new(Semaphore::new(QUERIES_MAX)),
        }
    }
}

fn is_full() -> Answer {
    answer::text(429, "too many readers of this node's logs\n")
}

/// Answers a path below `/logs`; `raw` is the path as it was sent, `with_queries` whether services may be asked for.
pub(super) async fn answer(
    places: &Places,
    directory: &Path,
    path: &RequestPath,
    raw: &str,
    query: &Query,
    with_queries: bool,
) -> Answer {
    let Ok(place) = places.readers.clone().try_acquire_owned() else {
        return is_full();
    };
    let below: PathBuf = path.parts().iter().skip(1).collect();
    if !with_queries {
        return tree(directory, below, raw.ends_with('/'), place).await;
    }
    match query::parse(query) {
        Err(mistakes) => answer::text(400, &(mistakes.join(", ") + "\n")),
        Ok(None) => tree(directory, below, raw.ends_with('/'), place).await,
        Ok(Some(_)) if !below.as_os_str().is_empty() => answer::text(406, "path not allowed in query mode\n"),
        Ok(Some(asked)) => match asked.validate() {
            Err(mistakes) => answer::text(406, &(mistakes.join(", ") + "\n")),
            Ok(Asked::File(file)) => tree(directory, file.trim_start_matches('/').into(), false, place).await,
            Ok(Asked::Services(services)) => match places.queries.clone().try_acquire_owned() {
                Ok(place) => of_services(directory, &asked, services, place),
                Err(_) => is_full(),
            },
        },
    }
}

/// What a path is.
enum Found {
    /// With its size of the moment.
    File(File, u64),
    Directory(Vec<String>),
}

async fn tree(directory: &Path, below: PathBuf, as_directory: bool, place: OwnedSemaphorePermit) -> Answer {
    let directory = directory.to_owned();
    let name = below
        .file_name()
        .unwrap_or("logs".as_ref())
        .to_string_lossy()
        .into_owned();
    let found = client::blocking::spawn(move || open(&directory, &below)).await;
    match found.unwrap_or_else(|error| Err(io::Error::other(error))) {
        Ok(Found::File(file, bytes)) => answer::holding(answer::sized(streamed(file, bytes), bytes), place),
        // Names in a list are relative to it.
        Ok(Found::Directory(_)) if !as_directory => answer::moved(&(as_link(&name) + "/")),
        Ok(Found::Directory(names)) => answer::html(&listed(&names)),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => answer::not_found(),
            io::ErrorKind::PermissionDenied => answer::text(403, "403 Forbidden\n"),
            _ => answer::text(500, "500 Internal Server Error\n"),
        },
    }
}

fn open(directory: &Path, below: &Path) -> io::Result<Found> {
    let found = beneath::find(directory, below)?;
    // The descriptor again, this time to read: the same file whatever its name means by now.
    let again = format!("/proc/self/fd/{}", found.as_raw_fd());
    let metadata = fs::metadata(&again)?;
    let kind = metadata.file_type();
    if kind.is_file() {
        return File::open(&again).map(|file| Found::File(file, metadata.len()));
    }
    if !kind.is_dir() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(&again)?.take(NAMES_MAX) {
        let entry = entry?;
        let slash = if entry.file_type()?.is_dir() { "/" } else { "" };
        names.push(format!("{}{slash}", entry.file_name().to_string_lossy()));
    }
    names.arrange();
    Ok(Found::Directory(names))
}

/// A directory as a page of links.
fn listed(names: &[String]) -> String {
    let mut page = String::from("<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n");
    for name in names {
        let _ = writeln!(page, "<a href=\"{}\">{}</a>", as_link(name), as_text(name));
    }
    page.push_str("</pre>\n");
    page
}

fn as_link(name: &str) -> String {
    let mut link = String::new();
    // A name with a colon would be taken for one with a scheme.
    if name.split('/').next().is_some_and(|first| first.contains(':')) {
        link.push_str("./");
    }
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/:@".contains(&byte) {
            link.push(char::from(byte));
        } else {
            let _ = write!(link, "%{byte:02X}");
        }
    }
    link
}

fn as_text(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        match letter {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&#34;"),
            '\'' => text.push_str("&#39;"),
            other => text.push(other),
        }
    }
    text
}

/// Sends the first bytes of a file as it is read; a client that takes nothing for a while ends it. What is sent has a length, so
/// one that ends early is seen to be cut.
fn streamed(file: File, bytes: u64) -> answer::Body {
    let (sender, received) = mpsc::channel(CHUNKS_MAX);
    tokio::spawn(async move { copy_file(file, bytes, &sender).await }.boxed());
    body_of(received)
}

/// Copies so many bytes of a file, or less if there are no more; tells whether the client is still there.
async fn copy_file(mut file: File, bytes: u64, to: &mpsc::Sender<Bytes>) -> bool {
    let mut left = bytes;
    loop {
        let most = left.min(CHUNK_BYTES as u64);
        let read = client::blocking::spawn(move || {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            let read = file.by_ref().take(most).read_to_end(&mut chunk);
            read.map(|_| (file, chunk))
        });
        let Ok(Ok((rest, chunk))) = read.await else {
            return true;
        };
        if chunk.is_empty() {
            return true;
        }
        file = rest;
        left -= chunk.len() as u64;
        if to.send_timeout(chunk.into(), SEND_DEADLINE).await.is_err() {
            return false;
        }
    }
}

fn body_of(received: mpsc::Receiver<Bytes>) -> answer::Body {
    let frames = ReceiverStream::new(received).map(|chunk| Ok(Frame::data(chunk)));
    BodyExt::boxed(StreamBody::new(frames))
}

/// Copies until the end of either; tells whether the client is still there.
async fn copy(mut from: impl AsyncRead + Unpin, to: &mpsc::Sender<Bytes>) -> bool {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let chunk = Bytes::copy_from_slice(&buffer[..read]);
        if to.send_timeout(chunk, SEND_DEADLINE).await.is_err() {
            return false;
        }
    }
    true
}

/// The logs of services: from the journal, or from files of their names. One deadline is over all of it.
fn of_services(directory: &Path, asked: &LogQuery, services: &[String], place: OwnedSemaphorePermit) -> Answer {
    let (sender, received) = mpsc::channel(CHUNKS_MAX);
    let (directory, asked, services) = (directory.to_owned(), asked.clone(), services.to_vec());
    tokio::spawn(
        async move {
            let work = query_services(&directory, &asked, services, &sender);
            if tokio::time::timeout(QUERY_DEADLINE, work).await.is_err() {
                let text = "\nerror: the query took too long, this is not all\n";
                let _ = sender.send_timeout(text.into(), SEND_DEADLINE).await;
            }
            drop(place);
        }
        .boxed(),
    );
    answer::stream(body_of(received))
}

async fn query_services(directory: &Path, asked: &LogQuery, services: Vec<String>, to: &mpsc::Sender<Bytes>) {
    let (mut in_journal, mut in_files) = (Vec::new(), Vec::new());
    for service in services {
        match journal_has(&service).await {
            true => in_journal.push(service),
            false => in_files.push(service),
        }
    }
    if !in_journal.is_empty() && !journal(journalctl(&asked.arguments(&in_journal)), to).await {
        return;
    }
    if !in_files.is_empty() && asked.has_options() {
        let text = format!(
            "\noptions present and query resolved to log files for [{}]\ntry without specifying options\n",
            in_files.join(" ")
        );
        let _ = to.send(text.into()).await;
        return;
    }
    for service in &in_files {
        if !file_of(directory, service, to).await {
            return;
        }
    }
}

/// A command that ends with whoever waits for it, and gets nothing of this process's surroundings.
fn journalctl(arguments: &[String]) -> Command {
    let mut command = Command::new("journalctl");
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Whether the journal has a line of the service.
async fn journal_has(service: &str) -> bool {
    let arguments = ["--unit", service, "--lines=1", "--quiet", "--no-pager", "--output=cat"].map(str::to_owned);
    let Ok(mut child) = journalctl(&arguments).spawn() else {
        return false;
    };
    let Some(mut out) = child.stdout.take() else {
        return false;
    };
    let mut first = [0; 1];
    let read = tokio::time::timeout(QUERY_DEADLINE, out.read(&mut first)).await;
    matches!(read, Ok(Ok(1)))
}

/// Sends what a program says, and what it complains of.
async fn journal(mut program: Command, to: &mpsc::Sender<Bytes>) -> bool {
    let pipes = program
        .stderr(Stdio::piped())
        .spawn()
        .ok()
        .and_then(|mut child| Some((child.stdout.take()?, child.stderr.take()?, child)));
    let Some((out, complaints, _ends_with_this)) = pipes else {
        return to.send("\nerror: journal output not available\n".into()).await.is_ok();
    };
    let complained = async {
        let mut text = Vec::new();
        let _ = complaints.take(COMPLAINT_BYTES_MAX).read_to_end(&mut text).await;
        text
    };
    let (there, text) = tokio::join!(copy(out, to), complained);
    there && (text.is_empty() || to.send(text.into()).await.is_ok())
}

/// Sends the log file of a service, which may have one of three names.
async fn file_of(directory: &Path, service: &str, to: &mpsc::Sender<Bytes>) -> bool {
    for name in [
        service.to_owned(),
        format!("{service}.log"),
        format!("{service}/{service}.log"),
    ] {
        let directory = directory.to_owned();
        let found = client::blocking::spawn(move || open(&directory, Path::new(&name))).await;
        if let Ok(Ok(Found::File(file, bytes))) = found {
            return copy_file(file, bytes, to).await;
        }
    }
    to.send(format!("\nlog not found for {service}\n").into()).await.is_ok()
}

#[cfg(test)]
mod tests;
