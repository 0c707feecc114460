//! Volumes: what a pod's containers mount, made ready on the host and taken away again.
//!
//! Owns `<root-dir>/pods/<uid>`: volumes, hosts files, termination message files. A volume has no loop of its own:
//! [`Volumes::ensure`] and [`Volumes::keep_current`] are futures the pod's worker owns. Never imports `pod`.

mod atomic_writer;
mod container_files;
mod ending;
mod env_file;
mod env_format;
mod error;
mod local;
mod payload;
mod plan;
mod projects;
mod refresh;
mod set_up;
mod user_namespace;

pub use atomic_writer::WriteError;
pub use container_files::{ContainerFiles, ContainerFilesRequest, ImageMount, SubPath};
pub use ending::{Ending, Failed};
pub use env_file::EnvFile;
pub use env_format::{EnvFileError, EnvFileValues};
pub use error::{ReleaseError, SetUpError, VolumeError};
pub use projects::Projects;

use crate::downward::{Addresses, NodeAllocatable};
use crate::host::addresses::HostIps;
use crate::host::{FileWork, Mounter, WorkError};
use crate::id::{ContainerId, PodUid};
use crate::metrics::{VolumeMetrics, VolumeOperation};
use crate::objects::{ObjectError, ObjectRef, Objects, TokenRequestKey};
use crate::user_namespace::{IdPool, Ranges};
use client::Clock;
use client::ordered::CollectOrdered;
use error::set_up;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use payload::{FilesInput, Payload, Room};
use plan::{Source, VolumePlan};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long is waited for a pod's volumes to be mounted or unmounted, as upstream does; the work itself goes on.
const FILES_DEADLINE: Duration = Duration::from_secs(123);
/// How long a stop is held up by the marks it leaves for the next kubelet.
const MARKS_DEADLINE: Duration = Duration::from_secs(5);

/// Where it is tried, at the start, whether a tmpfs can be kept out of swap.
const SWAP_TRIAL: &str = "noswap-trial";

/// Stands for the UID where the work is no single pod's.
const NO_POD: &str = "";

/// A volume as the translation to CRI sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostVolume {
    /// Where it is on the host; empty for an image, which the runtime mounts.
    pub path: PathBuf,
    /// Its content is the kubelet's: containers only read it.
    pub read_only: bool,
    /// The pod has it to itself, so that it may be labelled for its containers.
    pub own: bool,
}

/// What volumes are made with.
#[derive(Debug, Clone)]
pub struct VolumeSettings {
    /// `--root-dir`.
    pub root_dir: PathBuf,
    /// The node's addresses, for the downward API.
    pub host_ips: HostIps,
    /// The node's allocatable resources: downward defaults and the bound of memory volumes.
    pub allocatable: NodeAllocatable,
    /// The node's ids that pods with users of their own may have.
    pub ids: IdPool,
    /// Which volumes the file system counts itself.
    pub projects: Projects,
    /// Counts what becomes of them.
    pub metrics: VolumeMetrics,
}

/// The node's volumes. Cheap to clone; file work runs on the blocking pool.
#[derive(Debug, Clone)]
pub struct Volumes {
    inner: Arc<Inner>,
}

