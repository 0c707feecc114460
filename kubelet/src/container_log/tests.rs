//! Rotation over real files, with a runtime of a few lines, and with a kubelet that dies at any step.

mod node;

use super::rotation::{Most, put_aside, put_back};
use super::*;
use crate::host::directory::Directory;
use crate::parts::Parts;
use crate::parts::testing::{context, dependencies};
use crate::pod::testing::{at, observed, pod};
use crate::pod::view::{Life, PodSnapshot};
use crate::runtime::fake::{FakeRuntime, Mishap};
use client::TokioClock;
use flate2::read::GzDecoder;
use proptest::prelude::*;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use tonic::Code;

/// A directory of pods' logs with one container's, and the file its runtime writes to, whatever its name is.
struct World {
    dir: tempfile::TempDir,
    writes_to: File,
    written: u64,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        fs::create_dir_all(dir.path().join("ns_p_p/c")).expect("dirs");
        let writes_to = open(&dir.path().join("ns_p_p/c/0.log"));
        Self {
            dir,
            writes_to,
            written: 0,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("ns_p_p/c").join(name)
    }

    fn log(&self) -> Log {
        Log::below(self.dir.path(), &self.path("0.log")).expect("a log")
    }

    fn write(&mut self, lines: u64) {
        for _ in 0..lines {
            writeln!(self.writes_to, "line {}", self.written).expect("written");
            self.written += 1;
        }
    }

    fn reopen(&mut self) {
        self.writes_to = open(&self.path("0.log"));
    }

    fn names(&self) -> Vec<String> {
        let directory = Directory::open(self.dir.path(), Path::new("ns_p_p/c")).expect("opened");
        let mut names = directory.names(1_000).expect("names");
        names.sort();
        names
    }

    /// What whoever reads all files one after another finds; one that is there compressed, too, is read once.
    fn lines(&self) -> Vec<String> {
        let mut names = self.names();
        names.retain(|name| name != "0.log" && !name.ends_with(files::UNFINISHED));
        let all = names.clone();
        names.retain(|name| !all.contains(&format!("{name}{}", files::COMPRESSED)));
        names.push("0.log".to_owned());
        let mut text = String::new();
        for name in names {
            let Ok(mut file) = File::open(self.path(&name)) else {
                continue;
            };
            match name.ends_with(files::COMPRESSED) {
                true => GzDecoder::new(file).read_to_string(&mut text).expect("sound"),
                false => file.read_to_string(&mut text).expect("text"),
            };
        }
        text.lines().map(str::to_owned).collect()
    }

    fn expected(&self) -> Vec<String> {
        (0..self.written).map(|line| format!("line {line}")).collect()
    }

    /// What a look at a log that is too long comes to. The kubelet dies at the step `dies_at`; the runtime may refuse to reopen.
    fn look(&mut self, now: i64, files_max: usize, dies_at: Option<usize>, refuses: bool) {
        let (root, log) = (self.dir.path().to_owned(), self.log());
        if rotation::is_missing(&root, &log).expect("told") {
            return self.reopen();
        }
        let mut steps = 0;
        let mut gate = |_: &'static str| {
            if dies_at == Some(steps) {
                resume_unwind(Box::new("killed"));
            }
            steps += 1;
        };
        let stopping = AtomicBool::new(false);
        let work = || put_aside(&root, &log, most(files_max), at(now), &stopping, &mut gate);
        let Ok(done) = catch_unwind(AssertUnwindSafe(work)) else {
            return;
        };
        let Some(aside) = done.expect("put aside") else { return };
        if dies_at.is_some_and(|step| step == steps) {
            return;
        }
        match refuses {
            true => put_back(&root, &log, &aside).expect("put back"),
            false => self.reopen(),
        }
    }
}

/// So many files, each as long as the tests make them.
fn most(files: usize) -> Most {
    Most { files, bytes: 1_000 }
}

fn open(path: &Path) -> File {
    File::options().create(true).append(true).open(path).expect("opened")
}

