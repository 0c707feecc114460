//! Writes correlated events to the API server, one after another, at most `eventRecordQPS` of them a second.

use super::correlate::{Correlator, Raw, Write};
use crate::rate::{Bucket, Rate};
use client::{Backoff, tree};
use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Deadline of one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Tries per event an API server may turn down; after that it is lost (events are best effort).
const TRIES: u32 = 12;
/// How long an event waits for an API server that does not answer. Those behind it wait in the queue, which is bounded.
const AWAY_MAX: Duration = Duration::from_secs(1800);
/// The first and the longest wait between tries.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(16);

/// Whether the API server itself turned an event down, rather than being away, behind a gateway or not.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if !matches!(status.code, 502..=504))
}

/// The writing end of a [`super::Recorder`].
pub struct Sink {
    node_name: String,
    client: Option<kube::Client>,
    queue: mpsc::Receiver<Raw>,
    correlator: Correlator,
    rng: StdRng,
    bucket: Bucket,
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
            bucket: Bucket::new(rate),
        }
    }

    /// What was recorded and not written yet: reasons and messages.
    #[cfg(test)]
    pub(crate) fn waiting(&mut self) -> Vec<(String, String)> {
        let raws = std::iter::from_fn(|| self.queue.try_recv().ok());
        raws.map(|raw| (raw.reason, raw.message)).collect()
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
        while let Err(wait) = self.bucket.take(Instant::now()) {
            tokio::time::sleep(wait).await;
        }
    }

    async fn write(&mut self, client: &kube::Client, raw: &Raw, write: &Write) {
        // Events about things without a namespace live in `default`.
        let namespace = raw.object.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let begun = Instant::now();
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX, self.rng.random());
        let mut refusals = 0;
        while refusals < TRIES && begun.elapsed() < AWAY_MAX {
            match tokio::time::timeout(WRITE_TIMEOUT, self.send(client, &namespace, raw, write)).await {
                Ok(Ok(())) => return,
                Ok(Err(kube::Error::Api(status))) if (400..500).contains(&status.code) && status.code != 429 => {
                    if status.code == 404 && write.count > 1 {
                        self.correlator.disown(write);
                    }
                    tracing::debug!(reason = raw.reason, error = %status, "event refused");
                    return;
                }
                Ok(Err(error)) => {
                    refusals += u32::from(is_refusal(&error));
                    tracing::debug!(reason = raw.reason, %error, "event not written, retrying");
                }
                Err(_) => tracing::debug!(reason = raw.reason, "event not written in time, retrying"),
            }
            tokio::time::sleep(backoff.fail()).await;
        }
        tracing::warn!(reason = raw.reason, "event lost: the API server did not take it");
    }

    async fn send(&self, client: &kube::Client, namespace: &str, raw: &Raw, write: &Write) -> Result<(), kube::Error> {
        let last = Time(raw.at);
        if write.count > 1 {
            let patch = json!({"count": write.count, "lastTimestamp": last, "message": write.message});
            let patched = tree::patch::<Event>(client, namespace, &write.name, patch);
            return patched.await.map(drop);
        }
        let event = Event {
            metadata: ObjectMeta {
                name: Some(write.name.clone()),
                namespace: Some(namespace.to_owned()),
                annotations: Some(raw.annotations.clone()).filter(|annotations| !annotations.is_empty()),
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
        };
        match tree::create(client, &event).await {
            // A lost reply: it is there.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop),
        }
    }
}
