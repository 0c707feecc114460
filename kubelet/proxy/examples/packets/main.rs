//! What the Service proxy costs: the first packet of a connection with few and with many Services, a change, a cold start. Everything
//! happens in network namespaces of its own threads, which the kernel takes away with them: `cargo run --release -p proxy --example
//! packets` (as root; `hack/bench network proxy` runs it).

mod net;
mod services;

use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use services::{Rules, Target, service};

/// How many Services there are, beside one alone.
const MANY: [u32; 2] = [5_000, 30_000];
const ENDPOINTS: u32 = 3;
/// Connections begun with each number of Services in each round.
const CONNECTIONS: usize = 4_000;
const ROUNDS: usize = 5;
const CHANGES: u32 = 200;
/// Services there are when one of them changes.
const CHANGED_AMONG: u32 = 10_000;
/// Says that only the cold start is wanted, in a process of its own: its memory is what is measured.
const COLD_START: &str = "cold-start";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    if std::env::args().nth(1).as_deref() == Some(COLD_START) {
        return cold_start(MANY[1]);
    }
    let own = std::env::current_exe()?;
    if !Command::new(own).arg(COLD_START).status()?.success() {
        return Err("the cold start failed".into());
    }
    change()?;
    first_packets()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The largest resident memory this process had, in MB.
fn peak_mb() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0 / 1e6
}

/// Time and memory of a first write. What comes before it, the informers' copies of the objects, is not in it.
fn cold_start(count: u32) -> Outcome<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let all: Vec<_> = (0..count).map(|number| service(number, ENDPOINTS, 0, None)).collect();
    let read = peak_mb();
    let begun = Instant::now();
    let _rules = Rules::write(all)?;
    println!(
        "cold start, {count} Services of {ENDPOINTS} endpoints: {:.2} s, peak {:.1} MB ({read:.1} of them the Services themselves)",
        begun.elapsed().as_secs_f64(),
        peak_mb()
    );
    Ok(())
}

/// One endpoint of one Service comes or goes.
fn change() -> Outcome<()> {
    let work = || -> Result<(), String> {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|error| error.to_string())?;
        let all = (0..CHANGED_AMONG).map(|number| service(number, ENDPOINTS, 0, None));
        let mut rules = Rules::write(all.collect()).map_err(|error| error.to_string())?;
        let mut times = Vec::new();
        for turn in 0..CHANGES {
            let number = turn / 2 * 37 % CHANGED_AMONG;
            let changed = service(number, ENDPOINTS + 1 - turn % 2, 0, None);
            let begun = Instant::now();
            rules.change(changed).map_err(|error| error.to_string())?;
            times.push(begun.elapsed());
        }
        let longest = times.iter().max().copied().unwrap_or_default();
        println!(
            "one endpoint's change among {CHANGED_AMONG} Services, in the kernel: median {:.2} ms, longest {:.2} ms",
            median(times).as_secs_f64() * 1e3,
            longest.as_secs_f64() * 1e3
        );
        Ok(())
    };
    // A thread of its own: its namespace goes with it.
    let ended = std::thread::scope(|scope| scope.spawn(work).join());
    Ok(ended.map_err(|_| "the change panicked")??)
}

/// What is in the kernel while packets are timed.
#[derive(Clone, Copy)]
enum Way {
    /// A rule written by hand, which translates to one endpoint.
    ByHand,
    /// So many Services.
    Services(u32),
}

impl Way {
    fn name(self) -> String {
        match self {
            Self::ByHand => "veth and one rule of nft alone".to_owned(),
            Self::Services(count) => format!("{count} Services"),
        }
    }
}

/// The first packet of a connection there and back: translated, routed, answered. In rounds, for the machine is not always as fast.
fn first_packets() -> Outcome<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let net = net::Net::new(ENDPOINTS as u16)?;
    let ways = [
        Way::ByHand,
        Way::Services(1),
        Way::Services(MANY[0]),
        Way::Services(MANY[1]),
    ];
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for (way, times) in ways.iter().zip(&mut times) {
            net::nft("flush ruleset")?;
            let (to, _rules) = prepare(*way, &net)?;
            times.push(median(net.first_packets(to, CONNECTIONS)?));
        }
    }
    let medians: Vec<Duration> = times.into_iter().map(median).collect();
    let one = medians.get(1).copied().unwrap_or_default().as_secs_f64();
    println!("the first packet of a connection there and back, median of {ROUNDS} rounds' medians of {CONNECTIONS}:");
    for (way, time) in ways.iter().zip(medians) {
        println!(
            "  {:32} {:7.1} us, {:.3} of one Service",
            way.name(),
            time.as_secs_f64() * 1e6,
            time.as_secs_f64() / one
        );
    }
    Ok(())
}

/// Writes the rules; returns where packets are to be sent.
fn prepare(way: Way, net: &net::Net) -> Outcome<(std::net::SocketAddr, Option<Rules>)> {
    match way {
        Way::ByHand => {
            let to = Target::front(0);
            let endpoint = net.endpoint(0);
            net::nft(&format!(
                "table ip by-hand {{ chain nat-prerouting {{ type nat hook prerouting priority dstnat; \
                 ip daddr {} udp dport {} dnat to {endpoint}; }}; }}",
                to.ip(),
                to.port()
            ))?;
            Ok((to, None))
        }
        Way::Services(count) => {
            let served = count / 2;
            let target = Target {
                address: net.endpoint(0).ip(),
                first_port: net.endpoint(0).port(),
            };
            let all = (0..count).map(|number| {
                let here = (number == served).then_some(target);
                service(number, ENDPOINTS, 0, here)
            });
            Ok((Target::front(served), Some(Rules::write(all.collect())?)))
        }
    }
}
