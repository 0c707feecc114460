//! The search path answered in one question.

use crate::node::{
    Client, Namespace, Node, Reply, Resolver, V4, data, last_octets, negative, positive, question, reply, small_cluster,
};
use dns::SearchPath;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType::{A, AAAA, ANY};
use std::net::IpAddr;
use std::sync::Arc;

const COMPLETED: &str = r#"coredns_autopath_success_total{server="dns://:53"}"#;

/// `www.example.com` is there, with an address of one family; `broken` cannot be found out; nothing else is there.
fn resolver() -> Resolver {
    Resolver::new(&Arc::new(Namespace::new()), 1, |question| {
        let asked = &question.queries[0];
        let name = asked.name().to_string().to_ascii_lowercase();
        vec![Reply::Answer(match (name.as_str(), asked.query_type()) {
            ("www.example.com.", A) => positive(question, 60, last_octets(7)),
            ("www.example.com.", _) => negative(question, ResponseCode::NoError, 60),
            (name, _) if name.starts_with("broken.") => reply(question, ResponseCode::ServFail),
            _ => negative(question, ResponseCode::NXDomain, 60),
        })]
    })
}

/// A node that knows the search path of who asks from the responder's own address, as the node itself does.
fn start(resolver: &Resolver) -> Node {
    let own: IpAddr = V4.parse().unwrap();
    let domains = [
        "default.svc.cluster.local",
        "svc.cluster.local",
        "cluster.local",
        "example.org",
    ];
    let path = SearchPath {
        domains: domains.map(str::to_owned).to_vec(),
        ndots: 5,
    };
    let cluster = small_cluster();
    cluster.search(Arc::new(move |source| (source == own).then(|| path.clone())));
    let node = Node::launch(&[resolver], cluster, |_| {});
    node.until(|node| node.code("web.default.svc.cluster.local") == Some(ResponseCode::NoError));
    node
}

/// Code, and the records of the answer.
fn said(answer: &Message) -> (ResponseCode, Vec<String>) {
    let text = |record: &hickory_proto::rr::Record| format!("{} {}", record.name, record.data);
    (answer.response_code, answer.answers.iter().map(text).collect())
}

#[test]
fn the_first_question_of_a_search_has_the_answer_of_the_last() {
    let resolver = resolver();
    let node = start(&resolver);
    let found = |name: &str, target: &str, address: Option<&str>| {
        let alias = format!("{name} {target}");
        let address = address.map(|address| format!("{target} {address}"));
        (
            ResponseCode::NoError,
            [Some(alias), address].into_iter().flatten().collect(),
        )
    };
    for (name, kind, expected) in [
        // Another namespace's service, from the index.
        (
            "Web.default.default.svc.cluster.local.",
            A,
            found(
                "Web.default.default.svc.cluster.local.",
                "Web.default.svc.cluster.local.",
                Some("10.96.0.20"),
            ),
        ),
        (
            "www.example.com.default.svc.cluster.local.",
            A,
            found(
                "www.example.com.default.svc.cluster.local.",
                "www.example.com.",
                Some("192.0.2.7"),
            ),
        ),
        // There, without an address of this family: the same name says so.
        (
            "www.example.com.default.svc.cluster.local.",
            AAAA,
            found("www.example.com.default.svc.cluster.local.", "www.example.com.", None),
        ),
        // A service of another name on the way.
        (
            "out.default.default.svc.cluster.local.",
            AAAA,
            (
                ResponseCode::NoError,
                vec![
                    "out.default.default.svc.cluster.local. out.default.svc.cluster.local.".to_owned(),
                    "out.default.svc.cluster.local. www.example.com.".to_owned(),
                ],
            ),
        ),
    ] {
        assert_eq!(said(&node.ask(name, kind)), expected, "{name} {kind}");
        let mut stream = node.connect();
        stream.send(&[question(name, kind)]);
        assert_eq!(said(&stream.receive().unwrap()), expected, "{name} {kind} by TCP");
    }
    assert_eq!(node.count(COMPLETED), 8);
}

#[test]
fn whatever_is_not_found_is_not_there() {
    let resolver = resolver();
    let node = start(&resolver);
    for name in [
        // Nowhere.
        "nowhere.default.svc.cluster.local",
        // A name on the way cannot be found out.
        "broken.default.svc.cluster.local",
        // With as many dots as ndots names are asked for themselves first.
        "a.b.c.d.e.example.com.default.svc.cluster.local",
        // Not the first of the search.
        "www.example.com.other.svc.cluster.local",
        "www.example.com.svc.cluster.local",
    ] {
        let answer = node.ask(name, A);
        assert_eq!(said(&answer), (ResponseCode::NXDomain, Vec::new()), "{name}");
        assert_eq!(answer.authorities[0].name.to_string(), "cluster.local.", "{name}");
        assert!(answer.authoritative, "{name}");
    }
    // What is there is what it is, with data and without.
    let web = "web.default.svc.cluster.local";
    assert_eq!(data(&node.ask(web, A)), ["10.96.0.20"]);
    assert_eq!(said(&node.ask(web, AAAA)), (ResponseCode::NoError, Vec::new()));
    let anything = node.ask("www.example.com.default.svc.cluster.local", ANY);
    assert_eq!(anything.response_code, ResponseCode::NXDomain);
    assert_eq!(node.count(COMPLETED), 0);
}

#[test]
fn whose_path_is_unknown_searches_for_itself() {
    let resolver = resolver();
    let node = start(&resolver);
    let stranger = node
        .namespace
        .inside(|| std::net::UdpSocket::bind("127.0.0.77:0").unwrap());
    node.namespace.inside(|| stranger.connect((V4, 53)).unwrap());
    let answer = Client(stranger).ask(&question("www.example.com.default.svc.cluster.local", A));
    assert_eq!(said(&answer), (ResponseCode::NXDomain, Vec::new()));
    assert_eq!(resolver.asked(), 0);
}
