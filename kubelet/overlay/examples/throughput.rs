//! What TCP gets through between pods of two nodes: by our tunnel beside one set up by hand, and by `host-gw` beside a plain
//! route; and beside either where nodes follow connections, which any node with Services or policies does. Two namespaces for nodes are
//! joined by a pair of interfaces, each has one for a pod behind it; everything is made anew for each run, the ways take turns, in the
//! other order every second time, and medians are compared. Needs root, `ip`, `nft` and `iperf3`. Run it with `--release`; arguments
//! are the number of runs (5) and the seconds of each (3).

use netlink::cidr::Cidr;
use netlink::link::Mac;
use netlink::netns::Netns;
use netlink::{Protocol, Socket};
use overlay::kernel::Kernel;
use overlay::peer::Peer;
use overlay::state::Each;
use overlay::trial::Tested;
use overlay::{Backend, Settings};
use serde_json::json;
use std::collections::BTreeMap;
use std::error::Error;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A way from pod to pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Ours(Kind),
    Plain(Kind),
    /// As plain, with connections followed.
    Tracked(Kind),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Vxlan,
    HostGw,
}

const WAYS: [Way; 6] = [
    Way::Plain(Kind::Vxlan),
    Way::Ours(Kind::Vxlan),
    Way::Tracked(Kind::Vxlan),
    Way::Plain(Kind::HostGw),
    Way::Ours(Kind::HostGw),
    Way::Tracked(Kind::HostGw),
];

fn run(program: &str, words: &str) -> Outcome<String> {
    let output = Command::new(program).args(words.split(' ')).output()?;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{program} {words}: {}", String::from_utf8_lossy(&said)).into())
}

/// Two nodes with a pod each; its namespaces go with it.
struct Lab {
    nodes: [String; 2],
    pods: [String; 2],
}

impl Lab {
    fn new(mtu: u32) -> Outcome<Self> {
        let name = |what: &str| format!("sko-{what}{}", std::process::id());
        let lab = Self {
            nodes: [name("n1-"), name("n2-")],
            pods: [name("p1-"), name("p2-")],
        };
        for name in lab.nodes.iter().chain(&lab.pods) {
            run("ip", &format!("netns add {name}"))?;
            run("ip", &format!("-n {name} link set lo up"))?;
        }
        let [a, b] = &lab.nodes;
        run(
            "ip",
            &format!("-n {a} link add eth0 type veth peer name eth0 netns {b}"),
        )?;
        for (number, (node, pod)) in lab.nodes.iter().zip(&lab.pods).enumerate() {
            let number = number + 1;
            for words in [
                format!("-n {node} addr add 192.0.2.{number}/24 dev eth0"),
                format!("-n {node} link set eth0 up"),
                format!("-n {node} link add pod mtu {mtu} type veth peer name eth0 mtu {mtu} netns {pod}"),
                format!("-n {node} addr add 10.244.{number}.1/24 dev pod"),
                format!("-n {node} link set pod up"),
                format!("-n {pod} addr add 10.244.{number}.5/24 dev eth0"),
                format!("-n {pod} link set eth0 up"),
                format!("-n {pod} route add default via 10.244.{number}.1"),
            ] {
                run("ip", &words)?;
            }
            run("ip", &format!("netns exec {node} sysctl -qw net.ipv4.ip_forward=1"))?;
        }
        Ok(lab)
    }

    fn by_hand(&self, kind: Kind) -> Outcome<()> {
        for (number, node) in self.nodes.iter().enumerate() {
            let (number, other) = (number + 1, 2 - number);
            let steps = match kind {
                Kind::HostGw => vec![format!("-n {node} route add 10.244.{other}.0/24 via 192.0.2.{other}")],
                Kind::Vxlan => vec![
                    format!(
                        "-n {node} link add vx0 type vxlan id 1 dstport 8472 local 192.0.2.{number} remote 192.0.2.{other} dev eth0"
                    ),
                    format!("-n {node} link set vx0 mtu 1450 up"),
                    format!("-n {node} addr add 10.244.{number}.0/32 dev vx0"),
                    format!("-n {node} route add 10.244.{other}.0/24 via 10.244.{other}.0 dev vx0 onlink"),
                ],
            };
            for words in steps {
                run("ip", &words)?;
            }
        }
        Ok(())
    }

    fn by_us(&self, kind: Kind) -> Outcome<()> {
        let backend = match kind {
            Kind::Vxlan => Backend::Vxlan,
            Kind::HostGw => Backend::HostGw,
        };
        let peers = (1..=2).map(peer).collect::<Outcome<BTreeMap<_, _>>>()?;
        let mut kernels = Vec::new();
        for (node, own) in self.nodes.iter().zip(peers.values()) {
            let settings = Settings::new(own.name.clone(), backend, vec![Cidr::parse("10.244.0.0/16")?]);
            let begin = || -> Outcome<Kernel> {
                let mac = Mac([2, 0, 0, 0, 0, 0xff]);
                let mut kernel = Kernel::open(Arc::new(settings), Each { v4: mac, v6: mac })?;
                let turn = kernel.turn(own, &peers, true)?;
                let problems = turn.plan.problems.iter().map(|problem| problem.reason.to_string());
                let wrong: Vec<String> = turn.failures.into_iter().chain(problems).collect();
                if wrong.is_empty() {
                    Ok(kernel)
                } else {
                    Err(wrong.join("; ").into())
                }
            };
            kernels.push(Netns::open(&format!("/run/netns/{node}"))?.run(begin)??);
        }
        // Both ends are there now: what a node finds out behind its first turn.
        for (node, kernel) in self.nodes.iter().zip(&mut kernels) {
            let tried = Netns::open(&format!("/run/netns/{node}"))?.run(|| kernel.trials().run(&|| false))?;
            let tested = kernel.tried(tried);
            if tested != Tested::Done {
                return Err(format!("the tunnel is not tested: {tested:?}").into());
            }
            if kind == Kind::Vxlan {
                let ask = || Socket::open(Protocol::Route).map(|socket| socket.transmit_checksum_offload("flannel.1"));
                let offload = Netns::open(&format!("/run/netns/{node}"))?.run(ask)???;
                if !offload {
                    println!("{node}: checksums are made by the processor");
                }
            }
        }
        Ok(())
    }

