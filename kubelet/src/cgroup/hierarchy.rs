//! One cgroup tree of either kind, over plain files: a test gives it a directory of its own.

use super::{CgroupError, Usage, Values, below, v1, v2};
use client::ordered::Arrange;
use client::ordered::CollectOrdered;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A mounted cgroup tree.
#[derive(Debug)]
pub enum Hierarchy {
    /// One tree per controller.
    V1(v1::Trees),
    /// The unified tree.
    V2(v2::Tree),
}

impl Hierarchy {
    /// Looks at what is mounted at `mount`.
    pub fn detect(mount: &Path) -> Result<Self, CgroupError> {
        if mount.join("cgroup.controllers").exists() {
            return Ok(Self::V2(v2::Tree::new(mount)));
        }
        let trees = v1::Trees::find(mount)?;
        if trees.is_empty() {
            return Err(CgroupError::NoHierarchy(mount.to_owned()));
        }
        Ok(Self::V1(trees))
    }

    /// Makes the cgroup and all above it.
    pub(super) fn ensure(&self, path: &str) -> Result<(), CgroupError> {
        match self {
            Self::V1(trees) => trees.ensure(path),
            Self::V2(tree) => tree.ensure(path),
        }
    }

    /// Makes a cgroup for processes, and all above it: of version 2 one that hands controllers down has none of its own.
    pub(super) fn ensure_leaf(&self, path: &str) -> Result<(), CgroupError> {
        match self {
            Self::V1(trees) => trees.ensure(path),
            Self::V2(tree) => tree.ensure_leaf(path),
        }
    }

    /// The file with the processes that are in no cgroup: of version 1 in the tree that hardly anybody else divides, as upstream. Nothing
    /// where that is not mounted.
    pub(super) fn root_processes(&self) -> Option<PathBuf> {
        let root = match self {
            Self::V1(trees) => trees.in_tree("devices", "").or_else(|| trees.in_tree("memory", "")),
            Self::V2(tree) => Some(tree.at("")),
        };
        root.map(|root| root.join("cgroup.procs"))
    }

