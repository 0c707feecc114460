//! Questions about the rest of the world.

use crate::node::{
    Client, Namespace, Node, Reply, Resolver, V4, data, last_octets, negative, positive, question, reply,
};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType::{A, AAAA, ANY};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NAME: &str = "www.example.com";

fn namespace() -> Arc<Namespace> {
    Arc::new(Namespace::new())
}

/// Says 192.0.2.LAST to everything.
fn good(namespace: &Arc<Namespace>, last: u8) -> Resolver {
    Resolver::new(namespace, last, move |question| {
        vec![Reply::Answer(positive(question, 60, last_octets(last)))]
    })
}

fn saying(namespace: &Arc<Namespace>, last: u8, code: ResponseCode) -> Resolver {
    Resolver::new(namespace, last, move |question| {
        vec![Reply::Answer(reply(question, code))]
    })
}

#[test]
fn asked_once_and_kept() {
    let resolver = good(&namespace(), 1);
    let node = Node::start(&[&resolver], |_| {});
    for _ in 0..5 {
        let answer = node.ask("WWW.Example.com", A);
        assert_eq!(data(&answer), ["192.0.2.1"]);
        assert_eq!(answer.answers[0].name.to_string(), "WWW.Example.com.");
        assert!(!answer.authoritative && answer.answers[0].ttl <= 60);
    }
    assert_eq!(resolver.asked(), 1);
    node.ask(NAME, AAAA);
    assert_eq!(resolver.asked(), 2, "another type is another question");
    assert_eq!(
        node.count(r#"coredns_cache_hits_total{type="success",server="dns://:53",zones=".",view=""}"#),
        4
    );
    assert_eq!(node.count(r#"coredns_forward_requests_total{to="127.0.0.1:53"}"#), 2);
}

#[test]
fn nothing_is_kept_too() {
    let resolver = Resolver::new(&namespace(), 1, |question| match question.queries[0].query_type() {
        AAAA => vec![Reply::Answer(negative(question, ResponseCode::NoError, 60))],
        _ => vec![Reply::Answer(negative(question, ResponseCode::NXDomain, 60))],
    });
    let node = Node::start(&[&resolver], |_| {});
    for (kind, code) in [(A, ResponseCode::NXDomain), (AAAA, ResponseCode::NoError)] {
        for _ in 0..3 {
            let answer = node.ask(NAME, kind);
            assert_eq!(
                (answer.response_code, answer.answers.len(), answer.authorities.len()),
                (code, 0, 1)
            );
        }
    }
    assert_eq!(resolver.asked(), 2);
}

#[test]
fn a_service_of_another_name_is_followed() {
    let resolver = good(&namespace(), 1);
    let node = Node::start(&[&resolver], |_| {});
    for _ in 0..2 {
        let answer = node.ask("Out.default.svc.cluster.local", A);
        assert_eq!(data(&answer), ["www.example.com.", "192.0.2.1"]);
        assert_eq!(answer.answers[0].name.to_string(), "Out.default.svc.cluster.local.");
    }
    assert_eq!((resolver.asked(), resolver.hear()), (1, "www.example.com.".to_owned()));
}

#[test]
fn truncated_answers_come_by_connection() {
    let cut = |question: &hickory_proto::op::Message| {
        let mut message = reply(question, ResponseCode::NoError);
        message.metadata.truncation = true;
        vec![Reply::Answer(message)]
    };
    let resolver = Resolver::with_streams(&namespace(), 1, cut, |question| {
        let mut message = reply(question, ResponseCode::NoError);
        for last in 0..200 {
            message.add_answer(positive(question, 60, last_octets(last)).answers.remove(0));
        }
        message
    });
    let node = Node::start(&[&resolver], |_| {});
    let short = node.ask(NAME, A);
    assert!(short.truncation, "200 addresses are too many for 512 bytes");
    let mut stream = node.connect();
    stream.send(&[question(NAME, A)]);
    assert_eq!(stream.receive().unwrap().answers.len(), 200);
    assert_eq!((resolver.asked(), resolver.by_stream.load(Ordering::SeqCst)), (1, 1));
}

#[test]
fn the_next_resolver_is_asked_when_one_is_silent_or_does_not_know() {
    let namespace = namespace();
    let silent = Resolver::new(&namespace, 1, |_| Vec::new());
    let failing = saying(&namespace, 2, ResponseCode::ServFail);
    let refusing = saying(&namespace, 3, ResponseCode::Refused);
    let last = good(&namespace, 4);
    let node = Node::start(&[&silent, &failing, &refusing, &last], |settings| {
        settings.forward.patience = Duration::from_secs(2);
        settings.forward.deadline = Duration::from_secs(20);
    });
    assert_eq!(data(&node.ask(NAME, A)), ["192.0.2.4"]);
    assert_eq!((silent.asked(), failing.asked(), refusing.asked()), (1, 1, 1));
    // Who was silent is asked last from now on.
    assert_eq!(data(&node.ask("other.example.com", A)), ["192.0.2.4"]);
    assert_eq!((silent.asked(), failing.asked()), (1, 2));
}

#[test]
fn nobody_knows() {
    let namespace = namespace();
    let failing = saying(&namespace, 1, ResponseCode::ServFail);
    let node = Node::start(&[&failing], |_| {});
    assert_eq!(node.ask(NAME, A).response_code, ResponseCode::ServFail);
    let nobody = Node::start(&[], |_| {});
    assert_eq!(nobody.ask(NAME, A).response_code, ResponseCode::ServFail);
    // Nobody listens at 127.0.0.9: that is known at once, not after the patience.
    std::fs::write(
        nobody.folder.path().join("resolv.conf"),
        "nameserver 127.0.0.9\n# other\n",
    )
    .unwrap();
    nobody.until(|node| {
        node.ask(&format!("{}.example.com", rand::random::<u32>()), A);
        node.count(r#"coredns_forward_requests_total{to="127.0.0.9:53"}"#) > 0
    });
}

#[test]
fn spoofed_answers_are_not_heard() {
    let namespace = namespace();
    let resolver = Resolver::new(&namespace, 1, |question| {
        let evil = || positive(question, 60, last_octets(66));
        let mut other_id = evil();
        other_id.metadata.id = question.id.wrapping_add(1);
        let mut other_name = crate::node::question("evil.example.com", A);
        other_name.metadata.id = question.id;
        let mut no_answer = evil();
        no_answer.metadata.message_type = hickory_proto::op::MessageType::Query;
        vec![
            Reply::Elsewhere(evil()),
            Reply::Answer(other_id),
            Reply::Answer(positive(&other_name, 60, last_octets(66))),
            Reply::Answer(no_answer),
            Reply::Answer(positive(question, 60, last_octets(1))),
        ]
    });
    let node = Node::start(&[&resolver], |_| {});
    for number in 0..10 {
        assert_eq!(data(&node.ask(&format!("n{number}.example.com"), A)), ["192.0.2.1"]);
    }
}

/// The question with its first letter in the other case.
fn in_other_letters(question: &Message) -> Message {
    let text = question.queries[0].name().to_string();
    let (first, rest) = text.split_at(1);
    let first = match first.to_ascii_lowercase() == first {
        true => first.to_ascii_uppercase(),
        false => first.to_ascii_lowercase(),
    };
    let mut other = crate::node::question(&format!("{first}{rest}"), A);
    other.metadata.id = question.id;
    other
}

#[test]
fn a_resolver_that_does_not_keep_letters_is_made_sure_of_once() {
    let resolver = Resolver::new(&namespace(), 1, |question| {
        vec![Reply::Answer(positive(&in_other_letters(question), 60, last_octets(1)))]
    });
    let node = Node::start(&[&resolver], |_| {});
    assert_eq!(data(&node.ask(NAME, A)), ["192.0.2.9"], "what TCP says");
    for number in 0..5 {
        assert_eq!(data(&node.ask(&format!("n{number}.example.com"), A)), ["192.0.2.1"]);
    }
    assert_eq!((resolver.asked(), resolver.by_stream.load(Ordering::SeqCst)), (6, 1));
}

#[test]
fn the_answer_in_the_right_letters_counts_though_another_came_before() {
    let both = |question: &Message| {
        vec![
            Reply::Answer(positive(&in_other_letters(question), 60, last_octets(66))),
            Reply::Answer(positive(question, 60, last_octets(1))),
        ]
    };
    // By TCP it says nothing that can be used.
    let resolver = Resolver::with_streams(&namespace(), 1, both, |question| {
        let mut other = positive(question, 60, last_octets(9));
        other.metadata.id = question.id.wrapping_add(1);
        other
    });
    let node = Node::start(&[&resolver], |_| {});
    for number in 0..3 {
        // It is not taken for an old one either.
        assert_eq!(data(&node.ask(&format!("n{number}.example.com"), A)), ["192.0.2.1"]);
    }
}

#[test]
fn ports_and_numbers_are_not_to_be_guessed() {
    let resolver = good(&namespace(), 1);
    let node = Node::start(&[&resolver], |_| {});
    for number in 0..50 {
        node.ask(&format!("n{number}.example.com"), A);
    }
    let sources = resolver.sources.lock().unwrap().clone();
    let ports: BTreeSet<u16> = sources.iter().map(|(port, _)| *port).collect();
    let ids: BTreeSet<u16> = sources.iter().map(|(_, id)| *id).collect();
    assert!(
        ports.len() > 20 && ids.len() > 40,
        "{} ports, {} numbers",
        ports.len(),
        ids.len()
    );
}

/// A resolver that says nothing until what comes with it is dropped.
pub(crate) fn held(namespace: &Arc<Namespace>) -> (Resolver, Sender<()>) {
    let (hold, held) = channel::<()>();
    let held = Mutex::new(held);
    let resolver = Resolver::new(namespace, 1, move |question| {
        let _ = held.lock().unwrap().recv();
        vec![Reply::Answer(positive(question, 60, last_octets(1)))]
    });
    (resolver, hold)
}

#[test]
fn many_who_ask_the_same_are_one_question() {
    let (resolver, hold) = held(&namespace());
    let node = Node::start(&[&resolver], |settings| {
        settings.forward.patience = Duration::from_secs(25);
        settings.forward.deadline = Duration::from_secs(25);
    });
    let clients: Vec<_> = (0..20).map(|_| (node.client(), question(NAME, A))).collect();
    clients.iter().for_each(|(client, question)| client.send(question));
    // All came before anybody was answered.
    node.until(|node| {
        node.count(r#"coredns_dns_requests_total{server="dns://:53",zone=".",view="",proto="udp",family="1",type="A"}"#)
            == 20
    });
    drop(hold);
    for (client, question) in &clients {
        let answer = client.receive(question.id, Duration::from_secs(30)).unwrap();
        assert_eq!(data(&answer), ["192.0.2.1"]);
    }
    assert_eq!(resolver.asked(), 1);
}

#[test]
fn a_flood_is_bounded_and_the_cluster_is_answered_meanwhile() {
    let (resolver, _hold) = held(&namespace());
    let node = Node::start(&[&resolver], |settings| {
        settings.forward.waiting = 30;
        settings.forward.waiting_per_source = 20;
        settings.forward.patience = Duration::from_secs(20);
        settings.forward.deadline = Duration::from_secs(20);
    });
    let client = node.client();
    for number in 0..50 {
        let question = question(&format!("flood{number}.example.com"), A);
        client.send(&question);
        if number >= 20 {
            let answer = client.receive(question.id, Duration::from_secs(30)).unwrap();
            assert_eq!(answer.response_code, ResponseCode::Refused, "{number}");
        }
    }
    assert_eq!(node.count("coredns_forward_max_concurrent_rejects_total"), 30);
    assert_eq!(data(&node.ask("web.default.svc.cluster.local", A)), ["10.96.0.20"]);
}

#[test]
fn questions_do_not_go_round() {
    // The file names ourselves: nobody is asked.
    let node = Node::start(&[], |settings| {
        std::fs::write(&settings.resolv_conf, format!("nameserver {V4}\n")).unwrap()
    });
    assert_eq!(node.ask(NAME, A).response_code, ResponseCode::ServFail);
    assert!(
        !node.metrics().contains("coredns_forward_requests_total{"),
        "{}",
        node.metrics()
    );
}

#[test]
fn a_resolver_that_asks_back_is_refused() {
    let namespace = namespace();
    let (tell, told) = channel();
    // The resolver's thread outlives the test; the namespace must not.
    let (tell, inner) = (Mutex::new(tell), Arc::downgrade(&namespace));
    let resolver = Resolver::new(&namespace, 1, move |question| {
        let socket = inner.upgrade().unwrap().inside(|| {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect((V4, 53)).unwrap();
            socket
        });
        let back = Client(socket).ask(&crate::node::question(&question.queries[0].name().to_string(), A));
        tell.lock().unwrap().send(back.response_code).unwrap();
        vec![Reply::Answer(positive(question, 60, last_octets(1)))]
    });
    let node = Node::start(&[&resolver], |settings| {
        settings.forward.patience = Duration::from_secs(25);
        settings.forward.deadline = Duration::from_secs(25);
    });
    assert_eq!(data(&node.ask(NAME, A)), ["192.0.2.1"]);
    assert_eq!(told.recv().unwrap(), ResponseCode::Refused);
}

#[test]
fn a_domain_may_have_resolvers_of_its_own() {
    let namespace = namespace();
    let (general, own) = (good(&namespace, 1), good(&namespace, 2));
    let address = own.address;
    let node = Node::start(&[&general], |settings| {
        settings.stub_domains = vec![dns::StubDomain {
            domain: "corp.example.com".to_owned(),
            resolvers: vec![address],
        }];
    });
    assert_eq!(data(&node.ask("a.CORP.example.com", A)), ["192.0.2.2"]);
    assert_eq!(data(&node.ask(NAME, A)), ["192.0.2.1"]);
    assert_eq!((general.asked(), own.asked()), (1, 1));
}

#[test]
fn a_changed_file_is_read_again() {
    let namespace = namespace();
    let (before, after) = (good(&namespace, 1), good(&namespace, 22));
    let node = Node::start(&[&before], |_| {});
    assert_eq!(data(&node.ask(NAME, A)), ["192.0.2.1"]);
    std::fs::write(
        node.folder.path().join("resolv.conf"),
        "# changed\nnameserver 127.0.0.22\n",
    )
    .unwrap();
    node.until(|node| data(&node.ask(&format!("n{}.example.com", rand::random::<u32>()), A)) == ["192.0.2.22"]);
    drop((before, after));
}

#[test]
fn everything_is_not_asked_for_elsewhere() {
    let resolver = good(&namespace(), 1);
    let node = Node::start(&[&resolver], |_| {});
    assert_eq!(data(&node.ask(NAME, ANY))[0].trim(), "RFC8482");
    assert_eq!(resolver.asked(), 0);
}
