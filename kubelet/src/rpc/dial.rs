//! How channels reach their servers: one kind of connector and of connection for all of them, so that what a channel makes of these
//! stands once (tonic's own way makes two of each, with a deadline and without). Decides neither where to dial nor when.

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::ConnectError;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::util::ServiceFn;

/// How long may be dialled until a call is told that there is no connection.
const DIAL: Duration = Duration::from_secs(5);

/// A connection, whatever it is made of.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send {}
impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

/// A connection of any kind.
pub(crate) type Wire = Pin<Box<dyn Stream>>;

/// A failure is one to connect, which a call tells as `Unavailable`.
type Dialled = BoxFuture<'static, Result<TokioIo<Wire>, ConnectError>>;
type Connector = ServiceFn<Box<dyn FnMut(Uri) -> Dialled + Send>>;

/// What a plugin may send before it is read, bytes; four times as much on its connection.
const PLUGIN_WINDOW: u32 = 64 << 10;

/// What is dialled has to be called something.
pub(crate) fn endpoint() -> Endpoint {
    Endpoint::from_static("http://localhost")
}

/// The same for a plugin: what it sends before anybody reads it is held, and counted by nobody.
pub(crate) fn of_plugin() -> Endpoint {
    let narrow = endpoint().initial_stream_window_size(PLUGIN_WINDOW);
    narrow.initial_connection_window_size(4 * PLUGIN_WINDOW)
}

/// A channel that dials so with its first call, and again after a connection broke.
pub(crate) fn lazily<S, F>(endpoint: Endpoint, dial: impl Fn() -> F + Send + 'static) -> Channel
where
    S: Stream + 'static,
    F: Future<Output = io::Result<S>> + Send + 'static,
{
    let connector: Connector = tower::service_fn(Box::new(move |_| {
        let dialled = tokio::time::timeout(DIAL, dial());
        async move {
            let stream = dialled.await.map_err(io::Error::from).flatten();
            let stream = stream.map(|stream| TokioIo::new(Box::pin(stream) as Wire));
            stream.map_err(failed)
        }
        .boxed()
    }));
    Channel::new(connector, endpoint)
}

fn failed(error: io::Error) -> ConnectError {
    ConnectError(Box::new(error))
}

/// A channel of this one connection. Nothing is dialled again: what is called later is refused with what `gone` says.
///
/// # Errors
/// The other side does not speak HTTP/2.
pub(crate) async fn over(
    endpoint: Endpoint,
    stream: Wire,
    gone: fn() -> io::Error,
) -> Result<Channel, tonic::transport::Error> {
    let mut stream = Some(TokioIo::new(stream));
    let connector: Connector = tower::service_fn(Box::new(move |_| {
        let taken = stream.take().ok_or_else(|| failed(gone()));
        std::future::ready(taken).boxed()
    }));
    Channel::connect(connector, endpoint).await
}
