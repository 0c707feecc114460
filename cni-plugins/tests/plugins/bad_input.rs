//! Wrong calls: the contract's code and text, and host, container and disk exactly as before.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::fixture::{Container, Host, bridge_config, failure, merge};

/// A wrong call: keys of the configuration, variables, and what the error must be.
struct Row {
    keys: Value,
    variables: &'static [(&'static str, &'static str)],
    code: u64,
    text: &'static str,
}

fn row(keys: Value, code: u64, text: &'static str) -> Row {
    Row {
        keys,
        variables: &[],
        code,
        text,
    }
}

fn variable(variables: &'static [(&'static str, &'static str)], code: u64, text: &'static str) -> Row {
    Row {
        keys: json!({}),
        variables,
        code,
        text,
    }
}

fn ipam(keys: Value) -> Value {
    let mut ipam = json!({"type": "host-local", "dataDir": "DATA"});
    merge(&mut ipam, keys);
    json!({"ipam": ipam})
}

fn rows() -> Vec<Row> {
    let ranges = |ranges: Value| ipam(json!({"ranges": ranges}));
    vec![
        row(json!({"cniVersion": "2.0.0"}), 1, "incompatible CNI versions"),
        row(json!({"cniVersion": 7}), 6, "decoding version from network config"),
        row(json!({"name": ""}), 7, "missing network name"),
        row(json!({"name": ".."}), 7, "invalid characters found in network name"),
        row(json!({"name": "a/b"}), 7, "invalid characters found in network name"),
        row(json!({"name": "n".repeat(300)}), 999, "file name too long"),
        row(json!({"mtu": "big"}), 999, "cannot unmarshal string"),
        row(json!({"ipMasq": 1}), 999, "cannot unmarshal number"),
        row(json!({"ipMasqBackend": "x"}), 999, "unknown ipmasq backend"),
        row(json!({"ipam": "x"}), 999, "cannot unmarshal string"),
        row(
            json!({"ipam": {"type": "nonesuch"}}),
            999,
            "failed to find plugin \"nonesuch\" in path",
        ),
        row(
            json!({"ipam": {"type": "../host-local"}}),
            999,
            "invalid plugin name: ../host-local",
        ),
        row(ranges(json!([])), 999, "no IP ranges specified"),
        row(ranges(json!([[{"subnet": "x"}]])), 999, "invalid CIDR address: x"),
        row(
            ranges(json!([[{"subnet": "10.0.0.0/31"}]])),
            999,
            "Network 10.0.0.0/31 too small to allocate from",
        ),
        row(
            ranges(json!([[{"subnet": "10.0.0.5/24"}]])),
            999,
            "Network has host bits set",
        ),
        row(
            ranges(json!([[{"subnet": "10.0.0.0/24"}], [{"subnet": "10.0.0.0/16"}]])),
            999,
            "range set 0 overlaps with 1",
        ),
        row(
            ranges(json!([[{"subnet": "10.0.0.0/24", "rangeStart": "10.1.0.1"}]])),
            999,
            "RangeStart 10.1.0.1 not in network",
        ),
        row(
            ipam(json!({"subnet": "10.0.0.0/24", "dataDir": "/proc/sys"})),
            999,
            "mkdir /proc/sys/badnet: ",
        ),
        row(
            ipam(json!({"subnet": "10.0.0.0/24", "dataDir": "/etc/passwd"})),
            999,
            "not a directory",
        ),
        row(
            ipam(json!({"subnet": "10.0.0.0/24", "resolvConf": "/nowhere"})),
            999,
            "open /nowhere: no such file or directory",
        ),
        variable(&[("CNI_COMMAND", "FLY")], 4, "unknown CNI_COMMAND: FLY"),
        variable(
            &[("CNI_CONTAINERID", "")],
            4,
            "required env variables [CNI_CONTAINERID] missing",
        ),
        variable(&[("CNI_CONTAINERID", "..")], 4, "invalid characters in containerID"),
        variable(&[("CNI_CONTAINERID", "a/b")], 4, "invalid characters in containerID"),
        variable(&[("CNI_IFNAME", "..")], 4, "interface name is . or .."),
        variable(
            &[("CNI_IFNAME", "a/b")],
            4,
            "interface name contains / or : or whitespace characters",
        ),
        variable(&[("CNI_IFNAME", "sixteen-bytes-00")], 4, "interface name is too long"),
        variable(
            &[("CNI_NETNS", "/nowhere")],
            999,
            "failed to Statfs \"/nowhere\": no such file or directory",
        ),
        variable(
            &[("CNI_NETNS", "/etc/passwd")],
            999,
            "unknown FS magic on \"/etc/passwd\"",
        ),
        variable(&[("CNI_ARGS", "none")], 999, "ARGS: invalid pair \"none\""),
        variable(&[("CNI_ARGS", "IP=x;IgnoreUnknown=1")], 999, "invalid IP address x"),
        variable(
            &[("CNI_ARGS", "IP=10.60.0.1;IgnoreUnknown=1")],
            999,
            "requested ip 10.60.0.1 is subnet's gateway",
        ),
        variable(
            &[("CNI_ARGS", "IP=10.99.0.1;IgnoreUnknown=1")],
            999,
            "failed to allocate all requested IPs: 10.99.0.1",
        ),
    ]
}

