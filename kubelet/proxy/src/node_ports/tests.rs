use super::*;

fn ports(text: &str) -> Ports {
    text.parse().unwrap()
}

#[test]
fn ports_are_read_and_written_as_the_kernel_does() {
    for (text, shown) in [
        ("", ""),
        ("\n", ""),
        ("5", "5"),
        ("30000-32767", "30000-32767"),
        ("7,5-6,1", "1,5-7"),
        ("5-9,6-7,10", "5-10"),
        ("0,65535,1-65534", "0-65535"),
    ] {
        assert_eq!(ports(text).to_string(), shown, "{text}");
    }
    for bad in ["x", "1-", "7-5", "65536", "1 2"] {
        assert!(bad.parse::<Ports>().is_err(), "{bad}");
    }
    assert_eq!(parse("30000-32767"), Ok(ports("30000-32767")));
    for bad in ["", "1,3", "0-5", "9-8"] {
        assert!(parse(bad).unwrap_err().contains("30000-32767"), "{bad}");
    }
}

#[test]
fn what_others_reserved_stays_theirs() {
    // What is reserved, what of it is ours, what is wanted; what is reserved then, what of it is ours then.
    for (now, ours, wanted, then, ours_then) in [
        ("", "", "30000-32767", "30000-32767", "30000-32767"),
        ("8080", "", "30000-32767", "8080,30000-32767", "30000-32767"),
        (
            "30005,40000",
            "",
            "30000-30009",
            "30000-30009,40000",
            "30000-30004,30006-30009",
        ),
        // Again: nothing changes.
        (
            "30000-30009,40000",
            "30000-30004,30006-30009",
            "30000-30009",
            "30000-30009,40000",
            "30000-30004,30006-30009",
        ),
        // Another range: what was added for the one before goes.
        (
            "30000-30009,40000",
            "30000-30004,30006-30009",
            "30008-30012",
            "30005,30008-30012,40000",
            "30008-30012",
        ),
        // Taken back.
        ("30000-30009,40000", "30000-30004,30006-30009", "", "30005,40000", ""),
        // Somebody wrote the switch anew: ours are reserved again.
        (
            "40000",
            "30000-30009",
            "30000-30009",
            "30000-30009,40000",
            "30000-30009",
        ),
        ("0-65535", "", "1-5", "0-65535", ""),
    ] {
        let decided = decide(&ports(now), &ports(ours), &ports(wanted));
        let expected = Decided {
            reserved: ports(then),
            ours: ports(ours_then),
        };
        assert_eq!(decided, expected, "{now:?} {ours:?} {wanted:?}");
    }
}

#[test]
fn an_overlap_is_what_the_kernel_may_choose() {
    for (ephemeral, reserved, expected) in [
        ("32768\t60999", "", ""),
        ("1024\t65535", "", "30000-32767"),
        ("31000 60999", "32000-40000,31005", "31000-31004,31006-31999"),
        ("1024 65535", "30000-32767", ""),
        ("", "", ""),
        ("9 1", "", ""),
    ] {
        let both = overlap(&ports("30000-32767"), ephemeral, &ports(reserved));
        assert_eq!(both.to_string(), expected, "{ephemeral:?} {reserved:?}");
    }
}
