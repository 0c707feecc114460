//! The informers all controllers share: one per resource and process.

use super::execute::Applied;
use super::history::Revision;
use super::kept::Kept;
use super::pod;
use super::resource_quota::freed::Freed;
use super::well_known::{account_token, bootstrap_token, cluster_info, root_ca};
use super::write::{self, Resource};
use crate::held::{Node, Pod};
use client::informer::{Object, Options};
use client::{Informer, Key};
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Namespace, PersistentVolumeClaim, ReplicationController, ResourceQuota, Secret, Service,
    ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::api::ObjectMeta;
use kube::{Api, Client};
use std::sync::Arc;

/// An informer of any type of object: what can be asked of it without knowing the type.
pub trait AnyInformer: Send + Sync {
    /// Waits until the copy reflects a write.
    fn reflects<'a>(&'a self, applied: &'a Applied) -> BoxFuture<'a, ()>;
    /// Waits for the first list.
    fn synced(&self) -> BoxFuture<'_, ()>;
    /// A stream of changed metadata.
    fn metadata(&self) -> Box<dyn MetadataFeed>;
}

/// The change of one object's metadata.
#[derive(Clone, Debug)]
pub struct MetadataChange {
    /// The object's key.
    pub key: Key,
    /// Metadata of the object last seen, if any.
    pub old: Option<ObjectMeta>,
    /// Metadata of the object there now, if any.
    pub new: Option<ObjectMeta>,
}

/// A reader of metadata changes, of any resource.
pub trait MetadataFeed: Send {
    /// Waits for changes.
    fn next(&mut self) -> BoxFuture<'_, Vec<MetadataChange>>;
}

struct Feed<K>(client::informer::Subscription<K>);

impl<K: Object> MetadataFeed for Feed<K> {
    fn next(&mut self) -> BoxFuture<'_, Vec<MetadataChange>> {
        Box::pin(async {
            let meta = |o: Option<Arc<K>>| o.map(|o| o.meta().clone());
            let changes = self.0.next().await.into_iter();
            let changes = changes.map(|c| MetadataChange {
                key: c.key,
                old: meta(c.old),
                new: meta(c.new),
            });
            changes.collect()
        })
    }
}

/// Whether the object of that UID is gone from the copy, or being deleted.
fn is_deleted<K: Object>(informer: &Informer<K>, key: &Key, uid: &str) -> bool {
    informer.get_key(key).is_none_or(|object| {
        let meta = object.meta();
        meta.uid.as_deref() != Some(uid) || meta.deletion_timestamp.is_some()
    })
}

impl<K: Object> AnyInformer for Informer<K> {
    fn reflects<'a>(&'a self, applied: &'a Applied) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            match applied {
                Applied::At { revision, .. } => self.wait_for_revision(*revision).await,
                Applied::Deleted { key, uid, .. } => self.wait_until(|i| is_deleted(i, key, uid)).await,
            }
        })
    }

    fn synced(&self) -> BoxFuture<'_, ()> {
        Box::pin(Informer::synced(self))
    }

    fn metadata(&self) -> Box<dyn MetadataFeed> {
        Box::new(Feed(self.subscribe()))
    }
}

/// Whether things may still be made in a namespace.
pub fn is_open(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|s| s.phase.as_deref());
    namespace.metadata.deletion_timestamp.is_none() && phase != Some("Terminating")
}

