use super::*;
use serde_json::json;

fn read(config: Value, cni_args: &str) -> Result<Config, Error> {
    Config::read_fields(&Fields::new(config.as_object().unwrap(), "TuningConf"), cni_args)
}

#[test]
fn later_sources_win() {
    let mut config = json!({"mac": "a", "mtu": 1400, "promisc": true, "sysctl": {"net.x": "1", "net.y": "1"}});
    assert_eq!(read(config.clone(), "").unwrap().wanted.mac.as_deref(), Some("a"));
    assert_eq!(read(config.clone(), "MAC=b").unwrap().wanted.mac.as_deref(), Some("b"));
    config["runtimeConfig"] = json!({"mac": "c"});
    assert_eq!(read(config.clone(), "MAC=b").unwrap().wanted.mac.as_deref(), Some("c"));
    config["args"] =
        json!({"cni": {"mac": "d", "promisc": false, "mtu": 1300, "allmulti": false, "sysctl": {"net.y": "2"}}});
    let read = read(config, "MAC=b").unwrap();
    let wanted = Attributes {
        mac: Some("d".into()),
        mtu: Some(1300),
        allmulti: Some(false),
        ..Attributes::default()
    };
    assert_eq!(read.wanted, wanted);
    assert_eq!(
        (read.switches["net.x"].as_str(), read.switches["net.y"].as_str()),
        ("1", "2")
    );
    assert_eq!(read.data_dir, DEFAULT_DATA_DIR);
}

#[test]
fn nothing_configured_touches_nothing() {
    let config = read(json!({"mtu": 0, "promisc": false, "mac": ""}), "").unwrap();
    assert!(config.wanted.is_empty() && config.switches.is_empty());
}

#[test]
fn switches_stay_in_the_network() {
    assert_eq!(
        switch_path("net.ipv4.conf.IFNAME.arp_filter", "eth0.5").unwrap(),
        "ipv4/conf/eth0.5/arp_filter"
    );
    assert_eq!(switch_path("net/core/somaxconn", "e").unwrap(), "core/somaxconn");
    for bad in ["kernel.panic", "net", "../proc/sys/net/x", "", "netx.y"] {
        let error = switch_path(bad, "eth0").unwrap_err().msg;
        assert!(error.starts_with("invalid net sysctl key"), "{bad}: {error}");
    }
    // A dot is a separator, so nothing climbs.
    assert_eq!(switch_path("net/../kernel/panic", "eth0").unwrap(), "kernel/panic");
    assert!(
        switch_path("net...kernel.panic", "eth0")
            .unwrap()
            .ends_with("kernel/panic")
    );
}

#[test]
fn the_list_allows_by_pattern() {
    let switches = |key: &str| BTreeMap::from([(key.to_owned(), "1".to_owned())]);
    let list = "\n ^net.ipv4.conf.[a-z]*.arp_filter$ \nnet.core\n";
    assert!(refuse_unlisted(&switches("net.ipv4.conf.IFNAME.arp_filter"), "IFNAME").is_ok());
    assert!(refuse_unlisted(&switches("net.ipv4.conf.all.arp_filter"), list).is_ok());
    assert!(refuse_unlisted(&switches("net.core.somaxconn"), list).is_ok());
    assert_eq!(
        refuse_unlisted(&switches("net.x"), "a\nb").unwrap_err().msg,
        "Sysctl net.x is not allowed. Only the following sysctls are allowed: [a b]"
    );
    assert!(refuse_unlisted(&switches("net.x"), "").is_err());
    assert!(
        refuse_unlisted(&switches("net.x"), "(")
            .unwrap_err()
            .msg
            .contains("allowlist.conf")
    );
}

#[test]
fn a_switch_written_twice_is_refused() {
    let refuse = |text: &str| refuse_duplicates(text.as_bytes()).map_err(|error| error.msg);
    let twice = r#"{"name": "n", "x": [1, {"a": 1}], "SysCtl": {"net.a": "1", "net.b": "1", "net.a": "2"}}"#;
    assert_eq!(refuse(twice), Err(DUPLICATE.to_owned()));
    assert_eq!(
        refuse(r#"{"sysctl": {"net.a": "1"}, "name": "n", "name": "n"}"#),
        Ok(())
    );
    for other in [
        "{}",
        "null",
        r#"{"sysctl": null}"#,
        r#"{"sysctl": [1]}"#,
        r#"{"sysctl": -1.5}"#,
        r#"{"sysctl": true}"#,
    ] {
        assert_eq!(refuse(other), Ok(()), "{other}");
    }
}

#[test]
fn wrong_types_name_the_field() {
    let text = |config: Value| read(config, "").unwrap_err().msg;
    assert!(
        text(json!({"sysctl": {"net.x": 1}}))
            .contains("cannot unmarshal number into Go struct field sysctlCheck.sysctl")
    );
    assert!(text(json!({"sysctl": "x"})).contains("sysctlCheck.sysctl"));
    assert_eq!(text(json!({"mtu": -1})), "invalid mtu -1");
    assert_eq!(text(json!({"txQLen": -1})), "invalid txQLen -1");
}

proptest::proptest! {
    #[test]
    fn no_key_leaves_the_network(key in "[a-z./]{0,20}", ifname in "[a-z.]{1,15}") {
        if let Ok(path) = switch_path(&key, &ifname) {
            proptest::prop_assert!(Path::new(&path).components().all(|part| matches!(part, Component::Normal(_))));
        }
    }
}
