//! The API server on the network: TLS, HTTP/1.1 and HTTP/2 on one port, upgrades, graceful end. Knows no request.

mod messages;
mod stall;

use super::{ApiServer, drain};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use messages::Wanted;
use rustls_pki_types::CertificateDer;
use stall::{Impatient, Patient};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Longest TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Watches are streams: many of them share a connection.
const MAX_STREAMS: u32 = 1000;
/// What is buffered at most of an HTTP/1 connection, its requests' heads included.
const BUFFER_BYTES: usize = 128 << 10;
/// Lines of an HTTP/1 request's head at most: more than any client sends. Upstream bounds their bytes alone, but the reader keeps
/// room for so many lines of every request.
const HEADERS_MAX: usize = 512;
/// What is buffered at most of one HTTP/2 stream, beside the piece that goes beyond ([`drain`]).
const STREAM_BUFFER_BYTES: usize = 32 << 10;
/// HTTP/2 pings after this much silence, so that dead clients are noticed; the answer may take as long again.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Connections have this long to end once the server ends.
const DRAIN: Duration = Duration::from_secs(5);
/// Pause after a failed accept (out of file descriptors), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection waits for its client.
#[derive(Clone, Copy)]
struct Timeouts {
    /// For it to read something, while something is to be written.
    stall: Duration,
    /// For its requests (HTTP/1), and for its answer to a ping after as much silence (HTTP/2).
    keep_alive: Duration,
}

impl Timeouts {
    const USUAL: Self = Self {
        stall: drain::STALL,
        keep_alive: KEEP_ALIVE,
    };
}

/// The client's certificate chain, leaf first: proven by the handshake, not yet verified. A request extension.
#[derive(Clone)]
pub struct PeerCertificates(Arc<Vec<CertificateDer<'static>>>);

impl PeerCertificates {
    /// The chain, leaf first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.0
    }
}

/// The peer's address. A request extension.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub std::net::SocketAddr);

/// Serves until `shutdown`, then drains with a deadline. New connections use the newest `tls` configuration.
pub async fn serve(
    listener: TcpListener,
    tls: watch::Receiver<Arc<rustls::ServerConfig>>,
    server: ApiServer,
    shutdown: CancellationToken,
) {
    serve_within(Timeouts::USUAL, TaskTracker::new(), listener, tls, server, shutdown).await;
}

/// As [`serve`]; `tasks` are the connections.
async fn serve_within(
    timeouts: Timeouts,
    tasks: TaskTracker,
    listener: TcpListener,
    tls: watch::Receiver<Arc<rustls::ServerConfig>>,
    server: ApiServer,
    shutdown: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let acceptor = TlsAcceptor::from(Arc::clone(&tls.borrow()));
        let connection = Connection {
            timeouts,
            address: PeerAddress(address),
            server: server.clone(),
            shutdown: shutdown.clone(),
        };
        tasks.spawn(connection.run(stream, acceptor));
    }
    drop(listener);
    server.close();
    tasks.close();
    if tokio::time::timeout(DRAIN, tasks.wait()).await.is_err() {
        tracing::info!(connections = tasks.len(), "connections did not end in time");
    }
}

/// What is known of a client's connection before it says anything.
struct Connection {
    timeouts: Timeouts,
    address: PeerAddress,
    server: ApiServer,
    shutdown: CancellationToken,
}

impl Connection {
    async fn run(self, stream: TcpStream, acceptor: TlsAcceptor) {
        let address = self.address;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY cannot be set");
        }
        let patient = Patient::default();
        let stream = Impatient::new(stream, self.timeouts.stall, Arc::clone(&patient));
        let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(peer = %address.0, %error, "TLS handshake failed");
                return;
            }
            Err(_) => {
                tracing::debug!(peer = %address.0, "TLS handshake took too long");
                return;
            }
        };
        let chain = stream.get_ref().1.peer_certificates();
        let peer =
            chain.map(|chain| PeerCertificates(Arc::new(chain.iter().map(|der| der.clone().into_owned()).collect())));
        if drain::breakable(self.talk(stream, peer, patient)).await.is_none() {
            tracing::debug!(peer = %address.0, "the client does not read its reply; its connection ends");
        }
    }

    /// HTTP over an open stream, until either side ends it.
    async fn talk(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Option<PeerCertificates>,
        patient: Patient,
    ) {
        let Self {
            timeouts,
            address,
            server,
            shutdown,
        } = self;
        let service = tower::service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
            if let Some(peer) = &peer {
                request.extensions_mut().insert(peer.clone());
            }
            request.extensions_mut().insert(address);
            let is_alone = request.version() < http::Version::HTTP_2;
            let wanted = Wanted::of(&mut request);
            let answer = server.handle(None, request);
            let patient = Arc::clone(&patient);
            async move {
                let response = answer.await;
                // Over HTTP/2 one reply must not make the connection wait for its reader: others share it.
                let may_wait = is_alone && response.extensions().get::<OpenEnded>().is_some();
                patient.store(may_wait, Ordering::Relaxed);
                Ok::<_, Infallible>(match wanted {
                    Some(wanted) => wanted.answer(response),
                    None => response,
                })
            }
        });
        let builder = builder(timeouts);
        let connection =
            builder.serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(service));
        tokio::pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                // What does not end by itself (exec, logs) ends with the drain's deadline.
                match tokio::time::timeout(DRAIN, connection).await {
                    Ok(ended) => ended,
                    Err(_) => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(peer = %address.0, %error, "connection ended with an error");
        }
    }
}

fn builder(timeouts: Timeouts) -> Builder<Streams> {
    let mut builder = Builder::new(Streams);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(timeouts.keep_alive)
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_send_buf_size(STREAM_BUFFER_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(timeouts.keep_alive)
        .keep_alive_timeout(timeouts.keep_alive);
    builder
}

/// A reply that lasts for as long as its client stays, read or not: logs that are followed, terminals. A response extension.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenEnded;

/// Runs HTTP/2 streams so that a reply nobody reads resets its own stream only.
#[derive(Clone)]
struct Streams;

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(drain::breakable(stream));
    }
}

#[cfg(test)]
mod tests;
