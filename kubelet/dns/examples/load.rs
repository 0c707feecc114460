//! How many answers a second a responder gives, how late they are, and what it holds: `load [SERVICES] [SECONDS]`, 1,000 and 5 unless
//! given; each service has a slice of three endpoints. What it holds is told with five times as many services, too. Needs root, `ip`
//! and `dnsperf`.
//!
//! The responder is a process of its own (`load serve SERVICES`) in a network namespace of its own, with its link and its rules as on
//! a node; dnsperf asks from another namespace, joined by a pair of links, as a pod does. What is divided by is the responder's own
//! processor time, which the kernel counts for each thread, so dnsperf's is not in it: that is what one core does, however many share
//! the machine. How late answers are is dnsperf's own count of each, at half of 100,000 a second, or of the rate that was reached where that is
//! less; beside it, how late they are at that rate from a program that only sends each question back as an answer, which is what the
//! machine and dnsperf make of it. The memory (Pss, and what of it
//! is anonymous: no file's) is what the process has more at the end than before the responder began, when it had informers that know
//! everything and the scripted API server they follow; the responder's thread does not use what others freed, for its allocations have
//! an arena of their own.
//!
//! Prints a line for each figure: name, value, unit and goal, with tabs between.

// What fails here fails the measurement.
#![allow(clippy::unwrap_used)]

#[path = "../tests/dns/cluster.rs"]
#[allow(dead_code)]
mod cluster;

use cluster::{Cluster, namespace, service};
use dns::{Metrics, Settings};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// The responder's address.
const ADDRESS: &str = "10.96.0.10";
/// The node's address beside the pod: where the echo is.
const NODE: &str = "10.244.0.1";
/// Answers a second that one core is to give.
const WANTED: u64 = 100_000;
/// Names of the rest of the world that are asked for.
const OUTSIDE: usize = 1000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| arguments.get(at).map_or(default, |text: &String| text.parse().unwrap());
    match arguments.first().map(String::as_str) {
        Some("serve") => serve(number(1, 1000)),
        Some("echo") => echo(),
        _ => measure(number(0, 1000), number(1, 5) as u64),
    }
}

