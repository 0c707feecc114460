//! What one question may cost, and who may say of what addresses whose they are.

use super::*;
use std::net::Ipv4Addr;

fn address(number: u32) -> String {
    Ipv4Addr::from(0x0af4_0000 + number).to_string()
}

/// Puts slices of 100 endpoints each of the service `empty`, beginning with this address.
fn fill(index: &mut Index, slices: std::ops::Range<u32>, family: &str, text: fn(u32) -> String, ports: &Value) {
    for number in slices {
        let endpoints: Vec<Value> = (0..100)
            .map(|last| json!({"addresses": [text(number * 100 + last)]}))
            .collect();
        let name = format!("many-{number}");
        let slice = slice("default", "empty", &name, family, ports.clone(), json!(endpoints));
        index.set_slice(None, Some(&slice));
    }
}

/// The answer by TCP.
fn whole(index: &Index, name: &str, kind: RecordType) -> Message {
    let message = question(name, kind.into(), None);
    let query = Query::read(&message).unwrap();
    let (mut out, mut room) = (Vec::new(), Room::default());
    let mut writer = Writer::begin(&mut out, &query, usize::from(u16::MAX), 1232);
    assert!(matches!(answer(index, &query, &mut writer, &mut room), Verdict::Done));
    writer.finish();
    assert!(room.addresses.len() <= 4096, "{}", room.addresses.len());
    Message::from_vec(&out).unwrap()
}

#[test]
fn ports_of_endpoints_are_collected_up_to_a_bound() {
    let mut index = index();
    let ports: Vec<Value> = (1..=100)
        .map(|port| json!({"name": format!("p{port}"), "port": port}))
        .collect();
    fill(
        &mut index,
        0..60,
        "IPv4",
        |number| address(6000 - number),
        &json!(ports),
    );
    // 600,000 pairs of port and endpoint: those of the first slice's first 40, and some of the next one's, are considered, though
    // there are endpoints that come before them in an answer.
    let all = whole(&index, "empty.default.svc.cluster.local", SRV);
    let targets: std::collections::BTreeSet<String> = all
        .answers
        .iter()
        .map(|record| record.data.to_string().split(' ').next_back().unwrap().to_owned())
        .collect();
    assert!(all.truncation && (1..=41).contains(&targets.len()), "{}", targets.len());
    assert!(
        targets.iter().all(|target| target.starts_with("10-244-23-")),
        "{targets:?}"
    );
    let one = whole(&index, "_p7._tcp.empty.default.svc.cluster.local", SRV);
    assert!(!one.answers.is_empty());
}

#[test]
fn addresses_are_collected_up_to_a_bound_that_is_each_familys() {
    let mut index = index();
    fill(&mut index, 0..60, "IPv4", address, &json!([]));
    fill(
        &mut index,
        60..61,
        "IPv6",
        |number| format!("fd00:244::{number}"),
        &json!([]),
    );
    let name = "empty.default.svc.cluster.local";
    let four = whole(&index, name, A);
    assert!(four.answers.len() > 4000, "{}", four.answers.len());
    assert_eq!(whole(&index, name, AAAA).answers.len(), 100);
    let text = whole(&index, name, TXT);
    assert_eq!((text.response_code, text.answers.len()), (ResponseCode::NoError, 0));
}

#[test]
fn an_address_behind_everything_has_so_many_names() {
    let mut index = index();
    // As often as it is said in a slice, there it counts once.
    let one: Vec<Value> = (0..2).map(|_| json!({"addresses": ["10.244.77.1"]})).collect();
    for number in 0..60 {
        let name = format!("h{number}");
        cluster::put(&mut index, "default", &name, json!({"clusterIP": "None"}));
        for part in 0..200 {
            let slice = slice(
                "default",
                &name,
                &format!("{name}-{part}"),
                "IPv4",
                json!([]),
                json!(one),
            );
            index.set_slice(None, Some(&slice));
        }
    }
    let pointers = whole(&index, "1.77.244.10.in-addr.arpa", PTR);
    // 8,192 entries of owners are 40 services of 200 slices each, and some of the next.
    assert_eq!(pointers.answers.len(), 41);
}

#[test]
fn names_are_found_behind_many_endpoints_without() {
    let mut index = index();
    fill(&mut index, 0..120, "IPv4", address, &json!([]));
    let last = "223.46.244.10.in-addr.arpa";
    assert_eq!(
        ask(&index, last, PTR),
        format!("NoError: {last}. 5 PTR 10-244-46-223.empty.default.svc.cluster.local.")
    );
}

#[test]
fn endpoints_name_no_address_outside_the_ranges() {
    let far = "77.2.0.192.in-addr.arpa";
    let mut index = index();
    assert_eq!(ask(&index, far, PTR), format!("onward: {far}."));
    // A service's own address is the cluster's wherever it is; who stands behind it, too, gets no name by that.
    cluster::put(&mut index, "default", "fixed", json!({"clusterIP": "192.0.2.77"}));
    let fixed = format!("NoError: {far}. 5 PTR fixed.default.svc.cluster.local.");
    assert_eq!(ask(&index, far, PTR), fixed);
    index.set_service("default", "fixed", None);
    // Without ranges nobody knows better.
    index.shape.ranges.clear();
    let outside = format!("NoError: {far}. 5 PTR outside.far.default.svc.cluster.local.");
    assert_eq!(ask(&index, far, PTR), outside);
}
