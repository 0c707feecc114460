//! Tables: a cluster, and what every name of it comes to, read back with hickory-proto.

use super::*;
use crate::index::Shape;
use crate::wire::HEADER_BYTES;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Record, RecordType};
use serde_json::{Value, json};

mod bounds;
mod claims;
mod cluster;
mod fuzz;
mod protocol;

pub(crate) use cluster::{index, slice, with_pods};

/// A question as a client writes it.
pub(crate) fn question(name: &str, kind: u16, edns: Option<u16>) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns.is_some())];
    message.extend_from_slice(Name::parse(name).unwrap().wire());
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&[0, 1]);
    if let Some(size) = edns {
        message.extend_from_slice(&[0, 0, 41]);
        message.extend_from_slice(&size.to_be_bytes());
        message.extend_from_slice(&[0; 6]);
    }
    message
}

/// The bytes of an answer by UDP, or what is to be asked elsewhere.
pub(crate) fn raw(index: &Index, message: &[u8]) -> Result<Vec<u8>, Box<Onward>> {
    let query = Query::read(message).unwrap();
    let mut out = Vec::new();
    let mut writer = Writer::begin(&mut out, &query, query.datagram_bytes(1232), 1232);
    match answer(index, &query, &mut writer, &mut Room::default()) {
        Verdict::Done => {
            writer.finish();
            Ok(out)
        }
        Verdict::Onward(onward) => Err(onward),
    }
}

fn show(record: &Record) -> String {
    let data = record.data.to_string();
    // Of an SOA only that it is there.
    let data = if record.record_type() == RecordType::SOA {
        "..."
    } else {
        data.as_str()
    };
    format!("{} {} {} {data}", record.name, record.ttl, record.record_type())
}

/// An answer as text: code, answers, then authorities and additional ones behind marks.
pub(crate) fn ask(index: &Index, name: &str, kind: RecordType) -> String {
    let bytes = match raw(index, &question(name, kind.into(), Some(1232))) {
        Ok(bytes) => bytes,
        Err(onward) => {
            let chain = onward
                .chain
                .iter()
                .map(|(owner, target)| format!("{owner} -> {target}, "));
            return format!("onward: {}{}", chain.collect::<String>(), onward.question.name);
        }
    };
    let message = Message::from_vec(&bytes).unwrap();
    assert_eq!(
        message.authoritative,
        message.response_code != ResponseCode::ServFail,
        "{name}"
    );
    let mut text = format!("{:?}", message.response_code);
    for (mark, records) in [
        (":", &message.answers),
        (" /", &message.authorities),
        (" +", &message.additionals),
    ] {
        for (number, record) in records.iter().enumerate() {
            text += if number == 0 { mark } else { "," };
            text += " ";
            text += &show(record);
        }
    }
    text
}

const A: RecordType = RecordType::A;
const AAAA: RecordType = RecordType::AAAA;
const SRV: RecordType = RecordType::SRV;
const PTR: RecordType = RecordType::PTR;
const TXT: RecordType = RecordType::TXT;
const MISSING: &str = "NXDomain / cluster.local. 5 SOA ...";
const EMPTY: &str = "NoError / cluster.local. 5 SOA ...";

fn check(index: &Index, rows: &[(&str, RecordType, &str)]) {
    for (name, kind, expected) in rows {
        let name = name.replace('~', "svc.cluster.local");
        let expected = expected.replace('~', "svc.cluster.local.");
        assert_eq!(ask(index, &name, *kind), expected, "{name} {kind}");
    }
}

