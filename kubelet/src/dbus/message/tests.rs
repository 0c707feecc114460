//! Golden bytes, written by hand from the D-Bus specification's rules, and what is read back.

use super::*;

const SYSTEMD: Target = Target {
    destination: "",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
};

#[test]
fn a_call_is_these_bytes() {
    let mut call = Call::new(SYSTEMD, "StopUnit", "ss");
    call.text("a.slice").text("replace");
    let mut expected: Vec<u8> = b"l\x01\x00\x01".to_vec();
    expected.extend(24u32.to_le_bytes()); // body
    expected.extend(5u32.to_le_bytes()); // serial
    expected.extend(0x72u32.to_le_bytes()); // fields, without the padding after them
    expected.extend(b"\x01\x01o\0\x19\0\0\0/org/freedesktop/systemd1\0\0\0\0\0\0\0");
    expected.extend(b"\x02\x01s\0\x20\0\0\0org.freedesktop.systemd1.Manager\0\0\0\0\0\0\0\0");
    expected.extend(b"\x03\x01s\0\x08\0\0\0StopUnit\0\0\0\0\0\0\0\0");
    expected.extend(b"\x08\x01g\0\x02ss\0");
    let fields = expected.len() - FIXED_BYTES;
    expected[12..16].copy_from_slice(&u32::try_from(fields).expect("length").to_le_bytes());
    expected.resize(expected.len().next_multiple_of(8), 0);
    expected.extend(b"\x07\0\0\0a.slice\0\x07\0\0\0replace\0");
    assert_eq!(call.encode(5), expected);
    assert_eq!(message_length(&expected), Ok(Some(expected.len())));
}

#[test]
fn properties_are_aligned_and_an_empty_array_is_padded() {
    let mut call = Call::new(SYSTEMD, "X", "a(sv)a(sa(sv))");
    call.properties(&[
        ("A", Value::Number(7)),
        ("B", Value::Bool(true)),
        ("C", Value::Text("x".into())),
    ])
    .no_structs();
    let mut expected: Vec<u8> = Vec::new();
    expected.extend(54u32.to_le_bytes());
    expected.extend([0; 4]);
    expected.extend(b"\x01\0\0\0A\0\x01t\0\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0");
    expected.extend(b"\x01\0\0\0B\0\x01b\0\0\0\0\x01\0\0\0");
    expected.extend(b"\x01\0\0\0C\0\x01s\0\0\0\0\x01\0\0\0x\0");
    let array = expected.len() - 8;
    expected[..4].copy_from_slice(&u32::try_from(array).expect("length").to_le_bytes());
    expected.resize(expected.len().next_multiple_of(4), 0);
    expected.extend(0u32.to_le_bytes());
    expected.resize(expected.len().next_multiple_of(8), 0);
    assert_eq!(call.body.0, expected);
}

#[test]
fn replies_refusals_and_signals_are_read() {
    let reply = testing::job_started(3, "/org/freedesktop/systemd1/job/9");
    let read = decode(&reply).expect("whole");
    assert_eq!((read.reply_to, read.error.clone()), (Some(3), None));
    assert_eq!(read.texts(), ["/org/freedesktop/systemd1/job/9"]);
    let read = decode(&testing::refused(3, "org.x.No", "no such thing")).expect("whole");
    assert_eq!(read.error.as_deref(), Some("org.x.No"));
    assert_eq!(read.texts(), ["no such thing"]);
    let read = decode(&testing::job_removed("/j/1", "a.slice", "done")).expect("whole");
    assert_eq!(read.member.as_deref(), Some("JobRemoved"));
    assert_eq!(read.texts(), ["/j/1", "a.slice", "done"]);
}

#[test]
fn a_call_over_a_bus_names_whom_it_is_for() {
    let target = Target {
        destination: "org.x",
        ..SYSTEMD
    };
    let mut call = Call::new(target, "KillUnit", "si");
    call.text("x").signed(-2);
    let bytes = call.encode(5);
    let field = b"\x06\x01s\0\x05\0\0\0org.x\0";
    assert!(bytes.windows(field.len()).any(|part| part == field));
    assert!(bytes.ends_with(b"\x01\0\0\0x\0\0\0\xfe\xff\xff\xff"));
}

