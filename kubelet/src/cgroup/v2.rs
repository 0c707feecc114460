//! cgroup v2: the unified tree.

use super::hierarchy::{keyed, make_dir, number};
use super::{CgroupError, Usage, Values, limits};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

const WANTED: [&str; 5] = ["cpu", "cpuset", "memory", "hugetlb", "pids"];

/// The unified tree.
#[derive(Debug)]
pub struct Tree {
    mount: PathBuf,
}

impl Tree {
    pub(super) fn new(mount: &Path) -> Self {
        Self {
            mount: mount.to_owned(),
        }
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.mount.join(path.trim_start_matches('/'))
    }

    /// Makes each level after its parent has handed down the controllers it has.
    pub(super) fn ensure(&self, path: &str) -> Result<(), CgroupError> {
        // The runtime makes its containers' cgroups below: they need the controllers too.
        hand_down(&self.make(path)?)
    }

    /// The same, but nothing is handed down by the cgroup itself: processes can be in it.
    pub(super) fn ensure_leaf(&self, path: &str) -> Result<(), CgroupError> {
        self.make(path).map(drop)
    }

    fn make(&self, path: &str) -> Result<PathBuf, CgroupError> {
        let mut dir = self.mount.clone();
        for part in path.split('/').filter(|p| !p.is_empty()) {
            hand_down(&dir)?;
            dir.push(part);
            make_dir(&dir)?;
        }
        Ok(dir)
    }

    /// Makes what the cgroup has of memory now the most it has without being slowed down. No less: it would be looked for what it could give
    /// back, and there is no time for that.
    pub(super) fn restrain(&self, path: &str) {
        let dir = self.at(path);
        let Some(current) = number(&dir.join("memory.current")) else {
            return;
        };
        let file = fs::OpenOptions::new().write(true).open(dir.join("memory.high"));
        let written = file.and_then(|mut file| file.write_all(current.to_string().as_bytes()));
        if let Err(error) = written {
            tracing::warn!(path, %error, "memory.high cannot be set");
        }
    }

    /// Slows down nobody in the cgroup any more.
    pub(super) fn release(&self, path: &str) {
        let file = self.at(path).join("memory.high");
        let is_slowed = fs::read_to_string(&file).is_ok_and(|high| high.trim() != "max");
        if is_slowed && let Err(error) = fs::write(&file, "max") {
            tracing::warn!(path, %error, "memory.high cannot be lifted");
        }
    }

    /// Kills what is in the cgroup and below it; whether the kernel knows how (since 5.14).
    pub(super) fn kill(&self, path: &str) -> bool {
        let file = fs::OpenOptions::new()
            .write(true)
            .open(self.at(path).join("cgroup.kill"));
        file.is_ok_and(|mut file| file.write_all(b"1").is_ok())
    }

    pub(super) fn files(&self, path: &str, values: &Values) -> Vec<(PathBuf, String)> {
        let dir = self.at(path);
        let max = |value: i64| if value < 0 { "max".to_owned() } else { value.to_string() };
        let mut out = Vec::new();
        if let Some(shares) = values.cpu_shares {
            out.push((dir.join("cpu.weight"), limits::cpu_weight(shares).to_string()));
        }
        if let Some((quota, period)) = values.cpu_quota {
            out.push((dir.join("cpu.max"), format!("{} {period}", max(quota))));
        }
        if let Some(memory) = values.memory {
            out.push((dir.join("memory.max"), max(memory)));
        }
        for (file, kept) in [("memory.min", values.memory_min), ("memory.low", values.memory_low)] {
            out.extend(kept.map(|kept| (dir.join(file), kept.to_string())));
        }
        if let Some(pids) = values.pids {
            out.push((dir.join("pids.max"), max(pids)));
        }
        for (size, limit) in &values.hugepages {
            out.push((dir.join(format!("hugetlb.{size}.max")), limit.to_string()));
            // What is reserved counts apart from what is in use, where the kernel counts it.
            let reserved = dir.join(format!("hugetlb.{size}.rsvd.max"));
            if reserved.exists() {
                out.push((reserved, limit.to_string()));
            }
        }
        out
    }

    /// What a cgroup lacks for these values: itself, or controllers that nobody handed down to it.
    pub(super) fn lacking(&self, path: &str, values: &Values) -> Option<Vec<String>> {
        let dir = self.at(path);
        if !dir.is_dir() {
            return Some(Vec::new());
        }
        let there = words(&dir, "cgroup.controllers");
        let used = [
            ("cpu", values.cpu_shares.is_some()),
            ("memory", values.memory.is_some()),
            ("pids", values.pids.is_some()),
        ];
        let is_absent = |controller: &str| !there.iter().any(|one| one == controller);
        let lacking = used
            .into_iter()
            .filter(|(controller, used)| *used && is_absent(controller));
        let lacking: Vec<String> = lacking.map(|(controller, _)| controller.to_owned()).collect();
        (!lacking.is_empty()).then_some(lacking)
    }

    pub(super) fn usage(&self, path: &str) -> Usage {
        let dir = self.at(path);
        let memory = number(&dir.join("memory.current"));
        let inactive = keyed(&dir.join("memory.stat"), "inactive_file");
        Usage {
            cpu_nanos: keyed(&dir.join("cpu.stat"), "usage_usec").map(|us| us * 1000),
            memory,
            swap: number(&dir.join("memory.swap.current")),
            processes: number(&dir.join("pids.current")),
            working_set: memory.map(|m| m.saturating_sub(inactive.unwrap_or(0))),
        }
    }
}

fn words(dir: &Path, file: &str) -> Vec<String> {
    let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Enables, for the children of `dir`, every controller we need that `dir` itself has and does not yet hand down.
fn hand_down(dir: &Path) -> Result<(), CgroupError> {
    let offered = words(dir, "cgroup.controllers");
    let enabled = words(dir, "cgroup.subtree_control");
    let missing: Vec<String> = WANTED
        .iter()
        .filter(|c| offered.iter().any(|o| o == *c) && !enabled.iter().any(|e| e == *c))
        .map(|c| format!("+{c}"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let path = dir.join("cgroup.subtree_control");
    let value = missing.join(" ");
    fs::write(&path, &value).map_err(|source| CgroupError::Write { path, value, source })
}
