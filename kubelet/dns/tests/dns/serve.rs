//! Questions about the cluster, by UDP and TCP.

use crate::node::{
    Client, Namespace, Node, PATIENCE, Resolver, Stream, V4, V6, data, positive, question, small_cluster,
};
use crate::node::{Reply, last_octets};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType::{A, AAAA, PTR};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

const WEB: &str = "web.default.svc.cluster.local";

#[test]
fn both_families_and_both_transports() {
    let node = Node::start(&[], |_| {});
    for server in [V4, V6] {
        let answer = Client::new(&node.namespace, server).ask(&question(WEB, A));
        assert_eq!(data(&answer), ["10.96.0.20"]);
        assert!(answer.authoritative && answer.recursion_available);
    }
    let mut stream = node.connect();
    stream.send(&[question(WEB, A)]);
    assert_eq!(data(&stream.receive().unwrap()), ["10.96.0.20"]);
    let missing = node.ask("no.default.svc.cluster.local", A);
    assert_eq!(missing.response_code, ResponseCode::NXDomain);
    let empty = node.ask(WEB, AAAA);
    assert_eq!(
        (empty.response_code, empty.answers.len(), empty.authorities.len()),
        (ResponseCode::NoError, 0, 1)
    );
    let name = "20.0.96.10.in-addr.arpa";
    assert_eq!(data(&node.ask(name, PTR)), [format!("{WEB}.")]);
}

#[test]
fn what_does_not_fit_comes_by_connection() {
    let node = Node::start(&[], |_| {});
    let many = question("many.default.svc.cluster.local", A);
    let short = node.client().ask(&many);
    assert!(short.truncation && !short.answers.is_empty() && short.answers.len() < 120);
    let mut stream = node.connect();
    stream.send(&[many]);
    let whole = stream.receive().unwrap();
    assert_eq!((whole.truncation, whole.answers.len()), (false, 120));
}

#[test]
fn a_connection_carries_many_questions() {
    let namespace = Arc::new(Namespace::new());
    let resolver = Resolver::new(&namespace, 1, |question| {
        vec![Reply::Answer(positive(question, 60, last_octets(1)))]
    });
    let node = Node::start(&[&resolver], |_| {});
    let mut stream = node.connect();
    // More than may be under way, of both sorts, all sent before anything is read.
    let questions: Vec<_> = (0..200)
        .map(|number| match number % 2 {
            0 => question(WEB, A),
            _ => question(&format!("n{number}.example.com"), A),
        })
        .collect();
    stream.send(&questions);
    let mut answered: Vec<u16> = (0..200).map(|_| stream.receive().unwrap().id).collect();
    let mut asked: Vec<u16> = questions.iter().map(|question| question.id).collect();
    answered.sort_unstable();
    asked.sort_unstable();
    assert_eq!(answered, asked);
}

#[test]
fn a_client_that_ends_its_side_gets_its_answers() {
    let namespace = Arc::new(Namespace::new());
    let resolver = Resolver::new(&namespace, 1, |question| {
        vec![Reply::Answer(positive(question, 60, last_octets(1)))]
    });
    let node = Node::start(&[&resolver], |_| {});
    let mut stream = node.connect();
    stream.send(&[question("www.example.com", A)]);
    stream.0.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(data(&stream.receive().unwrap()), ["192.0.2.1"]);
    assert!(stream.ended(), "and then it ends");
}

#[test]
fn connections_are_bounded() {
    let node = Node::start(&[], |settings| {
        settings.streams.connections = 6;
        settings.streams.connections_per_source = 4;
        settings.streams.idle = Duration::from_secs(600);
    });
    let mut open: Vec<_> = (0..4).map(|_| node.connect()).collect();
    for stream in &mut open {
        stream.send(&[question(WEB, A)]);
        assert!(stream.receive().is_some());
    }
    assert!(node.connect().ended(), "one source has four");
    // With one closed there is room for one.
    drop(open.pop());
    node.until(|node| {
        let mut stream = node.connect();
        let message = question(WEB, A).to_vec().unwrap();
        let framed = [&(message.len() as u16).to_be_bytes()[..], &message].concat();
        stream.0.write_all(&framed).is_ok() && stream.receive().is_some()
    });
}

#[test]
fn idle_connections_end_and_so_do_those_that_say_nonsense() {
    let node = Node::start(&[], |settings| settings.streams.idle = Duration::from_millis(100));
    assert!(node.connect().ended());
    // There where nothing else ends it.
    let node = Node::start(&[], |settings| settings.streams.idle = Duration::from_secs(600));
    let mut stream = node.connect();
    stream.0.write_all(&[0xff; 100]).unwrap();
    assert!(stream.ended(), "longer than any question");
}

#[test]
fn who_says_a_question_byte_by_byte_is_idle() {
    let node = Node::start(&[], |settings| settings.streams.idle = Duration::from_secs(1));
    let mut stream = node.connect();
    stream.0.write_all(&4000_u16.to_be_bytes()).unwrap();
    // A byte each time nothing came for a while; all of them would take minutes.
    stream.0.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let began = Instant::now();
    while !stream.ended() {
        assert!(began.elapsed() < Duration::from_secs(60), "each byte bought time");
        // What the other side has ended may refuse; the next look sees it.
        let _ = stream.0.write_all(&[0]);
    }
}

