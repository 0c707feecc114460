//! On trees and a `/proc` of plain files: who is moved is written, and stays where it was read.

use super::*;
use std::os::unix::fs::symlink;

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, text).expect("written");
}

/// A machine on which this process is in `groups`, with a first process, a thread of the kernel's and two others.
fn machine(root: &Path, groups: &str) {
    put(root, "proc/self/cgroup", groups);
    for (of, namespace) in [("1", "pid:[4026531836]"), ("self", "pid:[4026531836]")] {
        fs::create_dir_all(root.join("proc").join(of).join("ns")).expect("made");
        symlink(namespace, root.join("proc").join(of).join("ns/pid")).expect("a link");
    }
    for pid in ["2", "40", "41"] {
        fs::create_dir_all(root.join("proc").join(pid)).expect("made");
    }
    for pid in ["40", "41"] {
        put(root, &format!("proc/{pid}/cgroup"), HOMELESS);
        symlink("/bin/sh", root.join("proc").join(pid).join("exe")).expect("a link");
    }
}

fn gatherer(root: &Path) -> Gatherer {
    let own = OwnCgroups {
        system: Some("/system/all".to_owned()),
        kubelet: Some("/kubelet".to_owned()),
    };
    let gatherer = Gatherer::open(&root.join("cgroup"), root.join("proc"), own).expect("a tree");
    gatherer.expect("something to do")
}

fn read(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join("cgroup").join(path)).ok()
}

/// `/proc/PID/cgroup` of one that is in no cgroup, of either version.
const HOMELESS: &str = "3:devices:/\n4:memory:/\n2:name=systemd:/\n0::/\n";
const PROCESSES: &str = "0\n1\n2\n40\n41\n";

#[test]
fn processes_in_no_cgroup_and_the_kubelet_get_their_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path();
    machine(root, "0::/user.slice\n");
    put(root, "cgroup/cgroup.controllers", "cpu memory\n");
    put(root, "cgroup/cgroup.procs", PROCESSES);
    put(root, "cgroup/system/cgroup.controllers", "cpu memory\n");
    put(root, "cgroup/system/all/cgroup.controllers", "cpu memory\n");
    assert!(gatherer(root).gather().is_empty());
    assert_eq!(read(root, "system/all/cgroup.procs").as_deref(), Some("41"));
    assert_eq!(read(root, "kubelet/cgroup.procs"), Some(std::process::id().to_string()));
    assert_eq!(
        read(root, "system/cgroup.subtree_control").as_deref(),
        Some("+cpu +memory")
    );
    assert_eq!(
        read(root, "system/all/cgroup.subtree_control"),
        None,
        "the kernel lets no process into a cgroup that hands controllers down"
    );
}

#[test]
fn of_version_1_they_are_moved_in_every_tree() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path();
    machine(root, "4:memory:/x\n2:name=systemd:/kubelet\n0::/y\n");
    for tree in ["devices", "memory", "systemd", "unified"] {
        put(root, &format!("cgroup/{tree}/cgroup.procs"), "1\n");
    }
    put(root, "cgroup/devices/cgroup.procs", PROCESSES);
    assert!(gatherer(root).gather().is_empty());
    for tree in ["devices", "memory", "systemd"] {
        assert_eq!(
            read(root, &format!("{tree}/system/all/cgroup.procs")).as_deref(),
            Some("41"),
            "{tree}"
        );
        assert_eq!(
            read(root, &format!("{tree}/kubelet/cgroup.procs")),
            Some(std::process::id().to_string()),
            "{tree}"
        );
    }
    assert_eq!(read(root, "unified/kubelet/cgroup.procs"), None);
}

#[test]
fn of_version_1_nobody_leaves_the_tree_in_which_it_is_somewhere() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path();
    machine(root, "0::/kubelet\n");
    let of_service = "3:devices:/\n4:memory,pids:/batch\n2:name=systemd:/system.slice/x.service\n";
    put(root, "proc/41/cgroup", of_service);
    for tree in ["devices", "memory", "systemd"] {
        put(root, &format!("cgroup/{tree}/cgroup.procs"), "1\n");
    }
    put(root, "cgroup/devices/cgroup.procs", PROCESSES);
    assert!(gatherer(root).gather().is_empty());
    let at = |tree: &str| read(root, &format!("{tree}/system/all/cgroup.procs"));
    assert_eq!(
        [at("devices"), at("memory"), at("systemd")].map(|last| last.unwrap_or_default()),
        ["41", "40", "40"],
        "its service still ends it"
    );
}

#[test]
fn without_a_tree_to_see_it_in_nobody_is_taken_for_homeless() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path();
    machine(root, "0::/kubelet\n");
    put(root, "cgroup/cpu/cgroup.procs", PROCESSES);
    let told: Vec<String> = gatherer(root).gather().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        ["neither the cgroup tree of devices nor that of memory is mounted: processes in no cgroup are not known"]
    );
}

#[test]
fn a_kubelet_that_is_to_be_in_the_root_stays_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path();
    machine(root, "0::/\n");
    let own = std::process::id();
    put(root, &format!("proc/{own}/cgroup"), "0::/\n");
    symlink("/bin/sh", root.join(format!("proc/{own}/exe"))).expect("a link");
    put(root, "cgroup/cgroup.controllers", "\n");
    put(root, "cgroup/cgroup.procs", &format!("1\n{own}\n"));
    put(root, "cgroup/system/all/cgroup.controllers", "\n");
    let mut gatherer = gatherer(root);
    gatherer.own.kubelet = Some("/".to_owned());
    assert!(gatherer.gather().is_empty());
    assert_eq!(read(root, "system/all/cgroup.procs"), None);
}

#[test]
fn who_is_there_or_in_a_container_stays_and_what_is_refused_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path();
    machine(root, "0::/kubelet\n");
    put(root, "cgroup/cgroup.controllers", "\n");
    put(root, "cgroup/cgroup.procs", "1\n2\n");
    assert!(gatherer(root).gather().is_empty());
    assert!(!root.join("cgroup/kubelet").exists(), "it is there already");
    put(root, "proc/self/cgroup", "0::/\n");
    fs::remove_file(root.join("proc/1/ns/pid")).expect("removed");
    symlink("pid:[4026531999]", root.join("proc/1/ns/pid")).expect("a link");
    assert!(gatherer(root).gather().is_empty());
    assert!(!root.join("cgroup/kubelet").exists(), "nothing is its own to move");
    // A directory in place of the file stands for a kernel that says no.
    put(root, "cgroup/system/all/cgroup.procs/x", "");
    put(root, "cgroup/cgroup.procs", PROCESSES);
    let told = gatherer(root).gather();
    let told: Vec<String> = told.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["failed to move PID 40 into \"/system/all\""], "the first");
}

#[test]
fn without_names_there_is_nothing_to_do() {
    let none = Gatherer::open(Path::new("/nonexistent"), PathBuf::new(), OwnCgroups::default());
    assert!(none.expect("no tree is looked for").is_none());
}
