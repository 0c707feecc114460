//! Plugins that keep nothing, beside the reference ones: static and loopback.

use serde_json::{Value, json};

use super::harness::{Case, run_all};
use crate::fixture::merge;

fn case(name: &'static str, kind: &str, more: Value) -> Case {
    let mut config = json!({"cniVersion": "1.0.0", "name": "diffnet", "type": kind});
    merge(&mut config, more);
    Case::new(name, config)
}

fn fixed(name: &'static str, ipam: Value) -> Case {
    let mut keys = json!({"type": "static"});
    merge(&mut keys, ipam);
    case(name, "static", json!({"ipam": keys}))
}

#[test]
fn static_like_the_reference() {
    let one = || json!({"addresses": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1"}]});
    let full = json!({
        "addresses": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1"}, {"address": "fd00::5/64"}],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "192.0.2.0/24", "gw": "10.1.0.9"}],
        "dns": {"nameservers": ["192.0.2.53"], "domain": "a.example", "search": ["b.example"]},
    });
    let two = json!({"addresses": [{"address": "10.1.0.5/24"}, {"address": "10.2.0.5/24"}]});
    let mut cases = vec![
        fixed("one", one()),
        fixed("full", full),
        fixed("two", two.clone()),
        fixed("by the runtime", one()).top(json!({"runtimeConfig": {"ips": ["10.1.0.7/24"]}})),
        fixed("by the runtime, nothing written", json!({})).top(json!({"runtimeConfig": {"ips": ["10.1.0.7/24"]}})),
        fixed("by arguments", one()).top(json!({"args": {"cni": {"ips": ["10.1.0.8/24"]}}})),
        fixed("by the environment", json!({})).with("CNI_ARGS", "IP=10.1.0.9/24;GATEWAY=10.1.0.1"),
        fixed("two by the environment", json!({})).with("CNI_ARGS", "IP=10.1.0.9/24,10.1.0.10/24"),
        fixed("nonsense by the environment", json!({})).with("CNI_ARGS", "IP=x"),
        fixed("nonsense by the runtime", one()).top(json!({"runtimeConfig": {"ips": ["x"]}})),
        fixed("nonsense by arguments", one()).top(json!({"args": {"cni": {"ips": ["x"]}}})),
        fixed("unknown argument", one()).with("CNI_ARGS", "FOO=bar"),
        fixed("no length", json!({"addresses": [{"address": "10.1.0.5"}]})),
        fixed("nonsense", json!({"addresses": [{"address": "x"}]})),
        fixed(
            "wrong gateway",
            json!({"addresses": [{"address": "10.1.0.5/24", "gateway": "x"}]}),
        ),
        fixed(
            "wrong route",
            json!({"addresses": [{"address": "10.1.0.5/24"}], "routes": [{"dst": "x"}]}),
        ),
        fixed("two in 0.2.0", two)
            .top(json!({"cniVersion": "0.2.0"}))
            .steps(&["ADD"]),
        case("no ipam", "static", json!({})),
    ];
    for version in ["0.2.0", "0.3.1", "0.4.0"] {
        cases.push(fixed(version, one()).top(json!({"cniVersion": version})));
    }
    run_all("static_like_the_reference", cases);
}

#[test]
fn loopback_like_the_reference() {
    let chained = json!({"prevResult": {"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.5/24"}]}});
    // In versions before 1.0.0 the reference prints a result of 1.0.0 with the older number; ours prints the older form.
    let cases = vec![
        case("plain", "loopback", json!({})),
        case("arguments", "loopback", json!({})).with("CNI_ARGS", "none"),
        case("chained", "loopback", chained),
        case("no namespace", "loopback", json!({}))
            .with("CNI_NETNS", "/nowhere")
            .steps(&["DEL"]),
        case("empty namespace", "loopback", json!({}))
            .with("CNI_NETNS", "")
            .steps(&["DEL"]),
    ];
    run_all("loopback_like_the_reference", cases);
}
