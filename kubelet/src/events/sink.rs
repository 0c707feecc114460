//! Writes correlated events to the API server, one after another, at most `eventRecordQPS` of them a second.

use super::correlate::{Correlator, Raw, Write};
use client::AsTree;
use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Deadline of one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Tries per event; after that it is lost (events are best effort).
const TRIES: u32 = 12;
/// How fast events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// `eventRecordQPS`; 0 means no bound.
    pub per_second: u32,
    /// `eventBurst`.
    pub burst: u32,
}

impl Default for Rate {
    /// Upstream's defaults (kubelet contract §1).
    fn default() -> Self {
        Self {
            per_second: 50,
            burst: 100,
        }
    }
}

/// The writing end of a [`super::Recorder`].
pub struct Sink {
    node_name: String,
    client: Option<kube::Client>,
    queue: mpsc::Receiver<Raw>,
    correlator: Correlator,
    rng: StdRng,
    rate: Rate,
    tokens: f64,
    refilled: Instant,
}

impl Sink {
    pub(super) fn new(
        node_name: &str,
        client: Option<kube::Client>,
        queue: mpsc::Receiver<Raw>,
        rate: Rate,
        seed: u64,
    ) -> Self {
        Self {
            node_name: node_name.to_owned(),
            client,
            queue,
            correlator: Correlator::default(),
            rng: StdRng::seed_from_u64(seed),
            tokens: f64::from(rate.burst),
            rate,
            refilled: Instant::now(),
        }
    }

    /// Writes until every recorder is gone. Cancel safe between events.
    pub async fn run(mut self) {
        while let Some(raw) = self.queue.recv().await {
            let Some(write) = self.correlator.admit(&raw) else {
                tracing::debug!(reason = raw.reason, "event suppressed: its object has had too many");
                continue;
            };
            tracing::info!(
                object = raw.object.name.as_deref().unwrap_or_default(),
                reason = raw.reason,
                message = write.message,
                "event"
            );
            self.pace().await;
            if let Some(client) = self.client.clone() {
                self.write(&client, &raw, &write).await;
            }
        }
    }

    async fn pace(&mut self) {
        if self.rate.per_second == 0 {
            return;
        }
        let (now, per_second) = (Instant::now(), f64::from(self.rate.per_second));
        // Less than one at a time would be none at all.
        let burst = f64::from(self.rate.burst.max(1));
        self.tokens = (self.tokens + (now - self.refilled).as_secs_f64() * per_second).min(burst);
        self.refilled = now;
        if self.tokens < 1.0 {
            tokio::time::sleep(Duration::from_secs_f64((1.0 - self.tokens) / per_second)).await;
            self.refilled = Instant::now();
            self.tokens = 1.0;
        }
        self.tokens -= 1.0;
    }

    async fn write(&mut self, client: &kube::Client, raw: &Raw, write: &Write) {
        // Events about things without a namespace live in `default`.
        let namespace = raw.object.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let api: Api<AsTree<Event>> = Api::namespaced(client.clone(), &namespace);
        for attempt in 0..TRIES {
            match tokio::time::timeout(WRITE_TIMEOUT, self.send(&api, &namespace, raw, write)).await {
                Ok(Ok(())) => return,
                Ok(Err(kube::Error::Api(status))) if (400..500).contains(&status.code) && status.code != 429 => {
                    if status.code == 404 && write.count > 1 {
                        self.correlator.disown(&write.name);
                    }
                    tracing::debug!(reason = raw.reason, error = %status, "event refused");
                    return;
                }
                Ok(Err(error)) => tracing::debug!(reason = raw.reason, %error, "event not written, retrying"),
                Err(_) => tracing::debug!(reason = raw.reason, "event not written in time, retrying"),
            }
            let base = Duration::from_millis(500u64 << attempt.min(5));
            tokio::time::sleep(base.mul_f64(0.5 + self.rng.random::<f64>())).await;
        }
        tracing::warn!(reason = raw.reason, "event lost: the API server did not take it");
    }

    async fn send(
        &self,
        api: &Api<AsTree<Event>>,
        namespace: &str,
        raw: &Raw,
        write: &Write,
    ) -> Result<(), kube::Error> {
        let last = Time(raw.at);
        if write.count > 1 {
            let patch = json!({"count": write.count, "lastTimestamp": last, "message": write.message});
            api.patch(&write.name, &PatchParams::default(), &Patch::Strategic(patch))
                .await?;
            return Ok(());
        }
        let event = AsTree(Event {
            metadata: ObjectMeta {
                name: Some(write.name.clone()),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: raw.object.clone(),
            reason: Some(raw.reason.to_owned()),
            message: Some(write.message.clone()),
            type_: Some(raw.severity.as_str().to_owned()),
            source: Some(EventSource {
                component: Some("kubelet".into()),
                host: Some(self.node_name.clone()),
            }),
            first_timestamp: Some(Time(write.first)),
            last_timestamp: Some(last),
            count: Some(write.count),
            reporting_component: Some("kubelet".into()),
            reporting_instance: Some(self.node_name.clone()),
            ..Event::default()
        });
        match api.create(&PostParams::default(), &event).await {
            // A lost reply: it is there.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop),
        }
    }
}
