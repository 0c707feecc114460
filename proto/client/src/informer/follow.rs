//! Following one resource: list, then watch, then resume or list again, for ever.
//!
//! Knows nothing of the objects: a [`Sink`] reads them. Owns when the server is asked and how long it is waited for.

use super::events::Events;
use super::sink::{Event, Sink};
use super::{Options, parse_revision};
use crate::backoff::Backoff;
use http::HeaderValue;
use http::header::ACCEPT;
use kube::api::{ListParams, WatchParams};
use kube::core::Request;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Deadline of one list request.
const LIST_DEADLINE: Duration = Duration::from_secs(60);
/// Longest life of one watch request, asked of the server.
const WATCH_SECONDS: u32 = 280;
/// Longest silence on a watch before we give it up ourselves; the server should have ended it by then.
const WATCH_DEADLINE: Duration = Duration::from_secs(300);

/// Where the objects come from.
pub(super) struct Source {
    /// Whom to ask.
    pub(super) client: kube::Client,
    /// The resource's path.
    pub(super) url: String,
    /// Whether nothing but their metadata is asked for.
    pub(super) metadata_only: bool,
    /// Which of them.
    pub(super) options: Options,
}

/// Why a watch ended.
enum Ended {
    /// Resume at the last revision at once.
    Normally,
    /// Resume after a delay.
    Failed(String),
    /// The revision is gone: list again.
    Expired,
}

pub(super) async fn follow(source: Source, sink: Arc<dyn Sink>) {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(10), source.options.seed);
    let resource = source.url.as_str();
    let mut told = String::new();
    loop {
        sink.progress().send_modify(|p| p.lists_begun += 1);
        match list(&source, &*sink).await {
            Ok(mut revision) => {
                backoff.reset();
                told.clear();
                watch_until_expired(&source, &*sink, &mut revision, &mut backoff).await;
                tracing::debug!(resource, "watch revision expired, listing again");
            }
            // What fails for the same reason again was told.
            Err(error) if error == told => tracing::debug!(resource, error, "list failed again, retrying"),
            Err(error) => {
                tracing::warn!(resource, error, "list failed, retrying");
                told = error;
            }
        }
        tokio::time::sleep(backoff.fail()).await;
    }
}

async fn list(source: &Source, sink: &dyn Sink) -> Result<String, String> {
    let listed = timeout(LIST_DEADLINE, list_text(source))
        .await
        .map_err(|_| "list: deadline exceeded".to_owned())?;
    let listed = listed.and_then(|text| sink.replace(&text).map_err(kube::Error::SerdeError));
    let revision = listed.map_err(|error| {
        let is_refused = matches!(&error, kube::Error::Api(status) if matches!(status.code, 403 | 404));
        sink.progress().send_modify(|p| p.is_refused = is_refused);
        describe(&error)
    })?;
    sink.progress().send_modify(|p| {
        p.is_refused = false;
        p.revision = parse_revision(Some(&revision));
        p.listed = p.lists_begun;
    });
    Ok(revision)
}

/// Who asks for metadata takes whole objects, too: not every aggregated server knows the other form.
pub(super) fn take_whole(request: &mut http::Request<Vec<u8>>) {
    let form = request.headers().get(ACCEPT).and_then(|form| form.to_str().ok());
    let both = form
        .filter(|form| form.contains(";as="))
        .map(|form| format!("{form},application/json"));
    if let Some(both) = both.and_then(|both| HeaderValue::try_from(both).ok()) {
        request.headers_mut().insert(ACCEPT, both);
    }
}

async fn list_text(source: &Source) -> Result<String, kube::Error> {
    let (labels, fields) = (&source.options.labels, &source.options.fields);
    let params = ListParams {
        label_selector: (!labels.is_empty()).then(|| labels.clone()),
        field_selector: (!fields.is_empty()).then(|| fields.clone()),
        ..ListParams::default()
    };
    let request = Request::new(source.url.as_str());
    let request = match source.metadata_only {
        true => request.list_metadata(&params),
        false => request.list(&params),
    };
    let mut request = request.map_err(kube::Error::BuildRequest)?;
    take_whole(&mut request);
    request.extensions_mut().insert("list");
    source.client.request_text(request).await
}

async fn watch_until_expired(source: &Source, sink: &dyn Sink, revision: &mut String, backoff: &mut Backoff) {
    loop {
        let before = revision.clone();
        let ended = watch_once(source, sink, revision).await;
        if before != *revision {
            backoff.reset();
        }
        match ended {
            Ended::Expired => return,
            Ended::Normally if before != *revision => {}
            Ended::Normally => tokio::time::sleep(backoff.fail()).await,
            Ended::Failed(error) => {
                tracing::debug!(resource = source.url, error, "watch ended, resuming");
                tokio::time::sleep(backoff.fail()).await;
            }
        }
    }
}

async fn watch_once(source: &Source, sink: &dyn Sink, revision: &mut String) -> Ended {
    let mut params = WatchParams::default().timeout(WATCH_SECONDS);
    if !source.options.labels.is_empty() {
        params = params.labels(&source.options.labels);
    }
    if !source.options.fields.is_empty() {
        params = params.fields(&source.options.fields);
    }
    let mut events = match timeout(LIST_DEADLINE, Events::watch(source, &params, revision)).await {
        Err(_) => return Ended::Failed("watch: deadline exceeded".into()),
        Ok(Err(kube::Error::Api(status))) if status.code == 410 => return Ended::Expired,
        Ok(Err(error)) => return Ended::Failed(describe(&error)),
        Ok(Ok(events)) => events,
    };
    loop {
        let event = match timeout(WATCH_DEADLINE, events.next(sink)).await {
            Err(_) => return Ended::Failed("watch: silent for too long".into()),
            Ok(Ok(None)) => return Ended::Normally,
            Ok(Err(error)) => return Ended::Failed(describe(&error)),
            Ok(Ok(Some(event))) => event,
        };
        let seen = match event {
            Event::Seen(seen) => seen,
            Event::Error(status) if status.code == 410 => return Ended::Expired,
            Event::Error(status) => return Ended::Failed(status.message),
        };
        let Some(seen) = seen.filter(|s| !s.is_empty()) else {
            continue;
        };
        let number = parse_revision(Some(&seen));
        *revision = seen;
        sink.progress().send_modify(|p| p.revision = p.revision.max(number));
    }
}

fn describe(error: &dyn std::error::Error) -> String {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(source) = next {
        let more = source.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_objects_are_taken_where_metadata_would_do() {
        let of = |request: Result<http::Request<Vec<u8>>, _>| {
            let mut request = request.ok()?;
            take_whole(&mut request);
            let form = request.headers().get(ACCEPT);
            form.map(|form| form.to_str().unwrap().to_owned())
        };
        let (asked, list, watch) = (
            Request::new("/api/v1/pods"),
            ListParams::default(),
            WatchParams::default(),
        );
        let meta = |kind: &str| {
            Some(format!(
                "application/json;as={kind};g=meta.k8s.io;v=v1,application/json"
            ))
        };
        assert_eq!(of(asked.list_metadata(&list)), meta("PartialObjectMetadataList"));
        assert_eq!(of(asked.watch_metadata(&watch, "1")), meta("PartialObjectMetadata"));
        let plain = |form: Option<String>| form.is_none_or(|form| form == "application/json");
        assert!(plain(of(asked.list(&list))) && plain(of(asked.watch(&watch, "1"))));
    }
}