/// A call of a row; returns code, message and details.
fn call(host: &Host, container: &Container, config: &Value, row: &Row) -> (u64, String) {
    let mut config = config.clone();
    merge(&mut config, row.keys.clone());
    let text = config
        .to_string()
        .replace("\"DATA\"", &json!(host.data_dir()).to_string());
    let mut variables: BTreeMap<&'static str, String> = host.variables("ADD", container);
    variables.extend(row.variables.iter().map(|(key, value)| (*key, (*value).to_owned())));
    failure(&host.call(&variables, &serde_json::from_str(&text).unwrap()))
}

/// Without a capability the error says which; with all of them a refusal has another reason.
#[test]
fn missing_capabilities_are_named() {
    let (host, container) = (Host::new(), Container::new());
    let config = bridge_config(&host, "10.5.9.0/24", json!({}));
    for (dropped, missing) in [
        ("-net_admin", "CAP_NET_ADMIN"),
        ("-sys_admin", "CAP_SYS_ADMIN"),
        ("-net_admin,-sys_admin", "CAP_NET_ADMIN, CAP_SYS_ADMIN"),
    ] {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &host.namespace.name, "setpriv"])
            .arg(format!("--bounding-set={dropped}"))
            .arg(host.bin_dir.join("bridge"))
            .envs(host.variables("ADD", &container))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(config.to_string().as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let error: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(
            error["msg"].as_str().unwrap().ends_with("operation not permitted"),
            "{error}"
        );
        assert_eq!(error["details"], format!("missing capabilities: {missing}"), "{error}");
    }
    assert!(host.reserved("testnet").is_empty());
}

#[test]
fn nothing_changes_but_the_message() {
    for kind in ["bridge", "ptp"] {
        let (host, container) = (Host::new(), Container::new());
        let mut config = json!({
            "cniVersion": "1.1.0", "name": "badnet", "type": kind, "bridge": "bad0", "isGateway": true, "ipMasq": true,
        });
        merge(&mut config, ipam(json!({"ranges": [[{"subnet": "10.60.0.0/24"}]]})));
        let before = host.state(&[&container]);
        for row in rows() {
            let (code, message) = call(&host, &container, &config, &row);
            let what = format!("{kind}: {} {:?}", row.keys, row.variables);
            assert!(
                code == row.code && message.contains(row.text),
                "{what}: {code} {message}"
            );
            let now = (host.kernel_state(&[&container]), host.reserved("badnet"));
            assert!(before.starts_with(&now.0) && now.1.is_empty(), "{what}: {now:?}");
        }
        // A container ID of any length is a container ID.
        let mut variables = host.variables("ADD", &container);
        variables.insert("CNI_CONTAINERID", "i".repeat(300));
        let text = config
            .to_string()
            .replace("\"DATA\"", &json!(host.data_dir()).to_string());
        let config: Value = serde_json::from_str(&text).unwrap();
        let added = host.call(&variables, &config);
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stdout));
        variables.insert("CNI_COMMAND", "DEL".into());
        assert!(host.call(&variables, &config).status.success());
        assert!(host.reserved("badnet").is_empty());
        assert!(!host.namespace.rules().contains("badnet"));
    }
}
