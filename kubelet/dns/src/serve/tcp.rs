//! Questions by TCP (RFC 7766): many on a connection, answered as they are known. Bounded: connections in all and of one source,
//! questions under way on each, and the time one may be without a whole question or take to read an answer. Who had more
//! than its share while others waited is not refused but waits.

use super::{Came, QUESTION_BYTES, Server, Sink};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// What bounds connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at once.
    pub connections: usize,
    /// Those of them one source may have ([`crate::clients`]).
    pub connections_per_source: usize,
    /// How long one may be without a whole question, or an answer to one.
    pub idle: Duration,
    /// How long it may take over one answer.
    pub slow: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 256,
            connections_per_source: 32,
            idle: Duration::from_secs(10),
            slow: Duration::from_secs(5),
        }
    }
}

/// Answers that wait to be written on one connection, of 64 KiB at most; it asks nothing more until there is room.
const UNDER_WAY: usize = 8;

/// How long a connection waits whose source had more than its share while others waited.
const PAUSE: Duration = Duration::from_millis(5);
/// How long one must have been idle to give way to who has none, where nobody has many.
const RESTED: Duration = Duration::from_secs(1);
/// Answers of one connection before others get a turn.
const BATCH: usize = 8;

/// An open connection.
struct Held {
    /// As whom it counts.
    source: IpAddr,
    number: u64,
    end: CancellationToken,
    idle_since: IdleSince,
}

/// Since when a connection has neither asked nor been answered; nothing while it waits for an answer.
type IdleSince = Rc<Cell<Option<Instant>>>;

/// The open connections, the oldest first.
type Open = Rc<RefCell<Vec<Held>>>;

/// A connection's place; given back when it ends.
struct Place {
    open: Open,
    number: u64,
    end: CancellationToken,
    idle_since: IdleSince,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.borrow_mut().retain(|held| held.number != self.number);
    }
}

/// A place, if there is one. Where all are taken, somebody gives way ([`gives_way`]).
fn place(open: &Open, source: IpAddr, number: u64, bounds: Bounds, now: Instant) -> Option<Place> {
    let mut held = open.borrow_mut();
    let own = held.iter().filter(|held| held.source == source).count();
    if own >= bounds.connections_per_source {
        return None;
    }
    if held.len() >= bounds.connections {
        let who = gives_way(&held, own, now)?;
        held.remove(who).end.cancel();
    }
    let (end, idle_since) = (CancellationToken::new(), IdleSince::new(Cell::new(Some(now))));
    held.push(Held {
        source,
        number,
        end: end.clone(),
        idle_since: idle_since.clone(),
    });
    drop(held);
    Some(Place {
        open: open.clone(),
        number,
        end,
        idle_since,
    })
}

/// Who gives way to a source that has `own`: the oldest of the source that has most; where nobody has more than that source will,
/// of those who have as many, the one that idles longest. So neither idle connections of a few nor one of each of many keep
/// everybody else out.
fn gives_way(held: &[Held], own: usize, now: Instant) -> Option<usize> {
    let mut counts = HashMap::<IpAddr, usize>::new();
    for held in held {
        *counts.entry(held.source).or_default() += 1;
    }
    let (most, whose) = counts.iter().map(|(source, count)| (*count, *source)).max()?;
    if most > own + 1 {
        return held.iter().position(|held| held.source == whose);
    }
    let rested = held.iter().enumerate().filter_map(|(at, held)| {
        let since = held.idle_since.get().filter(|since| now - *since >= RESTED)?;
        (counts.get(&held.source) == Some(&(own + 1))).then_some((since, at))
    });
    rested.min().map(|(_, at)| at)
}

/// Accepts connections, those beyond the bounds only to close them.
pub(crate) async fn serve(server: Rc<Server>, listener: TcpListener, bounds: Bounds) {
    let open = Open::default();
    for number in 0.. {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "DNS connections");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let now = Instant::now();
        let client = server.client(peer, now.into_std());
        let Some(place) = place(&open, client, number, bounds, now) else {
            continue;
        };
        let server = server.clone();
        tokio::task::spawn_local(async move {
            let conversation = converse(server, stream, peer, bounds, &place.idle_since);
            let _ = place.end.run_until_cancelled(conversation).await;
        });
    }
}

/// Answers one connection until it ends, idles or takes nothing.
async fn converse(
    server: Rc<Server>,
    mut stream: TcpStream,
    peer: SocketAddr,
    bounds: Bounds,
    idle_since: &Cell<Option<Instant>>,
) -> std::io::Result<()> {
    let _ = stream.set_nodelay(true);
    let (mut reading, mut writing) = stream.split();
    let (sender, mut later) = mpsc::channel::<Vec<u8>>(UNDER_WAY);
    let mut buffer = Vec::with_capacity(512);
    let mut out = Vec::new();
    // Since the last whole question or answer: a byte now and then does not keep a place.
    let mut since = Instant::now();
    let mut answered = 0_usize;
    loop {
        // Beyond what may be under way nothing is read, so that every answer has room.
        while let Some(end) = whole(&buffer)?.filter(|_| under_way(&sender) < UNDER_WAY) {
            while !server.allows(server.client(peer, std::time::Instant::now())) {
                tokio::time::sleep(PAUSE).await;
            }
            let came = Came {
                message: &buffer[2..end],
                peer,
                tcp: true,
            };
            if server.handle(&came, &mut out, || Sink::Stream(sender.clone())) {
                write(&mut writing, &out, bounds.slow).await?;
            }
            buffer.drain(..end);
            since = Instant::now();
            answered += 1;
            if answered.is_multiple_of(BATCH) {
                tokio::task::yield_now().await;
            }
        }
        idle_since.set(Some(since).filter(|_| under_way(&sender) == 0));
        tokio::select! {
            biased;
            Some(message) = later.recv() => {
                write(&mut writing, &message, bounds.slow).await?;
                since = Instant::now();
            }
            read = timeout_at(since + bounds.idle, reading.read_buf(&mut buffer)), if under_way(&sender) < UNDER_WAY => {
                if read?? == 0 {
                    break;
                }
            }
        }
    }
    // Who said all it wants to ask still gets its answers.
    drop(sender);
    while let Ok(Some(message)) = timeout(bounds.idle, later.recv()).await {
        write(&mut writing, &message, bounds.slow).await?;
    }
    Ok(())
}

/// How many questions of a connection wait for resolvers (each holds a sender) or for being written.
fn under_way(sender: &mpsc::Sender<Vec<u8>>) -> usize {
    sender.strong_count() - 1 + sender.max_capacity() - sender.capacity()
}

/// Where the first message ends, if it is whole; an error for one that is too long.
fn whole(buffer: &[u8]) -> std::io::Result<Option<usize>> {
    let Some(length) = buffer.first_chunk::<2>() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes(*length));
    if length > QUESTION_BYTES {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    Ok(Some(length + 2).filter(|end| *end <= buffer.len()))
}

async fn write(writing: &mut tokio::net::tcp::WriteHalf<'_>, message: &[u8], slow: Duration) -> std::io::Result<()> {
    let mut framed = Vec::with_capacity(message.len() + 2);
    framed.extend_from_slice(&(message.len() as u16).to_be_bytes());
    framed.extend_from_slice(message);
    timeout(slow, writing.write_all(&framed)).await?
}

#[cfg(test)]
mod tests;
