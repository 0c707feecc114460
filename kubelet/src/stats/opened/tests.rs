use super::*;
use std::fs;

const AT: [&str; 2] = ["memory", "cpu"];

/// A machine with cgroups in two trees.
struct World {
    dir: tempfile::TempDir,
    opened: Opened,
    buffer: Vec<u8>,
}

fn world() -> World {
    World {
        dir: tempfile::tempdir().expect("temp dir"),
        opened: Opened::default(),
        buffer: Vec::new(),
    }
}

impl World {
    fn put(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("dirs");
        fs::write(path, text).expect("file");
    }

    /// What a look reads of a cgroup's file, with the trees whose directories it opened for that.
    fn read(&mut self, path: &str, (tree, name): (&'static str, &'static str), often: bool) -> (Option<String>, usize) {
        let keep = if often { Keep::Open } else { Keep::Never };
        self.read_and(path, (tree, name), keep)
    }

    fn read_and(
        &mut self,
        path: &str,
        (tree, name): (&'static str, &'static str),
        keep: Keep,
    ) -> (Option<String>, usize) {
        let opened = std::cell::Cell::new(0);
        let at = || {
            opened.set(opened.get() + 1);
            Some(self.dir.path().join(tree).join(path))
        };
        let buffer = &mut self.buffer;
        let length = self
            .opened
            .with(path, |cgroup| cgroup.read((tree, name), || keep, at, buffer));
        let text = length.map(|length| String::from_utf8_lossy(&self.buffer[..length]).into_owned());
        (text, opened.get())
    }

    fn at(&mut self, seconds: u64) {
        self.opened.now = Duration::from_secs(seconds);
    }
}

#[test]
fn what_is_read_often_stays_open_and_of_the_rest_the_directory() {
    let mut world = world();
    for tree in AT {
        world.put(&format!("{tree}/p/often"), "1");
        world.put(&format!("{tree}/p/seldom"), "2");
    }
    assert_eq!(world.read("p", ("memory", "often"), true), (Some("1".into()), 1));
    assert_eq!(
        world.read("p", ("memory", "seldom"), false),
        (Some("2".into()), 0),
        "from its directory"
    );
    assert_eq!(world.read("p", ("cpu", "seldom"), false), (Some("2".into()), 1));
    assert_eq!(world.opened.count(), 3, "two directories and a file");
    // Written in place, as the kernel's files change.
    for (text, name) in [("1000", "often"), ("3", "seldom")] {
        world.put(&format!("memory/p/{name}"), text);
        assert_eq!(
            world.read("p", ("memory", name), name == "often"),
            (Some(text.into()), 0)
        );
    }
    // The file itself, not what is at its path by now.
    fs::remove_file(world.dir.path().join("memory/p/often")).expect("removed");
    assert_eq!(world.read("p", ("memory", "often"), true), (Some("1000".into()), 0));
}

#[test]
fn a_cgroup_that_is_made_anew_is_opened_anew() {
    let mut world = world();
    world.put("memory/p/seldom", "1");
    world.put("memory/p/other", "1");
    assert_eq!(world.read("p", ("memory", "seldom"), false), (Some("1".into()), 1));
    assert_eq!(
        world.read("p", ("memory", "none"), false),
        (None, 1),
        "it may be another directory by now"
    );
    fs::remove_dir_all(world.dir.path().join("memory/p")).expect("removed");
    world.put("memory/p/seldom", "2");
    assert_eq!(world.read("p", ("memory", "seldom"), false), (Some("2".into()), 1));
    fs::remove_dir_all(world.dir.path().join("memory/p")).expect("removed");
    assert_eq!(world.read("p", ("memory", "seldom"), false), (None, 1));
    assert_eq!(world.opened.count(), 0, "nothing is kept of what is gone");
}

/// The kernel goes on telling of processes what it told a moment ago to whoever has the file open since.
#[test]
fn what_has_to_rest_is_opened_anew_when_it_was_read_just_now() {
    let mut world = world();
    let rested = Keep::Rested(Duration::from_secs(2));
    let path = world.dir.path().join("memory/p/list");
    let mut read_at = |seconds, text: &str| {
        // Another file of that name: whoever has the old one open reads that.
        let _ = fs::remove_file(&path);
        world.put("memory/p/list", text);
        world.at(seconds);
        world.read_and("p", ("memory", "list"), rested).0.expect("there")
    };
    assert_eq!(read_at(10, "a"), "a");
    assert_eq!(read_at(11, "b"), "b", "it was read a second ago");
    assert_eq!(read_at(12, "c"), "c", "it was opened a second ago");
    assert_eq!(read_at(14, "d"), "c", "by the file that is open");
    assert_eq!(read_at(15, "e"), "e");
    assert_eq!(world.opened.count(), 2, "the directory and one file");
}

