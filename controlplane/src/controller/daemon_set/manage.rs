//! Every fit node has its one pod, and no other has any; what failed is deleted so that it is made anew. Pure.

use super::View;
use super::backoff::{self, Backoffs};
use super::rolling;
use crate::controller::history::REVISION_LABEL;
use crate::controller::pod;
use crate::controller::write::{self, EventText, Plan, event};
use crate::held::Pod;
use std::sync::Arc;
use std::time::Duration;

#[derive(Default)]
struct Wanted {
    delete: Vec<Arc<Pod>>,
    create_on: Vec<String>,
    events: Vec<EventText>,
    again_in: Option<Duration>,
}

/// Creations and deletions, with the events that go with them.
pub fn plan(view: &View<'_>, backoffs: &mut Backoffs) -> Plan {
    let mut wanted = Wanted::default();
    for (node, fit) in &view.fits {
        let there = view.on(node);
        if fit.should_run && there.is_empty() {
            wanted.create_on.push(node.clone());
        } else if fit.may_stay {
            keep(view, node, backoffs, &mut wanted);
        } else {
            wanted.delete.extend(there.iter().filter(|p| !is_going(p)).cloned());
        }
    }
    // Nobody else deletes what waits for a node that is gone.
    for (node, pods) in view.pods.iter().filter(|(node, _)| !view.fits.contains_key(*node)) {
        let waiting = pods.iter().filter(|p| pod::node_name(p) != node && !is_going(p));
        wanted.delete.extend(waiting.cloned());
    }
    Plan {
        writes: view.writes(&wanted.delete, &wanted.create_on),
        events: wanted.events,
        again_in: wanted.again_in,
    }
}

fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// A node whose pods may stay: one of them does, or two while a surge lasts.
fn keep(view: &View<'_>, node: &str, backoffs: &mut Backoffs, wanted: &mut Wanted) {
    let mut running = Vec::new();
    for pod in view.on(node).iter().filter(|p| !is_going(p)) {
        let (kind, reason, what, end) = match pod::phase(pod) {
            "Failed" => ("Warning", "FailedDaemonPod", "failed", "kill"),
            "Succeeded" => ("Normal", "SucceededDaemonPod", "succeeded", "delete"),
            _ => {
                running.push(pod.clone());
                continue;
            }
        };
        if what == "failed" {
            let (uid, generation) = backoff::identity(view.set);
            if let Some(wait) = backoffs.wait((&uid, generation), node, view.now) {
                wanted.again_in = Some(wanted.again_in.map_or(wait, |other| other.min(wait)));
                continue;
            }
        }
        let meta = &pod.metadata;
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let message = format!("Found {what} daemon pod {namespace}/{name} on node {node}, will try to {end} it");
        wanted
            .events
            .push(event(&write::DAEMON_SETS, view.set, kind, reason, message));
        wanted.delete.push(pod.clone());
    }
    // They are sorted: the first is the oldest of those that have their node.
    if !rolling::may_surge(view) {
        wanted.delete.extend(running.into_iter().skip(1));
    } else if running.is_empty() {
        // What failed goes first: the next plan sees whether it has.
        let waits = view.on(node).iter().any(|p| !is_going(p));
        if view.fit(node).should_run && !waits {
            wanted.create_on.push(node.to_owned());
        }
    } else if running.len() > 1 {
        wanted.delete.extend(excess(view, running));
    }
}

/// Of several pods while surging: all but one new and one old one, and the old one as soon as it is not ready or the new one is
/// available. What serves stays rather than what is older.
fn excess(view: &View<'_>, running: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
    let is_new = |pod: &Pod| pod::label(pod, REVISION_LABEL) == view.hash;
    let (mut new, mut old): (Vec<_>, Vec<_>) = running.into_iter().partition(|p| is_new(p));
    new.sort_by_key(|p| !view.is_available(p));
    old.sort_by_key(|p| !view.is_available(p));
    let mut excess: Vec<Arc<Pod>> = new.iter().skip(1).chain(old.iter().skip(1)).cloned().collect();
    if let (Some(new), Some(old)) = (new.first(), old.first())
        && (!pod::is_ready(old) || view.is_available(new))
    {
        excess.push(old.clone());
    }
    excess
}
