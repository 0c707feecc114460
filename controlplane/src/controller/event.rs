//! The recorder of core v1 events: never blocks and never fails its caller. Repeats are counted, similar ones are told as one, and what one
//! object may have of them is bounded ([`correlate`]).

use super::write::EventText;
use crate::resource::name::dns1123_subdomain;
use client::Clock;
use correlate::Correlator;
use inbox::Inbox;
use k8s_openapi::api::core::v1::ObjectReference;
use memory::digest;
use outbox::{Correlate, Delivery};
use serde_json::json;
use std::borrow::Cow;
use std::sync::Arc;
use tokio::time::Instant;

mod correlate;
pub(crate) mod inbox;
pub(crate) mod memory;
pub(crate) mod outbox;
pub(crate) mod spam;

/// The longest message, in bytes: that of a note of events.k8s.io.
const MESSAGE_BYTES: usize = 1024;
/// How a message ends that was longer.
const CUT: &str = " ...";

/// A handle that accepts events.
#[derive(Clone)]
pub struct Recorder {
    inbox: Inbox<EventText>,
}

/// A source's events.
struct CoreEvents {
    clock: Arc<dyn Clock>,
    component: Cow<'static, str>,
    correlator: Correlator,
}

impl Recorder {
    /// Starts a recorder that writes as `component` until every handle is dropped.
    pub fn spawn(client: kube::Client, clock: Arc<dyn Clock>, component: impl Into<Cow<'static, str>>) -> Self {
        let (inbox, receive) = Inbox::new();
        let component = component.into();
        let events = CoreEvents {
            clock,
            correlator: Correlator::of(&component),
            component,
        };
        tokio::spawn(outbox::run(client, events, receive));
        Self { inbox }
    }

    /// Records an event; drops it when too many wait, or its object has had too many. A long message is cut.
    pub fn record(&self, mut event: EventText) {
        cut(&mut event.message);
        self.inbox.put(event);
    }
}

/// Cuts a message to the length that every server takes.
pub(crate) fn cut(message: &mut String) {
    if message.len() > MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES - CUT.len()));
        message.push_str(CUT);
    }
}

/// The namespace of an event about the object: the object's, or `default`.
pub(crate) fn namespace(about: &ObjectReference) -> &str {
    let own = about.namespace.as_deref().filter(|own| !own.is_empty());
    own.unwrap_or("default")
}

/// The name of an event about the object. An object's name that no event's may begin with is replaced.
pub(crate) fn name(about: &ObjectReference, stamp: u64) -> String {
    let own = about.name.as_deref().unwrap_or_default();
    let name = format!("{own}.{stamp:x}");
    match dns1123_subdomain(&name).is_empty() {
        true => name,
        false => format!("{:x}.{stamp:x}", digest(own)),
    }
}

impl Correlate for CoreEvents {
    type Event = EventText;

    fn take(&mut self, event: EventText) -> Vec<Delivery> {
        let now = self.clock.now();
        let Some(mut told) = self.correlator.correlate(&event, now, Instant::now()) else {
            return Vec::new();
        };
        cut(&mut told.message);
        let (about, seen) = (&event.regarding, told.observed);
        let (namespace, name) = (namespace(about), name(about, seen.stamp));
        let second = |time: jiff::Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let patch = json!({"count": seen.count, "lastTimestamp": second(now), "message": told.message});
        let whole = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": about,
            "reason": event.reason, "message": told.message, "type": event.kind,
            "source": {"component": self.component}, "reportingComponent": self.component, "reportingInstance": "",
            "firstTimestamp": second(seen.first), "lastTimestamp": second(now), "count": seen.count, "eventTime": null,
        });
        vec![Delivery {
            identity: told.identity,
            collection: format!("/api/v1/namespaces/{namespace}/events"),
            name,
            patch: (seen.count > 1).then_some(patch),
            whole,
        }]
    }
}

#[cfg(test)]
mod tests;
