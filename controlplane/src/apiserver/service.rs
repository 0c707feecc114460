//! The API server on the network: TLS, HTTP/1.1 and HTTP/2 on one port, upgrades, graceful end. Knows no request.

use super::ApiServer;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls_pki_types::CertificateDer;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Longest TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Watches are streams: many of them share a connection.
const MAX_STREAMS: u32 = 1000;
/// What is buffered at most of each reply that the client has not taken yet, and of a request's head.
const BUFFER_BYTES: usize = 128 << 10;
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
    let service = tower::service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        if let Some(peer) = &peer {
            request.extensions_mut().insert(peer.clone());
        }
        request.extensions_mut().insert(address);
        let answer = server.handle(None, request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(KEEP_ALIVE)
        .max_buf_size(BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_send_buf_size(BUFFER_BYTES)
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

#[cfg(test)]
mod tests;
