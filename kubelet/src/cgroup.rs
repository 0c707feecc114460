//! Pod and QoS cgroups: their names, their limits, and making them in either hierarchy.
//!
//! Owns everything below `<cgroupRoot>/kubepods`, and the limits of the cgroups that are reserved for others ([`reserve`]). Never looks
//! at containers: the runtime makes and removes those inside the pod's cgroup. Kills no process but one that stays in the cgroup of a
//! pod nothing of which runs any more ([`stray`]), and those of a pod that goes for memory, should the runtime be too slow ([`need`]).
//! Moves none but those that are in no cgroup, and the kubelet ([`gather`]).

mod below;
mod gather;
mod hierarchy;
pub mod limits;
mod name;
mod need;
mod reserve;
mod settings;
mod stray;
pub mod systemd;
mod usage;
mod v1;
mod v2;
mod values;

pub use gather::{Gatherer, OwnCgroups};
pub use hierarchy::Hierarchy;
pub use limits::memory::{MemoryQos, Reservation};
pub use limits::sums::Sums;
pub use limits::{PodLimits, pod_limits};
pub use name::{CgroupDriver, CgroupNaming};
pub use reserve::Part;
pub use settings::{CgroupSettings, NodeLimits, ReservedCgroup, Whose};
pub use systemd::{Systemd, SystemdError};
pub use values::{Usage, Values};

use crate::host::{FileWork, WorkError};
use crate::id::PodUid;
use crate::pinning::Unbounded;
use k8s_openapi::api::core::v1::Pod;
use proto::api::qos::QosClass;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often and how long apart an occupied cgroup is tried again before its release fails.
const RELEASE_TRIES: u32 = 8;
const RELEASE_PAUSE: Duration = Duration::from_millis(20);
/// After so many of them, what is still in the cgroup is killed.
const RELEASE_TRIES_UNTIL_KILL: u32 = 5;
/// How long is waited for the kernel and for systemd, which has 30 seconds for each of its jobs.
const DEADLINE: Duration = Duration::from_secs(120);
/// Stands for the UID where the work is the tree's own.
const TREE: &str = "";

/// A cgroup operation that failed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// A directory could not be made.
    #[error("create cgroup {path}")]
    Create {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A value could not be written.
    #[error("write {value:?} to {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The value.
        value: String,
        /// Why.
        source: io::Error,
    },
    /// A file or directory could not be read.
    #[error("read {path}")]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A cgroup could not be removed, usually because a process is still in it.
    #[error("remove cgroup {path}")]
    Remove {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The driver is systemd, and systemd is not there.
    #[error(
        "cgroup driver systemd, but systemd does not run this machine (no {0}): set cgroupDriver: cgroupfs here and SystemdCgroup = false in the runtime"
    )]
    NoSystemd(PathBuf),
    /// systemd did not do with a slice what it should.
    #[error("{doing} slice {slice}")]
    Systemd {
        /// What it should do.
        doing: &'static str,
        /// The slice.
        slice: String,
        /// Why.
        source: SystemdError,
    },
    /// A cgroup that is to be held to what is set aside for it is not there.
    #[error(
        "{field}: cgroup {cgroup:?} does not exist{}: make it, or take {word} out of enforceNodeAllocatable",
        among(.missing)
    )]
    NoReserved {
        /// The field that names it.
        field: &'static str,
        /// Its name.
        cgroup: String,
        /// The word that asks for it.
        word: String,
        /// The controllers whose trees lack it; none in the unified tree.
        missing: Vec<String>,
    },
    /// More memory is in use than would be allowed: the kernel would end processes for it.
    #[error("{used} bytes of memory are in use in {path}, more than the new limit {limit}")]
    InUse {
        /// The cgroup.
        path: String,
        /// The limit, bytes.
        limit: i64,
        /// What is in use and cannot go at once, bytes.
        used: u64,
    },
    /// The machine has no cgroup tree where it should be.
    #[error("no cgroup hierarchy at {0}")]
    NoHierarchy(PathBuf),
    /// The work is not over in time, or was lost.
    #[error(transparent)]
    Work(#[from] WorkError),
}

