//! What several tests need.

pub(crate) mod api;

use crate::model::{Choice, PortName, Protocol, Served, ServicePort};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

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
