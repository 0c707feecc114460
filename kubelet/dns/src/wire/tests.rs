//! The codec against hickory-proto: what it writes we read, what we write it reads, and no bytes make either side of ours panic.

use super::name::{key, label, labels};
use super::reply::Question;
use super::*;
use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, HINFO, MX, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{self, RData, Record};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn theirs(name: &str) -> rr::Name {
    rr::Name::from_ascii(name).unwrap()
}

fn label_text() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_][a-zA-Z0-9_-]{0,11}"
}

/// Names of few labels, so that they share ends.
fn name_text() -> impl Strategy<Value = String> {
    let end = prop_oneof![
        Just("example.com."),
        Just("Example.COM."),
        Just("cdn.example.com."),
        Just("org.")
    ];
    (prop::collection::vec(label_text(), 0..3), end).prop_map(|(labels, end)| {
        let front: String = labels.iter().map(|label| format!("{label}.")).collect();
        front + end
    })
}

fn data() -> impl Strategy<Value = RData> {
    let name = || name_text().prop_map(|name| theirs(&name));
    prop_oneof![
        any::<u32>().prop_map(|n| RData::A(A(Ipv4Addr::from(n)))),
        any::<u128>().prop_map(|n| RData::AAAA(AAAA(Ipv6Addr::from(n)))),
        name().prop_map(|name| RData::CNAME(CNAME(name))),
        name().prop_map(|name| RData::NS(NS(name))),
        name().prop_map(|name| RData::PTR(PTR(name))),
        (any::<u16>(), name()).prop_map(|(n, name)| RData::MX(MX::new(n, name))),
        (any::<[u16; 3]>(), name()).prop_map(|([a, b, c], name)| RData::SRV(SRV::new(a, b, c, name))),
        (name(), name(), any::<u32>()).prop_map(|(one, two, n)| RData::SOA(SOA::new(one, two, n, 1, 2, 3, n % 9999))),
        "[ -~]{0,40}".prop_map(|text| RData::TXT(TXT::new(vec![text]))),
        "[a-z]{0,9}".prop_map(|text| RData::HINFO(HINFO::new(text.clone(), text))),
    ]
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let record =
        (name_text(), 0..1u32 << 31, data()).prop_map(|(name, ttl, data)| Record::from_rdata(theirs(&name), ttl, data));
    prop::collection::vec(record, 0..12)
}

fn asked() -> Question {
    Question {
        name: Name::parse("www.example.com").unwrap(),
        kind: kind::A,
        dnssec_ok: false,
        checking_disabled: false,
    }
}

/// A resolver's answer, as another program writes it.
fn answer(id: u16, sections: [Vec<Record>; 3]) -> Message {
    let mut message = Message::response(id, OpCode::Query);
    let mut query = hickory_proto::op::Query::query(theirs("www.example.com."), rr::RecordType::A);
    query.set_query_class(rr::DNSClass::IN);
    message.add_query(query);
    [message.answers, message.authorities, message.additionals] = sections;
    message
}

fn query(name: &str, edns: Option<u16>) -> Query {
    Query::read(&crate::answer::tests::question(name, kind::A, edns)).unwrap()
}

fn sorted(records: &[Record]) -> Vec<String> {
    records
        .iter()
        .map(|record| record.to_string().to_ascii_lowercase())
        .collect()
}

