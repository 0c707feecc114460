//! Reads cgroups' files: the edge below [`super::v1`] and [`super::v2`].

use super::numbers::{Device, Numbers};
use super::{leaf, v1, v2};
use crate::cgroup::{CgroupDriver, Cgroups};
use crate::host::machine::Roots;
use client::ordered::CollectOrdered;
use jiff::Timestamp;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The most that is read of one file: what is longer is no file of ours.
const FILE_MAX: usize = 256 << 10;

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

    fn processes(&self, path: &str) -> PathBuf {
        let tree = self.unified.as_ref().or_else(|| self.by_controller.get("memory"));
        below(tree.map_or(Path::new(""), PathBuf::as_path), path).join("cgroup.procs")
    }
}

fn below(tree: &Path, path: &str) -> PathBuf {
    tree.join(path.trim_start_matches('/'))
}

/// Reads cgroups, one after another, into one buffer.
pub(super) struct Reader {
    trees: Trees,
    roots: Roots,
    /// Whether the machine has swap.
    swap: bool,
    buffer: Vec<u8>,
    devices: BTreeMap<(u32, u32), String>,
}

impl Reader {
    pub(super) fn new(trees: Trees, roots: Roots, swap: bool) -> Self {
        Self {
            trees,
            roots,
            swap,
            buffer: Vec::with_capacity(8 << 10),
            devices: BTreeMap::new(),
        }
    }

    /// The cgroup's numbers; what cannot be read is absent.
    pub(super) fn numbers(&mut self, path: &str, depth: Depth) -> Numbers {
        let (swap, buffer) = (self.swap, &mut self.buffer);
        let mut numbers = match &self.trees.unified {
            Some(tree) => {
                let at = directory(&below(tree, path));
                v2::numbers(depth, swap, &mut |file| text(at.as_ref()?, Path::new(file), buffer))
            }
            None => {
                let trees = &self.trees.by_controller;
                let mut dirs: BTreeMap<&str, Option<OwnedFd>> = BTreeMap::new();
                v1::numbers(depth, swap, &mut |controller, file| {
                    let tree = trees.get(controller)?;
                    let at = dirs.entry(controller).or_insert_with(|| directory(&below(tree, path)));
                    text(at.as_ref()?, Path::new(file), buffer)
                })
            }
        };
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
        leaf::names(driver, id).into_iter().find_map(|name| {
            let path = format!("{pod}/{name}");
            let numbers = self.numbers(&path, depth);
            numbers.is_told().then_some((path, numbers))
        })
    }

    /// The processes directly in the cgroup; nothing if it is gone.
    pub(super) fn processes(&mut self, path: &str) -> Option<Vec<u32>> {
        let text = text(AT_FDCWD, &self.trees.processes(path), &mut self.buffer)?;
        // 0 is a process of another PID namespace.
        let all = text.lines().filter_map(|line| line.parse().ok());
        Some(all.filter(|process| *process != 0).collect())
    }

    /// When the cgroup was made, as far as can be told: its directory is as old as the newest cgroup below it, its files as the first look.
    pub(super) fn made(&self, path: &str) -> Option<Timestamp> {
        let processes = self.trees.processes(path);
        let times = [processes.parent()?, &processes].map(|path| std::fs::metadata(path).ok()?.modified().ok());
        Timestamp::try_from(times.into_iter().flatten().min()?).ok()
    }

    /// A file below `/proc`.
    pub(super) fn proc(&mut self, file: &str) -> Option<String> {
        text(AT_FDCWD, &self.roots.proc.join(file), &mut self.buffer)
    }

    /// Where the machine tells of itself.
    pub(super) fn roots(&self) -> &Roots {
        &self.roots
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

/// A cgroup's directory, from which its files are opened: of what reading them costs, much is the way to them.
fn directory(path: &Path) -> Option<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(AT_FDCWD, path, flags, Mode::empty()).ok()
}

/// A file's text, in as few calls as can be: the kernel makes it anew for each open.
fn text(at: impl AsFd, path: &Path, buffer: &mut Vec<u8>) -> Option<String> {
    let file = openat(at, path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
    let mut file = File::from(file).take(FILE_MAX as u64);
    buffer.resize(4096, 0);
    let mut length = 0;
    loop {
        match file.read(&mut buffer[length..]).ok()? {
            0 => break,
            read => length += read,
        }
        if length == buffer.len() {
            buffer.resize(length * 2, 0);
        }
    }
    Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
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

    fn reader(dir: &Path, trees: Trees) -> Reader {
        let roots = Roots {
            sys: dir.to_owned(),
            ..Roots::default()
        };
        Reader::new(trees, roots, false)
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
        let mut v1 = reader(dir.path(), v1);
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
        let mut v2 = reader(dir.path(), v2);
        let found = v2.leaf("/pods/p", CgroupDriver::Systemd, "c", Depth::Everything);
        let (path, numbers) = found.expect("there");
        assert_eq!(path, "/pods/p/crio-c.scope");
        assert_eq!(
            (numbers.memory.usage, numbers.devices[0].name.as_str()),
            (Some(80), "/dev/cciss/c0d0")
        );
    }

    #[test]
    fn a_file_is_read_whole_up_to_a_bound_whatever_bytes_it_has() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("f");
        let mut buffer = Vec::new();
        for length in [0, 1, 4095, 4096, 4097, 20_000] {
            fs::write(&path, vec![b'x'; length]).expect("file");
            assert_eq!(text(AT_FDCWD, &path, &mut buffer).map(|text| text.len()), Some(length));
        }
        fs::write(&path, vec![b'x'; FILE_MAX + 9]).expect("file");
        assert_eq!(
            text(AT_FDCWD, &path, &mut buffer).map(|text| text.len()),
            Some(FILE_MAX)
        );
        fs::write(&path, [0xff, b'1']).expect("file");
        assert_eq!(text(AT_FDCWD, &path, &mut buffer).as_deref(), Some("\u{fffd}1"));
        assert_eq!(text(AT_FDCWD, &dir.path().join("none"), &mut buffer), None);
    }
}
