//! Sockets: binding, TLS handshakes, connections, the plain health port.

use super::doors::{Doors, Handshake, Limits};
use super::health::Health;
use super::idle::InUse;
use super::peer::{ClientCertificate, Peer, Worth};
use super::request::{Query, RequestPath};
use super::share::Shares;
use super::{Answer, Server, answer};
use crate::certificate::serving::Offered;
use crate::rpc::dial::Wire;
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
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
/// Connections at a time on a port without TLS.
const PLAIN_CONNECTIONS_MAX: usize = 64;
/// Of those, of one address.
const PLAIN_OF_ADDRESS_MAX: usize = 16;
/// What of an answer is held for an HTTP/2 stream that is not read, beside what its body holds, bytes.
const SEND_BUFFER: usize = 64 << 10;
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

fn http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_DEADLINE);
    builder
}

fn http2() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE.0)
        .keep_alive_timeout(KEEP_ALIVE.1)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(1 << 20);
    builder
}

/// Serves until told to stop; connections still open then are dropped. Each connection takes the configuration of its moment.
pub async fn serve_tls(
    listener: TcpListener,
    offered: watch::Receiver<Offered>,
    server: Arc<Server>,
    stop: CancellationToken,
) {
    serve_tls_within(Limits::default(), listener, offered, server, stop).await;
}

/// The same with so many connections.
pub(super) async fn serve_tls_within(
    limits: Limits,
    listener: TcpListener,
    offered: watch::Receiver<Offered>,
    server: Arc<Server>,
    stop: CancellationToken,
) {
    let doors = Doors::new(limits);
    let work = async {
        loop {
            let (socket, address) = accepted(&listener).await;
            let handshake = doors.begin(address.ip().to_canonical());
            let greeted = Greeted {
                address,
                offered: offered.clone(),
                doors: doors.clone(),
                server: server.clone(),
            };
            let stop = stop.clone();
            tokio::spawn(
                async move {
                    tokio::select! {
                        biased;
                        () = greeted.serve(socket, handshake) => {}
                        () = stop.cancelled() => {}
                    }
                }
                .boxed(),
            );
        }
    };
    tokio::select! {
        biased;
        () = work => {}
        () = stop.cancelled() => {}
    }
}

/// The next connection.
async fn accepted(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A connection over TLS and what serves it.
struct Greeted {
    address: SocketAddr,
    offered: watch::Receiver<Offered>,
    doors: Doors,
    server: Arc<Server>,
}

impl Greeted {
    /// Greets and serves to the end, if there is a place for it.
    async fn serve(self, socket: TcpStream, handshake: Handshake) {
        let Self { address, server, .. } = &self;
        // Small frames of interactive sessions must not wait for each other.
        let _ = socket.set_nodelay(true);
        let acceptor = TlsAcceptor::from(self.offered.borrow().tls.clone());
        let greeting = tokio::time::timeout(HANDSHAKE_DEADLINE, acceptor.accept(socket));
        let greeted = tokio::select! {
            biased;
            greeted = greeting => greeted,
            () = handshake.displaced() => {
                tracing::debug!(peer = %address, "connection ended: there are too many handshakes");
                return;
            }
        };
        let stream = match greeted {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, peer = %address, "TLS handshake failed");
                return;
            }
            Err(_) => return,
        };
        let chain = stream.get_ref().1.peer_certificates().map(<[_]>::to_vec);
        let certificate = chain.map(|chain| ClientCertificate::new(chain, self.offered.clone()));
        let worth = certificate.as_ref().map(|shown| shown.worth(server.now()));
        let vouched_for = matches!(worth, Some(Worth::User(_)));
        let Some(seat) = self.doors.seat(address.ip().to_canonical(), vouched_for) else {
            tracing::debug!(peer = %address, "connection refused: there are too many");
            return;
        };
        drop(handshake);
        let peer = Peer {
            address: *address,
            certificate,
        };
        let (peer, server) = (Arc::new(peer), server.clone());
        let answer = move |request| {
            let (server, peer) = (server.clone(), peer.clone());
            async move { server.answer(peer, request).await }.boxed()
        };
        // As upstream's: nobody is taken to speak HTTP/2 who did not say so.
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        talk(Box::pin(stream), is_http2, *address, Arc::new(answer)).await;
        drop(seat);
    }
}

/// What a port answers. Of one type, as are its connections, so that their code is there once.
type Answering = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Answer> + Send + Sync>;

/// Answers what is asked by a connection.
async fn talk(stream: Wire, is_http2: bool, peer: SocketAddr, answer: Answering) {
    let in_use = InUse::new();
    let under_way = in_use.clone();
    let service = service_fn(move |request| {
        let (answering, begun) = (answer(request), under_way.begin());
        async move { Ok::<_, Infallible>(begun.until_sent(answering.await)) }
    });
    let stream = TokioIo::new(stream);
    let serve = async {
        match is_http2 {
            true => http2().serve_connection(stream, service).await,
            false => http1().serve_connection(stream, service).with_upgrades().await,
        }
    };
    tokio::select! {
        biased;
        served = serve => {
            if let Err(error) = served {
                tracing::debug!(%error, %peer, "connection ended");
            }
        }
        () = in_use.unused() => tracing::debug!(%peer, "connection ended: it asked for nothing"),
    }
}

/// Gives each connection without TLS to `serve`, so many at a time and of one address, until told to stop; more wait in the kernel's
/// queue.
async fn accept_plain<S, C>(listener: TcpListener, serve: S, stop: CancellationToken)
where
    S: Fn(TcpStream, SocketAddr) -> C,
    C: Future<Output = ()> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(PLAIN_CONNECTIONS_MAX));
    let shares = Shares::new(PLAIN_OF_ADDRESS_MAX);
    let work = async {
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else {
                return;
            };
            let (socket, address) = accepted(&listener).await;
            let Some(share) = shares.take(address.ip().to_canonical()) else {
                tracing::debug!(peer = %address, "connection refused: there are too many of its address");
                continue;
            };
            let (connection, stop) = (serve(socket, address), stop.clone());
            tokio::spawn(
                async move {
                    tokio::select! {
                        biased;
                        () = connection => {}
                        () = stop.cancelled() => {}
                    }
                    drop((permit, share));
                }
                .boxed(),
            );
        }
    };
    tokio::select! {
        biased;
        () = work => {}
        () = stop.cancelled() => {}
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
    serve_plain(listener, Arc::new(move |request| answer(request).boxed()), stop).await;
}

/// Serves what may be read by everyone, without TLS, until told to stop.
pub async fn serve_read_only(listener: TcpListener, server: Arc<Server>, stop: CancellationToken) {
    let answer = move |request| server.clone().answer_read_only(request).boxed();
    serve_plain(listener, Arc::new(answer), stop).await;
}

/// HTTP/1 alone, as nobody speaks anything else here.
async fn serve_plain(listener: TcpListener, answer: Answering, stop: CancellationToken) {
    let connection = move |socket: TcpStream, address| talk(Box::pin(socket), false, address, answer.clone());
    accept_plain(listener, connection, stop).await;
}
