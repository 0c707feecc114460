//! What a process that is killed, or whose disk is full, leaves behind. The victim is this test binary itself, run again with
//! [`VICTIM`] set to the directory it works in.

use super::*;
use crate::store::window::Window;
use crate::store::{Expect, Store};
use bytes::Bytes;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Set for the victim: the directory of its store.
const VICTIM: &str = "SKIFF_STORE_VICTIM";
const PODS: &str = "/registry/pods/";

fn victim_directory() -> Option<OsString> {
    std::env::var_os(VICTIM)
}

/// This binary, told to run one test of this module.
fn own_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("store::disk::crash_tests::{name}"), "--nocapture"]);
    command
}

/// A running victim, killed with -9 at the latest when dropped.
struct Victim {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Victim {
    fn start(test: &str, directory: &Path) -> Self {
        let mut child = own_test(test)
            .env(VICTIM, directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next whole line; what the kill cut off was never told.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.strip_suffix('\n').map(str::to_owned)
    }

    /// Kills it; returns the lines it had told until then.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.line()).collect()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Dead already after `kill`.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tell(line: &str) {
    // One call, so that lines of different tasks do not mix.
    std::io::stdout()
        .lock()
        .write_all(format!("{line}\n").as_bytes())
        .unwrap();
}

/// A thousand tasks, each updating a key of its own: the value counts its writes. Every acknowledgement is told, and so is every
/// event a watcher sees.
async fn write_and_watch(directory: OsString) -> ! {
    let disk = Arc::new(Disk::open(directory).unwrap());
    let window = Window::open(disk.clone()).await.unwrap();
    let pods = window.resource(PODS);
    let known = pods.cached();
    let mut events = Box::pin(pods.watch(known.revision).unwrap());
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            tell(&format!("saw {}", event.revision));
        }
    });
    for writer in 0..1000 {
        let key = format!("{PODS}{writer:04}");
        let known = known.objects.get(key.as_str()).map(Arc::clone);
        let disk = Arc::clone(&disk);
        tokio::spawn(async move {
            let mut expect = known
                .as_ref()
                .map_or(Expect::Absent, |known| Expect::At(known.revision));
            let mut count = known.map_or(0, |known| known.value().as_u64().unwrap());
            loop {
                count += 1;
                let revision = disk.put(&key, Bytes::from(count.to_string()), expect).await.unwrap();
                tell(&format!("acknowledged {key} {revision} {count}"));
                expect = Expect::At(revision);
            }
        });
    }
    std::future::pending().await
}

/// What a victim reported before it died.
#[derive(Default)]
struct Report {
    /// Key to revision and count of its last acknowledged write.
    acknowledged: BTreeMap<String, (Revision, u64)>,
    seen: Vec<Revision>,
}

impl Report {
    fn hear(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            // The harness puts its own words before the first line.
            [.., "acknowledged", key, revision, count] => {
                let report = (revision.parse().unwrap(), count.parse().unwrap());
                self.acknowledged.insert((*key).to_owned(), report);
            }
            [.., "saw", revision] => self.seen.push(revision.parse().unwrap()),
            _ => {}
        }
    }
}

