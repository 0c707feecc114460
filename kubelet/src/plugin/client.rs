//! Calls to plugins over their sockets. Every one has a deadline, and what comes back a bound.

use super::Plugin;
use crate::rpc::dial;
use crate::rpc::{Client, Failure};
use proto::plugin_registration::{InfoRequest, PluginInfo, RegistrationStatus};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::Channel;

/// How long a plugin may take until it takes a connection (kubelet contract §8).
const DIAL: Duration = Duration::from_secs(10);
/// How often is tried meanwhile: a socket is there a moment before anybody listens.
const DIAL_AGAIN: Duration = Duration::from_millis(100);
/// How long it may take to say who it is.
const GET_INFO: Duration = Duration::from_secs(1);
/// How long it may take to hear how its registration went.
const NOTIFY: Duration = Duration::from_secs(5);
/// The largest answer that is read, bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Counts the connections to one plugin that stand.
pub(crate) type Connections = watch::Sender<usize>;

/// A channel to whoever listens at a socket. It connects with the first call, and again after a connection broke.
pub(crate) fn channel(path: &Path, connections: Connections) -> Channel {
    let path = path.to_owned();
    dial::lazily(dial::of_plugin(), move || {
        let (path, connections) = (path.clone(), connections.clone());
        async move {
            let stream = UnixStream::connect(path).await?;
            Ok::<_, io::Error>(Counted::new(stream, connections))
        }
    })
}

/// A connection that is counted as long as it stands.
struct Counted {
    stream: UnixStream,
    connections: Connections,
}

impl Counted {
    fn new(stream: UnixStream, connections: Connections) -> Self {
        connections.send_modify(|count| *count += 1);
        Self { stream, connections }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.connections.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A plugin that said who it is.
pub(super) struct Registrant {
    client: Client,
    /// Its type.
    pub(super) kind: String,
    /// Itself.
    pub(super) plugin: Plugin,
}

/// Asks the plugin at a socket who it is.
///
/// # Errors
/// Nobody answers, or not in time.
pub(super) async fn ask(socket: PathBuf) -> Result<Registrant, String> {
    let place = socket.display().to_string();
    dial(&socket)
        .await
        .map_err(|error| format!("RegisterPlugin error -- dial failed at socket {place}, err: {error}"))?;
    let channel = channel(&socket, Connections::default());
    let client = Client::new(channel, "pluginregistration.Registration", ANSWER_BYTES_MAX);
    let asked = client.call("GetInfo", InfoRequest {}, Some(GET_INFO)).await;
    let info = asked.map_err(|failure| {
        let error = told(failure);
        format!("RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {place}, err: {error}")
    })?;
    let PluginInfo {
        r#type,
        name,
        endpoint,
        supported_versions,
    } = info;
    let endpoint = match endpoint.is_empty() {
        true => socket.clone(),
        false => PathBuf::from(endpoint),
    };
    Ok(Registrant {
        client,
        kind: r#type,
        plugin: Plugin {
            name,
            socket,
            endpoint,
            versions: supported_versions,
        },
    })
}

impl Registrant {
    /// Tells the plugin how its registration went; an error if it failed.
    ///
    /// # Errors
    /// It does not hear it.
    pub(super) async fn tell(&self, error: Option<&str>) -> Result<(), String> {
        let status = RegistrationStatus {
            plugin_registered: error.is_none(),
            error: error.unwrap_or_default().to_owned(),
        };
        let told = self.client.call("NotifyRegistrationStatus", status, Some(NOTIFY));
        told.await.map_err(self::told)
    }
}

/// Waits until somebody takes connections at a socket that is there.
///
/// # Errors
/// There is none, or nobody does for ten seconds.
pub(crate) async fn dial(socket: &Path) -> Result<UnixStream, io::Error> {
    let until = Instant::now() + DIAL;
    loop {
        let error = match tokio::time::timeout_at(until, UnixStream::connect(socket)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        if Instant::now() + DIAL_AGAIN >= until || error.kind() == io::ErrorKind::NotFound {
            return Err(error);
        }
        tokio::time::sleep(DIAL_AGAIN).await;
    }
}

/// A failed call as users read it.
fn told(failure: Failure) -> String {
    let status = failure.into_status();
    let code = crate::runtime::code_name(status.code());
    format!("rpc error: code = {code} desc = {}", status.message())
}
