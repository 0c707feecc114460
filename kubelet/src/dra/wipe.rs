//! Removes the ResourceSlices of this node that no driver stands behind any more, so that no pod is sent here for devices nobody can
//! prepare: all of them when the kubelet starts, and a driver's once it is gone for a while (kubelet contract §8).

use super::drivers::Drivers;
use crate::wake;
use client::Backoff;
use futures::FutureExt;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a driver may be away before its slices go.
pub(super) const AWAY: Duration = Duration::from_secs(30);
/// How long one deletion may take.
const DELETE: Duration = Duration::from_secs(30);

/// How far a driver's absence is.
#[derive(Debug)]
enum Absence {
    Since(Instant),
    Wiping(AbortHandle),
}

/// Runs until shut down.
pub(super) async fn run(client: kube::Client, node: String, drivers: Drivers, shutdown: CancellationToken) {
    let mut usable = drivers.usable();
    let mut away: BTreeMap<String, Absence> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(wipe(client.clone(), node.clone(), String::new()).boxed());
    loop {
        let known = usable.borrow_and_update().clone();
        away.retain(|name, absence| {
            let stays = known.get(name) == Some(&false);
            if let (false, Absence::Wiping(task)) = (stays, absence) {
                task.abort();
            }
            stays
        });
        let now = Instant::now();
        for name in known.iter().filter(|(_, usable)| !**usable).map(|(name, _)| name) {
            let absence = away.entry(name.clone()).or_insert(Absence::Since(now));
            if let Absence::Since(since) = absence
                && *since + AWAY <= now
            {
                tracing::info!(driver = name, "a DRA driver is gone, and its ResourceSlices go");
                let task = tasks.spawn(wipe(client.clone(), node.clone(), name.clone()).boxed());
                *absence = Absence::Wiping(task);
            }
        }
        let due = away.values().filter_map(|absence| match absence {
            Absence::Since(since) => Some(*since + AWAY),
            Absence::Wiping(_) => None,
        });
        let due = due.min();
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                if let Ok(name) = ended {
                    drivers.forget(&name);
                }
            }
            Ok(()) = usable.changed() => {}
            () = wake::at(due) => {}
        }
    }
}

/// Deletes slices until that worked; of all drivers if none is named. Gives the name back.
async fn wipe(client: kube::Client, node: String, driver: String) -> String {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300), 0);
    loop {
        match delete(&client, &node, &driver).await {
            Ok(()) => return driver,
            Err(error) => tracing::debug!(driver, error, "deleting ResourceSlices failed, trying again"),
        }
        tokio::time::sleep(backoff.fail()).await;
    }
}

async fn delete(client: &kube::Client, node: &str, driver: &str) -> Result<(), String> {
    let of_driver = match driver {
        "" => String::new(),
        name => format!("%2Cspec.driver%3D{name}"),
    };
    let place = format!("/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3D{node}{of_driver}");
    let request = http::Request::delete(place).body(Vec::new());
    let request = request.map_err(|error| error.to_string())?;
    match tokio::time::timeout(DELETE, client.request_text(request)).await {
        Ok(Ok(_)) => Ok(()),
        // A server without the resource has none.
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it takes too long".to_owned()),
    }
}
