//! What is said whatever the name: codes, flags, sizes.

use super::*;
use crate::wire::Problem;

const WEB: &str = "web.default.svc.cluster.local";

fn parsed(index: &Index, message: &[u8]) -> Message {
    Message::from_vec(&raw(index, message).unwrap()).unwrap()
}

#[test]
fn until_synced_nobody_is_told_that_a_name_is_not_there() {
    let mut index = index();
    index.synced = false;
    for name in [
        WEB,
        "nothing.default.svc.cluster.local",
        "cluster.local",
        "20.0.96.10.in-addr.arpa",
    ] {
        assert_eq!(ask(&index, name, A), "ServFail", "{name}");
    }
    assert_eq!(ask(&index, "example.com", A), "onward: example.com.");
    assert_eq!(
        ask(&index, "1.2.0.192.in-addr.arpa", PTR),
        "onward: 1.2.0.192.in-addr.arpa."
    );
}

#[test]
fn who_wants_everything_gets_little() {
    let index = index();
    let hinfo = "5 HINFO RFC8482";
    for name in [WEB, "cluster.local", "default.svc.cluster.local", "example.com"] {
        let mut message = question(name, kind::ANY, None);
        message[2] |= 1;
        let bytes = raw(&index, &message).unwrap();
        let answer = Message::from_vec(&bytes).unwrap();
        assert_eq!(answer.answers.len(), 1, "{name}");
        assert!(show(&answer.answers[0]).contains(hinfo), "{}", show(&answer.answers[0]));
        assert!(bytes.len() < 2 * message.len(), "no amplification");
    }
    let missing = parsed(&index, &question("nothing.default.svc.cluster.local", kind::ANY, None));
    assert_eq!(missing.response_code, ResponseCode::NXDomain);
}

#[test]
fn what_is_refused() {
    let index = index();
    for (kind, class, expected) in [
        (kind::AXFR, 1, ResponseCode::Refused),
        (kind::IXFR, 1, ResponseCode::Refused),
        (250, 1, ResponseCode::Refused),
        (kind::TXT, 3, ResponseCode::Refused),
        (kind::A, 255, ResponseCode::Refused),
        (kind::A, 4, ResponseCode::Refused),
        (kind::OPT, 1, ResponseCode::FormErr),
        (0, 1, ResponseCode::FormErr),
    ] {
        for name in [WEB, "cluster.local", "example.com", "version.bind"] {
            let mut message = question(name, kind, None);
            let end = message.len();
            message[end - 1] = class;
            let answer = parsed(&index, &message);
            assert_eq!(
                (answer.response_code, answer.answers.len()),
                (expected, 0),
                "{name} {kind} {class}"
            );
        }
    }
}

#[test]
fn what_cannot_be_read() {
    let good = question(WEB, 1, Some(1232));
    let with = |at: usize, byte: u8| {
        let mut message = good.clone();
        message[at] = byte;
        message
    };
    let code = |message: &[u8]| match Query::read(message) {
        Ok(_) => None,
        Err(Problem::Silent) => Some(u16::MAX),
        Err(Problem::Code { id, rcode, .. }) => {
            assert_eq!(id, 0x1234);
            Some(rcode)
        }
    };
    assert_eq!(code(&good), None);
    let twice = [good.as_slice(), &good[good.len() - 11..]].concat();
    let owned = [&good[..good.len() - 11], &[1, b'x'], &good[good.len() - 11..]].concat();
    for (message, expected, why) in [
        (good[..11].to_vec(), u16::MAX, "no header"),
        (Vec::new(), u16::MAX, "nothing"),
        (with(2, 0x81), u16::MAX, "an answer"),
        (with(2, 0x29), rcode::NOT_IMP, "an update"),
        (with(2, 0x21), rcode::NOT_IMP, "a notification"),
        (with(5, 0), rcode::FORM_ERR, "no question"),
        (with(5, 2), rcode::FORM_ERR, "two questions"),
        (with(7, 1), rcode::FORM_ERR, "an answer that is not there"),
        (good[..20].to_vec(), rcode::FORM_ERR, "half a name"),
        (good[..good.len() - 12].to_vec(), rcode::FORM_ERR, "no class"),
        (good[..good.len() - 1].to_vec(), rcode::FORM_ERR, "half an OPT"),
        (with(12, 0xc0), rcode::FORM_ERR, "a name that points at itself"),
        (with(12, 0x80), rcode::FORM_ERR, "a label of a kind nobody knows"),
        (
            {
                let mut message = twice;
                message[11] = 2;
                message
            },
            rcode::FORM_ERR,
            "two OPTs",
        ),
        (owned, rcode::FORM_ERR, "an OPT of a name"),
    ] {
        assert_eq!(code(&message), Some(expected), "{why}");
    }
}