#[tokio::test]
async fn kill_9_among_a_thousand_writes_loses_and_invents_nothing() {
    if let Some(directory) = victim_directory() {
        write_and_watch(directory).await;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut started = 1;
    for round in 0..3 {
        let mut victim = Victim::start(
            "kill_9_among_a_thousand_writes_loses_and_invents_nothing",
            directory.path(),
        );
        let mut report = Report::default();
        while report.seen.len() < 1500 + 700 * round {
            report.hear(&victim.line().expect("the victim writes until it is killed"));
        }
        for line in victim.kill() {
            report.hear(&line);
        }
        started = check(directory.path(), started, &report).await;
    }
}

/// Checks what is there after a kill against what was reported; returns the newest revision.
async fn check(directory: &Path, started: Revision, report: &Report) -> Revision {
    let disk = Arc::new(Disk::open(directory).unwrap());
    let (newest, records) = disk.range(PODS).await.unwrap();
    let mut writes = 0;
    for record in &records {
        let count: u64 = std::str::from_utf8(&record.value).unwrap().parse().unwrap();
        writes += count;
        if let Some((revision, acknowledged)) = report.acknowledged.get(&*record.key) {
            let is_it = record.modified == *revision && count == *acknowledged;
            let is_the_next = record.modified > *revision && count == *acknowledged + 1;
            assert!(
                is_it || is_the_next,
                "{record:?}: acknowledged {acknowledged} at {revision}"
            );
        }
    }
    let keys: Vec<&str> = records.iter().map(|record| &*record.key).collect();
    assert!(report.acknowledged.keys().all(|key| keys.contains(&key.as_str())));
    assert_eq!(newest, 1 + writes, "one revision per write, none lost, none invented");

    let expected: Vec<Revision> = (started + 1..).take(report.seen.len()).collect();
    assert_eq!(report.seen, expected, "every event once and in order");
    let last = *report.seen.last().unwrap();
    assert!(last <= newest, "nothing is seen before it is durable");
    let window = Window::open(disk.clone()).await.unwrap();
    let pods = window.resource(PODS);
    for revision in [started, started + 1, last, newest] {
        let mut state = pods.at(revision).unwrap().objects;
        let count = usize::try_from(newest - revision).unwrap();
        let events: Vec<_> = pods.watch(revision).unwrap().take(count).collect().await;
        let revisions: Vec<Revision> = events.iter().map(|event| event.revision).collect();
        assert_eq!(
            revisions,
            (revision + 1..=newest).collect::<Vec<_>>(),
            "a watch that goes on misses nothing"
        );
        for new in events.iter().filter_map(|event| event.new.as_ref()) {
            state.insert(Arc::clone(&new.key), Arc::clone(new));
        }
        let state: Vec<(&str, Bytes)> = state.iter().map(|(key, stored)| (&**key, stored.raw())).collect();
        let expected = records.iter().map(|record| (&*record.key, record.value.clone()));
        let expected: Vec<(&str, Bytes)> = expected.collect();
        assert_eq!(state, expected);
    }
    drop((pods, window));
    Disk::close_when_alone(disk).await;
    newest
}

/// So many objects are there when the process is killed.
const MANY: usize = 100_000;

/// Writes the objects, says so, and goes on until killed.
async fn fill(directory: OsString) -> ! {
    let disk = Disk::open(directory).unwrap();
    let value = Bytes::from(vec![b'x'; 200]);
    let write = |number: usize| {
        let (disk, value) = (&disk, value.clone());
        async move { disk.put(&format!("{PODS}{number:06}"), value, Expect::Absent).await }
    };
    let mut writes = futures::stream::iter((0..).map(write)).buffered(2 * BATCH);
    let mut count = 0;
    while let Some(written) = writes.next().await {
        written.unwrap();
        count += 1;
        if count == MANY {
            tell("filled");
        }
    }
    unreachable!("the numbers do not end")
}

#[tokio::test]
async fn a_hundred_thousand_objects_are_there_after_kill_9() {
    if let Some(directory) = victim_directory() {
        fill(directory).await;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut victim = Victim::start("a_hundred_thousand_objects_are_there_after_kill_9", directory.path());
    while !victim
        .line()
        .expect("the victim writes until it is killed")
        .ends_with("filled")
    {}
    victim.kill();
    let disk = Arc::new(Disk::open(directory.path()).unwrap());
    let window = Window::open(disk.clone()).await.unwrap();
    let pods = window.resource(PODS).cached();
    assert!(pods.objects.len() >= MANY);
    assert_eq!(pods.revision, 1 + pods.objects.len() as u64);
    // Writes that wait at once are stored in any order, so that the first number missing may not be the count.
    let next = format!("{PODS}next");
    disk.put(&next, Bytes::new(), Expect::Absent).await.unwrap();
}

/// Writes until the disk is full, checks what still works, and goes on once there is space again.
async fn fill_the_disk(directory: OsString) {
    let path = Path::new(&directory);
    let mut held = Directory::hold(path).unwrap();
    held.now = super::fault_tests::an_hour_later_each_time();
    let database = builder().create(path.join(FILE)).unwrap();
    let disk = Disk::start(held, database, path, Box::new(|error| panic!("{error}"))).unwrap();
    let value = Bytes::from(vec![b'x'; 100 << 10]);
    let mut written = Vec::new();
    let refusal = loop {
        let key = format!("{PODS}{:04}", written.len());
        match disk.put(&key, value.clone(), Expect::Absent).await {
            Ok(revision) => written.push((key, revision)),
            Err(refusal) => break refusal,
        }
    };
    assert!(matches!(refusal, StoreError::Full { .. }), "{refusal}");
    let text = refusal.to_string();
    assert!(text.contains(&directory.display().to_string()), "{text}");
    let (newest, records) = disk.range(PODS).await.unwrap();
    assert_eq!((newest, records.len()), (1 + written.len() as u64, written.len()));
    // The last ones stay, at the end of the file.
    let kept = written.split_off(written.len() - 5);
    for (key, revision) in &written {
        disk.delete(key, *revision).await.expect("deleting is what helps");
    }
    written.truncate(written.len() / 2);
    for (key, revision) in &mut written {
        let again = disk.put(key, value.clone(), Expect::Absent).await;
        *revision = again.expect("there is room inside the file");
    }
    written.extend(kept);
    let (key, revision) = &written[0];
    disk.delete(key, *revision).await.expect("deleting is what helps");
    let grown = Command::new("mount")
        .args(["-o", "remount,size=80m"])
        .arg(&directory)
        .status();
    assert!(grown.unwrap().success());
    disk.put(key, value, Expect::Absent)
        .await
        .expect("there is space again");
    disk.close().await;
    let disk = Disk::open(&directory).unwrap();
    assert_eq!(disk.range(PODS).await.unwrap().1.len(), written.len());
    tell("went on");
}

#[tokio::test]
async fn a_full_disk_refuses_what_adds_and_goes_on_with_the_rest() {
    if let Some(directory) = victim_directory() {
        return fill_the_disk(directory).await;
    }
    let directory = tempfile::tempdir().unwrap();
    // A file system of its own, in a mount namespace that ends with the process; as root in a user namespace of its own for
    // those who are not root.
    let root = if nix::unistd::geteuid().is_root() {
        ""
    } else {
        "--map-root-user"
    };
    let script = r#"mount -t tmpfs -o size=40m none "$SKIFF_STORE_VICTIM" && exec "$@""#;
    let test = own_test("a_full_disk_refuses_what_adds_and_goes_on_with_the_rest");
    let output = Command::new("unshare")
        .args(["--mount", root].iter().filter(|word| !word.is_empty()))
        .args(["sh", "-c", script, "sh"])
        .arg(test.get_program())
        .args(test.get_args())
        .env(VICTIM, directory.path())
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && report.contains("went on"),
        "{report}{complaint}"
    );
}
