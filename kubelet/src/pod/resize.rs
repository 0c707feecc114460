//! How a pod's containers and its cgroup are brought from what they run with to what the pod was given (KEP-1287; kubelet
//! contract §7). Pure.
//!
//! Memory comes before CPU. Of each, the pod's cgroup grows before its containers and shrinks after them, so that what they
//! may use together is never less than what they may use alone.

use super::spec::{NodeContext, container_resources};
use crate::allocation::named::Named;
use crate::allocation::{PodResources, Resizable, amounts, same};
use crate::cgroup::Values;
use crate::id::ContainerId;
use crate::pinning::Unbounded;
use crate::pod_object;
use crate::runtime::observed::{ContainerState, ObservedPod};
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use proto::cri;

/// What a pod runs with, as far as its worker knows: what is not here runs with what the pod was given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// Its containers' resources, by name.
    pub containers: Named<ResourceRequirements>,
    /// The resources that its cgroup's limits were made from.
    pub cgroup: Option<PodResources>,
}

/// One step of a resize.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Set these values of the pod's cgroup.
    Pod(Values),
    /// Have the runtime update a container.
    Container(ContainerId, Box<cri::LinuxContainerResources>),
}

/// A limit of memory that a resize lowers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lowered {
    /// Whose it is; the pod's without a name.
    pub container: Option<String>,
    /// The new limit, bytes.
    pub limit: i64,
    /// What is in use, bytes; nothing where nobody can tell.
    pub used: Option<u64>,
}

impl Applied {
    /// Whether a running container has other resources than the pod was given for it.
    pub fn differs(&self, container: &Container) -> bool {
        let own = self.containers.get(&container.name);
        own.is_some_and(|own| !same(Some(own), container.resources.as_ref()))
    }

    /// Whether a running container gets the resources it was given only by a restart: its policy wants it for one that differs.
    pub fn needs_restart(&self, container: &Container) -> bool {
        let Some(own) = self.containers.get(&container.name) else {
            return false;
        };
        Resizable::ALL.iter().any(|of| {
            amounts(Some(own), *of) != amounts(container.resources.as_ref(), *of) && restarts_for(container, *of)
        })
    }

    /// Whether the pod's cgroup has other limits than its resources make.
    pub fn cgroup_differs(&self, pod: &Pod) -> bool {
        self.cgroup.as_ref().is_some_and(|own| !own.agrees(pod))
    }
}

fn restarts_for(container: &Container, of: Resizable) -> bool {
    let mut policies = container.resize_policy.iter().flatten();
    policies.any(|policy| policy.resource_name == of.name() && policy.restart_policy == "RestartContainer")
}

/// The running containers that a resize updates: those that differ, and those that take over a limit of the pod that does.
pub fn updated<'a>(pod: &'a Pod, applied: &Applied, observed: &ObservedPod) -> Vec<(ContainerId, &'a Container)> {
    let before = applied.cgroup.as_ref().and_then(|own| own.pod.as_ref());
    let now = pod_object::spec(pod).resources.as_ref();
    let inherits = |container: &Container| {
        applied.cgroup.is_some()
            && Resizable::ALL.iter().any(|of| {
                amounts(container.resources.as_ref(), *of).1.is_none() && amounts(before, *of).1 != amounts(now, *of).1
            })
    };
    pod_object::containers(pod)
        .filter(|(_, container)| applied.differs(container) || inherits(container))
        .filter_map(|(_, container)| {
            let newest = observed.newest(&container.name)?;
            (newest.state == ContainerState::Running).then(|| (newest.id.clone(), container))
        })
        .collect()
}

/// The steps of a resize; `old` and `new` are the values of the pod's cgroup before and after it.
pub fn steps(
    pod: &Pod,
    applied: &Applied,
    updated: &[(ContainerId, &Container)],
    (old, new): (&Values, &Values),
    (ctx, unbounded): (&NodeContext, &Unbounded),
) -> Vec<Step> {
    let mut steps = Vec::new();
    for of in Resizable::ALL {
        let (first, last) = split(of, old, new);
        steps.extend(first.map(Step::Pod));
        for (id, container) in updated {
            let resources = half_way(container, applied.containers.get(&container.name), of);
            let container = Container {
                resources: Some(resources),
                ..(*container).clone()
            };
            let resources = container_resources(pod, &container, ctx, unbounded);
            steps.push(Step::Container(id.clone(), Box::new(resources)));
        }
        steps.extend(last.map(Step::Pod));
    }
    steps.dedup();
    steps
}

