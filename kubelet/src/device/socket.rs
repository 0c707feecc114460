//! gRPC over unix sockets that are root's: what serves plugins' registrations and the PodResources API. Owns sockets and connections,
//! knows of no service.

use crate::rpc::dial::{Stream, Wire};
use crate::rpc::{self, Methods};
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::fs::{OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;

/// Connections at a time; more wait.
const CONNECTIONS_MAX: usize = 64;
/// Calls at a time on one of them.
const STREAMS_MAX: u32 = 16;
/// What of an answer is held for a reader that does not read, bytes.
const SEND_BUFFER: usize = 64 << 10;
/// A pause after the kernel refused a connection, usually for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often a silent peer is asked whether it is there, and how long it may take to say so.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(20));

/// How long a connection may stand before its first call, and without one afterwards: others wait for its place.
const FIRST_CALL: Duration = Duration::from_secs(10);
const NEXT_CALL: Duration = Duration::from_secs(120);

/// Answers requests.
pub(crate) type Handler = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// Makes a directory that only root enters.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o750))
}

/// Listens at a path; a socket that is there goes. Must be called inside a tokio runtime.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something else is there")),
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    close_to_others(path)?;
    Ok(listener)
}

/// Leaves a socket to root. Whoever may write in its directory may have put something else in its place by now, which is left as it is.
pub(super) fn close_to_others(path: &Path) -> io::Result<()> {
    let flags = nix::libc::O_PATH | nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC;
    let there = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !there.metadata()?.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something else is there"));
    }
    let opened = format!("/proc/self/fd/{}", there.as_raw_fd());
    std::fs::set_permissions(opened, Permissions::from_mode(0o600))
}

/// Serves until shut down; connections end with it.
pub(crate) async fn serve(listener: UnixListener, handler: Handler, shutdown: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            accepted = accept(&listener, &places) => accepted,
        };
        let Some((stream, place)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (handler, shutdown) = (handler.clone(), shutdown.clone());
        tokio::spawn(
            async move {
                let _place = place;
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => {}
                    () = converse_while_used(stream, handler) => {}
                }
            }
            .boxed(),
        );
    }
}

async fn accept(
    listener: &UnixListener,
    places: &Arc<Semaphore>,
) -> Option<(UnixStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            tracing::warn!(%error, "a connection to a unix socket could not be accepted");
            None
        }
    }
}

/// How many calls began on a connection, and how many have no answer yet.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    begun: u64,
    now: usize,
}

/// One call under way.
struct Call(watch::Sender<Calls>);

impl Call {
    fn begin(calls: &watch::Sender<Calls>) -> Self {
        calls.send_modify(|calls| {
            calls.begun += 1;
            calls.now += 1;
        });
        Self(calls.clone())
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.send_modify(|calls| calls.now -= 1);
    }
}

/// Answers on one connection until it ends, or is not used for too long.
async fn converse_while_used(stream: impl Stream + 'static, handler: Handler) {
    let (calls, seen) = watch::channel(Calls::default());
    let counted: Handler = Arc::new(move |request| {
        let (call, answer) = (Call::begin(&calls), handler(request));
        async move {
            let _call = call;
            answer.await
        }
        .boxed()
    });
    tokio::select! {
        biased;
        () = unused(seen) => tracing::debug!("a connection to a unix socket was not used, and is closed"),
        () = converse(stream, counted) => {}
    }
}

/// Waits until a connection was not used for too long.
async fn unused(mut calls: watch::Receiver<Calls>) {
    let (mut known, mut patience) = (0, FIRST_CALL);
    loop {
        match tokio::time::timeout(patience, calls.wait_for(|calls| calls.begun > known)).await {
            Ok(Ok(calls)) => known = calls.begun,
            _ => return,
        }
        if calls.wait_for(|calls| calls.now == 0).await.is_err() {
            return;
        }
        patience = NEXT_CALL;
    }
}

/// Answers on one connection until it ends.
pub(crate) async fn converse(stream: impl Stream + 'static, handler: Handler) {
    let stream: Wire = Box::pin(stream);
    let service = service_fn(move |request| {
        let answer = handler(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(16 << 10)
        .keep_alive_interval(KEEP_ALIVE.0)
        .keep_alive_timeout(KEEP_ALIVE.1);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection to a unix socket ended");
    }
}

/// Answers with these methods.
pub(crate) fn handler(methods: Methods) -> Handler {
    Arc::new(move |request| rpc::answer(methods.clone(), request).boxed())
}

#[cfg(test)]
mod tests;
