//! Sockets: binding, TLS handshakes, connections, the plain health port.

use super::health::Health;
use super::idle::InUse;
use super::request::{Query, RequestPath};
use super::share::Shares;
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
/// Of those, of one address: no other program takes the API server's away.
const OF_ADDRESS_MAX: usize = 256;
/// The same on a port without TLS.
const PLAIN_OF_ADDRESS_MAX: usize = 16;
/// How often a silent HTTP/2 peer is asked whether it is there, and how long it may take to say so.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));
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
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE.0)
        .keep_alive_timeout(KEEP_ALIVE.1)
        .max_header_list_size(1 << 20);
    builder
}

/// Serves until told to stop; connections still open then are dropped. Each connection takes the configuration of its moment.
pub async fn serve_tls(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    server: Arc<Server>,
    stop: CancellationToken,
) {
    let connection = move |socket, address| {
        let acceptor = TlsAcceptor::from(tls.borrow().clone());
        connection(acceptor, socket, address, server.clone())
    };
    accept(listener, (CONNECTIONS_MAX, OF_ADDRESS_MAX), connection, stop).await;
}

/// Gives each connection to `serve`, at most so many at a time and of one address, until told to stop.
async fn accept<S, C>(listener: TcpListener, (most, of_address): (usize, usize), serve: S, stop: CancellationToken)
where
    S: Fn(TcpStream, SocketAddr) -> C,
    C: Future<Output = ()> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(most));
    let shares = Shares::new(of_address);
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
            let Some(share) = shares.take(address.ip().to_canonical()) else {
                tracing::debug!(peer = %address, "connection refused: there are too many of its address");
                continue;
            };
            let (connection, stop) = (serve(socket, address), stop.clone());
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    () = connection => {}
                    () = stop.cancelled() => {}
                }
                drop((permit, share));
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
    let in_use = InUse::new();
    let under_way = in_use.clone();
    let service = service_fn(move |request| {
        let (server, peer, begun) = (server.clone(), peer.clone(), under_way.begin());
        async move { Ok::<_, Infallible>(begun.until_sent(server.answer(peer, request).await)) }
    });
    let builder = builder();
    tokio::select! {
        biased;
        served = builder.serve_connection_with_upgrades(TokioIo::new(stream), service) => {
            if let Err(error) = served {
                tracing::debug!(error, peer = %address, "connection ended");
            }
        }
        () = in_use.unused() => tracing::debug!(peer = %address, "connection ended: it asked for nothing"),
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

/// HTTP/1 alone, as nobody speaks anything else here.
async fn serve_plain<F, R>(listener: TcpListener, answer: F, stop: CancellationToken)
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let connection = move |socket, _| {
        let answer = answer.clone();
        async move {
            let in_use = InUse::new();
            let under_way = in_use.clone();
            let service = service_fn(move |request| {
                let (answering, begun) = (answer(request), under_way.begin());
                async move { Ok::<_, Infallible>(begun.until_sent(answering.await)) }
            });
            let builder = builder().http1_only();
            tokio::select! {
                biased;
                served = builder.serve_connection(TokioIo::new(socket), service) => drop(served),
                () = in_use.unused() => {}
            }
        }
    };
    accept(
        listener,
        (PLAIN_CONNECTIONS_MAX, PLAIN_OF_ADDRESS_MAX),
        connection,
        stop,
    )
    .await;
}
