//! What the engines are put through; each function is one child process's whole work and prints one line of figures.

use crate::engine::{self, Engine, State, Write};
use crate::{measure, sync};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Most writes in one commit, as in the control plane.
const BATCH: usize = 512;

/// A small generator (xorshift), so that runs are alike.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn key(number: u64) -> Arc<str> {
    Arc::from(format!("/registry/pods/namespace-{}/web-{number:08}", number % 50))
}

/// About a kilobyte, as compressible as a pod is.
fn value(random: &mut Random) -> Bytes {
    let (a, b, c) = (random.next(), random.next(), random.next());
    Bytes::from(format!(
        r#"{{"metadata":{{"creationTimestamp":"2026-01-02T03:04:05Z","generateName":"web-{a:08x}-","labels":{{"app":"web","pod-template-hash":"{a:x}"}},"name":"web-{a:08x}-{b:05x}","namespace":"default","ownerReferences":[{{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"ReplicaSet","name":"web-{a:08x}","uid":"{b:016x}-{c:016x}"}}],"uid":"{c:016x}-{b:016x}"}},"spec":{{"containers":[{{"image":"nginx","imagePullPolicy":"Always","name":"nginx","resources":{{}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}}],"dnsPolicy":"ClusterFirst","nodeName":"node-{}","restartPolicy":"Always","schedulerName":"default-scheduler","terminationGracePeriodSeconds":30}},"status":{{"conditions":[{{"lastProbeTime":null,"lastTransitionTime":"2026-01-02T03:04:05Z","status":"True","type":"Ready"}}],"containerStatuses":[{{"containerID":"containerd://{a:016x}{b:016x}{c:016x}{a:016x}","name":"nginx","ready":true}}],"hostIP":"10.0.0.1","phase":"Running","podIP":"10.244.{}.{}"}}}}"#,
        a % 100,
        b % 256,
        c % 256
    ))
}

fn apply(state: &mut State, batch: &[Write]) {
    for (key, value) in batch {
        match value {
            Some(value) => drop(state.insert(Arc::clone(key), value.clone())),
            None => drop(state.remove(key)),
        }
    }
}

fn commit(engine: &mut dyn Engine, state: &mut State, batch: &[Write]) -> anyhow::Result<()> {
    apply(state, batch);
    engine.commit(batch, state)
}

/// `count` objects.
pub fn fill(engine: &mut dyn Engine, count: u64) -> anyhow::Result<State> {
    let mut state = engine.load()?;
    let mut random = Random::new(1);
    let numbers: Vec<u64> = (0..count).collect();
    for chunk in numbers.chunks(BATCH) {
        let batch: Vec<Write> = chunk.iter().map(|n| (key(*n), Some(value(&mut random)))).collect();
        commit(engine, &mut state, &batch)?;
    }
    Ok(state)
}

type Job = (Write, SyncSender<()>);

/// The control plane's way to write: whoever waits together shares a commit.
fn group_commits(mut engine: Box<dyn Engine>, mut state: State, jobs: &Receiver<Job>) -> anyhow::Result<()> {
    while let Ok(first) = jobs.recv() {
        let mut waiting = vec![first];
        while waiting.len() < BATCH {
            let Ok(job) = jobs.try_recv() else { break };
            waiting.push(job);
        }
        let (batch, replies): (Vec<Write>, Vec<SyncSender<()>>) = waiting.into_iter().unzip();
        commit(&mut *engine, &mut state, &batch)?;
        for reply in replies {
            // The writer's time may be over.
            let _ = reply.send(());
        }
    }
    Ok(())
}

/// `writers` at once, each waiting for its write before the next, over 10,000 objects.
pub fn writers(name: &str, directory: &Path, writers: u64, delay: Duration, time: Duration) -> anyhow::Result<()> {
    let mut engine = engine::open(name, directory)?;
    let is_elsewhere = engine.process().is_some();
    if is_elsewhere && !delay.is_zero() {
        println!("another process's fsyncs cannot be made slower");
        return Ok(());
    }
    let state = fill(&mut *engine, 10_000)?;
    sync::delay(delay);
    let syncs = sync::count();
    let (jobs, queue) = sync_channel::<Job>(1024);
    let until = Instant::now() + time;
    let (mut times, committed) = std::thread::scope(|scope| {
        let committer = scope.spawn(move || group_commits(engine, state, &queue));
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                let jobs = jobs.clone();
                scope.spawn(move || write_until(until, writer, &jobs))
            })
            .collect();
        drop(jobs);
        let times: Vec<Duration> = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_default())
            .collect();
        (times, committer.join())
    });
    committed.map_err(|_| anyhow::anyhow!("the committing thread failed"))??;
    times.sort_unstable();
    let syncs = (sync::count() - syncs) as f64 / times.len().max(1) as f64;
    println!(
        "{:.0} writes/s, p50 {:.2} ms, p99 {:.2} ms{}",
        times.len() as f64 / time.as_secs_f64(),
        measure::percentile(&times, 50),
        measure::percentile(&times, 99),
        if is_elsewhere {
            String::new()
        } else {
            format!(", {syncs:.2} fsyncs a write")
        },
    );
    Ok(())
}

