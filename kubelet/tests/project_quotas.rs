//! The kernel's own project quotas, on an ext4 of the test's own in a loop device: what [`KernelQuotas`] asks is what is counted.
//!
//! Needs root, `mkfs.ext4`, loop devices and a kernel with `QFMT_V2`; without them it says SKIPPED (`hack/vm` has all).

use kubelet::host::project::{KernelQuotas, ProjectQuotas, ProjectUse, open};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;

const ID: u32 = 1_048_577;
const MIB: u64 = 1 << 20;

/// A file system that counts projects, for as long as this is there.
struct Disk {
    dir: tempfile::TempDir,
}

fn run(program: &str, arguments: &[&OsStr]) -> bool {
    let done = Command::new(program).args(arguments).output();
    done.is_ok_and(|done| done.status.success())
}

impl Disk {
    fn new() -> Option<Self> {
        let disk = Self {
            dir: tempfile::tempdir().expect("temp dir"),
        };
        let (image, at) = (disk.dir.path().join("image"), disk.at());
        fs::create_dir(&at).expect("made");
        File::create(&image).expect("made").set_len(64 * MIB).expect("as long");
        let (image, at) = (image.as_os_str(), at.as_os_str());
        let of = |words: &'static [&'static str]| words.iter().map(OsStr::new);
        let make: Vec<&OsStr> = of(&["-q", "-O", "quota,project", "-E", "quotatype=prjquota"])
            .chain([image])
            .collect();
        let mount: Vec<&OsStr> = of(&["-o", "loop,prjquota"]).chain([image, at]).collect();
        (run("mkfs.ext4", &make) && run("mount", &mount)).then_some(disk)
    }

    fn at(&self) -> PathBuf {
        self.dir.path().join("at")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run("umount", &[self.at().as_os_str()]);
    }
}

#[test]
fn what_is_made_in_a_project_is_counted_until_it_is_gone() {
    let Some(disk) = Disk::new() else {
        eprintln!(
            "SKIPPED what_is_made_in_a_project_is_counted_until_it_is_gone: this kernel mounts no ext4 with project quotas (see hack/vm)"
        );
        return;
    };
    let (root, volume) = (open(&disk.at()).expect("opened"), disk.at().join("volume"));
    fs::create_dir_all(volume.join("deep")).expect("made");
    fs::remove_dir(volume.join("deep")).expect("removed");
    let used = || KernelQuotas.used(root.as_fd(), ID).expect("told");
    assert!(KernelQuotas.are_counted(root.as_fd()).expect("asked"));
    assert_eq!(used(), ProjectUse::default());

    let opened = open(&volume).expect("opened");
    assert_eq!(KernelQuotas.project(opened.as_fd()).expect("told"), 0);
    KernelQuotas.limit(opened.as_fd(), ID, (1 << 58) - 1).expect("limited");
    KernelQuotas.set_project(opened.as_fd(), ID).expect("given");
    assert_eq!(KernelQuotas.project(opened.as_fd()).expect("told"), ID);
    assert_eq!(used().inodes, 1, "the directory itself");

    fs::create_dir(volume.join("deep")).expect("made");
    let path = volume.join("deep/file");
    let mut file = File::create(&path).expect("made");
    file.write_all(&vec![7; usize::try_from(MIB).expect("small")])
        .expect("written");
    file.sync_all().expect("synced");
    assert!(
        (MIB..2 * MIB).contains(&used().bytes) && used().inodes == 3,
        "{:?}",
        used()
    );
    let (stranger, elsewhere) = (disk.at().join("stranger"), disk.at().join("file"));
    File::create(&stranger).expect("made");
    assert!(
        fs::rename(&stranger, volume.join("stranger")).is_err(),
        "nothing is moved into it uncounted"
    );
    fs::rename(&path, &elsewhere).expect("moved");
    assert!(used().bytes >= MIB, "what is moved out of it is still its own");

    fs::remove_file(&elsewhere).expect("removed");
    assert!(used().bytes >= MIB, "what is removed and open is there");
    drop(file);
    assert!(used().bytes < MIB, "{:?}", used());
    KernelQuotas.limit(opened.as_fd(), ID, 0).expect("no limit");
    drop(opened);
    fs::remove_dir_all(&volume).expect("removed");
    assert_eq!(used(), ProjectUse::default());
}
