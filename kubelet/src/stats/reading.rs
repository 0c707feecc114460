//! Reads cgroups' files: the edge below [`super::v1`] and [`super::v2`].

use super::numbers::{Device, Numbers};
use super::opened::{self, Cgroup, Keep, Opened};
use super::text::Texts;
use super::{leaf, v1, v2};
use crate::cgroup::{CgroupDriver, Cgroups};
use crate::host::machine::Roots;
use crate::host::traffic::{self, Traffic};
use client::ordered::CollectOrdered;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Files that every look reads, whatever it is for.
const OFTEN: [&str; 14] = [
    "cgroup.procs",
    "cpu.pressure",
    "cpu.stat",
    "cpuacct.usage",
    "io.pressure",
    "memory.current",
    "memory.limit_in_bytes",
    "memory.max",
    "memory.memsw.limit_in_bytes",
    "memory.pressure",
    "memory.stat",
    "memory.swap.current",
    "memory.swap.max",
    "memory.usage_in_bytes",
];

/// For how long version 1 keeps a list of processes that somebody read and has open (`CGROUP_PIDLIST_DESTROY_DELAY`, a second), with as
/// much again for its timers.
const RESTED: Duration = Duration::from_secs(2);

/// How much is looked at; each has all that is before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// CPU time and memory.
    Load,
    /// Processes, pressure and interfaces too.
    Summary,
    /// All there is.
    Everything,
}

/// Where the controllers' trees are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trees {
    by_controller: BTreeMap<&'static str, PathBuf>,
    unified: Option<PathBuf>,
}

/// Controllers something is read from.
const CONTROLLERS: [&str; 5] = ["blkio", "cpu", "cpuacct", "memory", "pids"];

impl Trees {
    /// Those of the pods' cgroups; nothing if pods have none of their own.
    pub fn of(cgroups: &Cgroups) -> Option<Self> {
        if cgroups.is_unified()? {
            return Some(Self {
                unified: cgroups.tree_of("memory"),
                ..Self::default()
            });
        }
        let known = |name: &&'static str| Some((*name, cgroups.tree_of(name)?));
        Some(Self {
            by_controller: CONTROLLERS.iter().filter_map(known).collect_ordered(),
            unified: None,
        })
    }

    /// Whether there is one tree for all controllers.
    pub(super) fn is_unified(&self) -> bool {
        self.unified.is_some()
    }

    /// The tree of a controller; the one there is has them all.
    fn of_controller(&self, name: &str) -> Option<&Path> {
        let tree = self.unified.as_ref().or_else(|| self.by_controller.get(name));
        tree.map(PathBuf::as_path)
    }

    /// The controller in whose tree processes are looked for.
    fn of_processes(&self) -> &'static str {
        match self.is_unified() {
            true => "",
            false => "memory",
        }
    }
}

fn below(tree: &Path, path: &str) -> PathBuf {
    tree.join(path.trim_start_matches('/'))
}

/// One cgroup's files, read one after another.
struct Group<'a> {
    trees: &'a Trees,
    path: &'a str,
    cgroup: &'a mut Cgroup,
    buffer: &'a mut Vec<u8>,
}

impl Texts for Group<'_> {
    fn text(&mut self, tree: &'static str, file: &'static str) -> Option<&str> {
        let at = || Some(below(self.trees.of_controller(tree)?, self.path));
        let keep = || match OFTEN.contains(&file) {
            true => Keep::Open,
            false => Keep::Never,
        };
        let length = self.cgroup.read((tree, file), keep, at, self.buffer)?;
        std::str::from_utf8(&self.buffer[..length]).ok()
    }
}

