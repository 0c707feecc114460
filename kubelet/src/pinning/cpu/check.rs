//! Whether what an earlier kubelet left fits the machine, the policy and itself. Pure.

use super::super::cpu_set::CpuSet;
use super::{Assignments, Static};

/// Why the policy cannot be, or what was left by an earlier kubelet does not fit it; in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Nothing is reserved.
    #[error("[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero")]
    NothingReserved,
    /// Another number is reserved than named.
    #[error("[cpumanager] unable to reserve the required amount of CPUs (size of {set} did not equal {wanted})")]
    Reserved {
        /// Those that could be.
        set: String,
        /// How many should.
        wanted: usize,
    },
    /// `align-by-socket` where a NUMA node has several sockets.
    #[error("Align by socket is not compatible with hardware where number of sockets are more than number of NUMA")]
    SocketsOverNumas,
    /// All CPUs are said to be taken.
    #[error("default cpuset cannot be empty")]
    NothingShared,
    /// More is reserved than was.
    #[error("not all reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{shared}\"")]
    NotShared {
        /// The reserved ones.
        reserved: String,
        /// `defaultCpuSet`.
        shared: String,
    },
    /// They were not kept apart strictly before.
    #[error("some of strictly reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{shared}\"")]
    Shared {
        /// Those of the reserved ones.
        reserved: String,
        /// `defaultCpuSet`.
        shared: String,
    },
    /// Somebody's own CPUs are everybody's.
    #[error("pod: {pod}, container: {container} cpuset: \"{cpus}\" overlaps with default cpuset \"{shared}\"")]
    Overlap {
        /// The pod's UID.
        pod: String,
        /// The container.
        container: String,
        /// Its CPUs.
        cpus: String,
        /// `defaultCpuSet`.
        shared: String,
    },
    /// CPUs are two pods' own.
    #[error(
        "entries: pod: {pod}, container: {container} cpuset: \"{cpus}\" overlaps with pod: {other_pod}, container: {other} cpuset: \"{theirs}\""
    )]
    Twice {
        /// The pod's UID.
        pod: String,
        /// The container.
        container: String,
        /// Its CPUs.
        cpus: String,
        /// The other pod's UID.
        other_pod: String,
        /// Its container.
        other: String,
        /// What that one has.
        theirs: String,
    },
    /// CPUs came or went.
    #[error("current set of available CPUs \"{now}\" doesn't match with CPUs in state \"{then}\"")]
    OtherCpus {
        /// Those there are.
        now: String,
        /// Those there were.
        then: String,
    },
}

impl Static {
    /// Looks at what an earlier kubelet left; what nobody has begun yet begins with everything shared, which is `true`.
    ///
    /// # Errors
    /// It does not fit this machine, or what is reserved on it now.
    pub fn check(&self, held: &mut Assignments) -> Result<bool, PolicyError> {
        let strict = self.options.strict_reservation;
        let now = match strict {
            true => self.topology.all.difference(&self.reserved),
            false => self.topology.all.clone(),
        };
        if held.shared.is_empty() && held.exclusive.is_empty() {
            held.shared = now;
            return Ok(true);
        }
        // Where nothing that is reserved is shared, all can be given.
        if held.shared.is_empty() && !(strict && held.taken() == now) {
            return Err(PolicyError::NothingShared);
        }
        let (both, shared) = (self.reserved.intersection(&held.shared), held.shared.to_string());
        if strict && !both.is_empty() {
            let reserved = both.to_string();
            return Err(PolicyError::Shared { reserved, shared });
        }
        if !strict && both != self.reserved {
            let reserved = self.reserved.to_string();
            return Err(PolicyError::NotShared { reserved, shared });
        }
        let taken = given_once(held, &shared)?;
        let then = held.shared.union(&taken);
        if then != now {
            return Err(PolicyError::OtherCpus {
                now: now.to_string(),
                then: then.to_string(),
            });
        }
        Ok(false)
    }
}

/// All CPUs that are somebody's own, which are nobody else's. Containers of one pod may have the same: what init containers had is given
/// to those after them.
fn given_once(held: &Assignments, shared: &str) -> Result<CpuSet, PolicyError> {
    let mut taken = CpuSet::default();
    for (pod, containers) in &held.exclusive {
        let mut own = CpuSet::default();
        for (container, cpus) in containers {
            if cpus.shared(&held.shared) > 0 {
                return Err(PolicyError::Overlap {
                    pod: pod.clone(),
                    container: container.clone(),
                    cpus: cpus.to_string(),
                    shared: shared.to_owned(),
                });
            }
            if cpus.shared(&taken) > 0 {
                return Err(twice(held, (pod, container), cpus));
            }
            own.absorb(cpus);
        }
        taken.absorb(&own);
    }
    Ok(taken)
}

/// Tells whose these CPUs are as well.
fn twice(held: &Assignments, (pod, container): (&str, &str), cpus: &CpuSet) -> PolicyError {
    let others = held.exclusive.iter().filter(|(other, _)| *other != pod);
    let mut others =
        others.flat_map(|(other, containers)| containers.iter().map(move |(name, cpus)| (other, name, cpus)));
    let other = others.find(|(.., theirs)| theirs.shared(cpus) > 0);
    let (other_pod, other, theirs) = match other {
        Some((pod, container, cpus)) => (pod.clone(), container.clone(), cpus.to_string()),
        None => Default::default(),
    };
    PolicyError::Twice {
        pod: pod.to_owned(),
        container: container.to_owned(),
        cpus: cpus.to_string(),
        other_pod,
        other,
        theirs,
    }
}
