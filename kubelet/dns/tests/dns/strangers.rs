//! Who counts as one: whom the node knows by itself, all others together.

use crate::interface::pod;
use crate::node::{Client, Namespace, Node, PATIENCE, Stream, V4, data, question, small_cluster};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType::A;
use std::collections::HashSet;
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

const WEB: &str = "web.default.svc.cluster.local";

/// What the node knows in these tests.
fn known() -> HashSet<IpAddr> {
    ["127.0.0.77", "10.244.0.77"].map(|text| text.parse().unwrap()).into()
}

fn from(namespace: &Namespace, source: &str) -> Client {
    let socket = namespace.inside(|| UdpSocket::bind((source, 0)).unwrap());
    namespace.inside(|| socket.connect((V4, 53)).unwrap());
    Client(socket)
}

#[test]
fn strangers_wait_for_resolvers_as_one() {
    let (resolver, _hold) = crate::forward::held(&Arc::new(Namespace::new()));
    let cluster = small_cluster();
    cluster.known(Arc::new(known));
    let node = Node::launch(&[&resolver], cluster, |settings| {
        settings.forward.waiting_per_source = 3;
        settings.forward.patience = Duration::from_secs(20);
        settings.forward.deadline = Duration::from_secs(20);
    });
    node.until(|node| node.code(WEB) == Some(ResponseCode::NoError));
    let mut waiting = Vec::new();
    for last in 1..=5 {
        let client = from(&node.namespace, &format!("127.0.0.{last}"));
        let question = question(&format!("n{last}.example.com"), A);
        client.send(&question);
        if last > 3 {
            let answer = client.receive(question.id, PATIENCE).unwrap();
            assert_eq!(answer.response_code, ResponseCode::Refused, "{last}");
        }
        waiting.push(client);
    }
    // Whom the node knows is not refused for them, and neither is what runs on the node itself.
    for client in [from(&node.namespace, "127.0.0.77"), node.client()] {
        let question = question("known.example.com", A);
        client.send(&question);
        assert!(
            client.receive(question.id, Duration::from_millis(300)).is_none(),
            "it waits"
        );
        assert_eq!(data(&client.ask(&crate::node::question(WEB, A))), ["10.96.0.20"]);
    }
    assert_eq!(node.count("coredns_forward_max_concurrent_rejects_total"), 2);
}

#[test]
fn strangers_have_the_connections_of_one() {
    let cluster = small_cluster();
    cluster.known(Arc::new(known));
    let node = Node::launch(&[], cluster, |settings| {
        settings.streams.connections_per_source = 2;
        settings.streams.idle = Duration::from_secs(600);
    });
    node.until(|node| node.code(WEB) == Some(ResponseCode::NoError));
    let pod = pod(&node.namespace);
    let connect = |last: u8| {
        let source = format!("10.244.0.{last}");
        pod.ip(&["addr", "replace", &format!("{source}/24"), "dev", "eth0"]);
        pod.ip(&["route", "replace", "default", "via", "10.244.0.1", "src", &source]);
        let stream = pod.inside(|| TcpStream::connect((V4, 53)).unwrap());
        assert_eq!(stream.local_addr().unwrap().ip().to_string(), source);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Stream(stream)
    };
    let asks = |stream: &mut Stream| {
        stream.send(&[question(WEB, A)]);
        stream.receive().is_some()
    };
    let mut held = [connect(11), connect(12)];
    assert!(held.iter_mut().all(asks));
    assert!(connect(13).ended(), "strangers have two");
    assert!(asks(&mut connect(77)), "a pod the node knows has its own");
    assert!(asks(&mut node.connect()), "and so has the node");
}
