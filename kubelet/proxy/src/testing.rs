//! What several tests need.

pub(crate) mod api;

use crate::model::{Choice, PortName, Protocol, Served, ServicePort};
use netlink::link;
use netlink::socket::{Protocol as Netlink, Socket};
use netlink::wire::IFF_UP;
use nix::sched::{CloneFlags, unshare};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Runs `work` where nothing of the machine's network is.
pub(crate) fn in_namespace(work: impl AsyncFnOnce() + Send) {
    in_namespace_at(&mut tokio::runtime::Builder::new_current_thread(), work);
}

/// The same by a clock that goes on when nobody has anything to do: work of threads for what blocks is waited for.
pub(crate) fn in_paused_namespace(work: impl AsyncFnOnce() + Send) {
    in_namespace_at(tokio::runtime::Builder::new_current_thread().start_paused(true), work);
}

fn in_namespace_at(builder: &mut tokio::runtime::Builder, work: impl AsyncFnOnce() + Send) {
    let test = || {
        // What the proxy warns of says why a test failed.
        let lines = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_test_writer();
        let _lines = tracing::subscriber::set_default(lines.finish());
        unshare(CloneFlags::CLONE_NEWNET).expect("root makes namespaces");
        let up = link::set_flags(link::Target::Index(1), IFF_UP, IFF_UP);
        Socket::open(Netlink::Route).unwrap().request(up).unwrap();
        // Threads for blocking work come from this one, and are in its namespace.
        builder.enable_all().build().unwrap().block_on(work());
    };
    std::thread::scope(|scope| scope.spawn(test).join().expect("the test does not panic"));
}

/// Runs nft in the namespace of the calling thread; its output.
pub(crate) fn nft(arguments: &[&str]) -> String {
    let output = std::process::Command::new("nft").args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Asks for a page: code and body.
pub(crate) async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let (head, body) = get_whole(address, path).await;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (code.expect("a status"), body)
}

/// Asks for a page: head and body.
pub(crate) async fn get_whole(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

/// A port of no Service, which nothing was chosen for.
pub(crate) fn nothing_served() -> Served {
    Served {
        port: ServicePort {
            name: PortName {
                namespace: String::new(),
                service: String::new(),
                port: String::new(),
                protocol: Protocol::Udp,
            },
            cluster_ips: vec![],
            port: 0,
            node_port: 0,
            external_ips: [].into(),
            load_balancer_ips: [].into(),
            source_ranges: None,
            internal_local: false,
            external_local: false,
            affinity_seconds: 0,
            health_check_node_port: 0,
        },
        v4: Choice::default(),
        v6: Choice::default(),
        serving: [].into(),
        local_endpoints: 0,
        beyond: 0,
    }
}