#[test]
fn services_with_addresses() {
    check(
        &index(),
        &[
            ("web.default.~", A, "NoError: web.default.~ 5 A 10.96.0.20"),
            (
                "WEB.Default.svc.CLUSTER.local",
                A,
                "NoError: WEB.Default.svc.CLUSTER.local. 5 A 10.96.0.20",
            ),
            ("web.default.~", AAAA, EMPTY),
            ("web.default.~", TXT, EMPTY),
            ("dual.default.~", A, "NoError: dual.default.~ 5 A 10.96.0.21"),
            ("dual.default.~", AAAA, "NoError: dual.default.~ 5 AAAA fd00:96::21"),
            ("nothing.default.~", A, MISSING),
            ("nothing.default.~", AAAA, MISSING),
            ("web.other.~", A, MISSING),
            ("pending.default.~", A, MISSING),
            ("*.default.~", A, MISSING),
            ("web.*.~", A, MISSING),
            ("any.default.~", A, MISSING),
            // Its endpoints have names, too, as at CoreDNS.
            (
                "10-244-0-5.web.default.~",
                A,
                "NoError: 10-244-0-5.web.default.~ 5 A 10.244.0.5",
            ),
            ("10-244-0-6.web.default.~", A, MISSING),
        ],
    );
}

#[test]
fn ports_that_have_names() {
    check(
        &index(),
        &[
            (
                "_http._tcp.web.default.~",
                SRV,
                "NoError: _http._tcp.web.default.~ 5 SRV 0 100 80 web.default.~ + web.default.~ 5 A 10.96.0.20",
            ),
            (
                "_dns._udp.dual.default.~",
                SRV,
                "NoError: _dns._udp.dual.default.~ 5 SRV 0 100 53 dual.default.~ + dual.default.~ 5 A 10.96.0.21, dual.default.~ 5 AAAA fd00:96::21",
            ),
            (
                "_dns._tcp.dual.default.~",
                SRV,
                "NoError: _dns._tcp.dual.default.~ 5 SRV 0 100 5353 dual.default.~ + dual.default.~ 5 A 10.96.0.21, dual.default.~ 5 AAAA fd00:96::21",
            ),
            (
                "dual.default.~",
                SRV,
                "NoError: dual.default.~ 5 SRV 0 50 53 dual.default.~, dual.default.~ 5 SRV 0 50 5353 dual.default.~ + dual.default.~ 5 A 10.96.0.21, dual.default.~ 5 AAAA fd00:96::21",
            ),
            ("_http._udp.web.default.~", SRV, MISSING),
            ("_https._tcp.web.default.~", SRV, MISSING),
            ("_http._tcp.web.default.~", A, EMPTY),
            ("_tcp.web.default.~", SRV, EMPTY),
            ("_udp.web.default.~", SRV, MISSING),
            ("_icmp.web.default.~", SRV, MISSING),
            ("http.tcp.web.default.~", SRV, MISSING),
            ("_x._http._tcp.web.default.~", SRV, MISSING),
            ("unnamed.default.~", SRV, EMPTY),
            ("_._tcp.unnamed.default.~", SRV, MISSING),
        ],
    );
}

#[test]
fn headless_services() {
    check(
        &index(),
        &[
            (
                "db.default.~",
                A,
                "NoError: db.default.~ 5 A 10.244.0.10, db.default.~ 5 A 10.244.0.11",
            ),
            ("db.default.~", AAAA, "NoError: db.default.~ 5 AAAA fd00:244::10"),
            ("db.default.~", TXT, EMPTY),
            ("db-0.db.default.~", A, "NoError: db-0.db.default.~ 5 A 10.244.0.10"),
            ("DB-0.db.default.~", A, "NoError: DB-0.db.default.~ 5 A 10.244.0.10"),
            (
                "db-0.db.default.~",
                AAAA,
                "NoError: db-0.db.default.~ 5 AAAA fd00:244::10",
            ),
            (
                "10-244-0-11.db.default.~",
                A,
                "NoError: 10-244-0-11.db.default.~ 5 A 10.244.0.11",
            ),
            ("10-244-0-11.db.default.~", AAAA, EMPTY),
            // It has a name of its own.
            ("10-244-0-10.db.default.~", A, MISSING),
            // Not ready.
            ("10-244-0-12.db.default.~", A, MISSING),
            ("db-9.db.default.~", A, MISSING),
            (
                "_sql._tcp.db.default.~",
                SRV,
                "NoError: _sql._tcp.db.default.~ 5 SRV 0 50 5432 10-244-0-11.db.default.~, \
                 _sql._tcp.db.default.~ 5 SRV 0 50 5432 db-0.db.default.~ \
                 + 10-244-0-11.db.default.~ 5 A 10.244.0.11, db-0.db.default.~ 5 A 10.244.0.10, db-0.db.default.~ 5 AAAA fd00:244::10",
            ),
            ("_metrics._tcp.db.default.~", SRV, MISSING),
            ("starting.default.~", A, MISSING),
            ("starting.default.~", SRV, MISSING),
            ("starting.default.~", TXT, MISSING),
            ("_sql._tcp.starting.default.~", SRV, MISSING),
            ("empty.default.~", A, MISSING),
            ("published.default.~", A, "NoError: published.default.~ 5 A 10.244.0.40"),
        ],
    );
}

