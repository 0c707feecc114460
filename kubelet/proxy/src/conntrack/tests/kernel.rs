//! Against the kernel, in a network namespace that ends with its thread.

use super::*;
use netlink::codec::{Attributes, Message, attribute};
use netlink::link::Target;
use netlink::wire::{AF_INET, IFF_UP, NLM_F_CREATE};
use nix::sched::{CloneFlags, unshare};

/// Numbers of `nfnetlink_conntrack.h`.
const CT_NEW: u16 = 1 << 8;
const CT_GET: u16 = 1 << 8 | 1;
const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const TIMEOUT: u16 = 7;

fn tuple(from: SocketAddr, to: SocketAddr) -> Attributes {
    let octets = |of: SocketAddr| netlink::cidr::octets(&of.ip());
    let ip = Attributes::new().attr(1, &octets(from)).attr(2, &octets(to));
    let ports = Attributes::new()
        .attr(1, &[17])
        .attr(2, &from.port().to_be_bytes())
        .attr(3, &to.port().to_be_bytes());
    Attributes::new().nested(1, ip).nested(2, ports)
}

/// A UDP flow of a client to `target`, which `endpoint` answers.
fn entry(client: u16, target: &str, endpoint: &str) -> Message {
    let client = SocketAddr::from(([10, 1, 0, 99], client));
    Message::new(CT_NEW, NLM_F_CREATE, &[AF_INET, 0, 0, 0])
        .nested(TUPLE_ORIG, tuple(client, at(target)))
        .nested(TUPLE_REPLY, tuple(at(endpoint), client))
        .attr(TIMEOUT, &600u32.to_be_bytes())
}

/// The clients whose flows are there.
fn clients(socket: &mut Socket) -> Vec<u16> {
    let mut found = Vec::new();
    let list = Message::new(CT_GET, 0, &[AF_INET, 0, 0, 0]);
    socket
        .visit(&list, &mut |_, body| {
            let ports = attribute(&body[4..], TUPLE_ORIG).and_then(|tuple| attribute(tuple, 2));
            let source = ports.and_then(|ports| attribute(ports, 2)).unwrap();
            found.push(u16::from_be_bytes(source.try_into().unwrap()));
        })
        .unwrap();
    found.sort_unstable();
    found
}

fn synced(previous: Option<&Arc<Snapshot>>, snapshot: &Arc<Snapshot>) -> Synced {
    Synced {
        snapshot: snapshot.clone(),
        previous: previous.cloned(),
        full: previous.is_none(),
        queued_at: None,
        duration: Duration::ZERO,
    }
}

/// Runs the loop until it has looked, and lets it end.
async fn looks(flows: &Flows, metrics: &Metrics) {
    let before = looked(metrics);
    let stop = CancellationToken::new();
    let running = tokio::spawn(flows.clone().run(metrics.clone(), stop.clone()));
    let has_looked = async {
        while looked(metrics) == before {
            tokio::task::yield_now().await;
        }
    };
    // A guard against hanging alone: a look that fails is tried again, for ever.
    tokio::time::timeout(Duration::from_secs(120), has_looked)
        .await
        .expect("it looks");
    stop.cancel();
    running.await.unwrap();
}

/// How often the flows of IPv4 were looked at.
fn looked(metrics: &Metrics) -> String {
    let text = metrics.text();
    let counted = "kubeproxy_conntrack_reconciler_sync_duration_seconds_count{ip_family=\"IPv4\"} ";
    let line = text.lines().find_map(|line| line.strip_prefix(counted));
    line.unwrap_or("0").to_owned()
}

#[test]
fn flows_to_an_endpoint_that_went_are_forgotten_and_others_kept() {
    let test = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("root makes namespaces");
        // The loop's looks are to happen in this thread's namespace.
        client::blocking::run_on_this_thread();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(last_endpoints_and_others());
    };
    std::thread::scope(|scope| scope.spawn(test).join().expect("the test does not panic"));
}

async fn last_endpoints_and_others() {
    let (service, other, node) = ("10.96.0.1:53", "10.96.0.2:53", "127.0.0.1:30053");
    let (first, second) = ("10.1.0.5:53", "10.1.0.6:53");
    let mut socket = Socket::open(Protocol::Netfilter).unwrap();
    let lo = netlink::link::set_flags(Target::Index(1), IFF_UP, IFF_UP);
    Socket::open(Protocol::Route).unwrap().request(lo).unwrap();
    let state = |endpoints: &[&str]| {
        Arc::new(snapshot(vec![
            ("dns", served(&["10.96.0.1"], 30053, endpoints)),
            ("other", served(&["10.96.0.2"], 0, &[first])),
        ]))
    };
    let made = [
        entry(1, service, first),
        entry(2, service, second),
        entry(3, node, first),
        entry(4, node, second),
        entry(5, other, first),
        entry(6, "8.8.8.8:53", "8.8.8.8:53"),
        entry(7, "8.8.8.8:30053", "8.8.8.8:30053"),
        entry(8, service, "10.1.0.7:53"),
    ];
    socket.batch_all(&made).unwrap();
    let (flows, metrics) = (
        Flows::default(),
        Metrics::new(&["IPv4", "IPv6"], jiff::Timestamp::UNIX_EPOCH),
    );

    let both = state(&[first, second]);
    flows.synced(&synced(None, &both));
    looks(&flows, &metrics).await;
    assert_eq!(
        clients(&mut socket),
        [1, 2, 3, 4, 5, 6, 7],
        "what an earlier process left"
    );

    let one = state(&[second]);
    flows.synced(&synced(Some(&both), &one));
    looks(&flows, &metrics).await;
    assert_eq!(clients(&mut socket), [2, 4, 5, 6, 7]);

    let none = state(&[]);
    flows.synced(&synced(Some(&one), &none));
    looks(&flows, &metrics).await;
    assert_eq!(clients(&mut socket), [5, 6, 7], "the last endpoint's flows go too");
    let deleted = "kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family=\"IPv4\"} 5\n";
    assert!(metrics.text().contains(deleted), "{}", metrics.text());
}
