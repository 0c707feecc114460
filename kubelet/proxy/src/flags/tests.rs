use super::*;

fn given(words: &[&str]) -> Result<Flags, FlagsEnd> {
    parse(words.iter().map(|word| (*word).to_owned()))
}

#[test]
fn forms() {
    let flags = given(&[
        "--config",
        "/a",
        "--hostname_override=b",
        "-v",
        "4",
        "--cleanup",
        "--init-only=false",
        "--nodeport-addresses=10.0.0.0/8",
        "--nodeport-addresses",
        "192.168.0.0/16,fd00::/8",
        "--feature-gates=A=true,B=0",
        "--vmodule=apply=6,d*=4",
        "--kube-api-qps=2.5",
        "--conntrack-min=-1",
        "--machine-id-file=/m",
        "--metrics-port=5",
        "--version=false",
        "",
    ])
    .expect("flags");
    assert_eq!(
        (flags.text("config"), flags.text("hostname-override")),
        (Some("/a"), Some("b"))
    );
    assert!(flags.bool("cleanup") && !flags.bool("init-only") && flags.sets("logging.verbosity"));
    assert_eq!(flags.inert, ["machine-id-file"]);
    assert_eq!(flags.int("metrics-port"), Some(5));
    assert_eq!(flags.deprecations.len(), 1);
    let get = |path: &str| {
        let found = flags.fields.iter().find(|(of, ..)| *of == path);
        found.map(|(_, value, _)| value.to_string()).unwrap_or_default()
    };
    assert_eq!(get("logging.verbosity"), "4");
    assert_eq!(
        get("nodePortAddresses"),
        r#"["10.0.0.0/8","192.168.0.0/16","fd00::/8"]"#
    );
    assert_eq!(get("featureGates"), r#"{"A":true,"B":false}"#);
    assert_eq!(
        get("logging.vmodule"),
        r#"[{"filePattern":"apply","verbosity":6},{"filePattern":"d*","verbosity":4}]"#
    );
    assert_eq!(
        (get("clientConnection.qps"), get("conntrack.min")),
        ("2.5".to_owned(), "-1".to_owned())
    );
    for words in [["-v=3"], ["-v3"]] {
        assert!(given(&words).expect("flags").sets("logging.verbosity"), "{words:?}");
    }
}

#[test]
fn mistakes_are_named_all_at_once() {
    let FlagsEnd::Mistakes(mistakes) = given(&[
        "--no-such",
        "start",
        "--cleanup=perhaps",
        "--conntrack-min=x",
        "--ipvs-udp-timeout=1",
        "--config",
    ])
    .expect_err("mistakes") else {
        panic!("it printed");
    };
    assert_eq!(
        mistakes,
        [
            "unknown flag: --no-such",
            "\"kube-proxy\" does not take any arguments, got \"start\"",
            "invalid argument \"perhaps\" for \"--cleanup\" flag: \"perhaps\" is not a truth value",
            "invalid argument \"x\" for \"--conntrack-min\" flag: not a whole number of 32 bits",
            "invalid argument \"1\" for \"--ipvs-udp-timeout\" flag: time: invalid duration \"1\"",
            "flag needs an argument: --config",
        ]
    );
}

#[test]
fn help_and_version() {
    assert_eq!(
        given(&["--version"]),
        Err(FlagsEnd::Print("Kubernetes v1.36.2\n".to_owned()))
    );
    let Err(FlagsEnd::Print(text)) = given(&["-h"]) else {
        panic!("no help")
    };
    assert!(FLAGS.iter().all(|flag| text.contains(&format!("--{} ", flag.name))));
}

#[test]
fn every_flag_is_there_once_and_sets_a_field_that_is_there() {
    let mut names: Vec<&str> = FLAGS.iter().map(|flag| flag.name).collect();
    let before = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), before);
    for flag in FLAGS {
        if let Target::Field(path) = flag.target {
            assert!(crate::config::is_field(path), "{path}");
        }
    }
}