#[test]
fn a_headless_service_gives_one_record_for_each_endpoint_and_port() {
    let mut index = index();
    let ports = json!([{"name": "a", "port": 1}, {"name": "b", "port": 2, "protocol": "UDP"}, {"port": 3}]);
    let endpoints =
        json!([{"addresses": ["10.244.9.1"]}, {"addresses": ["10.244.9.2"]}, {"addresses": ["10.244.9.3"]}]);
    index.set_slice(None, Some(&slice("default", "empty", "many", "IPv4", ports, endpoints)));
    let all =
        Message::from_vec(&raw(&index, &question("empty.default.svc.cluster.local", 33, Some(1232))).unwrap()).unwrap();
    assert_eq!(all.answers.len(), 6, "three endpoints, two named ports");
    let one = ask(&index, "_b._udp.empty.default.svc.cluster.local", SRV);
    assert_eq!(one.matches("SRV 0 33 2 ").count(), 3, "{one}");
}

#[test]
fn other_names() {
    check(
        &index(),
        &[
            (
                "out.default.~",
                A,
                "onward: out.default.~ -> www.Example.com., www.example.com.",
            ),
            (
                "out.default.~",
                RecordType::CNAME,
                "NoError: out.default.~ 5 CNAME www.Example.com.",
            ),
            (
                "alias.default.~",
                A,
                "NoError: alias.default.~ 5 CNAME web.default.~, web.default.~ 5 A 10.96.0.20",
            ),
            (
                "alias.default.~",
                TXT,
                "NoError: alias.default.~ 5 CNAME web.default.~ / cluster.local. 5 SOA ...",
            ),
            (
                "twice.default.~",
                A,
                "NoError: twice.default.~ 5 CNAME alias.default.~, alias.default.~ 5 CNAME web.default.~, web.default.~ 5 A 10.96.0.20",
            ),
            (
                "lost.default.~",
                A,
                "NXDomain: lost.default.~ 5 CNAME nothing.default.~ / cluster.local. 5 SOA ...",
            ),
            (
                "ring-a.default.~",
                A,
                "NoError: ring-a.default.~ 5 CNAME ring-b.default.~, ring-b.default.~ 5 CNAME ring-a.default.~",
            ),
            ("self.default.~", A, "NoError: self.default.~ 5 CNAME self.default.~"),
            ("x.out.default.~", A, MISSING),
            ("_http._tcp.out.default.~", SRV, MISSING),
            ("example.com", A, "onward: example.com."),
            ("web", A, "onward: web."),
            (".", RecordType::NS, "onward: ."),
            ("notcluster.local", A, "onward: notcluster.local."),
            ("local", A, "onward: local."),
            ("xcluster.local", A, "onward: xcluster.local."),
        ],
    );
}

