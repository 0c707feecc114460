//! The events of one watch, as they come.
//!
//! Owns the bytes of an event that is not complete yet, and next to nothing while none comes: a process may follow a thousand
//! resources, most of them silent. (What kube reads watches with keeps 8 KiB for each.)

use super::follow::{Source, take_whole};
use super::sink::{Event, Sink};
use crate::json_text::members;
use futures::AsyncBufReadExt;
use futures::io::AsyncBufRead;
use kube::api::WatchParams;
use kube::core::Request;
use std::borrow::Cow;
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
        let event = sink.event(&without_owners(text)).map_err(kube::Error::SerdeError)?;
        self.line.clear();
        self.line.shrink_to(KEPT_BYTES);
        Ok(Some(event))
    }
}

/// An event's text without the managedFields of its object: they take as long to be read as all the rest, and no informer keeps them.
fn without_owners(event: &str) -> Cow<'_, str> {
    let member = |object, name| members(object).find(|(key, _)| *key == name);
    let metadata = member(event, "object").and_then(|(_, object)| member(object, "metadata"));
    let owners = metadata.and_then(|(_, metadata)| member(metadata, "managedFields"));
    let without = owners.and_then(|(key, list)| {
        let offset = |part: &str| part.as_ptr().addr().checked_sub(event.as_ptr().addr());
        // The key's quote stands before it.
        let head = event.get(..offset(key)?.checked_sub(1)?)?;
        let tail = event.get(offset(list)? + list.len()..)?;
        Some(match tail.strip_prefix(',') {
            Some(tail) => [head, tail].concat(),
            None => [head.strip_suffix(',').unwrap_or(head), tail].concat(),
        })
    });
    without.map_or(Cow::Borrowed(event), Cow::Owned)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_left_out_wherever_they_stand_and_nothing_else() {
        let owned = |metadata: &str| {
            format!(
                r#"{{"type":"ADDED","object":{{"kind":"Pod","metadata":{metadata},"spec":{{"managedFields":[1]}}}}}}"#
            )
        };
        for (metadata, left) in [
            (
                r#"{"managedFields":[{"fieldsV1":{"f:a":{"k:{\"n\":\"}]\"}":{}}}}],"name":"b"}"#,
                r#"{"name":"b"}"#,
            ),
            (r#"{"name":"b","managedFields":[]}"#, r#"{"name":"b"}"#),
            (
                r#"{"a":"ä","managedFields":[[{}]],"name":"b"}"#,
                r#"{"a":"ä","name":"b"}"#,
            ),
            (r#"{"managedFields":null}"#, "{}"),
            (
                r#"{"name":"\"managedFields\":[]"}"#,
                r#"{"name":"\"managedFields\":[]"}"#,
            ),
            (
                r#"{"labels":{"managedFields":"x"}}"#,
                r#"{"labels":{"managedFields":"x"}}"#,
            ),
            (r#"{"managedFields":[{"#, r#"{"managedFields":[{"#),
        ] {
            assert_eq!(without_owners(&owned(metadata)), owned(left), "{metadata}");
        }
        for text in [
            "",
            "{",
            "{}",
            "[]",
            r#"{"object":1}"#,
            r#"{"object":{"metadata":[]}}"#,
            "ä",
        ] {
            assert_eq!(without_owners(text), text);
        }
    }
}
