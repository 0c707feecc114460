//! The node's lease in kube-node-lease: the cheap sign of life.

use super::{NodeError, call};
use client::informer::Informer;
use client::{AsTree, Clock};
use k8s_openapi::api::coordination::v1::{Lease as ApiLease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::PostParams;
use std::sync::Arc;
use std::time::Duration;

const NAMESPACE: &str = "kube-node-lease";
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(7);

pub(super) struct Lease {
    pub(super) client: kube::Client,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) node: String,
    /// `nodeLeaseDurationSeconds`.
    pub(super) seconds: i32,
    pub(super) informer: Informer<Node>,
}

impl Lease {
    /// Renews the lease at a quarter of its duration, for ever.
    pub(super) async fn keep(self) {
        let api: Api<AsTree<ApiLease>> = Api::namespaced(self.client.clone(), NAMESPACE);
        let every = Duration::from_secs(u64::try_from(self.seconds).unwrap_or(40)) / 4;
        let mut held: Option<AsTree<ApiLease>> = None;
        let mut backoff = BACKOFF_FIRST;
        loop {
            match self.renew(&api, held.take()).await {
                Ok(lease) => {
                    held = Some(lease);
                    backoff = BACKOFF_FIRST;
                    tokio::time::sleep(every).await;
                }
                Err(error) => {
                    tracing::warn!(
                        node = self.node,
                        error = &error as &dyn std::error::Error,
                        "lease not renewed, retrying"
                    );
                    tokio::time::sleep(backoff).await;
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
            }
        }
    }

    /// One renewal: over the lease we wrote last, else over the one that is there, else a new one.
    async fn renew(
        &self,
        api: &Api<AsTree<ApiLease>>,
        held: Option<AsTree<ApiLease>>,
    ) -> Result<AsTree<ApiLease>, NodeError> {
        let params = PostParams::default();
        let current = match held {
            Some(lease) => Some(lease),
            None => call("get lease", api.get_opt(&self.node)).await?,
        };
        match current {
            Some(mut lease) => {
                self.fill(&mut lease.0);
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
                self.fill(&mut lease);
                call("create lease", api.create(&params, &AsTree(lease))).await
            }
        }
    }

    fn fill(&self, lease: &mut ApiLease) {
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
        spec.renew_time = Some(MicroTime(self.clock.now()));
    }
}