#[test]
fn a_chain_ends() {
    let mut index = index();
    for number in 0..20 {
        let spec =
            json!({"type": "ExternalName", "externalName": format!("c{}.default.svc.cluster.local", number + 1)});
        cluster::put(&mut index, "default", &format!("c{number}"), spec);
    }
    let text = ask(&index, "c0.default.svc.cluster.local", A);
    assert_eq!(text.matches("CNAME").count(), CHAIN_MAX, "{text}");
}

#[test]
fn the_zone_itself() {
    let server = "kube-dns.kube-system.~";
    let addresses = format!("{server} 5 A 10.96.0.10, {server} 5 AAAA fd00:96::10");
    let rows = [
        (
            "cluster.local",
            RecordType::SOA,
            "NoError: cluster.local. 5 SOA ...".to_owned(),
        ),
        (
            "cluster.local",
            RecordType::NS,
            format!("NoError: cluster.local. 5 NS {server} + {addresses}"),
        ),
        ("cluster.local", A, EMPTY.to_owned()),
        (
            "dns-version.cluster.local",
            TXT,
            "NoError: dns-version.cluster.local. 5 TXT 1.1.0".to_owned(),
        ),
        ("dns-version.cluster.local", A, EMPTY.to_owned()),
        (
            "ns.dns.cluster.local",
            A,
            "NoError: ns.dns.cluster.local. 5 A 10.96.0.10".to_owned(),
        ),
        ("dns.cluster.local", A, EMPTY.to_owned()),
        ("svc.cluster.local", A, EMPTY.to_owned()),
        ("pod.cluster.local", A, EMPTY.to_owned()),
        ("default.~", A, EMPTY.to_owned()),
        ("absent.~", A, MISSING.to_owned()),
        ("default.pod.cluster.local", A, EMPTY.to_owned()),
        ("absent.pod.cluster.local", A, MISSING.to_owned()),
        ("default.cluster.local", A, MISSING.to_owned()),
        ("www.example.com.default.~", A, MISSING.to_owned()),
        ("www.example.com.~", A, MISSING.to_owned()),
        ("www.example.com.cluster.local", A, MISSING.to_owned()),
        ("a.b.c.d.e.f.g.h.~", A, MISSING.to_owned()),
    ];
    let rows: Vec<_> = rows
        .iter()
        .map(|(name, kind, text)| (*name, *kind, text.as_str()))
        .collect();
    check(&index(), &rows);
    // Before there is a service of our address.
    let mut bare = index();
    bare.set_service("kube-system", "kube-dns", None);
    let text = ask(&bare, "cluster.local", RecordType::NS);
    assert!(
        text.starts_with("NoError: cluster.local. 5 NS ns.dns.cluster.local. +"),
        "{text}"
    );
}

#[test]
fn names_of_pods() {
    let rows = |insecure: &'static str, verified: &'static str| {
        [
            ("10-244-0-5.default.pod.cluster.local", A, verified),
            ("10-244-0-5.other.pod.cluster.local", A, insecure),
            ("10-9-9-9.default.pod.cluster.local", A, insecure),
        ]
    };
    let yes = |name: &str, address: &str| format!("NoError: {name}.pod.cluster.local. 5 A {address}");
    let known = yes("10-244-0-5.default", "10.244.0.5");
    for (mode, first, second, third) in [
        (PodNames::Disabled, MISSING, MISSING, MISSING),
        (
            PodNames::Insecure,
            known.as_str(),
            &yes("10-244-0-5.other", "10.244.0.5"),
            &yes("10-9-9-9.default", "10.9.9.9"),
        ),
        (PodNames::Verified, known.as_str(), MISSING, MISSING),
    ] {
        let index = with_pods(mode);
        for ((name, kind, _), expected) in rows("", "").iter().zip([first, second, third]) {
            assert_eq!(ask(&index, name, *kind), expected, "{name} {mode:?}");
        }
    }
    check(
        &with_pods(PodNames::Insecure),
        &[
            ("10-244-0-5.default.pod.cluster.local", AAAA, EMPTY),
            ("10-244-0-5.absent.pod.cluster.local", A, MISSING),
            ("10-244-0.default.pod.cluster.local", A, MISSING),
            ("10-244-0-500.default.pod.cluster.local", A, MISSING),
            ("words.default.pod.cluster.local", A, MISSING),
            (
                "fd00-244--5.default.pod.cluster.local",
                AAAA,
                "NoError: fd00-244--5.default.pod.cluster.local. 5 AAAA fd00:244::5",
            ),
            ("x.10-244-0-5.default.pod.cluster.local", A, MISSING),
        ],
    );
    let text = ask(&with_pods(PodNames::Disabled), "default.pod.cluster.local", A);
    assert_eq!(text, MISSING);
}

