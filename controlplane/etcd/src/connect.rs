//! Connections to one member: TCP or a socket of this machine, in TLS or not.
//!
//! Owns how a connection is made; files are read anew for each, so that renewed certificates are used. Never decides who is asked.

use crate::address::Address;
use crate::options::TlsFiles;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tonic::transport::{Channel, Endpoint};

/// For a connection, TLS included.
const CONNECT_DEADLINE: Duration = Duration::from_secs(3);
/// A member that is silent on an open connection is asked whether it is there, and given so long.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

/// What one watch that is not read may hold; what all streams together may. Of the latter HTTP/2's library derives how many small
/// frames may lie unread before it takes them for an attack: a watch's events are such frames.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 128 << 20;

/// No connection could be made: nothing has been sent.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotConnected(String);

trait Io: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Io for T {}

type Connection = TokioIo<Pin<Box<dyn Io>>>;

/// How often a connection was made.
pub(crate) type Connections = Arc<AtomicU64>;

/// A channel that connects when it is used, and again when the connection is lost; counts how often in `connections`.
pub(crate) fn channel(address: &Address, files: &TlsFiles, connections: &Connections) -> Result<Channel, String> {
    let (name, port) = match address {
        Address::Tcp { host, port, .. } if host.contains(':') => (format!("[{host}]"), *port),
        Address::Tcp { host, port, .. } => (host.clone(), *port),
        Address::Unix(_) => ("localhost".to_owned(), 2379),
    };
    let scheme = if address.is_tls() { "https" } else { "http" };
    let origin = |scheme| format!("{scheme}://{name}:{port}").parse::<http::Uri>();
    let read = |error: http::uri::InvalidUri| error.to_string();
    // TLS is the connector's affair.
    let endpoint = Endpoint::from(origin("http").map_err(read)?)
        .origin(origin(scheme).map_err(read)?)
        .http2_keep_alive_interval(KEEP_ALIVE.0)
        .keep_alive_timeout(KEEP_ALIVE.1)
        // etcd ends connections on which it is asked while nothing is under way.
        .keep_alive_while_idle(false)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let (address, files, connections) = (
        Arc::new(address.clone()),
        Arc::new(files.clone()),
        Arc::clone(connections),
    );
    let connector = tower::service_fn(move |_: http::Uri| {
        let (address, files, connections) = (Arc::clone(&address), Arc::clone(&files), Arc::clone(&connections));
        async move {
            // Before anything comes over it.
            connections.fetch_add(1, Ordering::SeqCst);
            let connected = tokio::time::timeout(CONNECT_DEADLINE, connect(&address, &files)).await;
            let connected = connected.unwrap_or_else(|_| Err("connecting timed out".to_owned()));
            connected.map_err(NotConnected)
        }
    });
    Ok(endpoint.connect_with_connector_lazy(connector))
}

async fn connect(address: &Address, files: &TlsFiles) -> Result<Connection, String> {
    let (host, port, is_tls) = match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(|error| error.to_string())?;
            return Ok(TokioIo::new(Box::pin(stream)));
        }
        Address::Tcp { host, port, is_tls } => (host, *port, *is_tls),
    };
    let connected = TcpStream::connect((host.as_str(), port)).await;
    let stream = connected.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    if !is_tls {
        return Ok(TokioIo::new(Box::pin(stream)));
    }
    let files = files.clone();
    let config = tokio::task::spawn_blocking(move || client_config(&files)).await;
    let config = config.map_err(|error| error.to_string())??;
    let name = ServerName::try_from(host.clone()).map_err(|error| error.to_string())?;
    let shaken = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await;
    let stream = shaken.map_err(|error| format!("TLS: {error}"))?;
    Ok(TokioIo::new(Box::pin(stream)))
}

/// What TLS is spoken with; blocks for the files.
///
/// # Errors
/// Names the flag and the file.
pub(crate) fn client_config(files: &TlsFiles) -> Result<ClientConfig, String> {
    let Some(ca) = &files.ca else {
        return Err("--etcd-cafile must be given for https servers".to_owned());
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates("--etcd-cafile", ca)? {
        let added = roots.add(certificate);
        added.map_err(|error| format!("--etcd-cafile {}: {error}", ca.display()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let mut config = match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            let chain = certificates("--etcd-certfile", cert)?;
            let read = PrivateKeyDer::from_pem_file(key);
            let key_der = read.map_err(|error| format!("--etcd-keyfile {}: {error}", key.display()))?;
            let made = builder.with_client_auth_cert(chain, key_der);
            made.map_err(|error| format!("--etcd-certfile {}: {error}", cert.display()))?
        }
        (None, None) => builder.with_no_client_auth(),
        _ => return Err("--etcd-certfile and --etcd-keyfile must be given together".to_owned()),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn certificates(flag: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: rustls_pki_types::pem::Error| format!("{flag} {}: {error}", path.display());
    let read = CertificateDer::pem_file_iter(path).map_err(wrong)?;
    let found: Vec<_> = read.collect::<Result<_, _>>().map_err(wrong)?;
    match found.is_empty() {
        true => Err(format!("{flag} {}: there is no certificate in it", path.display())),
        false => Ok(found),
    }
}
