//! One question and the resolvers: each attempt by a socket of its own, whose port, whose question's number and the
//! letters of whose name nobody can guess. What does not repeat number and question, or comes from elsewhere, is not heard.

use super::{Forwarder, SULK};
use crate::wire::reply::Question;
use crate::wire::{Reply, Unfit, rcode};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// The largest datagram we take: what passes everywhere whole (DNS flag day 2020).
const DATAGRAM_BYTES: u16 = 1232;
/// How many wrong answers to one datagram are passed over. Beyond, somebody knows the port and guesses the number: TCP is asked.
const GUESSES_MAX: u32 = 8;
/// How often all resolvers are asked.
const ROUNDS: usize = 2;

/// Asks one after the other until one knows, or time is over.
pub(super) async fn ask(forwarder: &Forwarder, key: &[u8], question: &Question) -> Reply {
    let until = Instant::now() + forwarder.bounds.deadline;
    let mut last = None;
    for _ in 0..ROUNDS {
        let mut silent = false;
        for resolver in forwarder.order(question.name.wire()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return last.unwrap_or_else(Reply::failure);
            }
            if let Some(flight) = forwarder.state.borrow_mut().flights.get_mut(key) {
                flight.resolver = Some(resolver.ip());
            }
            let began = Instant::now();
            let outcome = timeout(left.min(forwarder.bounds.patience), once(forwarder, resolver, question)).await;
            let reply = outcome.ok().and_then(Result::ok);
            let code = reply.as_ref().map(|reply| reply.rcode);
            forwarder.metrics.asked(resolver, code, began.elapsed());
            match reply {
                Some(reply) if matches!(reply.rcode, rcode::NO_ERROR | rcode::NX_DOMAIN) => {
                    forwarder.state.borrow_mut().sulk(resolver, None);
                    return reply;
                }
                Some(reply) => last = Some(reply),
                None => {
                    silent = true;
                    let until = Instant::now() + SULK;
                    forwarder.state.borrow_mut().sulk(resolver, Some(until));
                }
            }
        }
        // Who said no says no again.
        if !silent {
            break;
        }
        // A resolver that refuses at once is given a moment.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    last.unwrap_or_else(Reply::failure)
}

async fn once(forwarder: &Forwarder, resolver: SocketAddr, question: &Question) -> io::Result<Reply> {
    let reply = by_datagram(forwarder, resolver, question, Some(DATAGRAM_BYTES)).await?;
    // Some old resolvers know no EDNS.
    if matches!(reply.rcode, rcode::FORM_ERR | rcode::NOT_IMP) {
        return by_datagram(forwarder, resolver, question, None).await;
    }
    Ok(reply)
}

/// A question under way by UDP.
struct Sent<'a> {
    socket: UdpSocket,
    question: &'a Question,
    id: u16,
    case: u64,
}

impl Sent<'_> {
    /// The next datagram, and whether it repeats the question's letters.
    async fn receive(&self, buffer: &mut [u8]) -> io::Result<(Result<Reply, Unfit>, bool)> {
        let length = self.socket.recv(buffer).await?;
        let is_same = self.question.settle(&mut buffer[..length], self.case);
        Ok((Reply::read(&buffer[..length], self.id, self.question), is_same))
    }

    /// The answer that repeats the letters, whenever it comes.
    async fn same(&self, buffer: &mut [u8]) -> Reply {
        loop {
            match self.receive(buffer).await {
                Ok((Ok(reply), true)) => return reply,
                Ok(_) => {}
                Err(_) => std::future::pending().await,
            }
        }
    }
}

async fn by_datagram(
    forwarder: &Forwarder,
    resolver: SocketAddr,
    question: &Question,
    size: Option<u16>,
) -> io::Result<Reply> {
    let any: SocketAddr = match resolver {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // The kernel chooses the port at random, and hears no one but whom it is connected to.
    let socket = UdpSocket::bind(any).await?;
    socket.connect(resolver).await?;
    let (id, case) = (rand::random(), rand::random());
    socket.send(&question.ask(id, size, case)).await?;
    let sent = Sent {
        socket,
        question,
        id,
        case,
    };
    let mut buffer = vec![0; 4096];
    let mut guesses = 0;
    loop {
        match sent.receive(&mut buffer).await? {
            (Ok(reply), true) => {
                forwarder.state.borrow_mut().loosen(resolver, false, Instant::now());
                return Ok(reply);
            }
            (Ok(reply), false) if forwarder.state.borrow().is_loose(resolver, Instant::now()) => return Ok(reply),
            (Ok(reply), false) => {
                let by_stream = by_stream(resolver, question, size);
                let sure = timeout(forwarder.bounds.sure, make_sure(&sent, &mut buffer, by_stream));
                let (reply, is_loose) = sure.await.unwrap_or((reply, true));
                forwarder.state.borrow_mut().loosen(resolver, is_loose, Instant::now());
                return Ok(reply);
            }
            (Err(Unfit::Foreign), _) if guesses < GUESSES_MAX => guesses += 1,
            (Err(Unfit::Foreign | Unfit::Truncated), _) => return by_stream(resolver, question, size).await,
            (Err(Unfit::Malformed), _) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Other letters are an old resolver's, or of who guesses: then the right answer is still to come. By TCP nobody can guess; but not
/// every old resolver answers there. Returns the first of the two, and whether the resolver seems to be an old one.
async fn make_sure(
    sent: &Sent<'_>,
    buffer: &mut [u8],
    by_stream: impl Future<Output = io::Result<Reply>>,
) -> (Reply, bool) {
    let by_stream = async {
        match by_stream.await {
            Ok(reply) => reply,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        reply = sent.same(buffer) => (reply, false),
        reply = by_stream => (reply, true),
    }
}

async fn by_stream(resolver: SocketAddr, question: &Question, size: Option<u16>) -> io::Result<Reply> {
    let mut stream = TcpStream::connect(resolver).await?;
    let id = rand::random();
    let message = question.ask(id, size, 0);
    let mut framed = (message.len() as u16).to_be_bytes().to_vec();
    framed.extend(message);
    stream.write_all(&framed).await?;
    let length = usize::from(stream.read_u16().await?);
    let mut buffer = vec![0; length];
    stream.read_exact(&mut buffer).await?;
    Reply::read(&buffer, id, question).map_err(|_| io::ErrorKind::InvalidData.into())
}
