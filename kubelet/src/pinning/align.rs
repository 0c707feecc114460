//! Brings together what all givers wish for a pod, and has each give its part under the one answer (kubelet contract §8; upstream's
//! topology manager, KEP-693).
//!
//! A [`Giver`] is one pod's draft of one kind of resource: devices, CPUs, memory. It tells what it wishes as values and knows of no
//! other giver. Nothing is anybody's before whoever asked commits what the drafts hold; drafts that are dropped leave no trace.

use super::TopologyRules;
use super::asking::Asking;
use super::hint::{Hint, Nodes, Policy, Wishes, merge};
use super::tally::{Event, Tally};
use crate::admission::decide::Rejection;
use crate::reason::admission;

/// Whose resources are to be near each other.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// A whole pod's, whose containers these are (`topologyManagerScope: pod`).
    Pod(&'a [Asking]),
    /// One container's.
    Container(&'a Asking),
}

/// One pod's draft of one kind of resource.
pub trait Giver {
    /// Where it could give from, by resource; nothing if it gives nothing here, or does not mind.
    fn wishes(&self, wanted: Wanted<'_>) -> Vec<Wishes>;

    /// Gives a container its part. What it has already, it keeps. Called once for each container, in the order they run.
    ///
    /// # Errors
    /// Why the node refuses the pod.
    fn give(&mut self, asking: &Asking, near: Hint) -> Result<(), Rejection>;
}

/// Has all givers give all containers their parts, each where all givers together would have it.
///
/// # Errors
/// What is wished does not go together under the policy, or a giver refuses.
pub(super) fn give_all(
    (rules, nodes): (&TopologyRules, &Nodes),
    givers: &mut [&mut dyn Giver],
    asked: &[Asking],
    tally: &Tally,
) -> Result<(), Rejection> {
    let aligns = rules.policy != Policy::None;
    // What is on one node is counted once it is given.
    let is_on_one = rules.policy == Policy::SingleNumaNode;
    let align = |givers: &[&mut dyn Giver], wanted| align((rules, nodes), givers, wanted, tally);
    let of_pod = match aligns && rules.by_pod {
        true => Some(align(givers, Wanted::Pod(asked))?),
        false => None,
    };
    for asking in asked {
        let near = match of_pod {
            Some(near) => near,
            None if aligns => align(givers, Wanted::Container(asking))?,
            None => Hint::default(),
        };
        for giver in givers.iter_mut() {
            if let Err(refused) = giver.give(asking, near) {
                if aligns {
                    tally.note(Event::Misaligned);
                }
                return Err(refused);
            }
        }
        if is_on_one && !rules.by_pod {
            tally.note(one_node(rules.by_pod, true));
        }
    }
    if is_on_one && rules.by_pod {
        tally.note(one_node(rules.by_pod, true));
    }
    Ok(())
}

fn one_node(by_pod: bool, worked: bool) -> Event {
    Event::OneNode { by_pod, worked }
}

/// The NUMA nodes that whoever wishes this is to be on.
fn align(
    (rules, nodes): (&TopologyRules, &Nodes),
    givers: &[&mut dyn Giver],
    wanted: Wanted<'_>,
    tally: &Tally,
) -> Result<Hint, Rejection> {
    let mut wishes = Vec::new();
    for giver in givers {
        let own = giver.wishes(wanted);
        if own.is_empty() {
            wishes.push(Wishes::Any);
        }
        wishes.extend(own);
    }
    let (near, admitted) = merge(rules.policy, nodes, wishes);
    if admitted {
        return Ok(near);
    }
    if rules.policy == Policy::SingleNumaNode {
        tally.note(one_node(rules.by_pod, false));
    }
    tally.note(Event::Misaligned);
    Err(Rejection {
        reason: admission::TOPOLOGY_AFFINITY_ERROR.to_owned(),
        message: "Resources cannot be allocated with Topology locality".to_owned(),
    })
}

#[cfg(test)]
mod tests;
