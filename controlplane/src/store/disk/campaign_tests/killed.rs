//! The process is killed with -9 in the middle of it all: clients and watchers live in the process that dies, and tell what they ask
//! and see, line by line. Then the file is torn and bits of it are flipped.

use super::*;
use crate::store::{Expect, Record};
use bytes::Bytes;
use faults::history::{Contents, Part};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

/// Set for the victim: the directory of its store, and its seed.
const VICTIM: &str = "SKIFF_FAULTS_VICTIM";
const TEST: &str = "store::disk::campaign_tests::killed::kill_9_leaves_a_history_with_an_order";
const EVENT: &str = "event ";

fn keys() -> Keys {
    Keys {
        prefix: "/registry/k/".to_owned(),
        count: 8,
        value_max: 3000,
    }
}

/// Asks the store, and tells, until it is killed.
async fn victim(told: &str) -> ! {
    let (seed, directory) = told.split_once(':').unwrap();
    let store: Arc<dyn Store> = Arc::new(Disk::open(directory).unwrap());
    let recorder = Recorder::to(|event| {
        let line = serde_json::to_string(&event).unwrap();
        // One call, so that lines of different threads do not mix.
        let mut out = std::io::stdout().lock();
        out.write_all(format!("\n{EVENT}{line}\n").as_bytes()).unwrap();
    });
    for number in 0..CLIENTS {
        let (door, recorder) = (drive::to(Arc::clone(&store)), Arc::clone(&recorder));
        tokio::spawn(drive::client(
            number,
            seed.parse().unwrap(),
            keys(),
            door,
            recorder,
            Arc::default(),
        ));
    }
    std::future::pending().await
}

/// Killed with -9 at the latest when dropped.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills a process that still lives when it must have hung; not any more once dropped.
struct Watch(Option<(mpsc::Sender<()>, std::thread::JoinHandle<()>)>);

impl Watch {
    fn over(process: u32) -> Self {
        let (ends, waits) = mpsc::channel();
        let watching = std::thread::spawn(move || {
            if waits.recv_timeout(LONG) == Err(mpsc::RecvTimeoutError::Timeout) {
                // Nobody has waited for it: the number is its own.
                let _ = kill(Pid::from_raw(process.cast_signed()), Signal::SIGKILL);
            }
        });
        Self(Some((ends, watching)))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((ends, watching)) = self.0.take() {
            drop(ends);
            watching.join().unwrap();
        }
    }
}

