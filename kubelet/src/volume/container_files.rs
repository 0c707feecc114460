//! Files made for one start of one container: log directory, hosts file, termination message file, bound sub paths.

use super::{HostVolume, Inner, VolumeError};
use crate::host::{beneath, tree};
use crate::id::{ContainerId, PodUid};
use nix::libc;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// How the mark of a begun preStop hook begins; the instance's id follows.
const PRE_STOP_MARK: &str = "prestop-";

/// Host paths prepared for one container's start; made by [`super::Volumes::prepare_container`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerFiles {
    /// The pod's hosts file; `None` when the pod has none yet.
    pub etc_hosts: Option<PathBuf>,
    /// This run's termination message file.
    pub termination_log: Option<PathBuf>,
    /// Bound sub path by the mount's index in `volumeMounts`.
    pub sub_paths: BTreeMap<usize, PathBuf>,
    /// Images to be mounted, by the mount's index.
    pub images: BTreeMap<usize, ImageMount>,
}

/// An image that the runtime mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageMount {
    /// Its id.
    pub id: String,
    /// How the pod names it.
    pub reference: String,
    /// What of it is mounted; empty for all.
    pub sub_path: PathBuf,
}

/// A sub path of a volume that has to be resolved on the host without leaving the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubPath {
    /// Index in the container's `volumeMounts`.
    pub index: usize,
    /// The volume's name.
    pub volume: String,
    /// The path inside it: relative, free of `..`.
    pub path: PathBuf,
    /// Mounted read only.
    pub read_only: bool,
}

/// What one container start needs.
#[derive(Debug, Clone)]
pub struct ContainerFilesRequest {
    /// The pod.
    pub pod: PodUid,
    /// The container's name.
    pub container: String,
    /// Which start of the container this is.
    pub restart_count: u32,
    /// The pod's log directory; the container's own is made inside it.
    pub log_directory: PathBuf,
    /// The hosts file's text, if the pod has one.
    pub hosts: Option<String>,
    /// Sub paths of its mounts.
    pub sub_paths: Vec<SubPath>,
    /// The pod's volumes.
    pub volumes: BTreeMap<String, HostVolume>,
}

pub(super) fn prepare(inner: &Inner, request: &ContainerFilesRequest) -> Result<ContainerFiles, VolumeError> {
    let fail = |what: &'static str| {
        let container = request.container.clone();
        move |why: io::Error| VolumeError::ContainerFile { what, container, why }
    };
    let pod_dir = inner.own_dir(&request.pod)?;
    let logs = request.log_directory.join(&request.container);
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(&logs);
    made.map_err(fail("log directory"))?;
    let etc_hosts = match &request.hosts {
        Some(text) => Some(write_hosts(&pod_dir, text).map_err(fail("hosts file"))?),
        None => None,
    };
    let termination = termination_file(inner, &pod_dir, request).map_err(fail("termination message file"))?;
    let mut sub_paths = BTreeMap::new();
    for sub in &request.sub_paths {
        let bound = bind(inner, &pod_dir, request, sub).map_err(|why| VolumeError::SubPath {
            volume: sub.volume.clone(),
            container: request.container.clone(),
            why,
        })?;
        sub_paths.insert(sub.index, bound);
    }
    Ok(ContainerFiles {
        etc_hosts,
        termination_log: Some(termination),
        sub_paths,
        images: BTreeMap::new(),
    })
}

/// Writes the pod's hosts file in place, because running containers have it mounted. They may write it too: of what they
/// left, no more is read than can be right.
fn write_hosts(pod_dir: &Path, text: &str) -> io::Result<PathBuf> {
    let path = pod_dir.join("etc-hosts");
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(&path)?;
    let there = file.metadata()?;
    if !there.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    if there.len() == text.len() as u64 {
        let mut have = Vec::new();
        (&file).take(there.len()).read_to_end(&mut have)?;
        if have == text.as_bytes() {
            return Ok(path);
        }
    }
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    Ok(path)
}

/// A fresh file, `containers/<name>/<8 hex>`, that any user may write.
fn termination_file(inner: &Inner, pod_dir: &Path, request: &ContainerFilesRequest) -> io::Result<PathBuf> {
    use sha2::Digest;
    let dir = pod_dir.join("containers").join(&request.container);
    fs::DirBuilder::new().recursive(true).mode(0o750).create(&dir)?;
    let now = inner.clock.now().as_nanosecond();
    for attempt in 0..64 {
        let seed = format!("{}/{}/{now}/{attempt}", request.pod, request.restart_count);
        let digest = sha2::Sha256::digest(seed.as_bytes());
        let path = dir.join(hex::encode(&digest[..4]));
        match fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o666)
            .open(&path)
        {
            Ok(_) => {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
                return Ok(path);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}

/// Leaves `containers/<name>/prestop-<id>`, and takes away marks of earlier instances. A directory that is not there is
/// not made: the pod may be going.
pub(super) fn mark_pre_stop(pod_dir: &Path, container: &str, instance: &ContainerId) -> Result<bool, VolumeError> {
    let dir = pod_dir.join("containers").join(container);
    let mark = format!("{PRE_STOP_MARK}{instance}");
    let made = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(dir.join(&mark));
    match made {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        Err(error) => {
            return Err(VolumeError::ContainerFile {
                what: "preStop mark",
                container: container.to_owned(),
                why: error,
            });
        }
    }
    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_older = name.to_str().is_some_and(|n| n.starts_with(PRE_STOP_MARK) && n != mark);
        if is_older && let Err(error) = fs::remove_file(entry.path()) {
            tracing::debug!(path = %entry.path().display(), %error, "an old preStop mark stays");
        }
    }
    Ok(true)
}

/// Binds the sub path where nobody inside the volume can move it: what was opened inside is bound by its descriptor.
fn bind(inner: &Inner, pod_dir: &Path, request: &ContainerFilesRequest, sub: &SubPath) -> io::Result<PathBuf> {
    let volume = request
        .volumes
        .get(&sub.volume)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the pod has no such volume"))?;
    let source = beneath::open(&volume.path, &sub.path)?;
    let parent = pod_dir
        .join("volume-subpaths")
        .join(&sub.volume)
        .join(&request.container);
    fs::DirBuilder::new().recursive(true).mode(0o750).create(&parent)?;
    let target = parent.join(sub.index.to_string());
    inner.mounter.unmount(&target)?;
    if fs::symlink_metadata(&target).is_ok() {
        tree::remove(&target)?;
    }
    if tree::is_dir(source.as_fd())? {
        fs::DirBuilder::new().mode(0o750).create(&target)?;
    } else {
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o640)
            .open(&target)?;
    }
    inner.mounter.bind_fd(source.as_fd(), &target)?;
    Ok(target)
}
