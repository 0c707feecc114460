//! What clients see.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use proxy::model::Protocol;

use crate::net::{Net, Server, tcp, v4};
use crate::proxy::{Proxy, endpoint, port, served, settings};

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn a_cluster_ip_leads_to_every_endpoint() {
    let net = Net::new(3);
    let _one = Server::start(&net.neighbours[1], "one", 8080);
    let _two = Server::start(&net.neighbours[2], "two", 8080);
    let mut web = port("web", Protocol::Tcp, &["10.96.0.1"]);
    web.affinity_seconds = 5;
    let endpoints = [endpoint(v4(1), true), endpoint(v4(2), true)];
    let _proxy = Proxy::start(&net.node, settings(), &[served(web, &endpoints)]);
    println!("{}", net.node.nft(&["list", "ruleset"]));
    let mut seen = BTreeSet::new();
    while seen.len() < 1 {
        let answer = tcp(&net.neighbours[3], at("10.96.0.1:80")).unwrap();
        assert_eq!(answer.client, v4(3), "a pod is not masqueraded");
        seen.insert(answer.server);
    }
}
