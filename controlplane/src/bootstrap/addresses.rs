//! Repairs what IPAddress objects say of Services: each ClusterIP has one, and none is left of a Service that is gone (contract §12;
//! upstream's ipallocator-repair-controller, whose events these are). Looks again whenever Services, IPAddresses or ServiceCIDRs changed.
//!
//! [`plan`] decides, and is pure; the rest reads memory and writes as the API server. Those who write Services are held up while two
//! snapshots are taken, whatever there is in them: what differs is read afterwards ([`parsed`]). That two Services never get one address
//! does not rest on this (`apiserver::admission`).

use super::{LOOK, apiserver};
use crate::apiserver::ApiServer;
use crate::controller::event::Recorder;
use crate::controller::write::EventText;
use crate::resource::field::text;
use crate::resource::service::{Ranges, held_addresses, held_ports};
use crate::store::Revision;
use jiff::Timestamp;
use parsed::{Objects, Parsed};
use plan::{Action, Address, Held, Plan};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

mod parsed;
mod plan;

const NETWORKING: &str = "networking.k8s.io";
/// Writes of one look; the rest follows with the next, at once.
const AT_ONCE: usize = 256;

/// What was read, of Services and of IPAddresses.
struct Known {
    services: Parsed<Held>,
    addresses: Parsed<Address>,
}

impl Known {
    fn new() -> Self {
        Self {
            services: Parsed::new(|stored| Some(held(&stored.tree()))),
            addresses: Parsed::new(|stored| Address::read(&stored.tree(), stored.revision)),
        }
    }
}

/// Repairs until shutdown.
pub async fn keep(server: ApiServer, ranges: Ranges, shutdown: CancellationToken) {
    let client = server.client_as(apiserver());
    let recorder = Recorder::spawn(
        client.clone(),
        Arc::clone(server.clock()),
        "ipallocator-repair-controller",
    );
    let (mut known, mut told) = (Known::new(), BTreeSet::new());
    let mut seen = None;
    let mut due: Option<Timestamp> = None;
    loop {
        let now = server.now();
        let state = revisions(&server);
        if seen != Some(state) || due.is_some_and(|due| now >= due) {
            let (services, addresses) = snapshots(&server).await;
            let plan = plan::plan(
                &known.services.follow(services),
                &known.addresses.follow(addresses),
                &plan::ranges(&ranges, &server.reader().list(NETWORKING, "servicecidrs", "")),
                now,
            );
            due = plan.again_at;
            tell(&recorder, &plan, &mut told);
            let is_whole = plan.actions.len() <= AT_ONCE;
            let done = carry_out(&client, plan.actions.into_iter().take(AT_ONCE)).await;
            // What failed, or was left, is looked at again.
            seen = (done && is_whole).then_some(state);
            if done && !is_whole && !shutdown.is_cancelled() {
                continue;
            }
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// When what the repair looks at changed last.
fn revisions(server: &ApiServer) -> [Revision; 3] {
    let reader = server.reader();
    [
        reader.changed("", "services"),
        reader.changed(NETWORKING, "ipaddresses"),
        reader.changed(NETWORKING, "servicecidrs"),
    ]
}

/// Services and IPAddresses as they fit together.
async fn snapshots(server: &ApiServer) -> (Objects, Objects) {
    let reader = server.reader();
    let of = |group, resource| reader.objects(group, resource).unwrap_or_default();
    let _at_rest = server.services_at_rest().await;
    (of("", "services"), of(NETWORKING, "ipaddresses"))
}

fn held(service: &Value) -> Held {
    let meta = |key| text(service, &["metadata", key]).to_owned();
    Held {
        namespace: meta("namespace"),
        name: meta("name"),
        uid: meta("uid"),
        addresses: held_addresses(service),
        ports: held_ports(service),
    }
}

/// Says what is new among what is wrong.
fn tell(recorder: &Recorder, plan: &Plan, told: &mut BTreeSet<(String, String)>) {
    let identity = |event: &EventText| (event.regarding.uid.clone().unwrap_or_default(), event.message.clone());
    for event in &plan.events {
        if !told.contains(&identity(event)) {
            tracing::warn!(reason = event.reason, "{}", event.message);
            recorder.record(event.clone());
        }
    }
    *told = plan.events.iter().map(identity).collect();
}

/// Whether all of it was done.
async fn carry_out(client: &kube::Client, actions: impl Iterator<Item = Action>) -> bool {
    let mut is_done = true;
    for action in actions {
        let (first, second) = action.requests();
        for (method, path, body) in [Some(first), second].into_iter().flatten() {
            let request = http::Request::builder()
                .method(method)
                .uri(path)
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(body.to_string().into_bytes())
                .expect("the path is made of names that need no escaping");
            match client.request::<Value>(request).await {
                Ok(_) => {}
                // Somebody was faster: the next look sees what there is.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => {
                    tracing::debug!(%error, "an IPAddress cannot be repaired now");
                    is_done = false;
                }
            }
        }
    }
    is_done
}