fn write_until(until: Instant, writer: u64, jobs: &SyncSender<Job>) -> Vec<Duration> {
    let mut random = Random::new(writer + 2);
    let mut times = Vec::new();
    let (reply, answer) = sync_channel(1);
    while Instant::now() < until {
        let write = (key(random.next() % 10_000), Some(value(&mut random)));
        let begin = Instant::now();
        if jobs.send((write, reply.clone())).is_err() || answer.recv().is_err() {
            break;
        }
        times.push(begin.elapsed());
    }
    times
}

/// Fills with `count` objects, says so, and goes on writing until killed.
pub fn until_killed(name: &str, directory: &Path, count: u64) -> anyhow::Result<()> {
    let mut engine = engine::open(name, directory)?;
    let mut state = fill(&mut *engine, count)?;
    println!("filled");
    let mut random = Random::new(9);
    loop {
        let batch: Vec<Write> = (0..10)
            .map(|_| (key(random.next() % count), Some(value(&mut random))))
            .collect();
        commit(&mut *engine, &mut state, &batch)?;
    }
}

/// Opens what was left and reads it into memory.
pub fn reopen(name: &str, directory: &Path, count: u64) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut engine = engine::open(name, directory)?;
    let opened = begin.elapsed();
    let state = engine.load()?;
    let loaded = begin.elapsed();
    anyhow::ensure!(
        state.len() as u64 == count,
        "{} of {count} objects are there",
        state.len()
    );
    let live: usize = state.iter().map(|(key, value)| key.len() + value.len()).sum();
    let (pss, anonymous) = measure::memory_kb(None)?;
    let server = server_memory(&*engine)?;
    println!(
        "{:.0} ms (of it open {:.0}), Pss {} MB, anonymous {} MB, of it values {} MB{server}; {} MB on disk",
        loaded.as_secs_f64() * 1e3,
        opened.as_secs_f64() * 1e3,
        pss / 1024,
        anonymous / 1024,
        live >> 20,
        measure::disk_bytes(directory) >> 20,
    );
    Ok(())
}

/// What the process beside this one holds, if there is one.
fn server_memory(engine: &dyn Engine) -> anyhow::Result<String> {
    let Some(process) = engine.process() else {
        return Ok(String::new());
    };
    let (pss, anonymous) = measure::memory_kb(Some(process))?;
    Ok(format!(
        "; the server Pss {} MB, anonymous {} MB",
        pss / 1024,
        anonymous / 1024
    ))
}

/// `updates` updates of `count` objects, a hundred to a commit.
pub fn churn(name: &str, directory: &Path, count: u64, updates: u64) -> anyhow::Result<()> {
    let mut engine = engine::open(name, directory)?;
    let mut state = fill(&mut *engine, count)?;
    let written = measure::written_bytes(engine.process())?;
    let mut random = Random::new(5);
    let mut most_bytes = 0;
    let begin = Instant::now();
    for round in 0..updates / 100 {
        let batch: Vec<Write> = (0..100)
            .map(|_| (key(random.next() % count), Some(value(&mut random))))
            .collect();
        commit(&mut *engine, &mut state, &batch)?;
        if round % 50 == 0 {
            most_bytes = most_bytes.max(measure::disk_bytes(directory));
        }
    }
    let took = begin.elapsed();
    let live: usize = state.iter().map(|(key, value)| key.len() + value.len()).sum();
    let (pss, anonymous) = measure::memory_kb(None)?;
    let server = server_memory(&*engine)?;
    println!(
        "{} MB on disk, at most {} (live {}); {:.1} s, {} MB written; Pss {} MB, anonymous {} MB{server}",
        measure::disk_bytes(directory) >> 20,
        most_bytes >> 20,
        live >> 20,
        took.as_secs_f64(),
        (measure::written_bytes(engine.process())? - written) >> 20,
        pss / 1024,
        anonymous / 1024,
    );
    Ok(())
}
