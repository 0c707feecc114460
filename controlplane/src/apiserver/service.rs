//! The API server on the network: TLS, HTTP/1.1 and HTTP/2 on one port, upgrades, graceful end. Knows no request.

mod stall;

use super::{ApiServer, drain};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
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
/// What is buffered at most of one HTTP/2 stream, beside the piece that goes beyond ([`drain`]).
const STREAM_BUFFER_BYTES: usize = 32 << 10;
/// HTTP/2 pings after this much silence, so that dead clients are noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Connections have this long to end once the server ends.
const DRAIN: Duration = Duration::from_secs(5);
/// Pause after a failed accept (out of file descriptors), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
    let tasks = TaskTracker::new();
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
        let connection = connection(stream, PeerAddress(address), acceptor, server.clone(), shutdown.clone());
        tasks.spawn(connection);
    }
    drop(listener);
    server.close();
    tasks.close();
    if tokio::time::timeout(DRAIN, tasks.wait()).await.is_err() {
        tracing::info!(connections = tasks.len(), "connections did not end in time");
    }
}

async fn connection(
    stream: TcpStream,
    address: PeerAddress,
    acceptor: TlsAcceptor,
    server: ApiServer,
    shutdown: CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY cannot be set");
    }
    let patient = Patient::default();
    let stream = Impatient::new(stream, Arc::clone(&patient));
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
    let talking = talk(stream, address, peer, patient, server, shutdown);
    if drain::breakable(talking).await.is_none() {
        tracing::debug!(peer = %address.0, "the client does not read its reply; its connection ends");
    }
}

/// HTTP over an open stream, until either side ends it.
async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    address: PeerAddress,
    peer: Option<PeerCertificates>,
    patient: Patient,
    server: ApiServer,
    shutdown: CancellationToken,
) {
    let service = tower::service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        if let Some(peer) = &peer {
            request.extensions_mut().insert(peer.clone());
        }
        request.extensions_mut().insert(address);
        let is_alone = request.version() < http::Version::HTTP_2;
        let answer = server.handle(None, request);
        let patient = Arc::clone(&patient);
        async move {
            let response = answer.await;
            // Over HTTP/2 one reply must not make the connection wait for its reader: others share it.
            let may_wait = is_alone && response.extensions().get::<OpenEnded>().is_some();
            patient.store(may_wait, Ordering::Relaxed);
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = Builder::new(Streams);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(KEEP_ALIVE)
        .max_buf_size(BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_send_buf_size(STREAM_BUFFER_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(service));
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
