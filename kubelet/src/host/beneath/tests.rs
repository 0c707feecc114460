//! What is inside is opened, what is outside never is, also while a container swaps one for the other.

use super::*;
use crate::host::{KernelMounter, Mounter};
use nix::fcntl::{RenameFlags, renameat2};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A volume with the directory `inside`, beside it a directory `outside`; each has a file `mark` that tells which it is in.
struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self {
            dir: tempfile::tempdir().expect("temp dir"),
        };
        for (dir, mark) in [(bench.volume().join("inside"), "inside"), (bench.outside(), "outside")] {
            fs::create_dir_all(&dir).expect("dir");
            fs::write(dir.join("mark"), mark).expect("file");
        }
        bench
    }

    fn volume(&self) -> PathBuf {
        self.dir.path().join("volume")
    }

    fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    fn open(&self, path: &str) -> io::Result<u64> {
        let fd = open(&self.volume(), Path::new(path))?;
        Ok(fstat(&fd).expect("stat").st_ino)
    }

    fn inode(&self, path: &str) -> u64 {
        fs::metadata(self.volume().join(path)).expect("there").ino()
    }
}

#[test]
fn links_inside_the_volume_are_followed() {
    let bench = Bench::new();
    let volume = bench.volume();
    fs::create_dir(volume.join("deep")).expect("dir");
    for (target, link) in [
        ("inside", "relative"),
        ("relative", "chain"),
        ("../inside", "deep/up"),
        ("inside/mark", "file"),
    ] {
        symlink(target, volume.join(link)).expect("link");
    }
    symlink(volume.join("inside"), volume.join("absolute")).expect("link");
    for (path, same) in [
        ("relative", "inside"),
        ("chain/mark", "inside/mark"),
        ("deep/up", "inside"),
        ("file", "inside/mark"),
        ("absolute", "inside"),
        ("absolute/mark", "inside/mark"),
        ("./inside", "inside"),
    ] {
        assert_eq!(bench.open(path).expect(path), bench.inode(same), "{path}");
    }
}

#[test]
fn whatever_leads_out_is_refused_and_nothing_is_made_there() {
    let bench = Bench::new();
    let volume = bench.volume();
    symlink(bench.outside(), volume.join("absolute")).expect("link");
    symlink("../outside", volume.join("relative")).expect("link");
    symlink("../outside/new", volume.join("dangling")).expect("link");
    symlink("nothing", volume.join("nothing_inside")).expect("link");
    symlink("/proc/self/root", volume.join("magic")).expect("link");
    symlink("loop", volume.join("loop")).expect("link");
    for path in [
        "absolute",
        "absolute/mark",
        "absolute/new",
        "relative",
        "relative/mark",
        "relative/new/deep",
        "dangling",
        "dangling/deep",
        "nothing_inside",
        "magic",
        "magic/etc",
        "loop",
        "../outside",
        "inside/../../outside",
        "inside/mark/below_a_file",
    ] {
        assert!(bench.open(path).is_err(), "{path}");
    }
    let there: Vec<_> = fs::read_dir(bench.outside()).expect("dir").collect();
    assert_eq!(there.len(), 1, "{there:?}");
}

#[test]
fn missing_directories_are_made_with_the_volumes_permissions() {
    let bench = Bench::new();
    let volume = bench.volume();
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o3775)).expect("mode");
    symlink("inside", volume.join("link")).expect("link");
    assert_eq!(
        bench.open("link/a/b").expect("made"),
        bench.inode("inside/a/b"),
        "below a link inside"
    );
    let mode = fs::metadata(volume.join("inside/a/b"))
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o2775, "the sticky bit is not passed on");
    fs::set_permissions(volume.join("inside/a/b"), fs::Permissions::from_mode(0o700)).expect("mode");
    bench.open("link/a/b").expect("opened");
    let mode = fs::metadata(volume.join("inside/a/b"))
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o700, "what was there keeps its own");
}