/// The shared informers.
#[derive(Clone)]
pub struct Informers {
    /// pods, which are found by node, too
    pub pods: Informer<Pod>,
    /// nodes
    pub nodes: Informer<Node>,
    /// namespaces
    pub namespaces: Informer<Namespace>,
    /// serviceaccounts
    pub service_accounts: Informer<ServiceAccount>,
    /// The config maps named `kube-root-ca.crt`, and no others.
    pub root_cas: Informer<ConfigMap>,
    /// The config map `kube-public/cluster-info`, and no others.
    pub cluster_info: Informer<ConfigMap>,
    /// The Secrets that are bootstrap tokens, and no others.
    pub bootstrap_tokens: Informer<Secret>,
    /// The Secrets that hold tokens of service accounts, and no others.
    pub account_tokens: Informer<Secret>,
    /// The leases of nodes.
    pub node_leases: Informer<Lease>,
    /// deployments
    pub deployments: Informer<Deployment>,
    /// replicasets
    pub replica_sets: Informer<ReplicaSet>,
    /// statefulsets
    pub stateful_sets: Informer<StatefulSet>,
    /// daemonsets
    pub daemon_sets: Informer<DaemonSet>,
    /// controllerrevisions, their data as text
    pub revisions: Informer<Revision>,
    /// replicationcontrollers
    pub replication_controllers: Informer<ReplicationController>,
    /// persistentvolumeclaims
    pub claims: Informer<PersistentVolumeClaim>,
    /// resourceclaims; not every API server serves them, so nobody but those who need them waits for these two
    pub device_claims: Informer<ResourceClaim>,
    /// resourceclaimtemplates
    pub device_claim_templates: Informer<ResourceClaimTemplate>,
    /// poddisruptionbudgets
    pub budgets: Informer<PodDisruptionBudget>,
    /// horizontalpodautoscalers
    pub autoscalers: Informer<HorizontalPodAutoscaler>,
    /// jobs
    pub jobs: Informer<Job>,
    /// cronjobs
    pub cron_jobs: Informer<CronJob>,
    /// services
    pub services: Informer<Service>,
    /// endpoints
    pub endpoints: Informer<Endpoints>,
    /// endpointslices
    pub endpoint_slices: Informer<EndpointSlice>,
    /// certificatesigningrequests
    pub signing_requests: Informer<CertificateSigningRequest>,
    /// resourcequotas
    pub quotas: Informer<ResourceQuota>,
    /// Where it is said that objects of any kind went.
    pub freed: Freed,
    /// clusterroles
    pub cluster_roles: Informer<ClusterRole>,
    /// servicecidrs
    pub service_cidrs: Informer<ServiceCIDR>,
}

impl Informers {
    /// Starts all of them; of pods and nodes that much is kept.
    pub fn spawn(client: &Client, seed: u64, kept: Kept) -> Self {
        let mut seeds = seed;
        let mut options = |fields: &str| {
            seeds = seeds.wrapping_add(1);
            Options {
                labels: String::new(),
                fields: fields.to_owned(),
                seed: seeds,
            }
        };
        let one_root_ca = format!("metadata.name={}", root_ca::NAME);
        let one_cluster_info = format!("metadata.name={}", cluster_info::NAME);
        let only_tokens = format!("type={}", bootstrap_token::SECRET_TYPE);
        let only_account_tokens = format!("type={}", account_token::SECRET_TYPE);
        let quotas = Informer::spawn(Api::all(client.clone()), options(""));
        Self {
            freed: Freed::new(quotas.clone()),
            quotas,
            pods: kept.pods(client, options(""), pod::node_name),
            nodes: kept.nodes(client, options("")),
            namespaces: Informer::spawn(Api::all(client.clone()), options("")),
            service_accounts: Informer::spawn(Api::all(client.clone()), options("")),
            root_cas: Informer::spawn(Api::all(client.clone()), options(&one_root_ca)),
            cluster_info: Informer::spawn(
                Api::namespaced(client.clone(), cluster_info::NAMESPACE),
                options(&one_cluster_info),
            ),
            account_tokens: Informer::spawn(Api::all(client.clone()), options(&only_account_tokens)),
            bootstrap_tokens: Informer::spawn(
                Api::namespaced(client.clone(), bootstrap_token::NAMESPACE),
                options(&only_tokens),
            ),
            node_leases: Informer::spawn(Api::namespaced(client.clone(), "kube-node-lease"), options("")),
            deployments: Informer::spawn(Api::all(client.clone()), options("")),
            replica_sets: Informer::spawn(Api::all(client.clone()), options("")),
            stateful_sets: Informer::spawn(Api::all(client.clone()), options("")),
            daemon_sets: Informer::spawn(Api::all(client.clone()), options("")),
            revisions: Informer::spawn(Api::all(client.clone()), options("")),
            replication_controllers: Informer::spawn(Api::all(client.clone()), options("")),
            claims: Informer::spawn(Api::all(client.clone()), options("")),
            budgets: Informer::spawn(Api::all(client.clone()), options("")),
            device_claims: Informer::spawn(Api::all(client.clone()), options("")),
            device_claim_templates: Informer::spawn(Api::all(client.clone()), options("")),
            autoscalers: Informer::spawn(Api::all(client.clone()), options("")),
            jobs: Informer::spawn(Api::all(client.clone()), options("")),
            cron_jobs: Informer::spawn(Api::all(client.clone()), options("")),
            services: Informer::spawn(Api::all(client.clone()), options("")),
            endpoints: Informer::spawn(Api::all(client.clone()), options("")),
            endpoint_slices: Informer::spawn(Api::all(client.clone()), options("")),
            signing_requests: Informer::spawn(Api::all(client.clone()), options("")),
            cluster_roles: Informer::spawn(Api::all(client.clone()), options("")),
            service_cidrs: Informer::spawn(Api::all(client.clone()), options("")),
        }
    }

