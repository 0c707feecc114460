//! The events of one watch, as they come.
//!
//! Owns the bytes of an event that is not complete yet, and next to nothing while none comes: a process may follow a thousand
//! resources, most of them silent. (What kube reads watches with keeps 8 KiB for each.)

use super::follow::{Source, take_whole};
use super::sink::{Event, Sink};
use super::text::event_without_owners;
use futures::AsyncBufReadExt;
use futures::io::AsyncBufRead;
use kube::api::WatchParams;
use kube::core::Request;
use std::error::Error;
use std::io;
use std::pin::Pin;

/// What is kept for the next event of what the last one took, at most.
const KEPT_BYTES: usize = 4 << 10;

/// See the module.
pub(super) struct Events {
    lines: Pin<Box<dyn AsyncBufRead + Send>>,
    /// An event as far as it has come.
    line: Vec<u8>,
}

impl Events {
    /// Watches from a revision on.
    ///
    /// # Errors
    /// What the server answers, or why it cannot be asked.
    pub(super) async fn watch(source: &Source, params: &WatchParams, revision: &str) -> Result<Self, kube::Error> {
        let request = Request::new(source.url.as_str());
        let request = match source.metadata_only {
            true => request.watch_metadata(params, revision),
            false => request.watch(params, revision),
        };
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        take_whole(&mut request);
        request.extensions_mut().insert("watch");
        let lines = source.client.request_stream(request).await?;
        Ok(Self {
            lines: Box::pin(lines),
            line: Vec::new(),
        })
    }

    /// What becomes of the next event in `sink`; `None` when the watch is over, be it in the middle of one.
    ///
    /// # Errors
    /// If the stream breaks, or has something else in it.
    pub(super) async fn next(&mut self, sink: &dyn Sink) -> Result<Option<Event>, kube::Error> {
        match self.lines.read_until(b'\n', &mut self.line).await {
            Err(error) if !is_end(&error) => return Err(kube::Error::ReadEvents(error)),
            _ if self.line.last() != Some(&b'\n') => return Ok(None),
            _ => {}
        }
        let text = std::str::from_utf8(&self.line).map_err(|error| {
            let error = io::Error::new(io::ErrorKind::InvalidData, error);
            kube::Error::ReadEvents(error)
        })?;
        let event = sink
            .event(&event_without_owners(text))
            .map_err(kube::Error::SerdeError)?;
        self.line.clear();
        self.line.shrink_to(KEPT_BYTES);
        Ok(Some(event))
    }
}

/// Whether a server went away in the middle.
fn is_end(error: &io::Error) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::TimedOut)) {
            return true;
        }
        next = error.source();
    }
    false
}