    /// Gigabits per second, as the receiving pod counts them.
    fn measure(&self, seconds: u32) -> Outcome<f64> {
        let [from, to] = &self.pods;
        let _server = Server(
            Command::new("ip")
                .args(["netns", "exec", to, "iperf3", "-s"])
                .stdout(Stdio::null())
                .spawn()?,
        );
        let mut last = None;
        // The server is there a moment after it says so.
        for _ in 0..50 {
            match run("ip", &format!("netns exec {from} iperf3 -J -c 10.244.2.5 -t {seconds}")) {
                Ok(text) => {
                    let report: serde_json::Value = serde_json::from_str(&text)?;
                    if let Some(speed) = report["end"]["sum_received"]["bits_per_second"].as_f64() {
                        return Ok(speed / 1e9);
                    }
                    // Some versions do not fail when nobody answers.
                    last = Some(format!("iperf3 says no speed: {}", report["error"]).into());
                }
                Err(error) => last = Some(error),
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        Err(last.unwrap_or_else(|| "nobody answers".into()))
    }
}

/// A program that ends with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in self.nodes.iter().chain(&self.pods) {
            let _ = run("ip", &format!("netns del {name}"));
        }
    }
}

/// A node as its Node says it is.
fn peer(number: u8) -> Outcome<(String, Peer)> {
    let node = serde_json::from_value(json!({
        "metadata": {"name": format!("n{number}"), "annotations": {
            "flannel.alpha.coreos.com/backend-data": format!("{{\"VNI\":1,\"VtepMAC\":\"02:00:00:00:00:0{number}\"}}"),
        }},
        "spec": {"podCIDRs": [format!("10.244.{number}.0/24")]},
        "status": {"addresses": [{"type": "InternalIP", "address": format!("192.0.2.{number}")}]},
    }))?;
    Ok((format!("n{number}"), Peer::of(&node)))
}

/// Has both nodes follow connections.
fn track(lab: &Lab) -> Outcome<()> {
    for node in &lab.nodes {
        for words in [
            "add table ip follow",
            "add chain ip follow forward { type filter hook forward priority 0 ; }",
            "add rule ip follow forward ct state invalid drop",
        ] {
            run("ip", &format!("netns exec {node} nft {words}"))?;
        }
    }
    Ok(())
}

fn once(way: Way, seconds: u32) -> Outcome<f64> {
    let (Way::Ours(kind) | Way::Plain(kind) | Way::Tracked(kind)) = way;
    let lab = Lab::new(if kind == Kind::Vxlan { 1450 } else { 1500 })?;
    match way {
        Way::Ours(kind) => lab.by_us(kind)?,
        Way::Plain(kind) => lab.by_hand(kind)?,
        Way::Tracked(kind) => lab.by_hand(kind).and_then(|()| track(&lab))?,
    }
    lab.measure(seconds)
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let runs: u32 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let seconds: u32 = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let mut figures: BTreeMap<Way, Vec<f64>> = BTreeMap::new();
    for round in 0..runs {
        let mut ways = WAYS;
        if round % 2 == 1 {
            ways.reverse();
        }
        for way in ways {
            figures.entry(way).or_default().push(once(way, seconds)?);
        }
    }
    let mut of = |way: Way| median(figures.entry(way).or_default());
    for (ours, beside, name, goal) in [
        (
            Way::Ours(Kind::Vxlan),
            Way::Plain(Kind::Vxlan),
            "vxlan beside one by hand",
            "0.9",
        ),
        (
            Way::Ours(Kind::Vxlan),
            Way::Tracked(Kind::Vxlan),
            "vxlan beside one by hand with connections followed",
            "0.9",
        ),
        (
            Way::Ours(Kind::HostGw),
            Way::Plain(Kind::HostGw),
            "host-gw beside a plain route",
            "0.95",
        ),
        (
            Way::Tracked(Kind::HostGw),
            Way::Plain(Kind::HostGw),
            "a plain route with connections followed beside one without: no node with Services or policies has more",
            "none, the kernel's own",
        ),
        (
            Way::Ours(Kind::HostGw),
            Way::Tracked(Kind::HostGw),
            "host-gw beside one with connections followed",
            "0.95",
        ),
    ] {
        let (ours, beside) = (of(ours), of(beside));
        let ratio = ours / beside;
        println!("{name}: {ours:.2} of {beside:.2} Gbit/s, ratio {ratio:.3} (goal {goal}; medians of {runs})");
    }
    Ok(())
}