proptest! {
    #[test]
    fn what_a_resolver_says_goes_through_us_whole(a in records(), b in records(), c in records(), id: u16) {
        let message = answer(id, [a, b, c]);
        let reply = Reply::read(&message.to_vec().unwrap(), id, &asked()).unwrap();
        let mut out = Vec::new();
        let mut writer = Writer::begin(&mut out, &query("WWW.example.com", None), 65535, 1232);
        reply.write(&mut writer, 0);
        writer.finish();
        let back = Message::from_vec(&out).unwrap();
        prop_assert!(!back.truncation);
        prop_assert_eq!(sorted(&back.answers), sorted(&message.answers));
        prop_assert_eq!(sorted(&back.authorities), sorted(&message.authorities));
        prop_assert_eq!(sorted(&back.additionals), sorted(&message.additionals));
        // Ours is no longer than theirs by more than what we do not compress.
        let again = Reply::read(&out, query("www.example.com", None).id, &asked()).unwrap();
        prop_assert_eq!(again.counts, reply.counts);
    }

    #[test]
    fn whatever_the_limit_the_answer_keeps_to_it(a in records(), b in records(), limit in 512usize..1500, edns: bool) {
        let message = answer(7, [a, b, Vec::new()]);
        let reply = Reply::read(&message.to_vec().unwrap(), 7, &asked()).unwrap();
        let mut out = Vec::new();
        let mut writer = Writer::begin(&mut out, &query("www.example.com", edns.then_some(4096)), limit, 1232);
        reply.write(&mut writer, 5);
        writer.finish();
        let back = Message::from_vec(&out).unwrap();
        prop_assert!(out.len() <= limit);
        let written = back.answers.len() + back.authorities.len();
        prop_assert_eq!(back.truncation, written < message.answers.len() + message.authorities.len());
        prop_assert_eq!(back.edns.is_some(), edns);
    }

    #[test]
    fn what_a_client_writes_is_read(name in name_text(), kind: u16, id: u16, size: Option<u16>, desired: bool) {
        let mut message = Message::new(id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = desired;
        message.add_query(hickory_proto::op::Query::query(theirs(&name), kind.into()));
        if let Some(size) = size {
            let mut edns = hickory_proto::op::Edns::new();
            edns.set_max_payload(size).set_dnssec_ok(true);
            message.edns = Some(edns);
        }
        let query = Query::read(&message.to_vec().unwrap()).unwrap();
        prop_assert_eq!(query.name.to_string(), name.clone());
        prop_assert_eq!(query.lower.to_string(), name.to_ascii_lowercase());
        prop_assert_eq!((query.id, query.kind, query.class), (id, kind, 1));
        prop_assert_eq!(query.flags & flag::RECURSION_DESIRED != 0, desired);
        prop_assert_eq!(query.edns.map(|edns| (edns.size.max(512), edns.version, edns.dnssec_ok)), size.map(|size| (size.max(512), 0, true)));
    }

    #[test]
    fn no_bytes_make_the_readers_panic(bytes: Vec<u8>, head in 0usize..3) {
        // Often with a head that leads further in.
        let good = crate::answer::tests::question("www.example.com", 1, None);
        let mut message = if head == 0 { bytes.clone() } else { [good.as_slice(), &bytes].concat() };
        if head == 2 {
            message[2] |= 0x80;
            message[7] = 3;
            message[11] = 1;
        }
        let id = u16_at(&message, 0).unwrap_or(0);
        let _ = Reply::read(&message, id, &asked());
        let Ok(query) = Query::read(&message) else { return Ok(()) };
        let index = crate::answer::tests::index();
        if let Ok(out) = crate::answer::tests::raw(&index, &message) {
            prop_assert!(out.len() <= query.datagram_bytes(1232));
            let back = Message::from_vec(&out);
            prop_assert!(back.is_ok(), "{:?}", back);
        }
    }

    #[test]
    fn changed_bytes_make_nothing_panic(at in 0usize..200, byte: u8, a in records()) {
        let mut message = answer(7, [a, Vec::new(), Vec::new()]).to_vec().unwrap();
        let at = at % message.len();
        message[at] = byte;
        if let Ok(reply) = Reply::read(&message, 7, &asked()) {
            let mut out = Vec::new();
            let mut writer = Writer::begin(&mut out, &query("www.example.com", None), 512, 1232);
            reply.write(&mut writer, 0);
            writer.finish();
            prop_assert!(out.len() <= 512);
            let all: u16 = reply.counts.iter().sum();
            prop_assert_eq!(reply.records().count(), usize::from(all));
        }
    }

    #[test]
    fn any_question_about_the_cluster_is_answered_within_its_size(labels in prop::collection::vec(label_text(), 0..5), kind in 0u16..260, size: Option<u16>) {
        let front: String = labels.iter().map(|label| format!("{label}.")).collect();
        let message = crate::answer::tests::question(&format!("{front}svc.cluster.local"), kind, size);
        let index = crate::answer::tests::index();
        let out = crate::answer::tests::raw(&index, &message).unwrap();
        prop_assert!(out.len() <= Query::read(&message).unwrap().datagram_bytes(1232));
        let back = Message::from_vec(&out).unwrap();
        prop_assert_eq!(&back.queries[0].name().to_ascii(), &format!("{front}svc.cluster.local."));
    }
}

#[test]
fn our_questions_are_read_by_others() {
    let question = Question {
        dnssec_ok: true,
        checking_disabled: true,
        ..asked()
    };
    let message = Message::from_vec(&question.ask(77, Some(1232), 0)).unwrap();
    assert_eq!(
        (message.id, message.recursion_desired, message.checking_disabled),
        (77, true, true)
    );
    assert_eq!(message.queries[0].to_string(), "www.example.com. IN A");
    let edns = message.edns.unwrap();
    assert_eq!((edns.max_payload(), edns.flags().dnssec_ok), (1232, true));
    assert!(Message::from_vec(&question.ask(77, None, 0)).unwrap().edns.is_none());
}

#[test]
fn answers_that_are_not_ours_are_not_heard() {
    let good = answer(7, Default::default()).to_vec().unwrap();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut message = good.clone();
        change(&mut message);
        Reply::read(&message, 7, &asked()).map(|reply| reply.rcode)
    };
    assert_eq!(with(&|_| {}), Ok(0));
    assert_eq!(with(&|m| m[13] = b'W'), Ok(0), "case does not matter");
    for (change, expected) in [
        (&(|m: &mut Vec<u8>| m[1] = 8) as &dyn Fn(&mut Vec<u8>), Unfit::Foreign),
        (&|m| m[2] &= 0x7f, Unfit::Foreign),
        (&|m| m[13] = b'x', Unfit::Foreign),
        (&|m| *m.last_mut().unwrap() = 3, Unfit::Foreign),
        (
            &|m| {
                let at = m.len() - 3;
                m[at] = 28
            },
            Unfit::Foreign,
        ),
        (&|m| m[5] = 0, Unfit::Foreign),
        (&|m| m.truncate(3), Unfit::Foreign),
        (&|m| m[2] |= 2, Unfit::Truncated),
        (&|m| m[7] = 1, Unfit::Malformed),
    ] {
        assert_eq!(with(change), Err(expected));
    }
    let mut refused = answer(7, Default::default());
    refused.metadata.response_code = ResponseCode::Refused;
    refused.queries.clear();
    let refused = Reply::read(&refused.to_vec().unwrap(), 7, &asked());
    assert_eq!(refused.map(|reply| reply.rcode), Ok(rcode::REFUSED));
}