fn among(controllers: &[String]) -> String {
    match controllers {
        [] => String::new(),
        some => format!(" among those of {}", some.join(", ")),
    }
}

/// What the runtime is told to put a pod's containers under; empty when pods have no cgroup of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupParent(String);

impl CgroupParent {
    /// The text of CRI's `cgroup_parent`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The node's pod cgroups. Cheap to clone; file work runs on the blocking pool.
#[derive(Debug, Clone)]
pub struct Cgroups {
    inner: Arc<Inner>,
    /// One job at a time for each pod, by its UID, and one for the tree; what cannot wait for those has keys of its own.
    files: FileWork,
}

#[derive(Debug)]
struct Inner {
    settings: CgroupSettings,
    hierarchy: Option<Hierarchy>,
    /// Makes the tree's slices; with the driver cgroupfs there is none.
    systemd: Option<Systemd>,
    /// Ends a process that nobody knows of.
    end: stray::End,
}

impl Inner {
    /// Ends what is left in a pod's cgroup.
    fn end_strays(&self, tree: &Hierarchy, path: &str) {
        for pid in tree.processes(path) {
            self.end.call(pid, path);
        }
    }

    /// UIDs of the pods that have a cgroup.
    fn pods(&self, tree: &Hierarchy) -> Result<BTreeSet<PodUid>, CgroupError> {
        let naming = &self.settings.naming;
        let mut out = BTreeSet::new();
        for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
            for name in tree.children(&naming.qos(class))? {
                out.extend(naming.uid_of(&name));
            }
        }
        Ok(out)
    }

    /// Makes one cgroup with its limits, or brings an existing one's up to date.
    fn ensure(&self, tree: &Hierarchy, path: &str, values: &Values) -> Result<(), CgroupError> {
        self.tell_systemd(tree, path, values)?;
        // Under systemd too: it hands down neither cpuset nor huge pages by itself, and rounds a quota.
        tree.ensure(path)?;
        tree.apply(path, values)
    }

    /// Brings one cgroup to values that change with the pods. Nothing is written where they hold already.
    fn refresh(&self, tree: &Hierarchy, path: &str, mut values: Values) -> Result<(), CgroupError> {
        // A limit below what is in use ends processes, or is refused: what is in use must not become more.
        let used = values.memory.and_then(|_| tree.usage(path).memory);
        let used = used.map(|used| i64::try_from(used).unwrap_or(i64::MAX));
        values.memory = values.memory.max(used);
        if tree.holds(path, &values) {
            return Ok(());
        }
        self.tell_systemd(tree, path, &values)?;
        tree.apply(path, &values)
    }

    fn tell_systemd(&self, tree: &Hierarchy, path: &str, values: &Values) -> Result<(), CgroupError> {
        let Some(systemd) = &self.systemd else { return Ok(()) };
        let slice = systemd::unit(path);
        systemd
            .ensure(slice, values, tree.is_unified())
            .map_err(|source| CgroupError::Systemd {
                doing: "start",
                slice: slice.to_owned(),
                source,
            })
    }

    /// Removes one cgroup that nothing runs in; one that is not there is fine.
    fn remove(&self, tree: &Hierarchy, path: &str) -> Result<(), CgroupError> {
        if let Some(systemd) = &self.systemd
            && tree.exists(path)
        {
            tree.clear(path)?;
            let slice = systemd::unit(path);
            systemd.stop(slice).map_err(|source| CgroupError::Systemd {
                doing: "stop",
                slice: slice.to_owned(),
                source,
            })?;
        }
        tree.remove(path)
    }
}

impl Cgroups {
    /// The tree below `mount` (`/sys/fs/cgroup`), unified or not as found there; `systemd` is who makes its slices if that is
    /// the driver. With `cgroupsPerQOS: false` nothing is ever touched.
    pub fn open(
        mount: impl Into<PathBuf>,
        systemd: impl Into<PathBuf>,
        settings: CgroupSettings,
    ) -> Result<Self, CgroupError> {
        let mut inner = Inner {
            settings,
            hierarchy: None,
            systemd: None,
            end: stray::End::default(),
        };
        if inner.settings.naming.per_qos {
            if inner.settings.naming.driver == CgroupDriver::Systemd {
                let socket = systemd.into();
                let found = Systemd::find(&socket).ok_or(CgroupError::NoSystemd(socket))?;
                inner.systemd = Some(found);
            }
            inner.hierarchy = Some(Hierarchy::detect(&mount.into())?);
        }
        Ok(Self {
            inner: Arc::new(inner),
            files: FileWork::new(DEADLINE),
        })
    }

