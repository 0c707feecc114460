//! A small HTTP/1.1 server for probes and scrapers: one request a connection, no body read.
//!
//! Owns the connections: how many there are, of one address and together, how long each may take and how much it may send. Never
//! decides what is answered. Whoever says nothing, or speaks slowly, loses its place after [`HEAD_MAX`].

use std::collections::HashMap;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Longest time until a head is complete.
const HEAD_MAX: Duration = Duration::from_secs(5);
/// Longest time until an answer is taken.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Connections at once: of one server, and of one address.
const CONNECTIONS_MAX: usize = 256;
const OF_ADDRESS_MAX: usize = 32;
/// How long accepting pauses when the machine has no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);
/// What is read of a request's body before the connection ends, so that its sender sees the answer.
const REST_BYTES_MAX: usize = 64 << 10;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `HEAD` and others.
    pub method: String,
    /// Path without query.
    pub path: String,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP's status.
    pub code: u16,
    /// `Content-Type`.
    pub kind: &'static str,
    /// Other headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: String,
}

impl Answer {
    /// Text, as Go's servers send it.
    pub fn text(code: u16, body: impl Into<String>) -> Self {
        Self {
            code,
            kind: "text/plain; charset=utf-8",
            headers: vec![("X-Content-Type-Options", "nosniff".to_owned())],
            body: body.into(),
        }
    }

    /// JSON.
    pub fn json(code: u16, body: String) -> Self {
        Self {
            kind: "application/json",
            ..Self::text(code, body)
        }
    }

    /// No such page.
    pub fn not_found() -> Self {
        Self::text(404, "404 page not found\n")
    }

    fn write(&self, without_body: bool) -> String {
        let mut out = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n",
            self.code,
            reason(self.code),
            self.kind,
            self.body.len()
        );
        for (name, value) in &self.headers {
            let _ = write!(out, "{name}: {value}\r\n");
        }
        out.push_str("\r\n");
        if !without_body {
            out.push_str(&self.body);
        }
        out
    }
}

fn reason(code: u16) -> &'static str {
    match code {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Unknown",
    }
}

/// Who answers. It must not block.
pub type Handler = Arc<dyn Fn(&Request) -> Answer + Send + Sync>;

/// Reads the first line of a head.
fn request(head: &[u8]) -> Option<Request> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?.trim_end_matches('\r');
    let mut words = line.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    if words.next().is_some() || !is_method || !["HTTP/1.1", "HTTP/1.0"].contains(&version) {
        return None;
    }
    let target = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    let path = target.split(['?', '#']).next().filter(|path| path.starts_with('/'))?;
    Some(Request {
        method: method.to_owned(),
        path: path.to_owned(),
    })
}

/// Places taken, by address.
#[derive(Default)]
struct Places(Mutex<HashMap<IpAddr, usize>>);

/// A connection's place; dropping it gives it back.
struct Place {
    places: Arc<Places>,
    address: IpAddr,
}

impl Places {
    fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.values().sum::<usize>() >= CONNECTIONS_MAX {
            return None;
        }
        let of_address = taken.entry(address).or_default();
        if *of_address >= OF_ADDRESS_MAX {
            return None;
        }
        *of_address += 1;
        Some(Place {
            places: self.clone(),
            address,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_address) = taken.get_mut(&self.address) {
            *of_address -= 1;
            if *of_address == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

/// Listens on an address.
///
/// # Errors
/// The address is taken, or not the machine's; the text names it.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| format!("listen tcp {address}: {error}"))
}

/// Answers whoever connects, until `stop`.
pub async fn serve(listener: TcpListener, handler: Handler, stop: CancellationToken) {
    let places = Arc::new(Places::default());
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, peer)) => {
                // Whoever finds no place is told by the connection's end, at no cost.
                if let Some(place) = places.take(peer.ip()) {
                    tokio::spawn(connection(stream, handler.clone(), place, stop.clone()));
                }
            }
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(mut stream: TcpStream, handler: Handler, place: Place, stop: CancellationToken) {
    let talk = async {
        let answer = match timeout(HEAD_MAX, head(&mut stream)).await {
            Err(_) => Some((Answer::text(408, "408 Request Timeout"), false)),
            Ok(Head::Gone) => None,
            Ok(Head::TooLarge) => Some((Answer::text(431, "431 Request Header Fields Too Large"), false)),
            Ok(Head::Read(bytes)) => Some(match request(&bytes) {
                Some(request) => (handler(&request), request.method == "HEAD"),
                None => (Answer::text(400, "400 Bad Request"), false),
            }),
        };
        if let Some((answer, without_body)) = answer {
            // Its reader may be gone: that is its own affair.
            let _ = timeout(ANSWER_MAX, send(&mut stream, &answer.write(without_body))).await;
        }
    };
    let _ = stop.run_until_cancelled(talk).await;
    drop(place);
}

enum Head {
    Read(Vec<u8>),
    TooLarge,
    Gone,
}

async fn head(stream: &mut TcpStream) -> Head {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        match stream.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return Head::Gone,
            Ok(_) if ends(&bytes) => return Head::Read(bytes),
            Ok(_) if bytes.len() >= HEAD_BYTES_MAX => return Head::TooLarge,
            Ok(_) => {}
        }
    }
}

/// Whether an empty line is among the bytes.
fn ends(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|four| four == b"\r\n\r\n") || bytes.windows(2).any(|two| two == b"\n\n")
}

async fn send(stream: &mut TcpStream, answer: &str) -> std::io::Result<()> {
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Ending with bytes unread would reset the connection, and the answer with it.
    let (mut rest, mut left) = ([0; 1024], REST_BYTES_MAX);
    while left > 0 {
        match stream.read(&mut rest).await? {
            0 => return Ok(()),
            size => left = left.saturating_sub(size),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
