//! How long a cold start, one change and a look take, and how much memory they need. To be run in a network namespace of its
//! own: `unshare -n cargo run --release --example start -- 30000 3`.

use std::sync::Arc;
use std::time::Instant;

use proxy::apply::Kernel;
use proxy::choose::{Here, choose};
use proxy::ledger::{Changes, Deltas, Ledger};
use proxy::model::{Endpoint, PortName, Protocol, Served, ServiceName, ServicePort};
use proxy::rules::Writer;
use proxy::settings::Settings;

fn served(number: u32, endpoints: u32, shift: u32) -> Served {
    let port = ServicePort {
        name: PortName {
            namespace: "default".into(),
            service: format!("service-{number}"),
            port: "http".into(),
            protocol: Protocol::Tcp,
        },
        cluster_ips: vec![std::net::Ipv4Addr::from(0x0a60_0000 + number).into()],
        port: 80,
        node_port: 0,
        external_ips: [].into(),
        load_balancer_ips: [].into(),
        source_ranges: None,
        internal_local: false,
        external_local: false,
        affinity_seconds: 0,
        health_check_node_port: 0,
    };
    let list: Vec<Endpoint> = (0..endpoints)
        .map(|each| Endpoint {
            address: (
                std::net::Ipv4Addr::from(0x0a80_0000 + number * endpoints + each + shift),
                8080,
            )
                .into(),
            ready: true,
            serving: true,
            terminating: false,
            local: false,
            zone_hints: Vec::new(),
            node_hints: Vec::new(),
        })
        .collect();
    choose(port, list.iter(), Here { node: "n", zone: "" })
}

fn change(number: u32, endpoints: u32, shift: u32) -> (ServiceName, Option<Arc<[Served]>>) {
    let name = ServiceName::new("default", format!("service-{number}"));
    (name, Some(Arc::from(vec![served(number, endpoints, shift)])))
}

fn with(deltas: Deltas, settings: &Settings) -> Vec<(Writer<'_>, proxy::diff::Delta)> {
    deltas
        .into_iter()
        .map(|(v4, delta)| (Writer { v4, settings }, delta))
        .collect()
}

fn peak_kib() -> String {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmHWM"));
    line.unwrap_or_default()
        .split_whitespace()
        .nth(1)
        .unwrap_or_default()
        .to_owned()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse().ok());
    let (services, endpoints): (u32, u32) = (arguments.next().unwrap_or(30_000), arguments.next().unwrap_or(3));
    let settings = Settings::default();
    let mut kernel = Kernel::open()?;
    let mut ledger = Ledger::new(&settings);
    let all: Changes = (0..services).map(|number| change(number, endpoints, 0)).collect();
    println!("{} KiB with {services} Services in memory", peak_kib());
    let begun = Instant::now();
    let deltas = ledger.enter(all, &settings);
    println!("decided in {:?}, {} KiB", begun.elapsed(), peak_kib());
    kernel.replace(with(deltas, &settings))?;
    println!("cold start in {:?}, {} KiB", begun.elapsed(), peak_kib());
    let mut times = Vec::new();
    for turn in 0..100 {
        let begun = Instant::now();
        let deltas = ledger.enter([change(turn, endpoints, 7)].into(), &settings);
        if !kernel.change(&with(deltas, &settings))? {
            return Err("somebody else wrote".into());
        }
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    println!("a change: median {:?}, longest {:?}", times[50], times[99]);
    let begun = Instant::now();
    println!("intact: {} in {:?}", kernel.is_intact()?, begun.elapsed());
    Ok(())
}
