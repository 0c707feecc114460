//! Reading the bridge plugin's keys.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::protocol::env::Environment;
use crate::protocol::version::Version;

fn request(config: Value, args: &str) -> Request {
    let variables: BTreeMap<String, String> = [("CNI_COMMAND", "VERSION"), ("CNI_ARGS", args)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    Request {
        env: Environment::read(&variables).unwrap(),
        variables,
        stdin: Vec::new(),
        config: config.as_object().unwrap().clone(),
        network: "net".into(),
        version: Version::V1_0_0,
    }
}

fn read(config: Value) -> Result<Config, Error> {
    Config::read(&request(config, ""))
}

fn refusal(config: Value) -> String {
    read(config)
        .and_then(|config| config.refuse_contradictions())
        .unwrap_err()
        .msg
}

#[test]
fn defaults() {
    let config = read(json!({})).unwrap();
    assert_eq!(
        config,
        Config {
            bridge: "cni0".into(),
            ..Config::default()
        }
    );
    assert!(read(json!({"isDefaultGateway": true})).unwrap().is_gateway);
}

#[test]
fn refusals_in_upstreams_words() {
    for (config, text) in [
        (
            json!({"hairpinMode": true, "promiscMode": true}),
            "cannot set hairpin mode and promiscuous mode at the same time",
        ),
        (
            json!({"vlan": 4095}),
            "invalid VLAN ID 4095 (must be between 0 and 4094)",
        ),
        (json!({"vlan": -1}), "invalid VLAN ID -1 (must be between 0 and 4094)"),
        (
            json!({"disableContainerInterface": true, "ipam": {"type": "host-local"}}),
            "cannot use IPAM when DisableContainerInterface flag is set",
        ),
        (
            json!({"isGateway": "yes"}),
            "failed to load netconf: json: cannot unmarshal string into Go struct field NetConf.isGateway of type bool",
        ),
    ] {
        assert_eq!(refusal(config), text);
    }
    for trunk in [
        json!([{"id": 0}]),
        json!([{"id": 4095}]),
        json!([{"minID": 5, "maxID": 4}]),
        json!([{"minID": 5}]),
    ] {
        assert!(refusal(json!({"vlanTrunk": trunk})).starts_with("failed to parse vlan trunks"));
    }
}

#[test]
fn trunks_are_sorted_and_merged() {
    let config = read(json!({"vlanTrunk": [{"minID": 10, "maxID": 12}, {"id": 11}, {"id": 5}]})).unwrap();
    assert_eq!(config.trunk, [5, 10, 11, 12]);
    assert!(config.uses_vlans());
}

#[test]
fn the_hardware_address_has_three_sources() {
    let (env, args, runtime) = ("02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03");
    let mac = |config: Value| {
        Config::read(&request(config, &format!("MAC={env}")))
            .unwrap()
            .mac()
            .unwrap()
            .unwrap()
            .to_string()
    };
    assert_eq!(mac(json!({})), env);
    assert_eq!(mac(json!({"args": {"cni": {"mac": args}}})), args);
    assert_eq!(
        mac(json!({"args": {"cni": {"mac": args}}, "RuntimeConfig": {"mac": runtime}})),
        runtime
    );
    let wrong = json!({"runtimeConfig": {"mac": "nonsense"}});
    assert_eq!(
        refusal(wrong),
        "failed to make veth pair: address nonsense: invalid MAC address"
    );
}
