//! How many answers a second a responder gives, and what it holds: `load [SERVICES] [SECONDS] [CLIENTS] [UNDER_WAY]`, each service
//! with a slice of three endpoints. The responder runs in this
//! process on 127.0.0.1; each client is a thread that keeps UNDER_WAY (64)
//! questions unanswered. Prints the answers each second of the responder's
//! own processor time would give (read from its thread), which is what one core does however many share the machine.

// What fails here fails the measurement.
#![allow(clippy::unwrap_used)]

#[path = "../tests/dns/cluster.rs"]
#[allow(dead_code)]
mod cluster;

use cluster::{Cluster, namespace, service};
use dns::{Metrics, Settings};
use serde_json::json;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const PORT: u16 = 15353;

fn question(number: usize, id: u16) -> Vec<u8> {
    let mut message = [id.to_be_bytes(), [1, 0], [0, 1], [0, 0], [0, 0], [0, 0]].concat();
    let name = format!("service-{number}.ns-{}.svc.cluster.local", number % 50);
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend(label.bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

/// Keeps questions under way until `until`; returns the times they took, in microseconds.
fn ask((services, under_way): (usize, usize), seed: usize, until: Instant, answered: &AtomicU64) -> Vec<u32> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", PORT)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let questions: Vec<Vec<u8>> = (0..1024)
        .map(|n| question((n * 7919 + seed) % services, n as u16))
        .collect();
    let mut sent = vec![Instant::now(); 1024];
    let (mut next, mut took, mut buffer) = (0, Vec::new(), [0; 512]);
    let mut send = |sent: &mut Vec<Instant>| {
        sent[next] = Instant::now();
        socket.send(&questions[next]).unwrap();
        next = (next + 1) % 1024;
    };
    for _ in 0..under_way {
        send(&mut sent);
    }
    while Instant::now() < until {
        if socket.recv(&mut buffer).is_err() {
            panic!("no answer for a second");
        }
        assert_eq!((buffer[3] & 15, buffer[7]), (0, 1), "one answer, no error");
        let id = usize::from(u16::from_be_bytes([buffer[0], buffer[1]]));
        took.push(sent[id].elapsed().as_micros() as u32);
        answered.fetch_add(1, Relaxed);
        send(&mut sent);
    }
    took
}

/// Processor time of the responder's thread, in seconds.
fn processor_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .map(|task| task.path());
    let own = tasks.filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "dns"));
    let nanoseconds = own.map(|task| {
        let text = std::fs::read_to_string(task.join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse::<f64>().unwrap()
    });
    nanoseconds.sum::<f64>() / 1e9
}

fn resident_kilobytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).map(|text| text.parse().unwrap()).collect();
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    let (services, seconds, clients, under_way) = (number(0, 10_000), number(1, 5), number(2, 2), number(3, 64));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let cluster = Cluster::default();
    (0..50).for_each(|n| cluster.put("namespaces", namespace(&format!("ns-{n}"))));
    for n in 0..services {
        let address = format!("10.{}.{}.{}", 100 + n / 62_500, n / 250 % 250, n % 250 + 1);
        cluster.put(
            "services",
            service(&format!("ns-{}", n % 50), &format!("service-{n}"), &address),
        );
        let endpoints: Vec<_> = (0..3)
            .map(|k| json!({"addresses": [format!("10.{}.{}.{}", 150 + k, n / 250, n % 250 + 1)]}))
            .collect();
        let metadata = json!({"name": format!("service-{n}-x7k2p"), "namespace": format!("ns-{}", n % 50),
            "labels": {"kubernetes.io/service-name": format!("service-{n}")}});
        let ports = json!([{"name": "http", "port": 8080, "protocol": "TCP"}]);
        cluster.put(
            "endpointslices",
            json!({"addressType": "IPv4", "metadata": metadata, "ports": ports, "endpoints": endpoints}),
        );
    }
    let stop = CancellationToken::new();
    let settings = Settings {
        addresses: vec!["127.0.0.1".parse().unwrap()],
        port: PORT,
        interface: false,
        ..Settings::default()
    };
    runtime.block_on(async {
        let sources = cluster.sources();
        sources.services.synced().await;
        sources.slices.synced().await;
        let before = resident_kilobytes();
        let metrics = Arc::new(Metrics::default());
        tokio::spawn(dns::run(sources, settings, metrics, stop.clone()));
        // Ready when the last service has a name.
        let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
        probe.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut buffer = [0; 512];
        loop {
            probe.send_to(&question(services - 1, 1), ("127.0.0.1", PORT)).unwrap();
            if probe.recv(&mut buffer).is_ok() && buffer[3] & 15 == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!(
            "memory for {services} services: {} kB",
            resident_kilobytes().saturating_sub(before)
        );
    });
    let answered = AtomicU64::new(0);
    let (began, processor) = (Instant::now(), processor_seconds());
    let until = began + Duration::from_secs(seconds as u64);
    let mut took: Vec<u32> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|n| {
                scope.spawn({
                    let answered = &answered;
                    move || ask((services, under_way), n * 31, until, answered)
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let (wall, processor) = (began.elapsed().as_secs_f64(), processor_seconds() - processor);
    took.sort_unstable();
    let count = answered.load(Relaxed) as f64;
    println!(
        "{:.0} answers/s; {:.0} for each second of the responder's processor",
        count / wall,
        count / processor
    );
    println!(
        "p50 {} us, p99 {} us (with {under_way} under way on each of {clients} clients)",
        took[took.len() / 2],
        took[took.len() * 99 / 100]
    );
    stop.cancel();
}