    /// Whether a process of these cgroups (`/proc/PID/cgroup`) is in this one, in each tree.
    pub(super) fn is_everywhere_in(&self, groups: &str, path: &str) -> bool {
        let mut lines = groups.lines().filter_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let (_, at) = rest.split_once(':')?;
            Some((number, at))
        });
        match self {
            // Its unified tree, number 0, is none of ours.
            Self::V1(_) => lines.all(|(number, at)| number == "0" || at == path),
            Self::V2(_) => lines.any(|(number, at)| number == "0" && at == path),
        }
    }

    /// Moves a process into a cgroup, in all trees.
    pub(super) fn put(&self, pid: u32, path: &str) -> io::Result<()> {
        match self {
            Self::V1(trees) => put_in(trees.own(path), pid),
            Self::V2(tree) => put_in([tree.at(path)], pid),
        }
    }

    /// Moves a process of these cgroups (`/proc/PID/cgroup`) into this one, in the trees in which it is in none.
    pub(super) fn put_homeless(&self, pid: u32, groups: &str, path: &str) -> io::Result<()> {
        let of_root = groups.lines().filter_map(|line| {
            let (controllers, at) = line.split_once(':')?.1.split_once(':')?;
            (at == "/").then_some(controllers)
        });
        let names = of_root.flat_map(|controllers| controllers.split(','));
        match self {
            Self::V1(trees) => {
                let roots = names.filter_map(|name| trees.in_tree(name.strip_prefix("name=").unwrap_or(name), path));
                put_in(roots.collect_ordered::<BTreeSet<PathBuf>>(), pid)
            }
            Self::V2(tree) => put_in([tree.at(path)], pid),
        }
    }

    /// Writes values; files a kernel does not have are left out.
    pub(super) fn apply(&self, path: &str, values: &Values) -> Result<(), CgroupError> {
        let files = self.files(path, values);
        files
            .into_iter()
            .try_for_each(|(file, value)| write_value(&file, value))
    }

    fn files(&self, path: &str, values: &Values) -> Vec<(PathBuf, String)> {
        match self {
            Self::V1(trees) => trees.files(path, values),
            Self::V2(tree) => tree.files(path, values),
        }
    }

    /// Whether the cgroup has these values. Of memory the kernel keeps whole pages, and tells those.
    pub(super) fn holds(&self, path: &str, values: &Values) -> bool {
        let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
        let page = page.and_then(|page| u64::try_from(page).ok()).filter(|page| *page > 0);
        let pages = |text: &str| Some(text.trim().parse::<u64>().ok()? / page?);
        let is = |file: &Path, value: &str| {
            let Ok(text) = fs::read_to_string(file) else {
                return false;
            };
            let is_memory = file
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"memory."));
            let told = pages(&text);
            text.trim() == value || (is_memory && told.is_some() && told == pages(value))
        };
        self.files(path, values).iter().all(|(file, value)| is(file, value))
    }

    /// Fails while more memory is in use than these values allow: of version 2 the kernel would end processes at once.
    pub(super) fn check_room(&self, path: &str, values: &Values) -> Result<(), CgroupError> {
        let (Some(limit), Some(used)) = (values.memory, self.usage(path).working_set) else {
            return Ok(());
        };
        match u64::try_from(limit) {
            Ok(room) if room < used => Err(CgroupError::InUse {
                path: path.to_owned(),
                limit,
                used,
            }),
            _ => Ok(()),
        }
    }

    /// The controllers whose trees lack a cgroup though it is to have values there; `None` if it is where it must be.
    pub(super) fn lacks(&self, path: &str, values: &Values) -> Option<Vec<String>> {
        match self {
            Self::V1(trees) => Some(trees.lacking(path, values)).filter(|lacking| !lacking.is_empty()),
            Self::V2(tree) => tree.lacking(path, values),
        }
    }

    fn roots(&self, path: &str) -> Vec<PathBuf> {
        match self {
            Self::V1(trees) => trees.roots(path),
            Self::V2(tree) => vec![tree.at(path)],
        }
    }

    /// Whether this is the unified tree.
    pub(super) fn is_unified(&self) -> bool {
        matches!(self, Self::V2(_))
    }

    /// Where the tree with a controller is.
    pub(super) fn tree_of(&self, controller: &str) -> Option<PathBuf> {
        match self {
            Self::V1(trees) => trees.in_tree(controller, ""),
            Self::V2(tree) => Some(tree.at("")),
        }
    }

    /// Whether the cgroup is there, in any tree.
    pub(super) fn exists(&self, path: &str) -> bool {
        self.roots(path).iter().any(|root| root.is_dir())
    }

    /// Removes all below the cgroup; fails, as removing itself would, while a process is in it or below it.
    pub(super) fn clear(&self, path: &str) -> Result<(), CgroupError> {
        self.roots(path).iter().try_for_each(|root| {
            below::clear(root)?;
            check_empty(root)
        })
    }

    /// Removes the cgroup and every empty one below it, in all trees; tries all before reporting the first failure.
    pub(super) fn remove(&self, path: &str) -> Result<(), CgroupError> {
        let mut first = Ok(());
        for root in self.roots(path) {
            let result = below::remove(&root);
            if first.is_ok() {
                first = result;
            }
        }
        first
    }

    /// Names of the cgroups directly below.
    pub(super) fn children(&self, path: &str) -> Result<Vec<String>, CgroupError> {
        let mut names = Vec::new();
        for root in self.roots(path) {
            for dir in child_dirs(&root)? {
                names.extend(dir.file_name().map(|n| n.to_string_lossy().into_owned()));
            }
        }
        names.arrange();
        names.dedup();
        Ok(names)
    }

    /// The processes in the cgroup and below it.
    pub(super) fn processes(&self, path: &str) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        self.roots(path)
            .iter()
            .for_each(|root| below::processes(root, &mut found));
        found
    }

    /// Slows down what wants more memory in the cgroup, where the kernel can.
    pub(super) fn restrain(&self, path: &str) {
        if let Self::V2(tree) = self {
            tree.restrain(path);
        }
    }

    /// Lifts what [`Self::restrain`] did.
    pub(super) fn release(&self, path: &str) {
        if let Self::V2(tree) = self {
            tree.release(path);
        }
    }

    /// Has the kernel kill what is in the cgroup and below it; whether it does.
    pub(super) fn kill(&self, path: &str) -> bool {
        match self {
            Self::V1(_) => false,
            Self::V2(tree) => tree.kill(path),
        }
    }

    /// What the cgroup has used.
    pub(super) fn usage(&self, path: &str) -> Usage {
        match self {
            Self::V1(trees) => trees.usage(path),
            Self::V2(tree) => tree.usage(path),
        }
    }
}

