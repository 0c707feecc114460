//! How fast a scheduler binds what waits for it: plain pods that are all there before it begins, so that no client's pace is measured.
//!
//! Two steps, because the control plane is another one in each: the pods are made while there is no scheduler, and one that has just
//! started is watched.

use super::{Costs, LEASES, Plan, bound_beside, each, make_pod, prepare, register, renew, row, tell_memory, workload};
use crate::connect;
use crate::processes::Group;
use anyhow::Context;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use std::path::Path;
use std::time::Instant;

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Pending {
    /// Nodes and pods; nobody schedules yet.
    Make,
    /// The pods are bound.
    Watch,
}

/// Does the step, with the control plane that there is.
///
/// # Errors
/// If a request fails, or nodes or pods are not ready in time.
pub(crate) async fn pending(kubeconfig: &Path, server: Group, plan: Plan, step: Pending) -> anyhow::Result<()> {
    let client = connect::client(kubeconfig).await?;
    match step {
        Pending::Make => make(&client, &plan).await,
        Pending::Watch => watch(&client, &[server, Group::own()], &plan).await,
    }
}

async fn make(client: &Client, plan: &Plan) -> anyhow::Result<()> {
    let (nodes, (count, kind)) = (plan.workload.nodes, plan.workload.measured);
    println!("pending: {nodes} nodes, {count} pods before the scheduler begins");
    let begun = Instant::now();
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    let pods: Api<Pod> = Api::namespaced(client.clone(), workload::MEASURED);
    tokio::select! {
        biased;
        failed = renew(&leases, nodes, begun) => failed.context("renewing leases"),
        done = async {
            register(client, plan, begun).await?;
            // Nobody is there who would bind a pod before.
            let mut workload = plan.workload;
            workload.first.0 = 0;
            prepare(client, &workload).await.context("what is there before")?;
            let begun = Instant::now();
            each(count, |n| make_pod(&pods, kind, n)).await.context("creating pods")?;
            row("pods created", count, begun.elapsed());
            anyhow::Ok(())
        } => done,
    }
}

/// Only pods that get their node after the first look count, and only the time from before it.
async fn watch(client: &Client, groups: &[Group; 2], plan: &Plan) -> anyhow::Result<()> {
    let (nodes, (count, _)) = (plan.workload.nodes, plan.workload.measured);
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    let pods: Api<Pod> = Api::namespaced(client.clone(), workload::MEASURED);
    let start = Costs::of(client, groups).await?;
    let begun = Instant::now();
    let bound = pods
        .list_metadata(&ListParams::default().fields("spec.nodeName!="))
        .await?;
    let from = bound.metadata.resource_version.unwrap_or_default();
    let before: Vec<_> = bound.items.iter().map(|pod| Some(pod.name_any())).collect();
    let left = count - before.len();
    anyhow::ensure!(left > 0, "all pods had their nodes before the first look");
    tokio::select! {
        biased;
        failed = renew(&leases, nodes, begun) => failed.context("renewing leases"),
        done = async {
            let bound = bound_beside(&pods, count, from, before.into_iter().collect()).await?;
            let end = Costs::of(client, groups).await?;
            row("pods bound", left, bound.duration_since(begun));
            end.tell_since(&start, left);
            tell_memory(&groups[0])
        } => done,
    }
}