/// Swaps two names of a directory as fast as it can, until told to stop.
fn swap(dir: PathBuf, one: &'static str, other: &'static str, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let (one, other) = (dir.join(one), dir.join(other));
        while !stop.load(Ordering::Relaxed) {
            renameat2(AT_FDCWD, &one, AT_FDCWD, &other, RenameFlags::RENAME_EXCHANGE).expect("swapped");
        }
    })
}

/// How often both outcomes have to be seen before a race counts as run, and the most turns it may take to see them.
const SEEN_MIN: usize = 20_000;
/// One of how many opened descriptors is mounted as well: that takes a hundred times as long as opening it.
const MOUNTED: usize = 100;
const TURNS_MAX: usize = 5_000_000;

/// Opens `path` until it was opened and refused often enough, giving each opened descriptor to `check` with its number.
fn race(bench: &Bench, path: &str, check: impl Fn(&OwnedFd, usize)) {
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..TURNS_MAX {
        match open(&bench.volume(), Path::new(path)) {
            Ok(fd) => {
                check(&fd, opened);
                opened += 1;
            }
            Err(_) => refused += 1,
        }
        if opened >= SEEN_MIN && refused >= SEEN_MIN {
            return;
        }
    }
    panic!("the race was not run: {opened} opened, {refused} refused");
}

// The kernel mounter needs root, as the rest of what the kubelet does.
#[test]
fn what_is_mounted_is_never_outside_while_a_container_swaps_it() {
    let bench = Bench::new();
    let volume = bench.volume();
    symlink(bench.outside(), volume.join("evil")).expect("link");
    let target = bench.dir.path().join("target");
    fs::create_dir(&target).expect("dir");
    let inside = bench.inode("inside");
    let stop = Arc::new(AtomicBool::new(false));
    let swapping = swap(volume, "inside", "evil", stop.clone());
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                // Mounts of this thread alone.
                unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace (root)");
                let private = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
                mount(None::<&str>, "/", None::<&str>, private, None::<&str>).expect("private mounts");
                race(&bench, "inside", |fd, number| {
                    assert_eq!(fstat(fd).expect("stat").st_ino, inside);
                    if number % MOUNTED != 0 {
                        return;
                    }
                    KernelMounter.bind_fd(fd.as_fd(), &target).expect("mounted");
                    let mark = fs::read_to_string(target.join("mark")).expect("read");
                    KernelMounter.unmount(&target).expect("unmounted");
                    assert_eq!(mark, "inside");
                });
            })
            .join()
            .expect("nothing outside was mounted");
    });
    stop.store(true, Ordering::Relaxed);
    swapping.join().expect("swapped to the end");
}

#[test]
fn nothing_is_made_or_changed_outside_while_a_container_swaps_what_is_made() {
    let bench = Bench::new();
    let volume = bench.volume();
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o777)).expect("mode");
    fs::set_permissions(bench.outside(), fs::Permissions::from_mode(0o700)).expect("mode");
    symlink(bench.outside(), volume.join("evil")).expect("link");
    let stop = Arc::new(AtomicBool::new(false));
    let swapping = swap(volume.clone(), "inside", "evil", stop.clone());
    let number = std::cell::Cell::new(0);
    for _ in 0..2000 {
        let path = format!("inside/{}/deep", number.replace(number.get() + 1));
        drop(open(&volume, Path::new(&path)));
    }
    // A name that appears as a link between its making and its chmod.
    for turn in 0..2000 {
        let name = format!("new{turn}");
        let link = volume.join(&name);
        let planting = std::thread::spawn({
            let (link, to) = (link.clone(), bench.outside());
            move || {
                drop(fs::remove_dir(&link));
                drop(symlink(to, &link));
            }
        });
        drop(open(&volume, Path::new(&name)));
        planting.join().expect("planted");
    }
    stop.store(true, Ordering::Relaxed);
    swapping.join().expect("swapped to the end");
    let there: Vec<_> = fs::read_dir(bench.outside()).expect("dir").collect();
    assert_eq!(there.len(), 1, "{there:?}");
    let mode = fs::metadata(bench.outside()).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o700);
}