/// Moves a process into these cgroups; tries all before reporting the first failure.
fn put_in(roots: impl IntoIterator<Item = PathBuf>, pid: u32) -> io::Result<()> {
    let put = |root: PathBuf| fs::write(root.join("cgroup.procs"), pid.to_string());
    roots.into_iter().map(put).fold(Ok(()), io::Result::and)
}

/// Reads one number.
pub(super) fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Reads `key value` from a flat keyed file.
pub(super) fn keyed(file: &Path, key: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

/// Makes one directory; one that is there is fine. Returns whether it is new.
pub(super) fn make_dir(path: &Path) -> Result<bool, CgroupError> {
    match fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(source) => Err(CgroupError::Create {
            path: path.to_owned(),
            source,
        }),
    }
}

fn write_value(file: &Path, value: String) -> Result<(), CgroupError> {
    match fs::write(file, &value) {
        Ok(()) => Ok(()),
        // A kernel without this controller has no such file, and there nothing can be limited.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) && !file.exists() =>
        {
            Ok(())
        }
        // A pod that ran before its reservations were limited may have more of them: what it has it keeps, and goes on.
        Err(error) if is_kept(file, error.kind()) => {
            let file = file.display();
            tracing::warn!(%file, value, "more huge pages are reserved than may be: their reservation is not limited");
            Ok(())
        }
        Err(source) => Err(CgroupError::Write {
            path: file.to_owned(),
            value,
            source,
        }),
    }
}

/// Whether a value was refused because more huge pages are reserved.
fn is_kept(file: &Path, why: io::ErrorKind) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    why == io::ErrorKind::ResourceBusy && name.starts_with("hugetlb.") && name.contains(".rsvd.")
}

fn child_dirs(path: &Path) -> Result<Vec<PathBuf>, CgroupError> {
    let read = |source| CgroupError::Read {
        path: path.to_owned(),
        source,
    };
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(read)?,
    };
    let mut dirs = Vec::new();
    for entry in entries {
        let entry = entry.map_err(read)?;
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            dirs.push(entry.path());
        }
    }
    Ok(dirs)
}

fn check_empty(path: &Path) -> Result<(), CgroupError> {
    match fs::read_to_string(path.join("cgroup.procs")) {
        Ok(processes) if !processes.trim().is_empty() => Err(CgroupError::Remove {
            path: path.to_owned(),
            source: io::ErrorKind::ResourceBusy.into(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_that_is_larger_than_may_be_is_kept_and_nothing_else_that_the_kernel_refuses() {
        for (file, why, kept) in [
            ("/a/hugetlb.2MB.rsvd.max", io::ErrorKind::ResourceBusy, true),
            ("/a/hugetlb.1GB.rsvd.limit_in_bytes", io::ErrorKind::ResourceBusy, true),
            ("/a/hugetlb.2MB.rsvd.max", io::ErrorKind::InvalidInput, false),
            ("/a/hugetlb.2MB.max", io::ErrorKind::ResourceBusy, false),
            ("/hugetlb.2MB.rsvd.max/memory.max", io::ErrorKind::ResourceBusy, false),
        ] {
            assert_eq!(is_kept(Path::new(file), why), kept, "{file} {why}");
        }
    }
}