/// Runs a victim until it has told so many events; all that it told.
fn life(directory: &Path, seed: u64, count: usize) -> Vec<Event> {
    // However this process ends, that one ends with it.
    let child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture"])
        .env(VICTIM, format!("{seed}:{}", directory.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut victim = Victim(child);
    let _watched = Watch::over(victim.0.id());
    let mut lines = BufReader::new(victim.0.stdout.take().unwrap());
    let mut events = Vec::new();
    loop {
        let mut line = String::new();
        // What the kill cut off was never told.
        if lines.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
            break;
        }
        if let Some(event) = line.strip_prefix(EVENT) {
            events.push(serde_json::from_str(event).unwrap());
        }
        if events.len() == count {
            victim.0.kill().unwrap();
        }
    }
    assert!(
        events.len() >= count,
        "the victim asks until it is killed: {}",
        events.len()
    );
    events.push(Event::Died);
    events
}

#[tokio::test]
async fn kill_9_leaves_a_history_with_an_order() {
    if let Ok(told) = std::env::var(VICTIM) {
        victim(&told).await;
    }
    let (rounds, first) = rounds();
    let mut all: Vec<Event> = Vec::new();
    let directory = tempfile::tempdir().unwrap();
    // One store, killed in each round.
    for seed in first..first + rounds.div_ceil(4) {
        let mut dice = StdRng::seed_from_u64(seed);
        let mut events = life(directory.path(), seed, dice.random_range(300..900));
        let disk = Disk::open(directory.path()).unwrap();
        let ask = faults::history::Ask::List;
        let listed = drive::ask(&disk, &keys().prefix, &ask, 0).await;
        disk.close().await;
        let base = all.len() as u64 + 1_000_000;
        // Numbers of one victim are another's, too.
        for event in &mut events {
            if let Event::Began(number, _) | Event::Ended(number, _) = event {
                *number += base;
            }
        }
        let number = base + events.len() as u64;
        all.extend(events);
        all.extend([Event::Began(number, ask), Event::Ended(number, listed)]);
        let wrong = faults::judge(&all, &[], 0);
        println!("kill {seed}: {} events: {} wrong", all.len(), wrong.len());
        assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
    }
}

/// Bits of a closed store's file are flipped, or it ends too early: it is refused by name, with what helps, each time, or opened with all
/// that was acknowledged, where nothing was that is of use. Never with anything else.
#[tokio::test]
async fn a_damaged_file_is_refused_by_name_or_holds_all_of_it() {
    let (rounds, first) = rounds();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(FILE);
    let disk = Disk::open(directory.path()).unwrap();
    for number in 0..300 {
        let value = Bytes::from(vec![b'v'; 2000]);
        disk.put(&format!("/registry/b/{number:03}"), value, Expect::Absent)
            .await
            .unwrap();
    }
    let (_, whole) = disk.range("/registry/b/").await.unwrap();
    disk.close().await;
    let good = std::fs::read(&file).unwrap();
    let mut counts = [0; 2];
    for seed in first..first + rounds * 2 {
        let mut dice = StdRng::seed_from_u64(seed);
        let mut bytes = good.clone();
        match seed % 4 {
            0 => bytes.truncate(dice.random_range(0..good.len())),
            _ => (0..1 << dice.random_range(0..8)).for_each(|_| {
                let at = dice.random_range(0..good.len());
                bytes[at] ^= 1 << dice.random_range(0..8);
            }),
        }
        std::fs::write(&file, bytes).unwrap();
        let is_refused = is_refused(directory.path(), &whole, seed).await;
        if is_refused {
            // Nothing of it has been mended behind anybody's back.
            assert!(self::is_refused(directory.path(), &whole, seed).await, "seed {seed}");
        }
        counts[usize::from(is_refused)] += 1;
    }
    let [same, refused] = counts;
    println!("damaged files: {refused} refused by name, {same} the same all the same");
    assert!(refused > 0, "{counts:?}");
}

/// Whether a damaged file is refused; if not, it holds what it held.
async fn is_refused(directory: &Path, whole: &[Record], seed: u64) -> bool {
    let named = |error: &StoreError| {
        let text = error.to_string();
        assert!(text.contains(&directory.display().to_string()), "seed {seed}: {text}");
        true
    };
    let told = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&told);
    let disk = match Disk::open_with(
        directory,
        Box::new(move |error| hook.lock().unwrap().push(error.clone())),
    ) {
        Ok(disk) => disk,
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("`controlplane restore`"), "seed {seed}: {text}");
            return named(&error);
        }
    };
    let read = tokio::time::timeout(LONG, disk.range("/registry/b/"))
        .await
        .expect("no hang");
    let put = disk.put("/registry/c", Bytes::new(), Expect::Absent);
    let put = tokio::time::timeout(LONG, put).await.expect("no hang");
    disk.close().await;
    match (read, put) {
        (Err(error), _) | (_, Err(error @ StoreError::Unusable(_))) => named(&error),
        (_, Err(StoreError::Closed)) => named(&told.lock().unwrap()[0]),
        (Ok((_, records)), _) => {
            assert!(records == whole, "seed {seed}: opened with other records");
            false
        }
    }
}

/// The judge at work on this store: a record that is taken out of its list is missed.
#[tokio::test]
async fn a_record_that_is_lost_would_be_found() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::open(directory.path()).unwrap();
    let (recorder, events) = Recorder::kept();
    let key = format!("{}a", keys().prefix);
    let ask = faults::history::Ask::Create {
        key,
        value: "v".to_owned(),
    };
    recorder.asked(&ask, &drive::ask(&disk, &keys().prefix, &ask, 8).await);
    let newest = disk.current_revision().await.unwrap();
    let list = faults::history::Ask::List;
    let listed = drive::ask(&disk, &keys().prefix, &list, 0).await;
    disk.close().await;
    let judged = |answer: &Answer| {
        let mut events = events.lock().unwrap().clone();
        events.extend([Event::Began(9, list.clone()), Event::Ended(9, answer.clone())]);
        let part = Part {
            revision: newest,
            contents: Contents::new(),
            steps: Vec::new(),
        };
        let watcher = Watcher {
            name: String::new(),
            parts: vec![part],
        };
        faults::judge(&events, &[watcher], newest)
    };
    assert!(judged(&listed).is_empty());
    assert!(!judged(&Answer::Listed(newest, Contents::new())).is_empty());
}
