//! What is read from the programs, and what they are told.

use super::*;

#[test]
fn chain_names_are_upstreams() {
    assert_eq!(chain_name("", "test", "1234"), "CNI-2bbe0c48b91a7d1b8a6753a8");
    assert_eq!(chain_name("DN-", "test", "1234").len(), MAX_CHAIN_BYTES);
}

#[test]
fn a_saved_table_is_undone_for_one_chain_only() {
    let saved = "*nat\n:POSTROUTING ACCEPT [0:0]\n:CNI-a - [0:0]\n:CNI-ab - [0:0]\n\
        -A POSTROUTING -s 10.0.0.2/32 -j CNI-a\n-A POSTROUTING -s 10.0.0.3/32 -j CNI-ab\n-A CNI-a -j ACCEPT\nCOMMIT\n";
    assert_eq!(
        legacy_removal(saved, "CNI-a"),
        "*nat\n-D POSTROUTING -s 10.0.0.2/32 -j CNI-a\n-F CNI-a\n-X CNI-a\nCOMMIT\n"
    );
    assert_eq!(legacy_removal(saved, "CNI-x"), "");
}

#[test]
fn the_rules_of_vanished_containers_are_collected() {
    let address = Cidr::parse("10.0.0.2/24").unwrap();
    let rules = |network: &str, id: &str| {
        let text = masquerade_rules(&chain_name("", network, id), network, id, &[&address, &address]);
        text.replace("*nat\n", "").replace("COMMIT\n", "")
    };
    let mut text = rules("net", "c1") + &rules("net", "c2") + &rules("net2", "c1");
    // Somebody else's, by a comment like ours.
    text.push_str("-A POSTROUTING -m comment --comment \"name: \\\"net\\\" id: \\\"c3\\\"\" -j CNI-other\n");
    let saved = Saved(text);
    let valid = |ids: &[&str]| -> Vec<(String, String)> {
        ids.iter().map(|id| ((*id).to_owned(), "eth0".to_owned())).collect()
    };
    assert_eq!(masquerade_collection(&saved, "net", &valid(&["c1", "c2"])), "");
    assert_eq!(masquerade_collection(&saved, "ne", &[]), "");
    let jump = format!(
        "-D POSTROUTING -s 10.0.0.2/32 -m comment --comment \"name: \\\"net\\\" id: \\\"c2\\\"\" -j {}\n",
        chain_name("", "net", "c2")
    );
    let gone = chain_name("", "net", "c2");
    assert_eq!(
        masquerade_collection(&saved, "net", &valid(&["c1"])),
        format!("*nat\n{jump}{jump}-F {gone}\n-X {gone}\nCOMMIT\n")
    );
}

#[test]
fn one_family_without_its_table_keeps_nothing_of_the_other() {
    let tables = ["10.0.0.2/24", "fd00::2/64"].map(|text| {
        let address = Cidr::parse(text).unwrap();
        masquerade_rules(&chain_name("", "net", "c1"), "net", "c1", &[&address])
    });
    // The programs that fail, whether the collection does, and the families of which rules are removed.
    let no_ipv6 = &["ip6tables-save", "ip6tables-restore"][..];
    for (failing, failed, collected) in [
        (&[][..], None, &["iptables-restore", "ip6tables-restore"][..]),
        (no_ipv6, None, &["iptables-restore"]),
        (&["iptables-save", "iptables-restore"], None, &["ip6tables-restore"]),
        (&["iptables-save"], Some("iptables-save"), &["ip6tables-restore"]),
        (&["iptables-save", "ip6tables-save"], Some("iptables-save"), &[]),
    ] {
        let restored = std::cell::RefCell::new(Vec::new());
        let run = |program: &'static str, arguments: &[&str], _: &str| {
            if failing.contains(&program) {
                let reason = "Table does not exist".to_owned();
                return Err(Error::Program { program, reason });
            }
            if program.ends_with("restore") && !arguments.contains(&"--test") {
                restored.borrow_mut().push(program);
            }
            Ok(tables[usize::from(program.starts_with("ip6"))].clone())
        };
        let result = collect_with(|saved| masquerade_collection(saved, "net", &[]), run);
        let program = match &result {
            Err(Error::Program { program, .. }) => Some(*program),
            _ => None,
        };
        assert_eq!((program, result.is_err()), (failed, failed.is_some()), "{failing:?}");
        assert_eq!(restored.take(), collected, "{failing:?}");
    }
}

#[test]
fn missing_programs_have_made_nothing_that_must_go() {
    let saved = "*nat\n:CNI-a - [0:0]\n-A POSTROUTING -j CNI-a\nCOMMIT\n";
    let removal = legacy_removal(saved, "CNI-a");
    // What each program set answers, and the programs that are run with the removal.
    for (present, expected) in [
        (&[][..], None),
        (
            &["iptables-legacy-save", "iptables-legacy-restore"][..],
            Some("iptables-legacy-restore"),
        ),
        (&["iptables-save", "iptables-restore"], Some("iptables-restore")),
    ] {
        let restored = std::cell::RefCell::new(None);
        let run = |program: &'static str, _: &[&str], input: &str| {
            if !present.contains(&program) {
                return Err(Error::Absent { program });
            }
            if program.ends_with("restore") {
                assert_eq!(input, removal);
                restored.replace(Some(program));
            }
            Ok(saved.to_owned())
        };
        assert!(remove_legacy_with(true, "CNI-a", run).is_ok(), "{present:?}");
        assert_eq!(restored.take(), expected);
    }
    let failing = |program: &'static str, _: &[&str], _: &str| {
        let reason = "no permission".to_owned();
        Err(Error::Program { program, reason })
    };
    assert!(
        remove_legacy_with(false, "CNI-a", failing).is_err(),
        "that is no answer"
    );
    let absent = run("skiff-no-such-program", &[], "");
    assert!(matches!(absent, Err(Error::Absent { .. })), "{absent:?}");
}

#[test]
fn iptables_works_if_its_programs_do_for_the_families_needed() {
    let [v4, v6] = ["10.0.0.2/24", "fd00::2/64"].map(|text| Cidr::parse(text).unwrap());
    let only_v4 = |program: &'static str, arguments: &[&str], _: &str| {
        assert!(arguments.contains(&"--test"), "nothing is changed");
        match program {
            "iptables-restore" => Ok(String::new()),
            _ => Err(Error::Program {
                program,
                reason: "Table does not exist".to_owned(),
            }),
        }
    };
    assert!(works_with(&[v4], only_v4));
    assert!(!works_with(&[v6], only_v4) && !works_with(&[v4, v6], only_v4));
    assert!(!works_with(&[v4], |program, _, _| Err(Error::Absent { program })));
}

#[test]
fn masquerading_rules() {
    let address = Cidr::parse("10.0.0.2/24").unwrap();
    let text = masquerade_rules("CNI-x", "net", "id", &[&address]);
    assert!(
        text.contains("-A CNI-x -d 10.0.0.0/24 -m comment --comment \"name: \\\"net\\\" id: \\\"id\\\"\" -j ACCEPT\n")
    );
    assert!(text.contains("-A POSTROUTING -s 10.0.0.2/32"));
}
