//! Pod and QoS cgroups: their names, their limits, and making them in either hierarchy.
//!
//! Owns everything below `<cgroupRoot>/kubepods`. Never looks at containers: the runtime makes and removes those inside the pod's
//! cgroup. Kills no process but one that stays in the cgroup of a pod nothing of which runs any more ([`stray`]), and
//! those of a pod that goes for memory, should the runtime be too slow ([`need`]).

mod hierarchy;
pub mod limits;
mod name;
mod need;
mod stray;
pub mod systemd;
mod v1;
mod v2;

pub use hierarchy::Hierarchy;
pub use limits::{PodLimits, pod_limits};
pub use name::{CgroupDriver, CgroupNaming};
pub use systemd::{Systemd, SystemdError};

use crate::host::{FileWork, WorkError};
use crate::id::PodUid;
use k8s_openapi::api::core::v1::Pod;
use proto::api::qos::{QosClass, qos_class};
use std::collections::{BTreeMap, BTreeSet};
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
    /// The machine has no cgroup tree where it should be.
    #[error("no cgroup hierarchy at {0}")]
    NoHierarchy(PathBuf),
    /// The work is not over in time, or was lost.
    #[error(transparent)]
    Work(#[from] WorkError),
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

/// What shapes the limits of the tree: configuration and machine.
#[derive(Debug, Clone)]
pub struct CgroupSettings {
    /// Names.
    pub naming: CgroupNaming,
    /// `cpuCFSQuota`.
    pub cpu_cfs_quota: bool,
    /// Pods whose containers have CPUs to themselves have no quota.
    pub exclusive_cpus: bool,
    /// `cpuCFSQuotaPeriod` in microseconds.
    pub cpu_cfs_period_us: i64,
    /// `podPidsLimit`; not positive means none.
    pub pod_pids_limit: i64,
    /// What all pods together may use (`enforceNodeAllocatable: pods`); `None` enforces nothing.
    pub node_limits: Option<NodeLimits>,
}

#[cfg(any(test, feature = "test-util"))]
impl CgroupSettings {
    /// Upstream's defaults of everything but the names, and nothing enforced for all pods together.
    pub fn with_defaults(naming: CgroupNaming) -> Self {
        Self {
            naming,
            cpu_cfs_quota: true,
            exclusive_cpus: false,
            cpu_cfs_period_us: 100_000,
            pod_pids_limit: -1,
            node_limits: None,
        }
    }
}

/// Limits of the whole `kubepods` cgroup: capacity less the reservations (kubelet contract §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLimits {
    /// Bytes.
    pub memory: i64,
    /// Millicores.
    pub cpu_milli: i64,
    /// Processes.
    pub pids: Option<i64>,
}

/// The node's pod cgroups. Cheap to clone; file work runs on the blocking pool.
#[derive(Debug, Clone)]
pub struct Cgroups {
    inner: Arc<Inner>,
    /// One job at a time for each pod, by its UID, and one for the tree.
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

