//! cgroup v1: one tree per controller, each a directory below the mount (`cpu`, `memory`, ...).

use super::hierarchy::{keyed, make_dir, number};
use super::{CgroupError, Usage, Values};
use client::ordered::Arrange;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The controllers' trees.
#[derive(Debug)]
pub struct Trees {
    /// Where each name found at the mount leads; several names may lead to one tree.
    by_name: BTreeMap<String, PathBuf>,
    /// A hybrid host's unified tree: a runtime may leave directories there, so it is cleaned but never written to.
    unified: Option<PathBuf>,
}

impl Trees {
    /// Finds every tree mounted below `mount`, through links too (`cpu -> cpu,cpuacct`).
    pub(super) fn find(mount: &Path) -> Result<Self, CgroupError> {
        let read = |source| CgroupError::Read {
            path: mount.to_owned(),
            source,
        };
        let mut by_name = BTreeMap::new();
        let mut unified = None;
        for entry in fs::read_dir(mount).map_err(read)? {
            let entry = entry.map_err(read)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == "unified" {
                unified = Some(entry.path());
                continue;
            }
            if let Ok(path) = fs::canonicalize(entry.path())
                && path.is_dir()
            {
                by_name.insert(name, path);
            }
        }
        Ok(Self { by_name, unified })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    fn trees(&self) -> Vec<&PathBuf> {
        let mut trees: Vec<&PathBuf> = self.by_name.values().collect();
        trees.arrange();
        trees.dedup();
        trees
    }

    /// The cgroup's directory in each tree.
    pub(super) fn roots(&self, path: &str) -> Vec<PathBuf> {
        let relative = path.trim_start_matches('/');
        let trees = self.trees().into_iter().chain(&self.unified);
        trees.map(|tree| tree.join(relative)).collect()
    }

    /// The cgroup's directory in each tree that is written to.
    pub(super) fn own(&self, path: &str) -> Vec<PathBuf> {
        let relative = path.trim_start_matches('/');
        self.trees().into_iter().map(|tree| tree.join(relative)).collect()
    }

    /// The cgroup's directory in the tree of a controller.
    pub(super) fn in_tree(&self, controller: &str, path: &str) -> Option<PathBuf> {
        let tree = self.by_name.get(controller)?;
        Some(tree.join(path.trim_start_matches('/')))
    }

    pub(super) fn ensure(&self, path: &str) -> Result<(), CgroupError> {
        let cpuset = self.by_name.get("cpuset");
        for tree in self.trees() {
            let mut dir = tree.clone();
            for part in path.split('/').filter(|p| !p.is_empty()) {
                dir.push(part);
                if make_dir(&dir)? && cpuset == Some(tree) {
                    inherit_cpuset(&dir)?;
                }
            }
        }
        Ok(())
    }

    /// The files that hold these values. Period goes before quota: the kernel checks one against the other.
    pub(super) fn files(&self, path: &str, values: &Values) -> Vec<(PathBuf, String)> {
        let mut out = Vec::new();
        let mut put = |controller: &str, file: String, value: i64| {
            if let Some(dir) = self.in_tree(controller, path) {
                out.push((dir.join(file), value.to_string()));
            }
        };
        if let Some(shares) = values.cpu_shares {
            put("cpu", "cpu.shares".into(), shares);
        }
        if let Some((quota, period)) = values.cpu_quota {
            put("cpu", "cpu.cfs_period_us".into(), period);
            put("cpu", "cpu.cfs_quota_us".into(), quota);
        }
        if let Some(memory) = values.memory {
            put("memory", "memory.limit_in_bytes".into(), memory);
        }
        if let Some(pids) = values.pids {
            put("pids", "pids.max".into(), pids);
        }
        for (size, limit) in &values.hugepages {
            put("hugetlb", format!("hugetlb.{size}.limit_in_bytes"), *limit);
            // What is reserved counts apart from what is in use, where the kernel counts it.
            let reserved = format!("hugetlb.{size}.rsvd.limit_in_bytes");
            let tree = self.in_tree("hugetlb", path);
            if tree.is_some_and(|dir| dir.join(&reserved).exists()) {
                put("hugetlb", reserved, *limit);
            }
        }
        out
    }

    /// The controllers of these values in whose trees the cgroup is not.
    pub(super) fn lacking(&self, path: &str, values: &Values) -> Vec<String> {
        let used = [
            ("cpu", values.cpu_shares.is_some()),
            ("memory", values.memory.is_some()),
            ("pids", values.pids.is_some()),
        ];
        let is_absent = |controller: &str| self.in_tree(controller, path).is_some_and(|dir| !dir.is_dir());
        let lacking = used
            .into_iter()
            .filter(|(controller, used)| *used && is_absent(controller));
        lacking.map(|(controller, _)| controller.to_owned()).collect()
    }

    pub(super) fn usage(&self, path: &str) -> Usage {
        let memory_dir = self.in_tree("memory", path);
        let memory = memory_dir
            .as_ref()
            .and_then(|d| number(&d.join("memory.usage_in_bytes")));
        let inactive = memory_dir
            .as_ref()
            .and_then(|d| keyed(&d.join("memory.stat"), "total_inactive_file"));
        Usage {
            cpu_nanos: self
                .in_tree("cpuacct", path)
                .and_then(|d| number(&d.join("cpuacct.usage"))),
            memory,
            swap: None,
            processes: self.in_tree("pids", path).and_then(|d| number(&d.join("pids.current"))),
            working_set: memory.map(|m| m.saturating_sub(inactive.unwrap_or(0))),
        }
    }
}

/// A new v1 cpuset is empty, and nothing can run in it: it starts as its parent is.
fn inherit_cpuset(dir: &Path) -> Result<(), CgroupError> {
    let Some(parent) = dir.parent() else { return Ok(()) };
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let Ok(value) = fs::read_to_string(parent.join(file)) else {
            continue;
        };
        let path = dir.join(file);
        fs::write(&path, value.trim()).map_err(|source| CgroupError::Write { path, value, source })?;
    }
    Ok(())
}
