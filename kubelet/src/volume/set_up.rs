//! The file work of setting volumes up: blocking, idempotent, one pod at a time.

use super::error::set_up;
use super::plan::{self, Source};
use super::{HostVolume, Inner, Ready, ReleaseError, VolumeError, atomic_writer, fs_group, local, make_dir, uid_of};
use crate::host::tree;
use crate::id::PodUid;
use crate::metrics::VolumeOperation;
use crate::pod_object::own_users;
use client::ordered::CollectOrdered;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

impl Inner {
    pub(super) fn pod_dir(&self, uid: &PodUid) -> PathBuf {
        self.settings.root_dir.join("pods").join(uid.as_str())
    }

    /// The pod's directory, for whoever changes something in it: never one that is not its own.
    pub(super) fn own_dir(&self, uid: &PodUid) -> Result<PathBuf, VolumeError> {
        if !uid.names_a_directory() {
            return Err(VolumeError::Uid(uid.clone()));
        }
        Ok(self.pod_dir(uid))
    }

    pub(super) fn make_pod_dirs(&self, uid: &PodUid) -> Result<(), VolumeError> {
        let dir = self.own_dir(uid)?;
        for path in [
            dir.clone(),
            dir.join("volumes"),
            dir.join("plugins"),
            dir.join("containers"),
        ] {
            make_dir(&path, 0o750)?;
        }
        Ok(())
    }

    /// Unmounts everything below a pod's directory, then removes it.
    pub(super) fn release(&self, dir: &Path) -> Result<(), ReleaseError> {
        for path in self.mounter.mounts_below(dir).map_err(ReleaseError::Mounts)? {
            let begun = Instant::now();
            let unmounted = self.mounter.unmount(&path);
            if let Some(plugin) = plan::plugin_at(dir, &path) {
                let metrics = &self.settings.metrics;
                metrics.did(VolumeOperation::Unmount, plugin, begun.elapsed(), unmounted.is_ok());
            }
            unmounted.map_err(|why| ReleaseError::Unmount { path, why })?;
        }
        // An unmount that worked need not be the last word: somebody may mount again, or the kernel only looked away.
        let left = self.mounter.mounts_below(dir).map_err(ReleaseError::Mounts)?;
        if let Some(path) = left.into_iter().next() {
            return Err(ReleaseError::StillMounted { path });
        }
        self.settings.projects.take_back(dir);
        tree::remove(dir).map_err(|why| ReleaseError::Remove {
            path: dir.to_owned(),
            why,
        })
    }

    pub(super) fn mounted(&self, uid: &PodUid) -> Result<BTreeSet<PathBuf>, VolumeError> {
        let dir = self.own_dir(uid)?;
        let points = self.mounter.mounts_below(&dir);
        let points = points.map_err(|why| VolumeError::PodDirectory { path: dir, why })?;
        Ok(points.into_iter().collect_ordered())
    }

    pub(super) fn set_up(
        &self,
        pod: &Pod,
        volume: &Ready,
        mounted: &BTreeSet<PathBuf>,
    ) -> Result<HostVolume, VolumeError> {
        let plan = &volume.plan;
        let path = self.pod_dir(&uid_of(pod)).join(&plan.directory);
        match &plan.source {
            Source::Image => Ok(HostVolume {
                path: PathBuf::new(),
                read_only: true,
                own: false,
            }),
            Source::HostPath { path, kind } => {
                local::check_host_path(path, kind).map_err(|why| set_up(&plan.name, why))?;
                Ok(HostVolume {
                    path: path.clone(),
                    read_only: false,
                    own: false,
                })
            }
            Source::EmptyDir(empty) => {
                let ready = path.is_dir() && self.marker(pod, &plan.name).exists();
                self.make_empty_dir(pod, &path, empty, mounted)
                    .map_err(|why| set_up(&plan.name, why))?;
                if !ready {
                    if empty.medium == plan::Medium::Disk {
                        // Whoever made it may have died before its mode was right.
                        public(&path).map_err(|why| set_up(&plan.name, why))?;
                        if own_users(pod) {
                            let pods = self.settings.root_dir.join("pods");
                            self.settings.projects.assign(&pods, &path);
                        }
                    }
                    if let Some(gid) = fs_group(pod) {
                        tree::give_to_group(&path, gid, false).map_err(|why| set_up(&plan.name, why))?;
                    }
                    self.mark_ready(pod, &plan.name)
                        .map_err(|why| set_up(&plan.name, why))?;
                }
                Ok(HostVolume {
                    path,
                    read_only: false,
                    own: true,
                })
            }
            Source::Files(files) => {
                self.make_files_dir(&path, files.tmpfs, mounted)
                    .map_err(|why| set_up(&plan.name, why))?;
                self.write_payload(pod, volume)?;
                Ok(HostVolume {
                    path,
                    read_only: true,
                    own: true,
                })
            }
        }
    }