    /// Makes one cgroup with its limits, or brings an existing one's up to date.
    fn ensure(&self, tree: &Hierarchy, path: &str, values: &Values) -> Result<(), CgroupError> {
        self.tell_systemd(tree, path, values)?;
        // Under systemd too: it hands down neither cpuset nor huge pages by itself, and rounds a quota.
        tree.ensure(path)?;
        tree.apply(path, values)
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
            tree.check_empty(path)?;
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

    /// Whether all pods together are held to what is allocatable.
    pub fn enforces_node_limits(&self) -> bool {
        self.inner.hierarchy.is_some() && self.inner.settings.node_limits.is_some()
    }

    /// The memory all pods together may use, bytes, if they are held to that.
    pub fn memory_limit(&self) -> Option<i64> {
        self.inner.hierarchy.as_ref()?;
        Some(self.inner.settings.node_limits?.memory)
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

    /// Makes `kubepods` with the node's limits and the QoS cgroups below it. Idempotent; call once before any pod.
    pub async fn setup(&self) -> Result<(), CgroupError> {
        self.work(
            TREE,
            |inner, tree| {
                let naming = &inner.settings.naming;
                let top = naming.kubepods();
                let limits = inner.settings.node_limits.map(|n| limits::node(&n)).unwrap_or_default();
                inner.ensure(tree, &top, &limits)?;
                for class in [QosClass::Burstable, QosClass::BestEffort] {
                    inner.ensure(tree, &naming.qos(class), &limits::qos(0))?;
                }
                Ok(())
            },
            (),
        )
        .await
    }

    /// Makes the pod's cgroup, or brings an existing one's limits up to date. Call before its sandbox.
    pub async fn ensure_pod(&self, pod: &Pod) -> Result<CgroupParent, CgroupError> {
        let parent = CgroupParent(self.inner.settings.naming.pod_parent(pod));
        let pod = pod.clone();
        self.work(
            &uid_of(&pod),
            move |inner, tree| {
                let path = inner.settings.naming.pod(&pod);
                inner.ensure(tree, &path, &pod_limits(&pod, &inner.settings))
            },
            (),
        )
        .await?;
        Ok(parent)
    }

    /// The values that a pod's cgroup is given.
    pub fn pod_values(&self, pod: &Pod) -> Values {
        pod_limits(pod, &self.inner.settings)
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
        self.work(
            TREE,
            |inner, tree| {
                let naming = &inner.settings.naming;
                let mut out = BTreeSet::new();
                for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
                    for name in tree.children(&naming.qos(class))? {
                        out.extend(naming.uid_of(&name));
                    }
                }
                Ok(out)
            },
            BTreeSet::new(),
        )
        .await
    }

    /// Brings the QoS cgroups' CPU shares to what the active pods request together; to be called when pods come or go.
    pub async fn refresh_qos<'a>(&self, pods: impl IntoIterator<Item = &'a Pod>) -> Result<(), CgroupError> {
        let burstable: i64 = pods
            .into_iter()
            .filter_map(|pod| pod.spec.as_ref())
            .filter(|spec| qos_class(spec) == QosClass::Burstable)
            .map(limits::cpu_request_milli)
            .sum();
        self.work(
            TREE,
            move |inner, tree| {
                let (path, values) = (inner.settings.naming.qos(QosClass::Burstable), limits::qos(burstable));
                inner.tell_systemd(tree, &path, &values)?;
                tree.apply(&path, &values)
            },
            (),
        )
        .await
    }

    /// One of the pod's processes: whatever runs in it is in the pod's network.
    pub async fn process(&self, pod: Pod) -> Result<Option<u32>, CgroupError> {
        self.work(
            &uid_of(&pod),
            move |inner, tree| Ok(tree.process(&inner.settings.naming.pod(&pod))),
            None,
        )
        .await
    }

    /// What the cgroup of a QoS class has used; that of all pods is the Guaranteed ones'.
    pub async fn usage_of_class(&self, class: QosClass) -> Result<Usage, CgroupError> {
        let read = move |inner: &Inner, tree: &Hierarchy| Ok(tree.usage(&inner.settings.naming.qos(class)));
        self.work(TREE, read, Usage::default()).await
    }

    /// CPU seconds and working-set bytes of a pod, or of all pods for `None`; `None` inside where the kernel says nothing.
    pub async fn usage(&self, pod: Option<Pod>) -> Result<Usage, CgroupError> {
        self.work(
            &pod.as_ref().map_or_else(|| TREE.to_owned(), uid_of),
            move |inner, tree| {
                let path = match &pod {
                    Some(pod) => inner.settings.naming.pod(pod),
                    None => inner.settings.naming.kubepods(),
                };
                Ok(tree.usage(&path))
            },
            Usage::default(),
        )
        .await
    }
}

fn uid_of(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

/// What a cgroup has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in nanoseconds since the cgroup was made.
    pub cpu_nanos: Option<u64>,
    /// Memory in use, bytes.
    pub memory: Option<u64>,
    /// Memory in use less the page cache that can go at once, bytes.
    pub working_set: Option<u64>,
    /// Memory in swap, bytes; unknown of cgroups of version 1.
    pub swap: Option<u64>,
    /// Processes and threads in it.
    pub processes: Option<u64>,
}

/// Values to write into one cgroup: abstract keys, the hierarchy knows its files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values {
    /// CPU shares in v1 terms.
    pub cpu_shares: Option<i64>,
    /// Quota and period in microseconds; quota -1 lifts it.
    pub cpu_quota: Option<(i64, i64)>,
    /// Memory limit in bytes; -1 lifts it.
    pub memory: Option<i64>,
    /// Process limit.
    pub pids: Option<i64>,
    /// Bytes by huge page size in the kernel's spelling (`2MB`).
    pub hugepages: BTreeMap<String, i64>,
}

#[cfg(test)]
mod tests;