    /// The memory all pods together may use, bytes, if they are held to that.
    pub fn memory_limit(&self) -> Option<i64> {
        self.inner.hierarchy.as_ref()?;
        let limits = self.inner.settings.node_limits.as_ref()?;
        limits.enforced.then_some(limits.memory)
    }

    /// Whether pods have cgroups at all.
    pub fn are_made(&self) -> bool {
        self.inner.hierarchy.is_some()
    }

    /// Whether one tree has all controllers; nothing if pods have no cgroups of their own.
    pub fn is_unified(&self) -> Option<bool> {
        self.inner.hierarchy.as_ref().map(Hierarchy::is_unified)
    }

    /// Where the tree with that controller is, for whoever reads what cgroups use.
    pub fn tree_of(&self, controller: &str) -> Option<PathBuf> {
        self.inner.hierarchy.as_ref()?.tree_of(controller)
    }

    async fn work<T: Send + 'static>(
        &self,
        uid: &str,
        work: impl FnOnce(&Inner, &Hierarchy) -> Result<T, CgroupError> + Send + 'static,
        otherwise: T,
    ) -> Result<T, CgroupError> {
        if self.inner.hierarchy.is_none() {
            return Ok(otherwise);
        }
        let inner = self.inner.clone();
        let job = move || match &inner.hierarchy {
            Some(hierarchy) => work(&inner, hierarchy),
            None => Ok(otherwise),
        };
        self.files.run(uid, job).await?
    }

    /// Makes `kubepods` and the QoS cgroups below it. Idempotent; call once before any pod. A `kubepods` that is there keeps its limits
    /// until [`Self::hold`]: more may be in use than it is to have. Pods that an earlier kubelet restrained are free again.
    ///
    /// # Errors
    /// One cannot be made, or a cgroup that is to be held to its reservation is not there.
    pub async fn setup(&self) -> Result<(), CgroupError> {
        self.work(
            TREE,
            |inner, tree| {
                let settings = &inner.settings;
                reserve::check(tree, settings)?;
                let [top, burstable, best_effort] = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort]
                    .map(|class| settings.naming.qos(class));
                let mut all = match &settings.node_limits {
                    Some(limits) if !tree.exists(&top) => limits::node(limits),
                    _ => Values::default(),
                };
                let mut of_class = limits::qos(settings);
                if settings.memory_qos.is_none() {
                    // What a kubelet before this one kept of memory is nobody's any more.
                    for values in [&mut all, &mut of_class] {
                        (values.memory_min, values.memory_low) = (Some(0), Some(0));
                    }
                }
                inner.ensure(tree, &top, &all)?;
                // Nor is the limit of a class that `qosReserved` once gave it.
                let unlimited = Some(limits::UNLIMITED).filter(|_| settings.qos_reserved_percent.is_none());
                let shares = of_class.cpu_shares.filter(|_| !tree.exists(&burstable));
                let values = Values {
                    cpu_shares: shares,
                    memory: unlimited.filter(|_| tree.exists(&burstable)),
                    ..of_class.clone()
                };
                inner.ensure(tree, &burstable, &values)?;
                let memory = unlimited.filter(|_| tree.exists(&best_effort));
                inner.ensure(tree, &best_effort, &Values { memory, ..of_class })?;
                need::release_all(inner, tree)
            },
            (),
        )
        .await
    }

    /// The cgroups that are to be held to their part of the node, each with [`Self::hold`].
    pub fn parts(&self) -> Vec<Part> {
        match self.inner.hierarchy {
            Some(_) => reserve::parts(&self.inner.settings),
            None => Vec::new(),
        }
    }

    /// Holds one of them to its part. Until it could be, what was before stays.
    ///
    /// # Errors
    /// The kernel or systemd refuses, or more memory is in use.
    pub async fn hold(&self, part: &Part) -> Result<(), CgroupError> {
        let part = part.clone();
        let hold = move |inner: &Inner, tree: &Hierarchy| {
            let (path, values) = part.values(&inner.settings);
            tree.check_room(&path, &values)?;
            inner.tell_systemd(tree, &path, &values)?;
            tree.apply(&path, &values)
        };
        self.work(TREE, hold, ()).await
    }

    /// Makes the pod's cgroup, or brings an existing one's limits up to date. Call before its sandbox.
    pub async fn ensure_pod(&self, pod: &Pod, unbounded: Unbounded) -> Result<CgroupParent, CgroupError> {
        let parent = CgroupParent(self.inner.settings.naming.pod_parent(pod));
        let pod = pod.clone();
        self.work(
            &uid_of(&pod),
            move |inner, tree| {
                let path = inner.settings.naming.pod(&pod);
                inner.ensure(tree, &path, &pod_limits(&pod, &inner.settings, &unbounded))
            },
            (),
        )
        .await?;
        Ok(parent)
    }

    /// The values that a pod's cgroup is given.
    pub fn pod_values(&self, pod: &Pod, unbounded: &Unbounded) -> Values {
        pod_limits(pod, &self.inner.settings, unbounded)
    }

    /// Sets some values of the cgroup of a pod that runs; the others stay.
    ///
    /// # Errors
    /// The kernel or systemd refuses them.
    pub async fn set_pod(&self, pod: &Pod, values: Values) -> Result<(), CgroupError> {
        let pod = pod.clone();
        self.work(
            &uid_of(&pod),
            move |inner, tree| {
                let path = inner.settings.naming.pod(&pod);
                inner.tell_systemd(tree, &path, &values)?;
                tree.apply(&path, &values)
            },
            (),
        )
        .await
    }

    /// Removes the pod's cgroup wherever it is, in any QoS class: of a pod nothing of which runs any more, as far as the runtime knows.
    /// A process that stays in it all the same is killed. Fails while processes are left in it; call again then.
    pub async fn release_pod(&self, uid: &PodUid) -> Result<(), CgroupError> {
        let mut tries = 0;
        loop {
            let (uid, key) = (uid.clone(), uid.as_str());
            let result = self
                .work(
                    key,
                    move |inner, tree| {
                        let paths = inner.settings.naming.pod_candidates(uid.as_str());
                        if tries == RELEASE_TRIES_UNTIL_KILL {
                            paths.iter().for_each(|path| inner.end_strays(tree, path));
                        }
                        paths.iter().try_for_each(|path| inner.remove(tree, path))
                    },
                    (),
                )
                .await;
            tries += 1;
            match result {
                Err(CgroupError::Remove { .. }) if tries < RELEASE_TRIES => {
                    // The kernel empties a cgroup a moment after the last process was reaped, and tells nobody on v1.
                    tokio::time::sleep(RELEASE_PAUSE * tries).await;
                }
                other => return other,
            }
        }
    }

    /// UIDs of all pods that have a cgroup: what start-up compares with the pods it knows.
    pub async fn list(&self) -> Result<BTreeSet<PodUid>, CgroupError> {
        self.work(TREE, |inner, tree| inner.pods(tree), BTreeSet::new()).await
    }

    /// Brings the cgroups of all pods and of the QoS classes to what the active pods request together; to be called when pods come or
    /// go, and now and then, for others write there, too. Returns what is kept of memory for pods.
    ///
    /// # Errors
    /// The first value that could not be set; the others are.
    pub async fn refresh_qos<'a>(&self, pods: impl IntoIterator<Item = &'a Pod>) -> Result<Reservation, CgroupError> {
        let sums = Sums::of(pods);
        let kept = sums.kept(&self.inner.settings);
        let refresh = move |inner: &Inner, tree: &Hierarchy| {
            let classes = sums.values(&inner.settings).into_iter();
            let results = classes.map(|(class, values)| inner.refresh(tree, &inner.settings.naming.qos(class), values));
            results.fold(Ok(()), Result::and).map(|()| kept)
        };
        self.work(TREE, refresh, Reservation::default()).await
    }
}

fn uid_of(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests;