    pub(super) fn write_payload(&self, pod: &Pod, volume: &Ready) -> Result<(), VolumeError> {
        let Some(payload) = &volume.payload else { return Ok(()) };
        let path = self.pod_dir(&uid_of(pod)).join(&volume.plan.directory);
        let group = fs_group(pod);
        atomic_writer::write(&path, payload, self.clock.now(), |_| {
            // The volume's own directory as well.
            group.map_or(Ok(()), |gid| tree::give_to_group(&path, gid, true))
        })
        .map_err(|why| set_up(&volume.plan.name, why))
    }

    /// The file that says an emptyDir was set up completely (kubelet contract §2).
    pub(super) fn marker(&self, pod: &Pod, volume: &str) -> PathBuf {
        let dir = self.pod_dir(&uid_of(pod));
        dir.join("plugins/kubernetes.io~empty-dir").join(volume).join("ready")
    }

    pub(super) fn mark_ready(&self, pod: &Pod, volume: &str) -> io::Result<()> {
        let marker = self.marker(pod, volume);
        if let Some(dir) = marker.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o750).create(dir)?;
        }
        fs::write(marker, "")
    }

    /// Makes the directory and what is mounted there. A tmpfs is as the kernel makes it, sticky and for everybody; huge pages are
    /// their owner's alone, or the pod's group's.
    pub(super) fn make_empty_dir(
        &self,
        pod: &Pod,
        path: &Path,
        empty: &plan::EmptyDir,
        mounted: &BTreeSet<PathBuf>,
    ) -> io::Result<()> {
        make_public_dir(path)?;
        if mounted.contains(path) {
            return Ok(());
        }
        match &empty.medium {
            plan::Medium::Disk => Ok(()),
            plan::Medium::Memory => {
                let size = local::memory_volume_size(pod, empty.size_limit, self.settings.allocatable.memory);
                self.tmpfs(path, size)
            }
            plan::Medium::HugePages(size) => self.mounter.hugetlbfs(path, &format!("pagesize={size}")),
        }
    }

    pub(super) fn tmpfs(&self, path: &Path, size: i64) -> io::Result<()> {
        let options = format!("size={size}");
        match self.mounter.tmpfs(path, &format!("{options},noswap")) {
            // Kernels before 6.4 do not know noswap.
            Err(error) if error.raw_os_error() == Some(nix::libc::EINVAL) => self.mounter.tmpfs(path, &options),
            other => other,
        }
    }

    pub(super) fn make_files_dir(&self, path: &Path, tmpfs: bool, mounted: &BTreeSet<PathBuf>) -> io::Result<()> {
        make_public_dir(path)?;
        if tmpfs && !mounted.contains(path) {
            self.tmpfs(path, self.settings.allocatable.memory)?;
        }
        Ok(())
    }
}

fn public(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777))
}

/// A volume's own directory, 0777 whatever the umask says; parents 0750.
fn make_public_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o750).create(path)?;
    public(path)
}