#[test]
fn pointers_do_not_blow_a_message_up() {
    // One long name, and thousands of records that are two bytes of pointer to it.
    let mut message = answer(7, Default::default()).to_vec().unwrap();
    let at = message.len() as u16;
    let name: Vec<u8> = std::iter::repeat_n([&[63][..], &[b'x'; 63]].concat(), 3)
        .flatten()
        .chain([0])
        .collect();
    let fixed = [0, 1, 0, 1, 0, 0, 0, 9, 0, 0];
    message.extend(name.iter().chain(&fixed));
    for _ in 0..4000 {
        message.extend((0xc000 | at).to_be_bytes().iter().chain(&fixed));
    }
    message[6..8].copy_from_slice(&4001u16.to_be_bytes());
    assert_eq!(Reply::read(&message, 7, &asked()), Err(Unfit::Malformed));
}

#[test]
fn how_long_answers_hold() {
    let soa = |ttl, minimum| {
        Record::from_rdata(
            theirs("com."),
            ttl,
            RData::SOA(SOA::new(theirs("a."), theirs("b."), 1, 2, 3, 4, minimum)),
        )
    };
    let a = |ttl| Record::from_rdata(theirs("www.example.com."), ttl, RData::A(A(Ipv4Addr::LOCALHOST)));
    let alias = |ttl| Record::from_rdata(theirs("www.example.com."), ttl, RData::CNAME(CNAME(theirs("x.org."))));
    for (code, answers, authorities, expected) in [
        (ResponseCode::NoError, vec![a(300), a(60)], vec![], 60),
        (ResponseCode::NoError, vec![a(300)], vec![soa(5, 5)], 300),
        (ResponseCode::NoError, vec![a(u32::MAX)], vec![], 0),
        (ResponseCode::NoError, vec![], vec![soa(900, 30)], 30),
        (ResponseCode::NoError, vec![], vec![soa(20, 30)], 20),
        (ResponseCode::NXDomain, vec![], vec![soa(900, 30)], 30),
        (ResponseCode::NXDomain, vec![alias(10)], vec![soa(900, 30)], 10),
        (ResponseCode::NXDomain, vec![], vec![], 0),
        (ResponseCode::NoError, vec![], vec![a(5)], 0),
    ] {
        let mut message = answer(7, [answers, authorities, Vec::new()]);
        message.metadata.response_code = code;
        let reply = Reply::read(&message.to_vec().unwrap(), 7, &asked()).unwrap();
        assert_eq!(reply.seconds(), expected, "{message}");
    }
}

