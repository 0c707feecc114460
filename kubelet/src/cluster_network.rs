//! The cluster's network on this node: which of its parts run in this kubelet ([`crate::config::ClusterNetwork`]), what they follow and
//! whom they tell.
//!
//! Owns the informers the parts share, and that a part which cannot begin is told on the node and tried again. Decides nothing
//! about packets, names or rules: the crates `proxy`, `dns`, `overlay` and `policy` do.

mod events;
mod parts;
mod search;
mod settings;

use crate::config::Config;
use crate::events::Severity;
use crate::parts::Parts;
use crate::reason::event;
use client::backoff::Backoff;
use client::informer::{Informer, Object, Options};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long a part that could not begin is left alone, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// What a part is made of when it begins, again and again.
type Begin = Box<dyn Fn(CancellationToken) -> BoxFuture<'static, Result<(), String>> + Send>;

/// What parts begin with.
struct Given {
    parts: Arc<Parts>,
    config: Arc<Config>,
    client: kube::Client,
    /// This node, and with a backend all the others.
    nodes: Informer<Node>,
    /// Services and EndpointSlices, for proxy and DNS alike.
    services: Option<(Informer<Service>, Informer<EndpointSlice>)>,
}

impl Given {
    fn all<K>(&self) -> Informer<K>
    where
        K: Object + kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        client::AsTree<K>: Object + kube::Resource<DynamicType = ()>,
    {
        Informer::spawn_as_tree(Api::all(self.client.clone()), self.options(""))
    }

    fn options(&self, fields: &str) -> Options {
        Options {
            fields: fields.to_owned(),
            seed: self.parts.seed,
            ..Options::default()
        }
    }
}

/// Begins what the configuration asks for; each part ends with `stop`. What they made in the kernel stays: traffic goes on without
/// a kubelet ([`remove`] takes it away).
pub fn start(parts: &Arc<Parts>, config: &Arc<Config>, tasks: &mut JoinSet<()>, stop: &CancellationToken) {
    let network = &config.cluster_network;
    let Some(client) = parts.client.clone() else { return };
    if !network.is_any() {
        return;
    }
    let own = format!("metadata.name={}", parts.context.node_name);
    let options = Options {
        fields: if network.backend.is_some() { String::new() } else { own },
        seed: parts.seed,
        ..Options::default()
    };
    let mut given = Given {
        parts: parts.clone(),
        config: config.clone(),
        nodes: Informer::spawn_as_tree(Api::all(client.clone()), options),
        client,
        services: None,
    };
    if network.proxy || network.dns {
        given.services = Some((given.all(), given.all()));
    }
    let given = Arc::new(given);
    let mut begin = |is_wanted: bool, what, part: fn(&Arc<Given>) -> Begin| {
        if is_wanted {
            tasks.spawn(keep(what, parts.clone(), part(&given), stop.clone()).boxed());
        }
    };
    begin(network.backend.is_some(), "pod network", parts::overlay);
    begin(network.proxy, "Service proxy", parts::proxy);
    begin(network.dns, "cluster DNS", parts::dns);
    begin(network.policies, "network policies", parts::policies);
}

/// Runs a part until `stop`. One that cannot begin is told and tried again: what it lacks may come.
async fn keep(what: &'static str, parts: Arc<Parts>, begin: Begin, stop: CancellationToken) {
    let mut backoff = Backoff::new(RETRY.0, RETRY.1, parts.seed);
    loop {
        let Err(why) = begin(stop.clone()).await else { return };
        tracing::error!(why, "{what} does not run on this node");
        let message = format!("{what} does not run: {why}");
        let node = &parts.context.node_name;
        parts
            .recorder
            .node(node, Severity::Warning, event::CLUSTER_NETWORK, message);
        if stop
            .run_until_cancelled(tokio::time::sleep(backoff.fail()))
            .await
            .is_none()
        {
            return;
        }
    }
}

/// Takes away what the parts made in the kernel, whichever of them ran. Blocks on netlink, but for the policies' table.
///
/// # Errors
/// What could not be removed, in words; the rest is.
pub async fn remove() -> Result<(), Vec<String>> {
    let policies = policy::remove(&policy::settings::Settings::default()).await;
    let outcomes = [
        proxy::apply::remove().map_err(|error| settings::chain(&error)),
        proxy::node_ports::remove(),
        dns::remove().map_err(|error| settings::chain(&error)),
        overlay::remove(settings::VNI),
        policies.map_err(|error| settings::chain(&error)),
    ];
    let failures: Vec<String> = outcomes.into_iter().filter_map(Result::err).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

#[cfg(test)]
mod tests;
