use super::*;

/// The sums are those of upstream's own tests, and of every node there is that never chose a policy.
#[test]
fn files_are_upstreams_to_the_byte() {
    let none = r#"{"policyName":"None","machineState":{},"checksum":4236770233}"#;
    let (tables, held) = (Tables::default(), Assignments::default());
    assert_eq!(String::from_utf8(write("None", &tables, &held)).expect("text"), none);
    assert_eq!(read(none.as_bytes(), "None").expect("sound"), (tables, held));

    let machine = r#"{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":2048,"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}}"#;
    let entries = r#"{"pod":{"container1":[{"numaAffinity":[0],"type":"memory","size":512}]}}"#;
    let file = |more: &str, sum: u32| {
        format!(r#"{{"policyName":"static","machineState":{machine},"entries":{entries},{more}"checksum":{sum}}}"#)
    };
    let text = file("", 4215593881);
    let (tables, held) = read(text.as_bytes(), "static").expect("sound");
    assert_eq!(String::from_utf8(write("static", &tables, &held)).expect("text"), text);
    let table = tables.0[&0].memory["memory"];
    assert_eq!((table.total, table.free, table.reserved), (2048, 1024, 512));
    assert_eq!(held.numas("pod", "container1").ids().collect::<Vec<_>>(), [0]);
    // Without a sum, and as a kubelet that knows both forms calls the older one.
    for sum in [0, 2267633148] {
        assert_eq!(read(file("", sum).as_bytes(), "static").expect("sound").1, held);
    }
    // The newer form, which gives nothing to whole pods.
    let newer = file(r#""podEntries":{},"#, 0);
    assert_eq!(read(newer.as_bytes(), "static").expect("sound").1, held);
}

#[test]
fn what_is_of_no_use_is_told_in_upstreams_words() {
    let of_pods = r#""podEntries":{"pod":{"memoryBlocks":[{"numaAffinity":[0],"type":"memory","size":512}]}}"#;
    for (text, why) in [
        (
            r#"{"policyName":"None","machineState":{},"checksum":4236770233}"#.to_owned(),
            "[memorymanager] configured policy \"Static\" differs from state checkpoint policy \"None\"",
        ),
        (
            r#"{"policyName":"Static","machineState":{},"checksum":4236770233}"#.to_owned(),
            "checkpoint is corrupted",
        ),
        ("{".to_owned(), "EOF while parsing an object at line 1 column 1"),
        (
            format!(r#"{{"policyName":"Static","machineState":{{}},{of_pods}}}"#),
            "podEntries give whole pods memory, which this kubelet does not do",
        ),
        (
            r#"{"policyName":"Static","entries":{"p":{"c":[{"numaAffinity":[64],"type":"memory","size":1}]}}}"#
                .to_owned(),
            "NUMA node 64 has a number above 63",
        ),
    ] {
        let told = read(text.as_bytes(), "Static").expect_err("of no use");
        assert_eq!(told.to_string(), why, "{text}");
    }
}