/// What of a pod's cgroup is set before its containers are updated, and what after.
fn split(of: Resizable, old: &Values, new: &Values) -> (Option<Values>, Option<Values>) {
    let (mut first, mut last) = (Values::default(), Values::default());
    match of {
        Resizable::Memory => {
            match (old.memory, new.memory) {
                (before, after) if before == after => {}
                (Some(_), None) => first.memory = Some(-1),
                (Some(before), Some(after)) if after > before => first.memory = Some(after),
                (_, after) => last.memory = after,
            }
            // No more is kept for a container than for its pod.
            let kept: [fn(&mut Values) -> &mut Option<i64>; 2] = [|v| &mut v.memory_min, |v| &mut v.memory_low];
            for of in kept {
                let (before, after) = (*of(&mut old.clone()), *of(&mut new.clone()));
                match after > before {
                    _ if before == after => {}
                    true => *of(&mut first) = after,
                    false => *of(&mut last) = after,
                }
            }
        }
        Resizable::Cpu => {
            let quota = |values: &Values| values.cpu_quota.map(|(quota, _)| quota);
            match (quota(old), quota(new)) {
                (before, after) if before == after => {}
                (Some(_), None) => first.cpu_quota = old.cpu_quota.map(|(_, period)| (-1, period)),
                (Some(before), Some(after)) if after > before => first.cpu_quota = new.cpu_quota,
                _ => last.cpu_quota = new.cpu_quota,
            }
            match (old.cpu_shares, new.cpu_shares) {
                (before, after) if before == after => {}
                (before, after) if after > before => first.cpu_shares = after,
                (_, after) => last.cpu_shares = after,
            }
        }
    }
    let some = |values: Values| (values != Values::default()).then_some(values);
    (some(first), some(last))
}

/// A container's resources when memory is as it was given, and CPU too once it is its turn.
fn half_way(container: &Container, before: Option<&ResourceRequirements>, of: Resizable) -> ResourceRequirements {
    let mut now = container.resources.clone().unwrap_or_default();
    let (Resizable::Memory, Some(before)) = (of, before) else {
        return now;
    };
    let cpu = Resizable::Cpu.name();
    for (list, earlier) in [(&mut now.requests, &before.requests), (&mut now.limits, &before.limits)] {
        let earlier = earlier.as_ref().and_then(|list| list.get(cpu)).cloned();
        match earlier {
            Some(amount) => {
                list.get_or_insert_default().insert(cpu.to_owned(), amount);
            }
            None => {
                list.iter_mut().for_each(|list| {
                    list.remove(cpu);
                });
            }
        }
    }
    now
}

/// The limits of memory that a resize lowers, without what is in use.
pub fn lowered(
    applied: &Applied,
    updated: &[(ContainerId, &Container)],
    (old, new): (&Values, &Values),
) -> Vec<Lowered> {
    let is_lower = |before: Option<i64>, after: i64| before.is_none_or(|before| after < before);
    let of_pod = new.memory.filter(|limit| is_lower(old.memory, *limit));
    let limit = |resources: Option<&ResourceRequirements>| amounts(resources, Resizable::Memory).1.map(|q| q.value());
    let of_containers = updated.iter().filter_map(|(_, container)| {
        let after = limit(container.resources.as_ref())?;
        is_lower(limit(applied.containers.get(&container.name)), after).then(|| (Some(container.name.clone()), after))
    });
    let all = of_pod.map(|limit| (None, limit)).into_iter().chain(of_containers);
    all.map(|(container, limit)| Lowered {
        container,
        limit,
        used: None,
    })
    .collect()
}

/// Why limits are not lowered now: more is in use than they would allow, which would end processes.
pub fn in_use(lowered: &[Lowered]) -> Option<String> {
    let too_much = lowered.iter().filter_map(|lowered| {
        let used = lowered.used?;
        let limit = lowered.limit;
        (u64::try_from(limit).is_ok_and(|limit| limit < used)).then(|| match &lowered.container {
            None => format!("attempting to set pod memory limit ({limit}) below current usage ({used})"),
            Some(name) => {
                format!("attempting to set container {name:?} memory limit ({limit}) below current usage ({used})")
            }
        })
    });
    let texts: Vec<String> = too_much.collect();
    match texts.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

#[cfg(test)]
mod tests;