#[test]
fn names_of_addresses() {
    let reverse = |address: &str| match address.parse().unwrap() {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(v6) => {
            let digits: Vec<String> = format!("{:032x}", u128::from(v6))
                .chars()
                .rev()
                .map(String::from)
                .collect();
            format!("{}.ip6.arpa", digits.join("."))
        }
    };
    let index = index();
    for (address, targets) in [
        ("10.96.0.20", vec!["web.default.svc.cluster.local."]),
        ("10.96.0.10", vec!["kube-dns.kube-system.svc.cluster.local."]),
        ("fd00:96::21", vec!["dual.default.svc.cluster.local."]),
        ("10.244.0.10", vec!["db-0.db.default.svc.cluster.local."]),
        ("fd00:244::10", vec!["db-0.db.default.svc.cluster.local."]),
        ("10.244.0.11", vec!["10-244-0-11.db.default.svc.cluster.local."]),
        ("10.244.0.40", vec!["10-244-0-40.published.default.svc.cluster.local."]),
    ] {
        let name = reverse(address);
        let expected: Vec<String> = targets.iter().map(|target| format!("{name}. 5 PTR {target}")).collect();
        assert_eq!(
            ask(&index, &name, PTR),
            format!("NoError: {}", expected.join(", ")),
            "{address}"
        );
    }
    for (address, zone) in [
        ("10.96.99.99", "in-addr.arpa"),
        // Behind a service with an address of its own; not ready; behind none.
        ("10.244.0.5", "in-addr.arpa"),
        ("10.244.0.12", "in-addr.arpa"),
        ("10.244.200.1", "in-addr.arpa"),
        ("fd00:96::99", "ip6.arpa"),
    ] {
        let text = ask(&index, &reverse(address), PTR);
        assert_eq!(text, format!("NXDomain / {zone}. 5 SOA ..."), "{address}");
    }
    assert_eq!(
        ask(&index, &reverse("10.96.0.20"), A),
        "NoError / in-addr.arpa. 5 SOA ..."
    );
    for name in [
        reverse("192.0.2.1").as_str(),
        &reverse("2001:db8::1"),
        "96.10.in-addr.arpa",
        "1.20.0.96.10.in-addr.arpa",
        "256.0.96.10.in-addr.arpa",
        "020.0.96.10.in-addr.arpa",
        "x.0.96.10.in-addr.arpa",
        "1.0.0.ip6.arpa",
        "in-addr.arpa",
    ] {
        assert_eq!(ask(&index, name, PTR), format!("onward: {name}."));
    }
}

#[test]
fn the_first_of_many_addresses_changes() {
    let index = index();
    let mut firsts = std::collections::BTreeSet::new();
    for id in 0..4u8 {
        let mut message = question("db.default.svc.cluster.local", kind::A, None);
        message[1] = id;
        let bytes = raw(&index, &message).unwrap();
        let answer = Message::from_vec(&bytes).unwrap();
        assert_eq!(answer.answers.len(), 2);
        firsts.insert(answer.answers[0].data.to_string());
    }
    assert_eq!(firsts.len(), 2);
}
