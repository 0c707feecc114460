//! What a pod asks of device plugins, and a trial of giving it (kubelet contract §8). Pure.
//!
//! A trial asks no plugin: it says where each container is to be, and refuses what cannot be given. What is then given for good
//! ([`super::give`]) is chosen once more, by what is free then and by what plugins prefer.

#[cfg(test)]
mod tests;

use super::choice::{self, Pool, Wanted};
use super::state::{Claim, Device, Given, Refusal, Reuse, State};
use crate::admission::decide::Rejection;
use crate::pinning::align::{Giver, Wanted as Whose};
use crate::pinning::asking::Asking;
use crate::pinning::hint::{Hint, NumaMask, Wishes};
use crate::pod_object::{self, Kind};
use crate::reason::admission;
use client::ordered::CollectOrdered;
use k8s_openapi::api::core::v1::{Container, Pod};
use proto::api::quantity::Quantity;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What one container asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its name.
    pub container: String,
    /// What becomes of its devices once it has ended.
    pub kind: Kind,
    /// How many devices, by resource.
    pub resources: BTreeMap<String, usize>,
}

/// What a container's limits say of resources that plugins know.
pub fn resources(container: &Container, state: &State) -> BTreeMap<String, usize> {
    let limits = container.resources.as_ref().and_then(|of| of.limits.as_ref());
    let counts = limits.into_iter().flatten().filter_map(|(name, amount)| {
        let count = usize::try_from(Quantity::of(amount).value()).ok()?;
        (count > 0 && state.knows(name)).then(|| (name.clone(), count))
    });
    counts.collect_ordered()
}

/// What a pod's containers ask for, in the order they are given something. Those that ask for nothing are left out.
pub fn asked(pod: &Pod, state: &State) -> Vec<Asked> {
    let all = pod_object::containers(pod).map(|(kind, container)| Asked {
        container: container.name.clone(),
        kind,
        resources: resources(container, state),
    });
    all.filter(|asked| !asked.resources.is_empty()).collect()
}

/// What a pod is to be given, and where its containers are to be.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The pod's UID.
    pub pod: String,
    /// What its containers ask for.
    pub asked: Vec<Asked>,
    /// The NUMA nodes of those for which it matters.
    pub near: BTreeMap<String, NumaMask>,
}

/// A resource in a trial.
struct Left {
    devices: Arc<BTreeMap<String, Device>>,
    free: Arc<BTreeSet<String>>,
}

/// A trial of giving one pod its devices.
pub struct Draft {
    plan: Plan,
    state: State,
    /// The machine's NUMA nodes.
    numas: NumaMask,
    left: BTreeMap<String, Left>,
    reuse: Reuse,
}

impl Draft {
    /// Begins one.
    pub fn new(pod: &Pod, state: &State, numas: NumaMask) -> Self {
        let plan = Plan {
            pod: pod_object::uid(pod).to_string(),
            asked: asked(pod, state),
            near: BTreeMap::new(),
        };
        let names = plan.asked.iter().flat_map(|asked| asked.resources.keys());
        let left = names.map(|name| {
            let (devices, free) = state.pool(name);
            (name.clone(), Left { devices, free })
        });
        Self {
            left: left.collect_ordered(),
            state: state.part_of(&plan.pod, plan.asked.iter().flat_map(|asked| asked.resources.keys())),
            plan,
            numas,
            reuse: Reuse::default(),
        }
    }

    /// What is to be given; nothing where the pod asks for nothing.
    pub fn plan(self) -> Option<Plan> {
        (!self.plan.asked.is_empty()).then_some(self.plan)
    }

    fn given(&self, container: &str, resource: &str) -> Option<BTreeSet<String>> {
        let pods = self.state.pods();
        pods.get(&self.plan.pod, container, resource).map(Given::ids)
    }

    fn asked(&self, container: &str) -> Option<&Asked> {
        self.plan.asked.iter().find(|asked| asked.container == container)
    }