#[test]
fn who_does_not_read_is_cut() {
    let node = Node::start(&[], |settings| {
        settings.streams.slow = Duration::from_millis(200);
        settings.streams.idle = Duration::from_secs(600);
        settings.streams.connections_per_source = 1;
    });
    let mut stream = node.connect();
    let message = question("many.default.svc.cluster.local", A).to_vec().unwrap();
    let framed = [&(message.len() as u16).to_be_bytes()[..], &message].concat();
    // Until the responder takes no more: its answers are larger than what sockets hold.
    stream.0.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
    while stream.0.write_all(&framed).is_ok() {}
    // Its place is another's.
    node.until(|node| {
        let mut other = node.connect();
        other.0.write_all(&framed).is_ok() && other.receive().is_some()
    });
}

#[test]
fn who_holds_most_connections_gives_way() {
    let node = Node::start(&[], |settings| {
        settings.streams.connections = 3;
        settings.streams.idle = Duration::from_secs(600);
    });
    let asks = |stream: &mut Stream| {
        stream.send(&[question(WEB, A)]);
        stream.receive().is_some()
    };
    let mut held: Vec<Stream> = (0..3).map(|_| node.connect()).collect();
    assert!(held.iter_mut().all(asks));
    let pod = crate::interface::pod(&node.namespace);
    let stream = pod.inside(|| std::net::TcpStream::connect((V4, 53)).unwrap());
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(asks(&mut Stream(stream.try_clone().unwrap())), "the pod has none yet");
    assert!(held[0].ended(), "the oldest of who had most");
    assert!(held[1..].iter_mut().all(asks), "not the others");
    assert!(node.connect().ended(), "who has most gets no more");
    assert!(asks(&mut Stream(stream)), "and takes nobody's");
}

#[test]
fn malformed_questions_are_answered_by_a_header_and_answers_by_nothing() {
    let node = Node::start(&[], |_| {});
    let client = node.client();
    client.0.send(&[0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 99]).unwrap();
    let answer = client.receive(0x1234, Duration::from_secs(30)).unwrap();
    assert_eq!(answer.response_code, ResponseCode::FormErr);
    // What is silently dropped comes before what is answered.
    client.0.send(&[1]).unwrap();
    client.0.send(&[0x43, 0x21, 0x81, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    let last = question(WEB, A);
    client.send(&last);
    let mut buffer = [0; 512];
    client.0.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    client.0.recv(&mut buffer).unwrap();
    assert_eq!(buffer[..2], last.id.to_be_bytes());
}

#[test]
fn one_source_does_not_take_everything() {
    // Room for more than the least share, so that one turn of the responder sees more; and far less than a burst.
    let node = Node::start(&[], |settings| settings.waiting_bytes = 32 << 10);
    let client = node.client();
    let flood = question(WEB, A);
    node.until(|node| {
        (0..2000).for_each(|_| client.send(&flood));
        node.count("skiff_dns_rate_limited_total") > 200
    });
    // Another address has its own share.
    let other = node
        .namespace
        .inside(|| std::net::UdpSocket::bind("127.0.0.77:0").unwrap());
    node.namespace.inside(|| other.connect((V4, 53)).unwrap());
    let other = Client(other);
    // What the flood left in the socket may have no room for the first.
    node.until(|_| {
        let answer = other.try_ask(&question(WEB, A), Duration::from_millis(200));
        answer.is_some_and(|answer| data(&answer) == ["10.96.0.20"])
    });
}

#[test]
fn until_everything_is_known_nobody_is_told_that_a_name_is_not_there() {
    let namespace = Arc::new(Namespace::new());
    let resolver = Resolver::new(&namespace, 1, |question| {
        vec![Reply::Answer(positive(question, 60, last_octets(1)))]
    });
    let cluster = small_cluster();
    cluster.hold(Some("endpointslices"));
    let node = Node::launch(&[&resolver], cluster, |_| {});
    let many = "many.default.svc.cluster.local";
    node.until(|node| node.code(many).is_some());
    for name in [many, WEB, "no.default.svc.cluster.local"] {
        assert_eq!(node.ask(name, A).response_code, ResponseCode::ServFail, "{name}");
    }
    assert_eq!(
        data(&node.ask("www.example.com", A)),
        ["192.0.2.1"],
        "others are answered"
    );
    node.cluster.hold(None);
    node.until(|node| match node.code(many) {
        Some(ResponseCode::NoError) => true,
        code => {
            assert!(matches!(code, None | Some(ResponseCode::ServFail)), "{code:?}");
            false
        }
    });
}

#[test]
fn changes_are_answered_and_an_api_server_away_changes_nothing() {
    let node = Node::start(&[], |_| {});
    node.cluster
        .put("services", crate::cluster::service("default", "new", "10.96.0.30"));
    node.until(|node| data(&node.ask("new.default.svc.cluster.local", A)) == ["10.96.0.30"]);
    node.cluster
        .put("services", crate::cluster::service("default", "new", "10.96.0.31"));
    node.until(|node| data(&node.ask("new.default.svc.cluster.local", A)) == ["10.96.0.31"]);
    node.cluster.go_away();
    for _ in 0..20 {
        assert_eq!(data(&node.ask("new.default.svc.cluster.local", A)), ["10.96.0.31"]);
        assert_eq!(
            node.ask("no.default.svc.cluster.local", A).response_code,
            ResponseCode::NXDomain
        );
    }
}
