//! How each part begins: what it follows, and whom it tells.

use super::{Begin, Given, events, search, settings};
use client::{AsTree, Informer};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use netlink::cidr::Cidr;
use policy::last::Last;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub(super) fn proxy(given: &Arc<Given>) -> Begin {
    let given = given.clone();
    Box::new(move |stop| {
        let given = given.clone();
        Box::pin(async move {
            let file = proxy_file(&given).await?;
            let config = settings::proxy(&given.config.cluster_network, file.as_deref())?;
            config
                .warnings
                .iter()
                .for_each(|warning| tracing::warn!("Service proxy: {warning}"));
            let (services, slices) = given.services.clone().ok_or("it follows no Services")?;
            let informers = proxy::serve::Informers {
                nodes: given.nodes.clone(),
                rules: proxy::run::Sources { services, slices },
                service_cidrs: Informer::spawn_as_tree(kube::Api::all(given.client.clone()), given.options("")),
            };
            let recorder = given.parts.recorder.clone();
            let tell = Arc::new(move |told| events::of_proxy(&recorder, &told));
            let node = &given.parts.context.node_name;
            let ended = proxy::serve::run(&config, node, informers, tell, stop).await;
            ended.map_err(|error| settings::chain(&error))
        })
    })
}

/// What the proxy's file says, if it has one.
async fn proxy_file(given: &Given) -> Result<Option<String>, String> {
    let Some(path) = given.config.cluster_network.proxy_config.clone() else {
        return Ok(None);
    };
    let read = client::blocking::spawn(move || {
        let text = std::fs::read_to_string(&path);
        text.map_err(|error| format!("--service-proxy-config {}: {error}", path.display()))
    });
    read.await.map_err(|error| settings::chain(&error))?.map(Some)
}

pub(super) fn dns(given: &Arc<Given>) -> Begin {
    let given = given.clone();
    let metrics = given.parts.metrics.dns.get_or_init(Arc::default).clone();
    Box::new(move |stop| {
        let (given, metrics) = (given.clone(), metrics.clone());
        Box::pin(async move {
            let settings = settings::dns(&given.config)?;
            let (services, slices) = given.services.clone().ok_or("it follows no Services")?;
            let namespaces = namespaces(&given);
            let with_search = given.config.cluster_network.autopath;
            let sources = dns::Sources {
                services,
                slices,
                namespaces,
                pods: None,
                search: with_search.then(|| search::paths(&given.parts, given.config.dns.resolv_conf.clone())),
                known: Some(search::known(&given.parts)),
            };
            let ended = dns::run(sources, settings, metrics.clone(), stop).await;
            ended.map_err(|error| settings::chain(&error))
        })
    })
}

fn namespaces(given: &Given) -> Informer<Namespace> {
    let api = kube::Api::all(given.client.clone());
    Informer::spawn_as_tree(api, given.options(""))
}

pub(super) fn overlay(given: &Arc<Given>) -> Begin {
    let given = given.clone();
    Box::new(move |stop| {
        let given = given.clone();
        Box::pin(async move {
            let node = given.parts.context.node_name.clone();
            let settings = settings::overlay(&given.config, &node).ok_or("there is no backend")?;
            let recorder = given.parts.recorder.clone();
            let sources = overlay::Sources {
                nodes: given.nodes.clone(),
                clock: given.parts.clock.clone(),
                notices: Box::new(move |notice| events::of_overlay(&recorder, &node, notice)),
                mtu: given.parts.pod_mtu.clone(),
                seed: given.parts.seed,
            };
            let ended = overlay::run(sources, given.client.clone(), settings, stop).await;
            ended.map_err(|error| settings::chain(&error))
        })
    })
}

pub(super) fn policies(given: &Arc<Given>) -> Begin {
    let given = given.clone();
    Box::new(move |stop| {
        let given = given.clone();
        Box::pin(async move {
            by_the_last(&given, &stop).await;
            if stop.is_cancelled() {
                return Ok(());
            }
            let node = given.parts.context.node_name.clone();
            let mut ranges = ranges(&given.nodes, &node);
            // Which addresses are held back until they are known depends on the node's ranges: with others all begins anew.
            while !stop.is_cancelled() {
                let inside = stop.child_token();
                let mut enforcing = pin!(enforce(&given, ranges.clone(), inside.clone()));
                let others = tokio::select! {
                    biased;
                    ended = &mut enforcing => return ended,
                    others = other_ranges(&given.nodes, &node, &ranges) => others,
                };
                inside.cancel();
                enforcing.await?;
                ranges = others;
            }
            Ok(())
        })
    })
}

/// Where it is kept what was known of policies last.
fn last(given: &Given) -> PathBuf {
    given.config.paths.root_dir.join("network_policies_state")
}

/// Until the cluster can be read: goes by what was known of it last, if anything was.
async fn by_the_last(given: &Arc<Given>, stop: &CancellationToken) {
    let (inside, gate) = (stop.child_token(), given.parts.gate.clone());
    let (Some(last), Some(gate)) = (Last::read(&last(given)), gate) else {
        stop.run_until_cancelled(given.nodes.synced()).await;
        return;
    };
    let settings = policy::settings::Settings::default();
    let going = policy::run_by_the_last(last, settings, gate, inside.clone());
    let reading = async {
        stop.run_until_cancelled(given.nodes.synced()).await;
        inside.cancel();
    };
    tokio::join!(going, reading);
}

/// Enforces policies on a node of these ranges until `stop`.
async fn enforce(given: &Arc<Given>, pod_cidrs: Vec<Cidr>, stop: CancellationToken) -> Result<(), String> {
    let parts = &given.parts;
    let node = parts.context.node_name.clone();
    let gate = parts.gate.clone().ok_or("there is no gate")?;
    let settings = policy::settings::Settings {
        node_name: node.clone(),
        pod_cidrs,
        last: Some(last(given)),
        ..policy::settings::Settings::default()
    };
    let (of_pods, of_namespaces) = (given.clone(), given.clone());
    let sources = policy::Sources {
        policies: given.all(),
        pods: Box::new(move || {
            let pods = kube::Api::<AsTree<Pod>>::all(of_pods.client.clone());
            Informer::spawn_trimmed(pods, of_pods.options(""), policy::facts::trim)
        }),
        namespaces: Box::new(move || namespaces(&of_namespaces)),
    };
    let recorder = parts.recorder.clone();
    let observer = Arc::new(move |notice: &_| events::of_policies(&recorder, &node, notice));
    let ended = policy::run(sources, settings, gate, observer, stop).await;
    ended.map_err(|error| settings::chain(&error))
}

/// The ranges of this node's pods, as far as they are known.
fn ranges(nodes: &Informer<Node>, name: &str) -> Vec<Cidr> {
    let texts = nodes.get("", name).map(|node| crate::node::pod_cidrs(&node));
    let texts = texts.unwrap_or_default();
    texts.iter().filter_map(|text| Cidr::parse(text).ok()).collect()
}

/// Waits until they are others. A node that is gone, or has none, keeps what it had.
async fn other_ranges(nodes: &Informer<Node>, name: &str, before: &[Cidr]) -> Vec<Cidr> {
    let others = || Some(ranges(nodes, name)).filter(|now| !now.is_empty() && now != before);
    nodes.wait_until(|_| others().is_some()).await;
    others().unwrap_or_else(|| before.to_vec())
}