    /// Whether things may still be made in a namespace; one that is going away refuses them.
    pub fn takes_new(&self, namespace: &str) -> bool {
        let known = self.namespaces.get("", namespace);
        known.is_none_or(|n| is_open(&n))
    }

    /// Waits for the first list of every resource: a plan made before would take what has not been listed for absent.
    pub async fn synced(&self) {
        let all: [&dyn AnyInformer; 27] = [
            &self.pods,
            &self.nodes,
            &self.namespaces,
            &self.service_accounts,
            &self.root_cas,
            &self.cluster_info,
            &self.bootstrap_tokens,
            &self.account_tokens,
            &self.node_leases,
            &self.deployments,
            &self.replica_sets,
            &self.stateful_sets,
            &self.daemon_sets,
            &self.revisions,
            &self.replication_controllers,
            &self.claims,
            &self.budgets,
            &self.autoscalers,
            &self.jobs,
            &self.cron_jobs,
            &self.services,
            &self.endpoints,
            &self.endpoint_slices,
            &self.signing_requests,
            &self.quotas,
            &self.cluster_roles,
            &self.service_cidrs,
        ];
        futures::future::join_all(all.iter().map(|informer| informer.synced())).await;
    }

    /// The shared informer of a whole resource, if there is one.
    pub fn informer_of(&self, resource: &Resource) -> Option<&dyn AnyInformer> {
        let known: [(&Resource, &dyn AnyInformer); 23] = [
            (&write::PODS, &self.pods),
            (&write::NODES, &self.nodes),
            (&write::NAMESPACES, &self.namespaces),
            (&write::SERVICE_ACCOUNTS, &self.service_accounts),
            (&write::DEPLOYMENTS, &self.deployments),
            (&write::REPLICA_SETS, &self.replica_sets),
            (&write::STATEFUL_SETS, &self.stateful_sets),
            (&write::DAEMON_SETS, &self.daemon_sets),
            (&write::CONTROLLER_REVISIONS, &self.revisions),
            (&write::REPLICATION_CONTROLLERS, &self.replication_controllers),
            (&write::CLAIMS, &self.claims),
            (&write::DEVICE_CLAIMS, &self.device_claims),
            (&write::BUDGETS, &self.budgets),
            (&write::AUTOSCALERS, &self.autoscalers),
            (&write::JOBS, &self.jobs),
            (&write::CRON_JOBS, &self.cron_jobs),
            (&write::SERVICES, &self.services),
            (&write::ENDPOINTS, &self.endpoints),
            (&write::ENDPOINT_SLICES, &self.endpoint_slices),
            (&write::SIGNING_REQUESTS, &self.signing_requests),
            (&write::RESOURCE_QUOTAS, &self.quotas),
            (&write::CLUSTER_ROLES, &self.cluster_roles),
            (&write::SERVICE_CIDRS, &self.service_cidrs),
        ];
        known
            .into_iter()
            .find(|(r, _)| *r == resource)
            .map(|(_, informer)| informer)
    }

    /// Waits until the copies reflect a write. Writes of resources without a copy need no waiting.
    pub async fn reflect(&self, resource: &Resource, applied: &Applied) {
        let key = applied.key();
        if *resource == write::CONFIG_MAPS {
            if key.name == root_ca::NAME {
                self.root_cas.reflects(applied).await;
            } else if key.namespace == cluster_info::NAMESPACE && key.name == cluster_info::NAME {
                self.cluster_info.reflects(applied).await;
            }
        } else if *resource == write::SECRETS && self.account_tokens.get_key(key).is_some() {
            self.account_tokens.reflects(applied).await;
        } else if *resource == write::SECRETS && key.name.starts_with(bootstrap_token::NAME_PREFIX) {
            self.bootstrap_tokens.reflects(applied).await;
        } else if let Some(informer) = self.informer_of(resource) {
            informer.reflects(applied).await;
        }
    }
}
