//! Sockets: binding, TLS handshakes, connections, the plain health port.

use super::health::Health;
use super::request::{Query, RequestPath};
use super::{Answer, Peer, Server, User, answer};
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
const HEADER_DEADLINE: Duration = Duration::from_secs(30);
/// Connections at a time; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 1024;
/// Of those, on a port without TLS.
const PLAIN_CONNECTIONS_MAX: usize = 64;
/// A pause after the kernel refused a connection, usually for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A port that could not be had.
#[derive(Debug, thiserror::Error)]
#[error("listen on {address} for {purpose}")]
pub struct BindError {
    /// Where.
    pub address: SocketAddr,
    /// The setting that says so.
    pub purpose: &'static str,
    /// Why not.
    pub source: std::io::Error,
}

/// Takes a port; `purpose` names the setting in the error.
pub async fn bind(address: IpAddr, port: u16, purpose: &'static str) -> Result<TcpListener, BindError> {
    let address = SocketAddr::new(address, port);
    TcpListener::bind(address).await.map_err(|source| BindError {
        address,
        purpose,
        source,
    })
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE);
    builder.http2().timer(TokioTimer::new()).max_header_list_size(1 << 20);
    builder
}

/// Serves until told to stop; connections still open then are dropped. Each connection takes the configuration of its moment.
pub async fn serve_tls(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    server: Arc<Server>,
    stop: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let work = async {
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else {
                return;
            };
            let (socket, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "connection not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let acceptor = TlsAcceptor::from(tls.borrow().clone());
            let (server, stop) = (server.clone(), stop.clone());
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    () = connection(acceptor, socket, address, server) => {}
                    () = stop.cancelled() => {}
                }
                drop(permit);
            });
        }
    };
    tokio::select! {
        biased;
        () = work => {}
        () = stop.cancelled() => {}
    }
}

async fn connection(acceptor: TlsAcceptor, socket: TcpStream, address: SocketAddr, server: Arc<Server>) {
    // Small frames of interactive sessions must not wait for each other.
    let _ = socket.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE_DEADLINE, acceptor.accept(socket)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, peer = %address, "TLS handshake failed");
            return;
        }
        Err(_) => return,
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let certificate = certificates.and_then(|list| User::of_certificate(list.first()?));
    let peer = Arc::new(Peer { address, certificate });
    let service = service_fn(move |request| {
        let (server, peer) = (server.clone(), peer.clone());
        async move { Ok::<_, Infallible>(server.answer(peer, request).await) }
    });
    let served = builder()
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(error, peer = %address, "connection ended");
    }
}

/// Serves `/healthz` in plain text on its own port until told to stop.
pub async fn serve_health(listener: TcpListener, health: Health, stop: CancellationToken) {
    let answer = move |request: Request<Incoming>| {
        let health = health.clone();
        async move {
            let path = RequestPath::parse(request.uri().path());
            let query = Query::parse(request.uri().query().unwrap_or_default());
            match path.parts().split_first() {
                Some((first, below)) if first == "healthz" => health.answer(below, &query),
                _ => answer::not_found(),
            }
        }
    };
    serve_plain(listener, answer, stop).await;
}

/// Serves what may be read by everyone, without TLS, until told to stop.
pub async fn serve_read_only(listener: TcpListener, server: Arc<Server>, stop: CancellationToken) {
    let answer = move |request| server.clone().answer_read_only(request);
    serve_plain(listener, answer, stop).await;
}

async fn serve_plain<F, R>(listener: TcpListener, answer: F, stop: CancellationToken)
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(PLAIN_CONNECTIONS_MAX));
    let work = async {
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else {
                return;
            };
            let Ok((socket, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (answer, stop) = (answer.clone(), stop.clone());
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let answer = answer.clone();
                    async move { Ok::<_, Infallible>(answer(request).await) }
                });
                let builder = builder();
                tokio::select! {
                    biased;
                    served = builder.serve_connection(TokioIo::new(socket), service) => drop(served),
                    () = stop.cancelled() => {}
                }
                drop(permit);
            });
        }
    };
    tokio::select! {
        biased;
        () = work => {}
        () = stop.cancelled() => {}
    }
}