struct Inner {
    settings: VolumeSettings,
    /// A pod's files, one job at a time, by its UID.
    files: FileWork,
    /// The marks in a pod's directory: not held up by what hangs in its volumes.
    marks: FileWork,
    mounter: Arc<dyn Mounter>,
    objects: Arc<Objects>,
    clock: Arc<dyn Clock>,
    /// Who has which of the node's ids; nothing before the first pod asks.
    user_namespaces: Mutex<Option<Ranges>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// One volume with everything its set-up needs, objects fetched.
struct Ready {
    plan: VolumePlan,
    payload: Option<Payload>,
    /// When a token in it has to be renewed.
    refresh_at: Option<Timestamp>,
}

impl Volumes {
    /// Volumes below `settings.root_dir`.
    pub fn new(
        settings: VolumeSettings,
        mounter: Arc<dyn Mounter>,
        objects: Arc<Objects>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let inner = Inner {
            settings,
            files: FileWork::new(FILES_DEADLINE),
            marks: FileWork::new(MARKS_DEADLINE),
            mounter,
            objects,
            clock,
            user_namespaces: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The pod's directory, `<root-dir>/pods/<uid>`.
    pub fn pod_dir(&self, uid: &PodUid) -> PathBuf {
        self.inner.pod_dir(uid)
    }

    /// Where the volumes of a pod are that have a directory of their own, by name.
    pub fn directories(&self, pod: &Pod) -> Vec<(String, PathBuf)> {
        let dir = self.pod_dir(&uid_of(pod));
        let plans = plan::plans(pod).flatten();
        let own = plans.filter(|plan| !plan.directory.as_os_str().is_empty());
        own.map(|plan| (plan.name, dir.join(plan.directory))).collect()
    }

    /// Who counts what is in them.
    pub fn projects(&self) -> &Projects {
        &self.inner.settings.projects
    }

    /// Works on the files of one pod; what hangs is waited for [`FILES_DEADLINE`].
    async fn files<T: Send + 'static>(
        &self,
        uid: &PodUid,
        work: impl FnOnce(&Inner) -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<T, VolumeError> {
        let inner = self.inner.clone();
        self.inner.files.run(uid.as_str(), move || work(&inner)).await?
    }

    async fn marks<T: Send + 'static>(
        &self,
        uid: &PodUid,
        work: impl FnOnce(&Path) -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<T, VolumeError> {
        let dir = self.inner.own_dir(uid)?;
        self.inner.marks.run(uid.as_str(), move || work(&dir)).await?
    }

    /// Makes the root directory's own tree, its propagation shared. Once, at start.
    pub async fn setup(&self) -> Result<(), VolumeError> {
        self.files(&PodUid::from(NO_POD), |inner| {
            let root = &inner.settings.root_dir;
            let fail = |why| VolumeError::PodDirectory {
                path: root.clone(),
                why,
            };
            make_dir(root, 0o750)?;
            for name in ["pods", "plugins", "plugins_registry"] {
                make_dir(&root.join(name), 0o750)?;
            }
            inner.mounter.make_shared(root).map_err(fail)
        })
        .await
    }

    /// Whether the kernel keeps volumes of memory out of swap: tried, since kernels older than 6.4 may know the option, too.
    pub async fn stay_in_memory(&self) -> bool {
        let nobody = PodUid::from(NO_POD);
        let tried = self.files(&nobody, |inner| {
            let path = inner.settings.root_dir.join(SWAP_TRIAL);
            make_dir(&path, 0o700)?;
            let works = inner.mounter.tmpfs(&path, "size=4096,noswap").is_ok();
            let gone = inner.mounter.unmount(&path).and_then(|()| fs::remove_dir(&path));
            if let Err(error) = gone {
                tracing::warn!(path = %path.display(), %error, "what a trial mounted stays");
            }
            Ok(works)
        });
        tried.await.unwrap_or(false)
    }

    /// Makes the pod's directories. Before its volumes.
    pub async fn prepare_pod_dirs(&self, pod: &Pod) -> Result<(), VolumeError> {
        let uid = uid_of(pod);
        self.files(&uid.clone(), move |inner| inner.make_pod_dirs(&uid)).await
    }

    /// Makes ready every volume some container of the pod mounts, and returns them by name. Idempotent; what is ready stays as it
    /// is, and content is brought up to date.
    pub async fn ensure(&self, pod: &Pod) -> Result<BTreeMap<String, HostVolume>, VolumeError> {
        let ready = self.fetch(pod).await?;
        let names: Vec<String> = ready.iter().map(|volume| volume.plan.name.clone()).collect();
        let unmounted = Arc::new(Mutex::new(names));
        let left = unmounted.clone();
        let (pod, uid) = (pod.clone(), uid_of(pod));
        let key = uid.clone();
        let mounted = self.files(&key, move |inner| {
            inner.make_pod_dirs(&uid)?;
            let mounted = inner.mounted(&uid)?;
            let mut out = BTreeMap::new();
            for volume in &ready {
                let begun = Instant::now();
                let host = inner.set_up(&pod, volume, &mounted);
                let (metrics, plugin) = (&inner.settings.metrics, volume.plan.source.plugin());
                metrics.did(VolumeOperation::Mount, plugin, begun.elapsed(), host.is_ok());
                let host = host?;
                out.insert(volume.plan.name.clone(), host);
                let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
                left.retain(|name| *name != volume.plan.name);
            }
            Ok(out)
        });
        match mounted.await {
            Err(VolumeError::Work(WorkError::Overdue)) => {
                let unmounted = unmounted.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Err(VolumeError::NotMounted { unmounted })
            }
            other => other,
        }
    }

    /// Plans the pod's volumes and fetches what they are filled with.
    async fn fetch(&self, pod: &Pod) -> Result<Vec<Ready>, VolumeError> {
        let plans = plan::plans(pod).collect::<Result<Vec<_>, _>>()?;
        let references: BTreeSet<ObjectRef> = plans.iter().flat_map(|p| p.references(pod)).collect_ordered();
        // Begins every watch before the first is waited for.
        let references: Vec<_> = references.into_iter().collect();
        drop(self.inner.objects.changes(&uid_of(pod), &references));
        let (mut ready, room) = (Vec::new(), Room::of_pod());
        for plan in plans {
            ready.push(self.fetch_one(pod, plan, &room).await?);
        }
        Ok(ready)
    }

    /// Fetches what one volume is filled with, which has its place in `room`.
    async fn fetch_one(&self, pod: &Pod, plan: VolumePlan, room: &Room) -> Result<Ready, VolumeError> {
        let inner = &self.inner;
        let Source::Files(files) = &plan.source else {
            return Ok(Ready {
                plan,
                payload: None,
                refresh_at: None,
            });
        };
        let fail = |error: ObjectError| set_up(&plan.name, error);
        let input = FilesInput::fetch(&inner.objects, &uid_of(pod), pod, files)
            .await
            .map_err(fail)?;
        let host_ips = inner.settings.host_ips.texts();
        let addresses = Addresses {
            pod_ips: &input.pod_ips,
            host_ips: &host_ips,
        };
        let payload = payload::payload(pod, files, &input, addresses, inner.settings.allocatable, room)
            .map_err(|why| set_up(&plan.name, why))?;
        Ok(Ready {
            plan,
            payload: Some(payload),
            refresh_at: input.refresh_at,
        })
    }

    /// Makes the files one container start needs.
    pub async fn prepare_container(&self, request: ContainerFilesRequest) -> Result<ContainerFiles, VolumeError> {
        self.files(&request.pod.clone(), move |inner| {
            container_files::prepare(inner, &request)
        })
        .await
    }

    /// Marks that an instance's preStop hook begins; tells whether it was not marked before. The mark is of this kubelet
    /// alone and goes with the pod's directory, or with the next mark of the same container.
    pub async fn mark_pre_stop(
        &self,
        pod: &PodUid,
        container: &str,
        instance: &ContainerId,
    ) -> Result<bool, VolumeError> {
        let (container, instance) = (container.to_owned(), instance.clone());
        self.marks(pod, move |dir| {
            container_files::mark_pre_stop(dir, &container, &instance)
        })
        .await
    }

    /// Marks that the pod's containers are being stopped.
    pub async fn mark_ending(&self, pod: &PodUid, ending: Ending) -> Result<(), VolumeError> {
        self.marks(pod, move |dir| ending::write(dir, &ending)).await
    }

    /// The end of the pod that an earlier kubelet began, if its directory is still there.
    pub async fn ending(&self, pod: &PodUid) -> Option<Ending> {
        self.marks(pod, |dir| Ok(ending::read(dir))).await.ok().flatten()
    }

    /// Unmounts everything of the pod and removes its directory, never crossing into a mount that would not go. Idempotent.
    pub async fn release(&self, uid: &PodUid) -> Result<(), VolumeError> {
        let dir = self.inner.own_dir(uid)?;
        self.inner.objects.release(uid);
        let uid = uid.clone();
        self.files(&uid.clone(), move |inner| {
            inner
                .release(&dir)
                .map_err(|why| VolumeError::Release { uid: uid.clone(), why })?;
            inner.forget_user_namespace(&uid);
            Ok(())
        })
        .await
    }

    /// UIDs of all pods that have a directory: what start-up compares with the pods it knows.
    pub async fn list(&self) -> Result<BTreeSet<PodUid>, VolumeError> {
        self.files(&PodUid::from(NO_POD), |inner| {
            let pods = inner.settings.root_dir.join("pods");
            let entries = match fs::read_dir(&pods) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
                other => other.map_err(|why| VolumeError::PodDirectory {
                    path: pods.clone(),
                    why,
                })?,
            };
            let uid_of = |entry: fs::DirEntry| PodUid::from_file_name(entry.file_name().to_str()?);
            Ok(entries.flatten().filter_map(uid_of).collect_ordered())
        })
        .await
    }
}

fn uid_of(pod: &Pod) -> PodUid {
    PodUid::from(pod.metadata.uid.as_deref().unwrap_or_default())
}

fn fs_group(pod: &Pod) -> Option<u32> {
    let group = pod.spec.as_ref()?.security_context.as_ref()?.fs_group?;
    u32::try_from(group).ok()
}

fn make_dir(path: &Path, mode: u32) -> Result<(), VolumeError> {
    let made = fs::DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(|why| VolumeError::PodDirectory {
        path: path.to_owned(),
        why,
    })
}

/// The plugins of the volumes the pod's containers mount, by upstream's names.
pub(crate) fn plugins(pod: &Pod) -> impl Iterator<Item = &'static str> {
    plan::plans(pod).flatten().map(|plan| plan.source.plugin())
}

/// The objects and tokens the pod's volumes are filled from.
pub(crate) fn needs(pod: &Pod) -> (BTreeSet<ObjectRef>, Vec<TokenRequestKey>) {
    let plans: Vec<VolumePlan> = plan::plans(pod).flatten().collect();
    let objects = plans.iter().flat_map(|plan| plan.references(pod)).collect_ordered();
    let tokens = plans.iter().flat_map(VolumePlan::tokens);
    (objects, tokens.map(|token| payload::token_key(pod, token)).collect())
}

#[cfg(test)]
mod tests;