fn name(number: usize) -> String {
    format!("service-{number}.ns-{}.svc.cluster.local", number % 50)
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// A network namespace that ends with the measurement.
struct Namespace(String);

impl Namespace {
    fn new(what: &str) -> Self {
        let namespace = Self(format!("sk-load-{what}-{}", std::process::id()));
        run("ip", &["netns", "add", &namespace.0]);
        namespace.ip(&["link", "set", "lo", "up"]);
        namespace
    }

    fn ip(&self, arguments: &[&str]) {
        run("ip", &[&["-n", &self.0], arguments].concat());
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// The responder's process, which ends with the measurement, and its memory before it was a responder's.
struct Responder(Child, Memory);

/// Megabytes of a process.
#[derive(Clone, Copy, Default)]
struct Memory {
    /// In all; what is shared with others by halves.
    pss: f64,
    anonymous: f64,
}

impl Responder {
    fn start(node: &Namespace, services: usize) -> Self {
        let own = std::env::current_exe().unwrap();
        let mut command = node.command(own.to_str().unwrap());
        command.args(["serve", &services.to_string()]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut responder = Self(child, Memory::default());
        responder.hear("informed\n");
        responder.1 = responder.memory();
        responder.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        responder.hear("ready\n");
        responder
    }

    /// Waits for what it says next. It says nothing more until it is told, so that nothing is read ahead.
    fn hear(&mut self, expected: &str) {
        let mut line = String::new();
        let said = self.0.stdout.as_mut().unwrap();
        BufReader::new(said).read_line(&mut line).unwrap();
        assert_eq!(line, expected, "what the responder says");
    }

    /// Processor time of all its threads, in seconds.
    fn seconds(&self) -> f64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
        let nanoseconds = tasks.flatten().map(|task| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            text.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0)
        });
        nanoseconds.sum::<f64>() / 1e9
    }

    fn memory(&self) -> Memory {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.0.id())).unwrap();
        let megabytes = |what: &str| {
            let line = text.lines().find(|line| line.starts_with(what)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1000.0
        };
        Memory {
            pss: megabytes("Pss:"),
            anonymous: megabytes("Anonymous:"),
        }
    }

    /// Tells what it has more than before it was a responder's.
    fn tell_memory(&self, services: usize) {
        let (before, after) = (self.1, self.memory());
        let told = |what: &str, megabytes, goal| figure(&format!("{what}, {services} services"), megabytes, "MB", goal);
        told("memory of the responder", after.pss - before.pss, "<= 10");
        told("anonymous of it", after.anonymous - before.anonymous, "");
        told("memory of its process", after.pss, "");
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that sends questions back, until this is dropped.
struct Echo(Child);

impl Echo {
    fn start(node: &Namespace) -> Self {
        let own = std::env::current_exe().unwrap();
        let mut command = node.command(own.to_str().unwrap());
        let mut child = command.arg("echo").stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let said = child.stdout.as_mut().unwrap();
        BufReader::new(said).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "what the echo says");
        Self(child)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends each question back as an answer without records.
fn echo() {
    let socket = UdpSocket::bind((NODE, 53)).unwrap();
    println!("ready");
    let mut buffer = [0; 512];
    while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
        buffer[2] |= 0x80;
        let _ = socket.send_to(&buffer[..length], peer);
    }
}

/// The number behind a word of dnsperf's report.
fn reported(report: &str, what: &str) -> f64 {
    let line = report.lines().find_map(|line| line.trim().strip_prefix(what));
    let line = line.unwrap_or_else(|| panic!("dnsperf does not say {what:?}: {report}"));
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn dnsperf(pod: &Namespace, names: &str, seconds: u64, more: &[&str]) -> String {
    dnsperf_at(ADDRESS, pod, names, seconds, more)
}

fn dnsperf_at(server: &str, pod: &Namespace, names: &str, seconds: u64, more: &[&str]) -> String {
    let mut command = pod.command("dnsperf");
    command.args([
        "-s",
        server,
        "-d",
        names,
        "-l",
        &seconds.to_string(),
        "-c",
        "8",
        "-q",
        "400",
    ]);
    let output = command.args(more).stderr(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "dnsperf failed");
    String::from_utf8(output.stdout).unwrap()
}

fn figure(name: &str, value: f64, unit: &str, goal: &str) {
    println!("{name}\t{value:.*}\t{unit}\t{goal}", usize::from(value < 1000.0) * 2);
}

/// A node and a pod on it.
fn node_and_pod() -> (Namespace, Namespace) {
    let (node, pod) = (Namespace::new("node"), Namespace::new("pod"));
    node.ip(&[
        "link", "add", "pod0", "type", "veth", "peer", "name", "eth0", "netns", &pod.0,
    ]);
    for (namespace, link, last) in [(&node, "pod0", 1), (&pod, "eth0", 2)] {
        namespace.ip(&["addr", "add", &format!("10.244.0.{last}/24"), "dev", link]);
        namespace.ip(&["link", "set", link, "up"]);
    }
    pod.ip(&["route", "add", "default", "via", "10.244.0.1"]);
    (node, pod)
}

fn measure(services: usize, seconds: u64) {
    let (node, pod) = node_and_pod();
    let responder = Responder::start(&node, services);
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, names: &mut dyn Iterator<Item = String>| {
        let path = folder.path().join(file);
        std::fs::write(&path, names.fold(String::new(), |text, name| text + &name + " A\n")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let inside = write("inside", &mut (0..services).map(|n| name(n * 7919 % services)));
    let outside = write("outside", &mut (0..OUTSIDE).map(|n| format!("host-{n}.example.com")));
    // Each name once, slowly: then the cache is warm.
    dnsperf(&pod, &outside, seconds + 30, &["-n", "1", "-Q", "2000"]);
    let mut half = 0;
    for (what, names) in [("names of the cluster", &inside), ("cached names", &outside)] {
        let before = responder.seconds();
        let report = dnsperf(&pod, names, seconds, &[]);
        let spent = responder.seconds() - before;
        let completed = reported(&report, "Queries completed:");
        figure(
            &format!("answers a core, {what}"),
            completed / spent,
            "1/s",
            ">= 100000",
        );
        let rate = reported(&report, "Queries per second:");
        figure(&format!("answers reached, {what}"), rate, "1/s", "");
        figure(
            &format!("questions lost, {what}"),
            reported(&report, "Queries lost:"),
            "",
            "0",
        );
        half = if half == 0 { (rate as u64).min(WANTED) / 2 } else { half };
    }
    figure("rate of the next figures", half as f64, "1/s", "");
    let of = |server: &str| -> [f64; 2] {
        let report = dnsperf_at(server, &pod, &inside, seconds, &["-v", "-Q", &half.to_string()]);
        let mut took = latencies(&report);
        took.sort_unstable_by(f64::total_cmp);
        [took.len() / 2, took.len() * 99 / 100].map(|at| took[at] * 1000.0)
    };
    let ours = of(ADDRESS);
    let echo = Echo::start(&node);
    let floor = of(NODE);
    drop(echo);
    for (what, [p50, p99], goal) in [
        ("", ours, "<= 2"),
        (", of a bare echo", floor, "what the machine gives"),
    ] {
        figure(&format!("p50 at that rate{what}"), p50, "ms", "");
        figure(&format!("p99 at that rate{what}"), p99, "ms", goal);
    }
    responder.tell_memory(services);
    drop((responder, node, pod));
    // With more services, each asked for.
    let services = services * 5;
    let (node, pod) = node_and_pod();
    let responder = Responder::start(&node, services);
    let inside = write("more", &mut (0..services).map(name));
    dnsperf(&pod, &inside, seconds, &[]);
    responder.tell_memory(services);
}

/// The seconds each answer took: the last word of dnsperf's line about it (`> NOERROR name A 0.000123`).
fn latencies(report: &str) -> Vec<f64> {
    let lines = report.lines().filter(|line| line.starts_with("> NOERROR"));
    let took: Vec<f64> = lines.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    assert!(!took.is_empty(), "dnsperf tells of no answer");
    took
}

/// The responder, until whoever started it is gone.
fn serve(services: usize) {
    resolver();
    let cluster = cluster_of(services);
    let folder = tempfile::tempdir().unwrap();
    let resolv_conf = folder.path().join("resolv.conf");
    std::fs::write(&resolv_conf, "nameserver 127.0.0.1\n").unwrap();
    let settings = Settings {
        addresses: vec![ADDRESS.parse().unwrap()],
        resolv_conf,
        ..Settings::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let stop = CancellationToken::new();
    runtime.block_on(async {
        let metrics = Arc::new(Metrics::default());
        let sources = cluster.sources();
        sources.services.synced().await;
        sources.slices.synced().await;
        sources.namespaces.synced().await;
        println!("informed");
        let told = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]));
        let _ = told.await.unwrap();
        tokio::spawn(dns::run(sources, settings, metrics, stop.clone()));
        tokio::task::spawn_blocking(move || {
            until_answered(services);
            println!("ready");
            let _ = std::io::stdin().read(&mut [0]);
        })
        .await
        .unwrap();
    });
    stop.cancel();
}

/// Waits until the last service has a name.
fn until_answered(services: usize) {
    let mut question = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0".to_vec();
    for label in name(services - 1).split('.') {
        question.push(label.len() as u8);
        question.extend(label.bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    let began = Instant::now();
    let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
    probe.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut buffer = [0; 512];
    loop {
        // Until the link is there, its address is unreachable.
        let is_sent = probe.send_to(&question, (ADDRESS, 53)).is_ok();
        if is_sent && probe.recv(&mut buffer).is_ok() && buffer[3] & 15 == 0 {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no answer for a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A resolver that knows every name.
fn resolver() {
    let socket = UdpSocket::bind("127.0.0.1:53").unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
            // The question ends behind its name, its type and its class.
            let name = buffer[12..length].iter().position(|byte| *byte == 0).unwrap();
            let mut answer = buffer[..12 + name + 5].to_vec();
            answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
            answer.extend(b"\xc0\x0c\0\x01\0\x01\0\0\x0e\x10\0\x04\xc0\0\x02\x01");
            let _ = socket.send_to(&answer, peer);
        }
    });
}

fn cluster_of(services: usize) -> Cluster {
    let cluster = Cluster::default();
    (0..50).for_each(|n| cluster.put("namespaces", namespace(&format!("ns-{n}"))));
    for n in 0..services {
        let address = format!("10.{}.{}.{}", 100 + n / 62_500, n / 250 % 250, n % 250 + 1);
        let (own, mut name) = (format!("ns-{}", n % 50), format!("service-{n}"));
        cluster.put("services", service(&own, &name, &address));
        let endpoints: Vec<_> = (0..3)
            .map(|k| json!({"addresses": [format!("10.{}.{}.{}", 150 + k, n / 250, n % 250 + 1)]}))
            .collect();
        let labels = json!({"kubernetes.io/service-name": name});
        name += "-x7k2p";
        cluster.put(
            "endpointslices",
            json!({"addressType": "IPv4", "endpoints": endpoints, "metadata": {"name": name, "namespace": own, "labels": labels},
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]}),
        );
    }
    cluster
}