#[test]
fn what_clients_say_of_themselves() {
    let index = index();
    let mut message = question(WEB, kind::A, Some(4096));
    let end = message.len();
    // Version 1, DNSSEC wanted.
    (message[end - 5], message[end - 4]) = (1, 0x80);
    let answer = parsed(&index, &message);
    assert_eq!(u16::from(answer.response_code), rcode::BAD_VERS);
    let edns = answer.edns.unwrap();
    assert_eq!(
        (edns.version(), edns.max_payload(), edns.flags().dnssec_ok),
        (0, 1232, true)
    );
    assert!(answer.answers.is_empty());
    let without = parsed(&index, &question(WEB, kind::A, None));
    assert!(without.edns.is_none(), "who does not know EDNS gets none");
    for (said, expected) in [
        (None, 512),
        (Some(0), 512),
        (Some(600), 600),
        (Some(1232), 1232),
        (Some(65535), 1232),
    ] {
        let query = Query::read(&question(WEB, kind::A, said)).unwrap();
        assert_eq!(query.datagram_bytes(1232), expected, "{said:?}");
    }
}

#[test]
fn flags_and_case_are_given_back() {
    let index = index();
    for bits in [0x0000u16, 0x0100, 0x0110, 0x0010] {
        let mut message = question("WeB.dEfault.svc.Cluster.Local", kind::A, None);
        message[2..4].copy_from_slice(&bits.to_be_bytes());
        let bytes = raw(&index, &message).unwrap();
        let flags = u16::from_be_bytes([bytes[2], bytes[3]]);
        assert_eq!(flags, 0x8480 | bits, "{bits:x}");
        assert_eq!(bytes[..2], message[..2]);
        assert_eq!(
            bytes[HEADER_BYTES..message.len()],
            message[HEADER_BYTES..],
            "the question, as asked"
        );
        assert_eq!(
            bytes[message.len()..message.len() + 2],
            [0xc0, 12],
            "its owner is the question's name"
        );
    }
}

#[test]
fn what_is_too_long_says_so() {
    let mut index = index();
    let endpoints: Vec<Value> = (0..200)
        .map(|n| json!({"addresses": [format!("10.244.7.{n}")]}))
        .collect();
    let ports = json!([{"name": "sql", "port": 1}]);
    index.set_slice(
        None,
        Some(&slice("default", "empty", "many", "IPv4", ports, endpoints.into())),
    );
    for (name, kind) in [
        ("empty.default.svc.cluster.local", 1),
        ("_sql._tcp.empty.default.svc.cluster.local", 33),
    ] {
        for said in [None, Some(600), Some(1232), Some(4096)] {
            let message = question(name, kind, said);
            let limit = usize::from(said.map_or(512, |said| said.min(1232)));
            let bytes = raw(&index, &message).unwrap();
            let answer = Message::from_vec(&bytes).unwrap();
            assert!(bytes.len() <= limit && answer.truncation, "{} of {limit}", bytes.len());
            assert!(!answer.answers.is_empty() && answer.answers.len() < 200);
        }
    }
    let message = question("empty.default.svc.cluster.local", kind::A, Some(1232));
    let query = Query::read(&message).unwrap();
    let mut out = Vec::new();
    let mut writer = Writer::begin(&mut out, &query, 65535, 1232);
    answer(&index, &query, &mut writer, &mut Room::default());
    writer.finish();
    let whole = Message::from_vec(&out).unwrap();
    assert_eq!((whole.truncation, whole.answers.len()), (false, 200), "by TCP");
}

#[test]
fn what_is_beside_the_answer_may_be_left_out() {
    // The answer fits, the address beside it does not.
    let index = index();
    let message = question("_http._tcp.web.default.svc.cluster.local", kind::SRV, None);
    let query = Query::read(&message).unwrap();
    let mut out = Vec::new();
    let mut writer = Writer::begin(&mut out, &query, message.len() + 55, 1232);
    answer(&index, &query, &mut writer, &mut Room::default());
    writer.finish();
    let answer = Message::from_vec(&out).unwrap();
    assert_eq!(
        (answer.truncation, answer.answers.len(), answer.additionals.len()),
        (false, 1, 0)
    );
}
