//! What the scheduler reads: exactly what its role (`system:kube-scheduler`) lets it read.

use crate::controller::informers::{AnyInformer, Informers};
use crate::controller::kept::Kept;
use crate::held::{Node, Pod};
use client::Informer;
use client::informer::{Object, Options};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, ReplicationController, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, Client};

/// Copies of what it reads, shared with whoever else in the process reads them.
#[derive(Clone)]
pub struct Sources {
    /// pods
    pub pods: Informer<Pod>,
    /// nodes
    pub nodes: Informer<Node>,
    /// namespaces
    pub namespaces: Informer<Namespace>,
    /// poddisruptionbudgets
    pub budgets: Informer<PodDisruptionBudget>,
    /// services
    pub services: Informer<Service>,
    /// replicationcontrollers
    pub replication_controllers: Informer<ReplicationController>,
    /// replicasets
    pub replica_sets: Informer<ReplicaSet>,
    /// statefulsets
    pub stateful_sets: Informer<StatefulSet>,
}

impl From<&Informers> for Sources {
    fn from(shared: &Informers) -> Self {
        Self {
            pods: shared.pods.clone(),
            nodes: shared.nodes.clone(),
            namespaces: shared.namespaces.clone(),
            budgets: shared.budgets.clone(),
            services: shared.services.clone(),
            replication_controllers: shared.replication_controllers.clone(),
            replica_sets: shared.replica_sets.clone(),
            stateful_sets: shared.stateful_sets.clone(),
        }
    }
}

/// One informer of all objects, with a seed of its own.
fn all<K>(client: &Client, seed: &mut u64) -> Informer<K>
where
    K: Object,
    K::DynamicType: Default,
{
    Informer::spawn(Api::all(client.clone()), seeded(seed))
}

/// Options with a seed of their own.
fn seeded(seed: &mut u64) -> Options {
    *seed = seed.wrapping_add(1);
    Options {
        seed: *seed,
        ..Options::default()
    }
}

impl Sources {
    /// Starts copies of its own, for a scheduler without controllers beside it; of pods and nodes that much is kept.
    pub fn spawn(client: &Client, seed: u64, kept: Kept) -> Self {
        let mut seed = seed;
        Self {
            pods: kept.pods(client, seeded(&mut seed), |_| ""),
            nodes: kept.nodes(client, seeded(&mut seed)),
            namespaces: all(client, &mut seed),
            budgets: all(client, &mut seed),
            services: all(client, &mut seed),
            replication_controllers: all(client, &mut seed),
            replica_sets: all(client, &mut seed),
            stateful_sets: all(client, &mut seed),
        }
    }

    /// Waits for the first list of each: a pod placed before could be placed by half of the truth.
    pub async fn synced(&self) {
        let every: [&dyn AnyInformer; 8] = [
            &self.pods,
            &self.nodes,
            &self.namespaces,
            &self.budgets,
            &self.services,
            &self.replication_controllers,
            &self.replica_sets,
            &self.stateful_sets,
        ];
        futures::future::join_all(every.iter().map(|informer| informer.synced())).await;
    }
}