#[test]
fn a_log_is_put_aside_the_last_one_compressed_and_the_oldest_removed() {
    let mut world = World::new();
    fs::set_permissions(world.path("0.log"), fs::Permissions::from_mode(0o640)).expect("mode");
    for round in 0..6 {
        world.write(3);
        world.look(round * 10, 4, None, false);
    }
    world.write(1);
    let names = world.names();
    let expected = [
        "0.log",
        "0.log.19700112-134710.gz",
        "0.log.19700112-134720.gz",
        "0.log.19700112-134730",
    ];
    assert_eq!(names, expected);
    assert_eq!(world.lines(), world.expected()[9..], "three files of three lines went");
    let oldest = world.path(&names[1]);
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(
        mode(&world.path(&names[3])),
        mode(&oldest),
        "whoever may read the log may read it still"
    );
}

#[test]
fn a_log_that_grew_far_beyond_its_size_is_not_compressed_and_goes_with_the_others() {
    let mut world = World::new();
    let sizes = [4_000, 4_001, 10, 10, 10];
    for (round, size) in (0..).zip(sizes) {
        world.writes_to.write_all(&vec![b'x'; size]).expect("written");
        world.look(round * 10, 4, None, false);
        if round == 3 {
            let names = [
                "0.log",
                "0.log.19700112-134650",
                "0.log.19700112-134700.gz",
                "0.log.19700112-134710",
            ];
            assert_eq!(
                world.names(),
                names,
                "the one that is four times as long was compressed, and is gone"
            );
        }
    }
    let names = [
        "0.log",
        "0.log.19700112-134700.gz",
        "0.log.19700112-134710.gz",
        "0.log.19700112-134720",
    ];
    assert_eq!(world.names(), names);
    let mut world = World::new();
    world.writes_to.write_all(&vec![b'x'; 4_000]).expect("written");
    world.look(0, 4, None, false);
    world.look(10, 4, None, false);
    assert_eq!(world.names()[1], "0.log.19700112-134640.gz");
}

#[test]
fn two_files_are_the_log_and_the_one_before() {
    let mut world = World::new();
    for round in 0..3 {
        world.write(1);
        world.look(round, 2, None, false);
    }
    assert_eq!(world.names(), ["0.log", "0.log.19700112-134642"]);
}

#[test]
fn a_runtime_that_refuses_goes_on_with_the_old_name() {
    let mut world = World::new();
    world.write(2);
    world.look(0, 5, None, true);
    world.write(1);
    assert_eq!(world.names(), ["0.log"]);
    assert_eq!(world.lines(), world.expected());
    // It said no, and did it all the same: both files stay.
    let log = world.log();
    let root = world.dir.path().to_owned();
    let aside = put_aside(&root, &log, most(5), at(5), &AtomicBool::new(false), &mut |_| {})
        .expect("done")
        .expect("aside");
    world.reopen();
    world.write(1);
    put_back(&root, &log, &aside).expect("nothing to do");
    assert_eq!(world.lines(), world.expected());
    assert_eq!(world.names().len(), 2);
}

#[test]
fn a_container_that_plays_with_its_log_directory_reaches_nothing_else() {
    let mut world = World::new();
    world.write(2);
    let precious = world.dir.path().join("shadow");
    fs::write(&precious, "root:x").expect("file");
    // Links in place of logs that were put aside: neither is read, and the second counts among the files.
    symlink(&precious, world.path("0.log.19700112-134600")).expect("link");
    fs::hard_link(&precious, world.path("0.log.19700112-134601")).expect("link");
    symlink(&precious, world.path("0.log.19700112-134602.tmp")).expect("link");
    fs::create_dir(world.path("0.log.19700112-134603.d")).expect("dir");
    world.look(0, 5, None, false);
    assert!(
        !world
            .names()
            .iter()
            .any(|name| name.ends_with(".gz") || name.ends_with(".tmp")),
        "{:?}",
        world.names()
    );
    assert_eq!(fs::read_to_string(&precious).expect("there"), "root:x");
    // A link in place of the directory.
    let root = world.dir.path().to_owned();
    let log = world.log();
    fs::rename(root.join("ns_p_p/c"), root.join("elsewhere")).expect("moved");
    symlink(root.join("elsewhere"), root.join("ns_p_p/c")).expect("link");
    put_aside(&root, &log, most(5), at(9), &AtomicBool::new(false), &mut |_| {}).expect_err("no way");
    rotation::is_missing(&root, &log).expect_err("no way");
    assert!(root.join("elsewhere/0.log").exists());
    for path in ["/etc/shadow", "0.log", "a/0.log", "a/b/c/0.log", "../a/0.log"] {
        assert_eq!(Log::below(&root, &root.join(path)), None, "{path}");
    }
    assert_eq!(
        Log::below(&root, Path::new("ns_p_p/c/0.log")),
        None,
        "not a path of the host"
    );
}

