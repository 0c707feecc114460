//! What a node does until the cluster can be read: it goes by what was known of it last.
//!
//! Owns the kernel's table only where none stood at its start, or the one that stood was taken away meanwhile; what an earlier
//! run left stays as it is. Knows no policies: it holds back, or it lets in.

use std::time::Duration;

use client::Backoff;
use tokio_util::sync::CancellationToken;

use crate::gate::Gate;
use crate::kernel::{Error, Kernel};
use crate::last::Last;
use crate::settings::Settings;
use crate::world::World;

/// Until the cluster can be read (`stop` then): goes by what was known of it last. If it had no policies, pods are let in. If it
/// had some, nobody can say which, and the kernel holds back what is from or to this node's pods, but for the static ones.
/// What stands in the kernel already, as it does after a kubelet's restart, stays as it is. Nothing is done for
/// [`Settings::away_period`]: until then the cluster is not away.
///
/// What the kernel refuses is tried again, more and more seldom; meanwhile the gate does not say that anything is held back.
pub async fn run_by_the_last(last: Last, settings: Settings, gate: Gate, stop: CancellationToken) {
    let away = tokio::time::sleep(settings.away_period);
    if stop.run_until_cancelled(away).await.is_none() {
        return;
    }
    if !last.has_policies {
        gate.open(true);
        stop.cancelled().await;
        // What was known last counts no more: whoever can read the cluster says.
        gate.open(false);
        return;
    }
    let mut held = Held {
        last,
        world: World::new(),
        kernel: None,
        is_ours: false,
        is_told: false,
    };
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10), 0);
    while !stop.is_cancelled() {
        let outcome = held.turn(&settings, &gate).await;
        gate.hold(outcome.is_ok());
        let next = async {
            match outcome {
                Ok(()) => {
                    backoff.reset();
                    let _ = tokio::time::timeout(settings.look_period, gate.news()).await;
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "pods cannot be held back while the cluster is away, retrying"
                    );
                    tokio::time::sleep(backoff.fail()).await;
                }
            }
        };
        stop.run_until_cancelled(next).await;
    }
}

/// What holds pods back.
struct Held {
    last: Last,
    /// The static pods alone.
    world: World,
    /// Taken while it works; gone after an error.
    kernel: Option<Kernel>,
    /// Whether the table is of this run.
    is_ours: bool,
    /// Whether the kernel holds what we think.
    is_told: bool,
}

impl Held {
    /// Takes what is new, and sees to it that the kernel holds the rest back: also between the pods of a bridge that was not
    /// there before, and where somebody removed the rules.
    async fn turn(&mut self, settings: &Settings, gate: &Gate) -> Result<(), Error> {
        // After a failure all begins anew, for whatever was under way is lost.
        let (_, changes) = if self.is_told { gate.take() } else { gate.all() };
        if !self.is_told {
            self.world = World::new();
        }
        for (id, facts) in changes {
            self.world.set_local_pod(id, facts.filter(|facts| facts.is_static));
        }
        let (mut world, kept) = (std::mem::replace(&mut self.world, World::new()), self.kernel.take());
        let (namespace, ranges) = (settings.netns.clone(), self.last.ranges.clone());
        let (is_ours, is_told) = (self.is_ours, std::mem::take(&mut self.is_told));
        let work = client::blocking::spawn(move || {
            let outcome = open(kept, namespace.as_deref(), ranges).and_then(|mut kernel| {
                tell(&mut kernel, &mut world, is_ours, is_told).map(|is_ours| (kernel, is_ours))
            });
            (world, outcome)
        });
        let (world, outcome) = work.await.map_err(|_| Error::Panicked)?;
        self.world = world;
        let (kernel, is_ours) = outcome?;
        (self.kernel, self.is_ours, self.is_told) = (Some(kernel), is_ours, true);
        Ok(())
    }
}

fn open(kept: Option<Kernel>, namespace: Option<&str>, ranges: Vec<netlink::cidr::Cidr>) -> Result<Kernel, Error> {
    kept.map_or_else(|| Kernel::open(namespace, ranges), Ok)
}

/// Tells the kernel what is new, or everything if it does not hold what was told; returns whether the table is of this run.
fn tell(kernel: &mut Kernel, world: &mut World, is_ours: bool, is_told: bool) -> Result<bool, Error> {
    if !is_ours && kernel.is_there()? {
        // The pods' bridge may be new to the table of an earlier run, too.
        kernel.look_at_bridges()?;
        return Ok(false);
    }
    if !is_ours || !is_told || !kernel.is_intact()? {
        kernel.replace(&world.whole())?;
        return Ok(true);
    }
    kernel.look_at_bridges()?;
    let change = world.take_change();
    if !change.is_empty() {
        kernel.apply(&change)?;
    }
    Ok(true)
}
