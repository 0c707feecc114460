//! The cgroups of the node's own processes that the configuration names: `systemCgroups`, for all processes that are in none, and
//! `kubeletCgroups`, for the kubelet itself.
//!
//! Owns which process it moves there, once a minute, as upstream. Both are plain directories whatever the driver: a manager of services
//! that made them keeps them. Moves neither the first process nor threads of the kernel's, and never takes one out of a cgroup it is in
//! (of version 1: in no tree), but the kubelet itself. Never limits anything: that is what `systemReservedCgroup` and `kubeReservedCgroup` are for.

use super::{CgroupError, Hierarchy};
use crate::host::FileWork;
use client::beat;
use client::ordered::CollectOrdered;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often it is looked who is to be moved.
const EVERY: Duration = Duration::from_secs(60);
/// How long a look may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// How often a look is made again at once, because processes come while others are moved.
const TRIES: usize = 10;

/// Whose cgroups these are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnCgroups {
    /// `systemCgroups`.
    pub system: Option<String>,
    /// `kubeletCgroups`.
    pub kubelet: Option<String>,
}

/// Why a process is not where it is to be.
#[derive(Debug, thiserror::Error)]
pub(super) enum GatherError {
    /// The cgroup cannot be made.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// What is looked at cannot be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is nowhere to be seen who is in no cgroup.
    #[error("neither the cgroup tree of devices nor that of memory is mounted: processes in no cgroup are not known")]
    NoTree,
    /// The kernel refuses.
    #[error("failed to move PID {pid} into {cgroup:?}")]
    Move {
        /// The process.
        pid: u32,
        /// The cgroup.
        cgroup: String,
        /// Why.
        source: io::Error,
    },
}

/// Gathers them.
pub struct Gatherer {
    tree: Hierarchy,
    proc: PathBuf,
    own: OwnCgroups,
}

impl Gatherer {
    /// One for the tree at `mount`; nothing if no cgroup is named.
    ///
    /// # Errors
    /// There is no tree.
    pub fn open(mount: &Path, proc: PathBuf, own: OwnCgroups) -> Result<Option<Self>, CgroupError> {
        if own == OwnCgroups::default() {
            return Ok(None);
        }
        let tree = Hierarchy::detect(mount)?;
        Ok(Some(Self { tree, proc, own }))
    }

    /// Gathers until shut down, first at once. What fails is told, and tried again.
    pub async fn keep(self, shutdown: CancellationToken) {
        let (work, gatherer) = (FileWork::new(DEADLINE), std::sync::Arc::new(self));
        let mut told = BTreeSet::new();
        loop {
            let look = gatherer.clone();
            let failed = match work.run("", move || look.gather()).await {
                Ok(failed) => failed.iter().map(chain).collect_ordered(),
                Err(error) => BTreeSet::from([chain(&error)]),
            };
            for error in failed.difference(&told) {
                tracing::warn!(error, "Failed to ensure state");
            }
            told = failed;
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = beat::wait(EVERY) => {}
            }
        }
    }

    /// One look; what could not be done.
    pub(super) fn gather(&self) -> Vec<GatherError> {
        let system = self.own.system.as_deref().map(|cgroup| self.gather_system(cgroup));
        let kubelet = self.own.kubelet.as_deref().map(|cgroup| self.gather_kubelet(cgroup));
        let all = [system, kubelet].into_iter().flatten();
        all.filter_map(Result::err).collect()
    }

    /// Moves processes that are in no cgroup until there are none, or some cannot be; tells the first of those.
    fn gather_system(&self, cgroup: &str) -> Result<(), GatherError> {
        self.tree.ensure_leaf(cgroup)?;
        for _ in 0..=TRIES {
            let left = self.homeless()?;
            if left.is_empty() {
                break;
            }
            let moved = left.into_iter().map(|pid| {
                // Without the file it ended meanwhile.
                let groups = fs::read_to_string(self.proc.join(format!("{pid}/cgroup")));
                groups.map_or(Ok(()), |groups| {
                    told(pid, cgroup, self.tree.put_homeless(pid, &groups, cgroup))
                })
            });
            // All are tried.
            moved.fold(Ok(()), Result::and)?;
        }
        Ok(())
    }

    /// The processes in the root that may be moved.
    fn homeless(&self) -> Result<BTreeSet<u32>, GatherError> {
        let path = self.tree.root_processes().ok_or(GatherError::NoTree)?;
        let text = fs::read_to_string(&path).map_err(|source| GatherError::Read { path, source })?;
        let all = text.lines().filter_map(|line| line.trim().parse::<u32>().ok());
        // The kubelet has a cgroup of its own to be in, which may be the root.
        let has_own = |pid: u32| pid == std::process::id() && self.own.kubelet.is_some();
        let may_go = |pid: &u32| *pid > 1 && !has_own(*pid) && !self.is_kernels(*pid);
        Ok(all.filter(may_go).collect())
    }

    /// Whether it is a thread of the kernel's, which has no program; so it looks, too, where it ended meanwhile.
    fn is_kernels(&self, pid: u32) -> bool {
        let link = fs::read_link(self.proc.join(pid.to_string()).join("exe"));
        link.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Moves the kubelet, unless it is there, or runs in a container, where nothing is its own to move.
    fn gather_kubelet(&self, cgroup: &str) -> Result<(), GatherError> {
        let namespace = |of: &str| {
            let path = self.proc.join(of).join("ns/pid");
            fs::read_link(&path).map_err(|source| GatherError::Read { path, source })
        };
        if namespace("1")? != namespace("self")? {
            return Ok(());
        }
        let path = self.proc.join("self/cgroup");
        let groups = fs::read_to_string(&path).map_err(|source| GatherError::Read { path, source })?;
        if self.tree.is_everywhere_in(&groups, cgroup) {
            return Ok(());
        }
        self.tree.ensure_leaf(cgroup)?;
        let pid = std::process::id();
        told(pid, cgroup, self.tree.put(pid, cgroup))
    }
}

/// What became of a process that was to be moved.
fn told(pid: u32, cgroup: &str, put: io::Result<()>) -> Result<(), GatherError> {
    match put {
        // It ended meanwhile.
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32) => Ok(()),
        other => other.map_err(|source| GatherError::Move {
            pid,
            cgroup: cgroup.to_owned(),
            source,
        }),
    }
}

/// An error with what it comes from: what is new of it is told, and the same not again with each look.
fn chain(error: &(impl std::error::Error + 'static)) -> String {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests;