#[test]
fn values_are_read_by_their_types() {
    let read = |bytes: Vec<u8>| decode(&bytes).expect("whole");
    let property = read(testing::answer(3, ":1.4", Some(Value::Number(1 << 40)), false));
    assert_eq!(
        (property.reply_to, property.values()),
        (Some(3), vec![Value::Number(1 << 40)])
    );
    let property = read(testing::answer(3, ":1.4", Some(Value::Bool(true)), false));
    assert_eq!(property.values(), [Value::Bool(true)]);
    assert_eq!(
        read(testing::answer(3, ":1.4", None, true)).values(),
        [Value::Number(0)]
    );
    assert_eq!(read(testing::done(3)).values(), []);
    let signal = read(testing::signal("/o", "org.x.Y", "Z", true, None));
    assert_eq!(
        (signal.interface.as_deref(), signal.member.as_deref()),
        (Some("org.x.Y"), Some("Z"))
    );
    assert_eq!(signal.values(), [Value::Bool(true)]);
}

#[test]
fn what_is_cut_or_foreign_is_an_error_and_never_a_panic() {
    let whole = testing::job_removed("/j/1", "a.slice", "done");
    for end in 0..whole.len() {
        assert_eq!(decode(&whole[..end]), None, "{end}");
        let length = message_length(&whole[..end]).expect("no mistake yet");
        assert!(length.is_none_or(|length| length == whole.len()), "{end}");
    }
    let mut other = whole.clone();
    other[0] = b'x';
    assert!(message_length(&other).is_err());
    let mut huge = whole.clone();
    huge[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(message_length(&huge).is_err());
    for at in 0..whole.len() {
        let mut wrong = whole.clone();
        wrong[at] = 0xff;
        if let Some(read) = decode(&wrong) {
            let _ = read.values();
        }
    }
}

#[test]
fn what_others_send_in_their_way_is_read_as_well() {
    let foreign = testing::foreign_signal("/o", "org.x.Y", "Z", ":1.4");
    assert_eq!(message_length(&foreign), Ok(Some(foreign.len())));
    let read = decode(&foreign).expect("whole");
    let read = (read.serial, read.interface.as_deref(), read.member.as_deref());
    assert_eq!(read, (7, Some("org.x.Y"), Some("Z")));
    let read = decode(&testing::newer_signal("Z")).expect("what is new is passed over");
    assert_eq!(read.member.as_deref(), Some("Z"));
    let large = testing::large_signal("/o", "org.x.Y", ":1.4");
    assert!(message_length(&large).is_err());
    assert_eq!(announced_length(&large), Ok(Some(large.len())));
}

#[test]
fn values_of_any_type_are_passed_over() {
    let mut call = Call::new(SYSTEMD, "X", "");
    call.bool(true)
        .properties(&[("a", Value::Text("b".into())), ("c", Value::Number(9))])
        .no_structs()
        .text("end");
    let mut reader = Reader::new(&call.body.0, false);
    let mut rest: &[u8] = b"ba(sv)a{sa(yt)}s";
    for left in ["a(sv)a{sa(yt)}s", "a{sa(yt)}s", "s"] {
        rest = reader.skip(rest, DEPTH_MAX).expect("a value");
        assert_eq!(rest, left.as_bytes());
    }
    assert_eq!(reader.text().as_deref(), Some("end"));
    let deep = "(".repeat(255);
    assert_eq!(Reader::new(&[0; 8], false).skip(deep.as_bytes(), DEPTH_MAX), None);
    assert_eq!(Reader::new(&[0; 8], false).skip(b"(s", DEPTH_MAX), None);
    assert_eq!(Reader::new(&[0; 8], false).skip(b"", DEPTH_MAX), None);
}