#[test]
fn directories_by_the_names_of_leftovers_do_not_stop_rotation() {
    let mut world = World::new();
    world.write(2);
    for name in ["0.log.19700112-134600.tmp", "0.log.19700112-134601"] {
        fs::create_dir(world.path(name)).expect("dir");
    }
    world.look(0, 2, None, false);
    assert!(world.path("0.log.19700112-134640").is_file(), "{:?}", world.names());
}

#[test]
fn a_kubelet_that_stops_leaves_the_original() {
    let mut world = World::new();
    world.write(2);
    world.look(0, 5, None, false);
    world.write(2);
    let stopping = AtomicBool::new(true);
    put_aside(world.dir.path(), &world.log(), most(5), at(9), &stopping, &mut |_| {}).expect("done");
    world.reopen();
    assert_eq!(
        world.names(),
        ["0.log", "0.log.19700112-134640", "0.log.19700112-134649"]
    );
    assert_eq!(world.lines(), world.expected());
}

#[derive(Clone, Debug)]
enum Do {
    Write(u64),
    Look { dies_at: Option<usize>, refuses: bool },
    Pass(i64),
}

fn doing() -> impl Strategy<Value = Do> {
    prop_oneof![
        (1u64..40).prop_map(Do::Write),
        (proptest::option::of(0usize..14), any::<bool>()).prop_map(|(dies_at, refuses)| Do::Look { dies_at, refuses }),
        // Backwards, too.
        (-3i64..5).prop_map(Do::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Every line is there once and in order, wherever kubelets die and whatever the runtime refuses; and nothing unfinished stays.
    #[test]
    fn no_line_is_lost_or_doubled(work in proptest::collection::vec(doing(), 1..40)) {
        let mut world = World::new();
        let mut now = 100;
        for step in work {
            match step {
                Do::Write(lines) => world.write(lines),
                Do::Look { dies_at, refuses } => world.look(now, 1_000, dies_at, refuses),
                Do::Pass(seconds) => now += seconds,
            }
            prop_assert_eq!(world.lines(), world.expected());
        }
        // The next start finishes what was begun.
        for _ in 0..2 {
            world.look(now, 1_000, None, false);
            world.write(1);
        }
        prop_assert_eq!(world.lines(), world.expected());
        let names = world.names();
        prop_assert!(names.contains(&"0.log".to_owned()));
        prop_assert!(!names.iter().any(|name| name.ends_with(files::UNFINISHED)), "{:?}", names);
        let plain = names.iter().filter(|name| !name.ends_with(files::COMPRESSED)).count();
        prop_assert!(plain <= 2, "only the last one is not compressed: {names:?}");
    }

    /// No more files than may be, whatever happens in between.
    #[test]
    fn no_more_files_stay_than_may(files_max in 2usize..6, work in proptest::collection::vec(doing(), 1..30)) {
        let mut world = World::new();
        let mut now = 100;
        for step in work {
            match step {
                Do::Write(lines) => world.write(lines),
                Do::Look { dies_at, refuses } => world.look(now, files_max, dies_at, refuses),
                Do::Pass(seconds) => now += seconds,
            }
        }
        for _ in 0..3 {
            world.write(1);
            world.look(now, files_max, None, false);
        }
        prop_assert!(world.names().len() <= files_max, "{:?} of {files_max}", world.names());
        let lines = world.lines();
        prop_assert!(world.expected().ends_with(&lines), "the newest stay: {lines:?}");
    }
}