    /// Gives a container its devices, on trial.
    fn try_give(&mut self, asked: &Asked, near: Option<NumaMask>) -> Result<(), Refusal> {
        for (resource, count) in &asked.resources {
            let wanted = Wanted {
                resource,
                count: *count,
                reuse: self.reuse.of(resource),
                near,
            };
            let claim = Claim {
                pod: &self.plan.pod,
                container: &asked.container,
                wanted,
            };
            let ids = match self.state.is_met(claim)? {
                true => self.given(&asked.container, resource).unwrap_or_default(),
                false => {
                    let Some(left) = self.left.get_mut(resource) else {
                        continue;
                    };
                    let pool = Pool {
                        devices: &left.devices,
                        free: &left.free,
                    };
                    let chosen = choice::choose(pool, wanted, &BTreeSet::new())?;
                    // Nobody looks again after the last one.
                    if self.plan.asked.last() != Some(asked) {
                        let free = Arc::make_mut(&mut left.free);
                        chosen.iter().for_each(|id| {
                            free.remove(id);
                        });
                    }
                    chosen
                }
            };
            self.reuse.after(asked.kind, resource, &ids);
        }
        Ok(())
    }

    fn wishes_of(&self, resource: &str, count: usize, given: Option<&BTreeSet<String>>) -> Wishes {
        let Some(left) = self.left.get(resource) else {
            return Wishes::Any;
        };
        let pool = Pool {
            devices: &left.devices,
            free: &left.free,
        };
        let wanted = Wanted {
            resource,
            count,
            reuse: self.reuse.of(resource),
            near: None,
        };
        choice::wishes(pool, wanted, given, self.numas)
    }

    /// What the whole pod has of a resource.
    fn given_to_pod(&self, resource: &str) -> BTreeSet<String> {
        let of = self.plan.asked.iter();
        let all = of.filter_map(|asked| self.given(&asked.container, resource));
        all.flatten().collect_ordered()
    }
}

impl Giver for Draft {
    fn wishes(&self, wanted: Whose<'_>) -> Vec<Wishes> {
        match wanted {
            Whose::Container(asking) => {
                let Some(asked) = self.asked(&asking.container) else {
                    return Vec::new();
                };
                let of = asked.resources.iter().map(|(resource, count)| {
                    let given = self.given(&asked.container, resource);
                    self.wishes_of(resource, *count, given.as_ref())
                });
                of.collect()
            }
            Whose::Pod(_) => {
                let counts = at_a_time(&self.plan.asked);
                let of = counts.iter().map(|(resource, count)| {
                    let given = Some(self.given_to_pod(resource)).filter(|given| !given.is_empty());
                    self.wishes_of(resource, *count, given.as_ref())
                });
                of.collect()
            }
        }
    }

    fn give(&mut self, asking: &Asking, near: Hint) -> Result<(), Rejection> {
        let Some(asked) = self.asked(&asking.container).cloned() else {
            return Ok(());
        };
        if let Some(numas) = near.numas {
            self.plan.near.insert(asked.container.clone(), numas);
        }
        self.try_give(&asked, near.numas).map_err(|why| rejection(&why))
    }
}

/// How a pod is refused that gets no devices (kubelet contract §8).
pub fn rejection(why: &Refusal) -> Rejection {
    Rejection {
        reason: admission::UNEXPECTED_ADMISSION_ERROR.to_owned(),
        message: format!("Allocate failed due to {why}, which is unexpected"),
    }
}

/// How many devices a pod's containers have at a time, by resource.
fn at_a_time(asked: &[Asked]) -> BTreeMap<String, usize> {
    let names: BTreeSet<&String> = asked.iter().flat_map(|asked| asked.resources.keys()).collect_ordered();
    let counts = names.into_iter().map(|name| {
        let (mut sidecars, mut inits, mut regulars) = (0_usize, 0_usize, 0_usize);
        for asked in asked {
            let count = asked.resources.get(name).copied().unwrap_or(0);
            match asked.kind {
                Kind::Sidecar => sidecars = sidecars.saturating_add(count),
                Kind::Init => inits = inits.max(sidecars.saturating_add(count)),
                _ => regulars = regulars.saturating_add(count),
            }
        }
        (name.clone(), inits.max(regulars.saturating_add(sidecars)))
    });
    counts.collect_ordered()
}
