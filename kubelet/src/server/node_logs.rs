//! `/logs/`: the node's own logs, `/var/log` as a tree of files, and what services wrote into the journal (`NodeLogQuery`).
//!
//! What is opened is inside `/var/log` ([`crate::host::beneath`]): links that containers may have put there lead nowhere else. Only plain
//! files are read. Changes nothing.

mod query;

use super::answer::{self, Answer};
use super::request::{Query, RequestPath};
use crate::host::beneath;
use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use query::{Asked, LogQuery};
use std::convert::Infallible;
use std::fmt::Write;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::mpsc;
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

/// Answers a path below `/logs`; `raw` is the path as it was sent, `with_queries` whether services may be asked for.
pub(super) async fn answer(
    directory: &Path,
    path: &RequestPath,
    raw: &str,
    query: &Query,
    with_queries: bool,
) -> Answer {
    let below: PathBuf = path.parts().iter().skip(1).collect();
    if !with_queries {
        return tree(directory, below, raw.ends_with('/')).await;
    }
    match query::parse(query) {
        Err(mistakes) => answer::text(400, &(mistakes.join(", ") + "\n")),
        Ok(None) => tree(directory, below, raw.ends_with('/')).await,
        Ok(Some(_)) if !below.as_os_str().is_empty() => answer::text(406, "path not allowed in query mode\n"),
        Ok(Some(asked)) => match asked.validate() {
            Err(mistakes) => answer::text(406, &(mistakes.join(", ") + "\n")),
            Ok(Asked::File(file)) => tree(directory, file.trim_start_matches('/').into(), false).await,
            Ok(Asked::Services(services)) => of_services(directory, &asked, services).await,
        },
    }
}

/// What a path is.
enum Found {
    File(File),
    Directory(Vec<String>),
}

async fn tree(directory: &Path, below: PathBuf, as_directory: bool) -> Answer {
    let directory = directory.to_owned();
    let found = client::blocking::spawn(move || open(&directory, &below)).await;
    match found.unwrap_or_else(|error| Err(io::Error::other(error))) {
        Ok(Found::File(file)) => answer::stream(streamed(file)),
        // Names in a list are relative to it.
        Ok(Found::Directory(_)) if !as_directory => answer::text(301, "Moved Permanently\n"),
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
    let kind = fs::metadata(&again)?.file_type();
    if kind.is_file() {
        return File::open(&again).map(Found::File);
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
    names.sort();
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

/// Sends a file as it is read; a client that takes nothing for a while ends it.
fn streamed(file: File) -> answer::Body {
    let (sender, received) = mpsc::channel(CHUNKS_MAX);
    tokio::spawn(async move { copy_file(file, &sender).await });
    body_of(received)
}

/// Copies to the end of the file; tells whether the client is still there.
async fn copy_file(mut file: File, to: &mpsc::Sender<Bytes>) -> bool {
    loop {
        let read = client::blocking::spawn(move || {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            let read = file.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut chunk);
            read.map(|_| (file, chunk))
        });
        let Ok(Ok((rest, chunk))) = read.await else {
            return true;
        };
        if chunk.is_empty() {
            return true;
        }
        file = rest;
        if to.send_timeout(chunk.into(), SEND_DEADLINE).await.is_err() {
            return false;
        }
    }
}

fn body_of(received: mpsc::Receiver<Bytes>) -> answer::Body {
    let frames = ReceiverStream::new(received).map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
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

/// The logs of services: from the journal, or from files of their names.
async fn of_services(directory: &Path, asked: &LogQuery, services: &[String]) -> Answer {
    let mut in_journal = Vec::new();
    let mut in_files = Vec::new();
    for service in services {
        if journal_has(service).await {
            in_journal.push(service.clone());
        } else {
            in_files.push(service.clone());
        }
    }
    let (sender, received) = mpsc::channel(CHUNKS_MAX);
    let (directory, arguments, has_options) = (directory.to_owned(), asked.arguments(&in_journal), asked.has_options());
    tokio::spawn(async move {
        let work = async {
            if !in_journal.is_empty() && !journal(&arguments, &sender).await {
                return;
            }
            if !in_files.is_empty() && has_options {
                let text = format!(
                    "\noptions present and query resolved to log files for [{}]\ntry without specifying options\n",
                    in_files.join(" ")
                );
                let _ = sender.send(text.into()).await;
                return;
            }
            for service in &in_files {
                if !file_of(&directory, service, &sender).await {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(QUERY_DEADLINE, work).await;
    });
    answer::stream(body_of(received))
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

async fn journal(arguments: &[String], to: &mpsc::Sender<Bytes>) -> bool {
    let out = journalctl(arguments)
        .spawn()
        .ok()
        .and_then(|mut child| Some((child.stdout.take()?, child)));
    match out {
        Some((out, _ends_with_this)) => copy(out, to).await,
        None => to.send("\nerror: journal output not available\n".into()).await.is_ok(),
    }
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
        if let Ok(Ok(Found::File(file))) = found {
            return copy_file(file, to).await;
        }
    }
    to.send(format!("\nlog not found for {service}\n").into()).await.is_ok()
}

#[cfg(test)]
mod tests;
