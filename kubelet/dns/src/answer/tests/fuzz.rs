//! Questions nobody would ask, made of what the cluster has: whatever comes, the answer is one another program can read.

use super::*;
use crate::wire::{HEADER_BYTES, flag, u16_at};
use proptest::prelude::*;

/// Labels that mean something, and some that do not.
fn label() -> impl Strategy<Value = Vec<u8>> {
    let known = [
        "web",
        "many",
        "default",
        "svc",
        "pod",
        "cluster",
        "local",
        "dns-version",
        "dns",
        "ns",
        "_http",
        "_tcp",
        "10-244-0-1",
        "in-addr",
        "arpa",
        "ip6",
        "10",
        "96",
        "0",
        "20",
        "example",
        "COM",
    ];
    prop_oneof![
        8 => prop::sample::select(known.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..64),
    ]
}

prop_compose! {
    fn message()(
        labels in prop::collection::vec(label(), 0..9),
        suffix in prop::sample::select(vec!["", "default.svc.cluster.local", "cluster.local", "in-addr.arpa"]),
        // Behind the name: its end, a pointer anywhere, or nothing at all.
        end in prop_oneof![8 => Just(vec![0]), 1 => any::<u8>().prop_map(|at| vec![0xc0, at]), 1 => Just(Vec::new())],
        kind in prop_oneof![prop::sample::select(vec![1_u16, 2, 5, 6, 12, 16, 28, 33, 41, 255]), any::<u16>()],
        class in prop_oneof![9 => Just(1_u16), 1 => any::<u16>()],
        counts in prop_oneof![6 => Just([1_u16, 0, 0, 0]), 1 => any::<[u8; 4]>().prop_map(|counts| counts.map(u16::from))],
        flags in prop_oneof![6 => Just(0x0100_u16), 1 => any::<u16>()],
        behind in prop::collection::vec(any::<u8>(), 0..40),
    ) -> Vec<u8> {
        let words = [0x1234, flags].into_iter().chain(counts);
        let mut message: Vec<u8> = words.flat_map(u16::to_be_bytes).collect();
        let suffix = suffix.split('.').filter(|label| !label.is_empty()).map(|label| label.as_bytes().to_vec());
        for label in labels.into_iter().chain(suffix) {
            message.push(label.len() as u8);
            message.extend(label);
        }
        message.extend(end);
        message.extend([kind, class].into_iter().flat_map(u16::to_be_bytes));
        message.extend(behind);
        message
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_answer_can_be_read(message in message(), limit in 512_usize..1500, target in prop::option::of(label())) {
        let Ok(query) = Query::read(&message) else { return Ok(()) };
        let index = index();
        let target = target.and_then(|label| Name::of(&[&[label.len() as u8], &label, b"\x07default\x03svc\x07cluster\x05local\0"]));
        let mut out = Vec::new();
        let mut writer = Writer::begin(&mut out, &query, limit, 1232);
        let verdict = answer_as(&index, &query, target.as_ref(), &mut writer, &mut Room::default());
        let code = writer.finish();
        prop_assert!(out.len() <= limit, "{} of {limit}", out.len());
        if let Verdict::Onward(onward) = verdict {
            prop_assert!(onward.chain.len() < CHAIN_MAX);
            return Ok(());
        }
        prop_assert_eq!(u16_at(&out, 0), Some(query.id));
        prop_assert!(u16_at(&out, 2).is_some_and(|flags| flags & flag::RESPONSE != 0));
        let (name, _) = Name::read(&out, HEADER_BYTES).unwrap();
        prop_assert_eq!(name.wire(), query.name.wire());
        let read = Message::from_vec(&out);
        prop_assert!(read.is_ok(), "{:?} {:?}", read, query);
        prop_assert_eq!(u16::from(read.unwrap().response_code), code);
    }
}
