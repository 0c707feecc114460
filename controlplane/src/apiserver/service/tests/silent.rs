//! Clients that read nothing of their socket any more, over real TCP and TLS: their connections end, and nothing of them stays.
//!
//! The clock is the real one and the server's patience is short: what is waited for is the end, whenever it comes.

use super::*;
use crate::store::Expect;
use crate::store::value::testing::as_stored;
use hyper::client::conn::http2;
use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};
use tokio::io::ReadBuf;

/// What a client that does not read has here.
const SHORT: Duration = Duration::from_millis(500);
/// What a client's answer to a ping may take here: a busy machine must not be taken for a client that does not answer.
const ANSWER: Duration = Duration::from_secs(3);
/// What a test waits for something at most.
const WAIT: Duration = Duration::from_secs(60);
/// Longer than all that the test waits for.
const NEVER: Duration = Duration::from_secs(3600);
/// Far more than two sockets' buffers hold.
const WINDOW_BYTES: u32 = (1 << 31) - 1;
/// A config map's data.
const DATA_BYTES: usize = 100_000;

/// A stream whose owner may stop reading it; it still writes.
pub(super) struct Deafened<S> {
    pub(super) stream: S,
    pub(super) is_deaf: Arc<AtomicBool>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Deafened<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.is_deaf.load(Ordering::Relaxed) {
            true => Poll::Pending,
            false => Pin::new(&mut self.stream).poll_read(context, buffer),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Deafened<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

type Sender = http2::SendRequest<Body>;

impl Fixture {
    async fn fill(&self, maps: usize) {
        for number in 0..maps {
            let name = format!("{number:05}");
            let object = json!({"metadata": {"name": name, "namespace": "a"}, "data": {"k": "x".repeat(DATA_BYTES)}});
            let key = format!("/registry/configmaps/a/{name}");
            let bytes = as_stored(&key, &object);
            self.server.store().put(&key, bytes, Expect::Absent).await.unwrap();
        }
        self.server.reader().refresh().await.unwrap();
    }

    /// A client over HTTP/2 that takes as much as it is sent, until it is made deaf.
    async fn http2(&self) -> (Sender, Arc<AtomicBool>, tokio::task::JoinHandle<hyper::Result<()>>) {
        let is_deaf = Arc::new(AtomicBool::new(false));
        let stream = Deafened {
            stream: TcpStream::connect(("127.0.0.1", self.port)).await.unwrap(),
            is_deaf: Arc::clone(&is_deaf),
        };
        let stream = self.shake_hands(stream, b"h2", true).await;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .unwrap();
        (sender, is_deaf, tokio::spawn(connection))
    }

    /// Waits until so many connections are left.
    async fn until_connections(&self, count: usize) {
        until(&format!("{count} connections left"), || self.connections.len() == count).await;
    }
}

/// Waits until it is so, which it is long before [`WAIT`] is over or never.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(WAIT, waiting).await;
    assert!(waited.is_ok(), "not within {WAIT:?}: {what}");
}

async fn send(sender: &mut Sender, path: &str) -> hyper::Response<hyper::body::Incoming> {
    sender.ready().await.unwrap();
    sender.send_request(request("GET", path, "")).await.unwrap()
}

/// An idle watch over a connection of its own, and whether it still hears of changes.
struct IdleWatch {
    body: hyper::body::Incoming,
    _sender: Sender,
}

impl IdleWatch {
    async fn open(fixture: &Fixture) -> Self {
        let (mut sender, _, _) = fixture.http2().await;
        let no_state = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        let watch = send(&mut sender, &format!("{MAPS}?watch=1&{no_state}")).await;
        assert_eq!(watch.status(), 200);
        Self {
            body: watch.into_body(),
            _sender: sender,
        }
    }

    async fn hears(&mut self, fixture: &Fixture) {
        let key = "/registry/configmaps/a/new";
        let bytes = as_stored(key, &json!({"metadata": {"name": "new", "namespace": "a"}}));
        let store = fixture.server.store();
        store.put(key, bytes, Expect::Absent).await.unwrap();
        let event = tokio::time::timeout(WAIT, self.body.frame()).await;
        let event = event.expect("an event comes").unwrap().unwrap().into_data().unwrap();
        let event: Value = serde_json::from_slice(&event).unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["metadata"]["name"]),
            (&json!("ADDED"), &json!("new"))
        );
    }
}

#[tokio::test]
async fn a_connection_with_more_to_read_than_its_socket_holds_ends_and_an_idle_watch_stays() {
    let fixture = Fixture::start_within(Timeouts {
        stall: SHORT,
        keep_alive: NEVER,
    })
    .await;
    fixture.fill(100).await;
    let mut idle = IdleWatch::open(&fixture).await;
    let (mut sender, is_deaf, driver) = fixture.http2().await;
    is_deaf.store(true, Ordering::Relaxed);
    let mut unanswered = Vec::new();
    for path in [MAPS, &format!("{MAPS}?watch=1")].repeat(5) {
        sender.ready().await.unwrap();
        unanswered.push(sender.send_request(request("GET", path, "")));
        tokio::task::yield_now().await;
    }
    let unanswered: Vec<_> = unanswered.into_iter().map(tokio::spawn).collect();
    fixture.until_connections(1).await;
    until("nothing left of the replies", || {
        fixture.server.replies_on_their_way() == 0 && fixture.server.inflight() == (0, 0)
    })
    .await;
    assert_eq!(fixture.server.flow().reply_bytes(), 0);
    idle.hears(&fixture).await;
    assert_eq!(fixture.connections.len(), 1);
    driver.abort();
    unanswered.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_connection_whose_client_reads_no_ping_ends_and_an_idle_watch_stays() {
    let fixture = Fixture::start_within(Timeouts {
        stall: NEVER,
        keep_alive: ANSWER,
    })
    .await;
    // Elsewhere: a slow machine may take longer for the answer to a ping than the other server waits.
    let elsewhere = Fixture::start_within(Timeouts {
        stall: NEVER,
        keep_alive: NEVER,
    })
    .await;
    let mut idle = IdleWatch::open(&elsewhere).await;
    let (mut sender, is_deaf, driver) = fixture.http2().await;
    let watch = send(&mut sender, &format!("{MAPS}?watch=1")).await;
    assert_eq!((watch.status().as_u16(), fixture.connections.len()), (200, 1));
    is_deaf.store(true, Ordering::Relaxed);
    fixture.until_connections(0).await;
    idle.hears(&elsewhere).await;
    assert_eq!(elsewhere.connections.len(), 1);
    driver.abort();
}