#[test]
fn names_of_text() {
    for (text, shown) in [
        ("a.b", "a.b."),
        ("a.b.", "a.b."),
        (".", "."),
        ("", "."),
        ("A-1._x", "A-1._x."),
    ] {
        assert_eq!(Name::parse(text).unwrap().to_string(), shown);
    }
    let (long, longer) = ("x".repeat(63), "x".repeat(64));
    assert!(Name::parse(&long).is_some() && Name::parse(&longer).is_none());
    for bad in ["a..b", ".a", "a.."] {
        assert!(Name::parse(bad).is_none(), "{bad}");
    }
    let most = format!("{long}.{long}.{long}.{}", &long[..61]);
    assert_eq!(Name::parse(&most).unwrap().wire().len(), 255);
    assert!(Name::parse(&format!("{most}x")).is_none());
    assert_eq!(label("Web").as_deref(), Some(b"\x03web".as_slice()));
    assert_eq!(key(&["a", "bc"]).as_deref(), Some(b"\x01a\x02bc".as_slice()));
    assert!(label("").is_none() && label(&longer).is_none());
    let name = Name::parse("a.bc").unwrap();
    assert_eq!(labels(name.wire()).collect::<Vec<_>>(), [b"a".as_slice(), b"bc"]);
}

#[test]
fn records_can_be_taken_back() {
    let query = query("www.example.com", None);
    let mut out = Vec::new();
    let mut writer = Writer::begin(&mut out, &query, 512, 1232);
    let target = Name::parse("other.org").unwrap();
    assert!(writer.record(Section::Answer, query.name.wire(), kind::CNAME, 5, target.wire()));
    writer.clear(&query);
    assert_eq!(writer.count(Section::Answer), 0);
    writer.record(Section::Answer, target.wire(), kind::A, 5, &[1, 2, 3, 4]);
    writer.finish();
    let back = Message::from_vec(&out).unwrap();
    assert_eq!(back.answers[0].to_string(), "other.org. 5 IN A 1.2.3.4");
}

#[test]
fn the_letters_of_a_question_come_back() {
    let case = 0b10_1010_1010_1010_1010;
    let mut message = asked().ask(7, None, case);
    let text = String::from_utf8_lossy(&message[HEADER_BYTES..]).into_owned();
    assert!(text.starts_with("\u{3}WwW\u{7}ExAmPlE"), "{text:?}");
    assert!(asked().settle(&mut message, case));
    assert_eq!(message, asked().ask(7, None, 0), "settled with small letters");
    // Whoever has to guess them is wrong.
    assert!(!asked().settle(&mut message, case));
    // What does not repeat the question is not judged here, whatever its length.
    for length in 0..message.len() - 4 {
        assert!(asked().settle(&mut vec![1; length], case));
    }
}
