//! A socket whose peer must read: a write that makes no headway in time fails. Knows nothing of what is written.

use crate::apiserver::drain;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Whether the peer may leave what is written to it for as long as it likes: it follows logs or has a terminal.
pub(super) type Patient = Arc<AtomicBool>;

/// See the module.
pub(super) struct Impatient<S> {
    stream: S,
    /// How long a write may wait.
    stall: Duration,
    patient: Patient,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    pub(super) fn new(stream: S, stall: Duration, patient: Patient) -> Self {
        Self {
            stream,
            stall,
            patient,
            waiting: None,
        }
    }

    fn waited<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waiting = None;
            return polled;
        }
        let stall = self.stall;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(stall)));
        while waiting.as_mut().poll(context).is_ready() {
            if !self.patient.load(Ordering::Relaxed) {
                // The connection might wait for a clean end, which this client does not take either.
                drain::end_task();
                let text = "the peer does not read";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
            }
            waiting.as_mut().reset(Instant::now() + stall);
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.waited(polled, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.waited(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.waited(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.waited(polled, context)
    }
}