/// Reads cgroups, one after another, into one buffer.
pub(super) struct Reader<'a> {
    trees: &'a Trees,
    roots: &'a Roots,
    opened: &'a mut Opened,
    /// Whether the machine has swap.
    swap: bool,
    buffer: Vec<u8>,
    devices: BTreeMap<(u32, u32), String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(trees: &'a Trees, roots: &'a Roots, opened: &'a mut Opened, swap: bool) -> Self {
        Self {
            trees,
            roots,
            opened,
            swap,
            buffer: Vec::with_capacity(8 << 10),
            devices: BTreeMap::new(),
        }
    }

    /// The cgroup's numbers; what cannot be read is absent.
    pub(super) fn numbers(&mut self, path: &str, depth: Depth) -> Numbers {
        let (swap, buffer, trees) = (self.swap, &mut self.buffer, self.trees);
        let mut numbers = self.opened.with(path, |cgroup| {
            let texts = &mut Group {
                trees,
                path,
                cgroup,
                buffer,
            };
            match trees.is_unified() {
                true => v2::numbers(depth, swap, texts),
                false => v1::numbers(depth, swap, texts),
            }
        });
        numbers.devices.iter_mut().for_each(|device| self.name(device));
        numbers
    }

    /// The cgroup of a container or a sandbox below its pod's, whichever of the runtimes' names it has.
    pub(super) fn leaf(
        &mut self,
        pod: &str,
        driver: CgroupDriver,
        id: &str,
        depth: Depth,
    ) -> Option<(String, Numbers)> {
        leaf::paths(pod, driver, id).find_map(|path| {
            let numbers = self.numbers(&path, depth);
            numbers.is_told().then_some((path, numbers))
        })
    }

    /// The processes directly in the cgroup; nothing if it is gone.
    pub(super) fn processes(&mut self, path: &str) -> Option<Vec<u32>> {
        let (trees, tree) = (self.trees, self.trees.of_processes());
        let at = || Some(below(trees.of_controller(tree)?, path));
        let (unified, buffer) = (trees.is_unified(), &mut self.buffer);
        let keep = || match unified {
            true => Keep::Open,
            // One of version 1 that stays open tells what it told before, until it was left alone for a second.
            false => Keep::Rested(RESTED),
        };
        let read = |cgroup: &mut Cgroup| cgroup.read((tree, "cgroup.procs"), keep, at, buffer);
        let length = self.opened.with(path, read);
        let text = std::str::from_utf8(&self.buffer[..length?]).ok()?;
        // 0 is a process of another PID namespace.
        let all = text.lines().filter_map(|line| line.parse().ok());
        Some(all.filter(|process| *process != 0).collect())
    }

    /// When the cgroup was made, as far as can be told: its directory is as old as the newest cgroup below it, its files as the first look.
    pub(super) fn made(&self, path: &str) -> Option<Timestamp> {
        let directory = below(self.trees.of_controller(self.trees.of_processes())?, path);
        let times =
            [&directory, &directory.join("cgroup.procs")].map(|path| std::fs::metadata(path).ok()?.modified().ok());
        Timestamp::try_from(times.into_iter().flatten().min()?).ok()
    }

    /// The interfaces of the network a process is in.
    pub(super) fn interfaces(&mut self, process: u32) -> Option<Vec<Traffic>> {
        let path = self.roots.proc.join(format!("{process}/net/dev"));
        let length = opened::read(&path, &mut self.buffer)?;
        Some(traffic::parse(std::str::from_utf8(&self.buffer[..length]).ok()?))
    }

    /// A file below `/proc`.
    pub(super) fn proc(&mut self, file: &str) -> Option<String> {
        let length = opened::read(&self.roots.proc.join(file), &mut self.buffer)?;
        Some(String::from_utf8_lossy(&self.buffer[..length]).into_owned())
    }

    /// Where the machine tells of itself.
    pub(super) fn roots(&self) -> &Roots {
        self.roots
    }

    fn name(&mut self, device: &mut Device) {
        let number = (device.major, device.minor);
        let sys = &self.roots.sys;
        let name = self.devices.entry(number).or_insert_with(|| device_name(sys, number));
        device.name.clone_from(name);
    }
}

/// `/dev/sda` of `8:0`; empty if the machine has no such block device.
pub(super) fn device_name(sys: &Path, (major, minor): (u32, u32)) -> String {
    let link = std::fs::read_link(sys.join(format!("dev/block/{major}:{minor}")));
    let name = link
        .ok()
        .and_then(|target| Some(target.file_name()?.to_string_lossy().into_owned()));
    // The kernel writes a slash in a device's name so.
    name.map(|name| format!("/dev/{}", name.replace('!', "/")))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("dirs");
        fs::write(path, text).expect("file");
    }

    fn roots(dir: &Path) -> Roots {
        Roots {
            sys: dir.to_owned(),
            ..Roots::default()
        }
    }

    #[test]
    fn both_versions_are_read_where_they_are() {
        let dir = tempfile::tempdir().expect("temp dir");
        put(dir.path(), "memory/pods/p/c/memory.usage_in_bytes", "70\n");
        put(dir.path(), "memory/pods/p/c/cgroup.procs", "0\n12\n13\n");
        put(dir.path(), "cpuacct/pods/p/c/cpuacct.usage", "9\n");
        put(dir.path(), "v2/pods/p/crio-c.scope/memory.current", "80\n");
        put(dir.path(), "v2/pods/p/crio-c.scope/io.stat", "8:0 rbytes=1\n");
        fs::create_dir_all(dir.path().join("dev/block")).expect("dirs");
        std::os::unix::fs::symlink("../../devices/x/cciss!c0d0", dir.path().join("dev/block/8:0")).expect("link");
        let v1 = Trees {
            by_controller: [
                ("memory", dir.path().join("memory")),
                ("cpuacct", dir.path().join("cpuacct")),
            ]
            .into(),
            unified: None,
        };
        let (roots, mut opened) = (roots(dir.path()), Opened::default());
        let mut v1 = Reader::new(&v1, &roots, &mut opened, false);
        let (path, numbers) = v1
            .leaf("/pods/p", CgroupDriver::Cgroupfs, "c", Depth::Everything)
            .expect("there");
        assert_eq!(path, "/pods/p/c");
        assert_eq!((numbers.memory.usage, numbers.cpu.total_nanos), (Some(70), Some(9)));
        assert_eq!(v1.processes(&path), Some(vec![12, 13]));
        assert_eq!(v1.processes("/pods/none"), None);
        assert!(v1.leaf("/pods/p", CgroupDriver::Systemd, "c", Depth::Load).is_none());
        let v2 = Trees {
            unified: Some(dir.path().join("v2")),
            ..Trees::default()
        };
        let mut v2 = Reader::new(&v2, &roots, &mut opened, false);
        let found = v2.leaf("/pods/p", CgroupDriver::Systemd, "c", Depth::Everything);
        let (path, numbers) = found.expect("there");
        assert_eq!(path, "/pods/p/crio-c.scope");
        assert_eq!(
            (numbers.memory.usage, numbers.devices[0].name.as_str()),
            (Some(80), "/dev/cciss/c0d0")
        );
    }
}