/// Whatever the order they are read in.
#[test]
fn each_file_that_is_open_is_read_by_its_name() {
    let mut world = world();
    for name in ["a", "b", "c"] {
        world.put(&format!("memory/p/{name}"), name);
    }
    for order in [["a", "b", "c"], ["a", "b", "c"], ["c", "a", "b"], ["b", "b", "a"]] {
        let root = world.dir.path().join("memory/p");
        world.opened.with("p", |cgroup| {
            for name in order {
                let at = || Some(root.clone());
                let length = cgroup.read(("memory", name), || Keep::Open, at, &mut world.buffer);
                assert_eq!(&world.buffer[..length.expect("there")], name.as_bytes(), "{order:?}");
            }
        });
    }
}

/// A directory is looked for once for all files of a look.
#[test]
fn what_is_not_there_is_looked_for_once() {
    let mut world = world();
    let tried = std::cell::Cell::new(0);
    let at = || {
        tried.set(tried.get() + 1);
        Some(world.dir.path().join("memory/none"))
    };
    world.opened.with("none", |cgroup| {
        for name in ["a", "b"] {
            assert_eq!(
                cgroup.read(("memory", name), || Keep::Open, at, &mut world.buffer),
                None
            );
        }
    });
    assert_eq!(tried.get(), 1);
}

/// The kernel ends reading from the file of a cgroup that is gone with an error; a directory in its place does so here.
#[test]
fn a_file_that_cannot_be_read_any_more_is_opened_anew() {
    let mut world = world();
    world.put("memory/p/often", "new");
    let broken = File::open(world.dir.path()).expect("opened");
    let broken = Open::new("often", broken, Duration::ZERO);
    world.opened.with("p", |cgroup| cgroup.files.push(broken));
    assert_eq!(world.read("p", ("memory", "often"), true), (Some("new".into()), 1));
    assert_eq!(world.read("p", ("memory", "often"), true), (Some("new".into()), 0));
}

#[test]
fn what_nobody_read_for_a_minute_is_closed_and_no_more_is_open_than_may_be() {
    let mut world = world();
    for name in ["a", "b", "c"] {
        world.put(&format!("memory/{name}/often"), "1");
    }
    world.opened.most = 5;
    for name in ["a", "b", "c"] {
        assert_eq!(world.read(name, ("memory", "often"), true), (Some("1".into()), 1));
    }
    assert_eq!(world.opened.count(), 4, "there is no room for the third");
    assert_eq!(world.read("c", ("memory", "often"), true), (Some("1".into()), 1));
    world.at(40);
    assert_eq!(world.read("a", ("memory", "often"), true), (Some("1".into()), 0));
    let (first, second) = (KEPT, Duration::from_secs(40) + KEPT);
    assert_eq!(world.opened.let_go(first - Duration::from_secs(1)), Some(first));
    assert_eq!(world.opened.count(), 4);
    // The file that was read again, and not the directory it was opened from.
    assert_eq!((world.opened.let_go(first), world.opened.count()), (Some(second), 1));
    assert_eq!((world.opened.let_go(second), world.opened.count()), (None, 0));
}

#[tokio::test(start_paused = true)]
async fn all_is_closed_a_minute_after_the_last_look() {
    let mut world = world();
    world.put("memory/p/often", "1");
    let (kept, begun) = (Kept::default(), Instant::now());
    let count = || kept.0.lock().expect("sound").count();
    let mut look = || {
        kept.look((begun, begun.elapsed()), |opened| {
            std::mem::swap(opened, &mut world.opened);
            let _ = world.read("p", ("memory", "often"), true);
            std::mem::swap(opened, &mut world.opened);
        });
    };
    for _ in 0..3 {
        look();
        tokio::time::sleep(KEPT - Duration::from_secs(1)).await;
        assert_ne!(count(), 0);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(count(), 0);
    assert!(
        !kept.0.lock().expect("sound").attended,
        "nobody waits while nothing is open"
    );
    // And so after the next.
    look();
    assert_ne!(count(), 0);
    tokio::time::sleep(KEPT + Duration::from_secs(1)).await;
    assert_eq!(count(), 0);
}

#[test]
fn a_file_is_read_whole_up_to_a_bound_whatever_bytes_it_has() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("f");
    let mut buffer = Vec::new();
    for length in [0, 1, SURELY_ALL - 1, SURELY_ALL, 4095, 4096, 4097, 20_000] {
        fs::write(&path, vec![b'x'; length]).expect("file");
        assert_eq!(read(&path, &mut buffer), Some(length));
    }
    fs::write(&path, vec![b'x'; FILE_MAX + 9]).expect("file");
    assert_eq!(read(&path, &mut buffer), Some(FILE_MAX));
    assert_eq!(read(&dir.path().join("none"), &mut buffer), None);
}

/// Of which the kernel gives a page at most at a time, and less where the next part of the text does not fit.
#[test]
fn the_kernels_own_files_are_read_whole() {
    let mut buffer = Vec::new();
    for file in [
        "/proc/self/net/dev",
        "/proc/self/cgroup",
        "/proc/self/mountinfo",
        "/proc/self/limits",
        "/proc/filesystems",
        "/proc/crypto",
    ] {
        if !Path::new(file).exists() {
            continue;
        }
        let length = read(Path::new(file), &mut buffer).expect(file);
        let expected = fs::read(file).expect("read");
        // Numbers in them change.
        let lines = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(lines(&buffer[..length]), lines(&expected), "{file}");
    }
}
