//! The node's lease in kube-node-lease: the cheap sign of life, and the place where a second kubelet of this name shows.

use super::{NodeError, call};
use client::informer::Informer;
use client::{AsTree, Backoff, Clock, beat};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease as ApiLease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::PostParams;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const NAMESPACE: &str = "kube-node-lease";
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(7);
/// Own renewals remembered: one whose reply was lost is found on the lease later.
const ATTEMPTS_MAX: usize = 8;

pub(super) struct Lease {
    pub(super) client: kube::Client,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) node: String,
    /// `nodeLeaseDurationSeconds`.
    pub(super) seconds: i32,
    pub(super) informer: Informer<Node>,
    /// Seed of the waits between tries.
    pub(super) seed: u64,
    /// Counts how often the lease was found renewed by somebody else.
    pub(super) taken: watch::Sender<u32>,
}

impl Lease {
    /// Renews the lease at a quarter of its duration, for ever.
    pub(super) async fn keep(self) {
        let api: Api<AsTree<ApiLease>> = Api::namespaced(self.client.clone(), NAMESPACE);
        let every = Duration::from_secs(u64::try_from(self.seconds).unwrap_or(40)) / 4;
        let mut held: Option<AsTree<ApiLease>> = None;
        let mut attempts = Attempts::default();
        let mut backoff = Backoff::new(BACKOFF_FIRST, BACKOFF_MAX, self.seed);
        loop {
            match self.renew(&api, held.take(), &mut attempts).await {
                Ok(lease) => {
                    held = Some(lease);
                    backoff.reset();
                    beat::wait(every).await;
                }
                Err(error) => {
                    tracing::warn!(
                        node = self.node,
                        error = &error as &dyn std::error::Error,
                        "lease not renewed, retrying"
                    );
                    tokio::time::sleep(backoff.fail()).await;
                }
            }
        }
    }

    /// One renewal: over the lease we wrote last, else over the one that is there, else a new one.
    async fn renew(
        &self,
        api: &Api<AsTree<ApiLease>>,
        held: Option<AsTree<ApiLease>>,
        attempts: &mut Attempts,
    ) -> Result<AsTree<ApiLease>, NodeError> {
        let params = PostParams::default();
        let current = match held {
            Some(lease) => Some(lease),
            None => call("get lease", api.get_opt(&self.node)).await?,
        };
        let now = on_lease(self.clock.now());
        match current {
            Some(mut lease) => {
                self.look(&lease.0, attempts);
                self.fill(&mut lease.0, now);
                attempts.note(now);
                call("update lease", api.replace(&self.node, &params, &lease)).await
            }
            None => {
                let mut lease = ApiLease {
                    metadata: ObjectMeta {
                        name: Some(self.node.clone()),
                        namespace: Some(NAMESPACE.to_owned()),
                        ..ObjectMeta::default()
                    },
                    ..ApiLease::default()
                };
                self.fill(&mut lease, now);
                attempts.note(now);
                call("create lease", api.create(&params, &AsTree(lease))).await
            }
        }
    }

    /// Whether somebody else renewed the lease since we did.
    fn look(&self, lease: &ApiLease, attempts: &Attempts) {
        let spec = lease.spec.as_ref();
        let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
        let tolerance = SignedDuration::from_secs(self.seconds.into());
        if renewed.is_some_and(|renewed| attempts.is_anothers(renewed, tolerance)) {
            tracing::warn!(node = self.node, "the node's lease was renewed by another kubelet");
            self.taken.send_modify(|count| *count += 1);
        }
    }

    fn fill(&self, lease: &mut ApiLease, now: Timestamp) {
        if lease.metadata.owner_references.as_ref().is_none_or(Vec::is_empty)
            && let Some(uid) = self.informer.get("", &self.node).and_then(|n| n.metadata.uid.clone())
        {
            lease.metadata.owner_references = Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: self.node.clone(),
                uid,
                ..OwnerReference::default()
            }]);
        }
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.node.clone());
        spec.lease_duration_seconds = Some(self.seconds);
        spec.renew_time = Some(MicroTime(now));
    }
}

/// The time as a lease can carry it.
fn on_lease(now: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

/// The times this kubelet tried to put on the lease.
#[derive(Debug, Default)]
struct Attempts {
    times: VecDeque<Timestamp>,
}

impl Attempts {
    fn note(&mut self, time: Timestamp) {
        self.times.truncate(ATTEMPTS_MAX - 1);
        self.times.push_front(time);
    }

    /// Whether a lease renewed then was renewed by another: not by us, and not long before our own last renewal, which
    /// would be a store that was set back. The other's clock may be off by as much as the tolerance.
    fn is_anothers(&self, renewed: Timestamp, tolerance: SignedDuration) -> bool {
        let Some(last) = self.times.front() else {
            return false;
        };
        !self.times.contains(&renewed) && last.duration_since(renewed) < tolerance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_renewed_is_told_from_our_own_lost_replies_and_from_the_past() {
        let at = |second| Timestamp::from_second(second).expect("in range");
        let tolerance = SignedDuration::from_secs(40);
        let mut attempts = Attempts::default();
        assert!(!attempts.is_anothers(at(100), tolerance), "before our first");
        for second in [1000, 1010, 1020] {
            attempts.note(at(second));
        }
        assert!(!attempts.is_anothers(at(1020), tolerance));
        assert!(!attempts.is_anothers(at(1010), tolerance), "a reply was lost");
        assert!(attempts.is_anothers(at(1025), tolerance));
        assert!(attempts.is_anothers(at(1011), tolerance), "its clock is behind");
        assert!(!attempts.is_anothers(at(500), tolerance), "a store that was set back");
        for second in 0..100 {
            attempts.note(at(second));
        }
        assert!(attempts.times.len() <= ATTEMPTS_MAX);
    }

    #[test]
    fn a_time_survives_the_way_through_the_api() {
        let now = Timestamp::from_nanosecond(1_700_000_000_123_456_789).expect("in range");
        let put = on_lease(now);
        let text = serde_json::to_string(&MicroTime(put)).expect("JSON");
        let back: MicroTime = serde_json::from_str(&text).expect("a time");
        assert_eq!(back.0, put);
    }
}
