//! The plugins. Each is a value in one table; [`run`] serves a call of one of them.

use std::collections::BTreeMap;
use std::io::Read;

use crate::protocol::dispatch::{Outcome, Plugin, serve};

pub mod bandwidth;
pub mod bridge;
pub mod container_end;
pub mod firewall;
pub mod host_local;
pub mod iptables;
pub mod loopback;
pub mod masquerade;
pub mod pair;
pub mod portmap;
pub mod ptp;
pub mod rule_note;
pub mod static_ipam;
pub mod tuning;

/// Every plugin in this program.
static ALL: [&Plugin; 9] = [
    &bandwidth::PLUGIN,
    &bridge::PLUGIN,
    &firewall::PLUGIN,
    &host_local::PLUGIN,
    &loopback::PLUGIN,
    &portmap::PLUGIN,
    &ptp::PLUGIN,
    &static_ipam::PLUGIN,
    &tuning::PLUGIN,
];

/// Those that can serve as `ipam.type`.
static IPAM: [&Plugin; 2] = [&host_local::PLUGIN, &static_ipam::PLUGIN];

/// The plugin of a name.
pub fn find(name: &str) -> Option<&'static Plugin> {
    ALL.into_iter().find(|plugin| plugin.name == name)
}

/// The IPAM plugin of a name, if it is one of ours.
pub(crate) fn find_ipam(name: &str) -> Option<&'static Plugin> {
    IPAM.into_iter().find(|plugin| plugin.name == name)
}

/// Every plugin's name.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(|plugin| plugin.name)
}

/// Serves one call: `variables` is the environment, `stdin` the configuration. Works in the calling thread's network
/// namespace, and leaves the thread in it.
pub fn run(plugin: &str, variables: &BTreeMap<String, String>, stdin: &mut dyn Read) -> Outcome {
    match find(plugin) {
        Some(plugin) => serve(plugin, variables, stdin),
        None => {
            let error = crate::protocol::Error::internal(format!("unknown plugin {plugin:?}"));
            Outcome {
                exit_code: 1,
                stdout: error.render(),
                stderr: String::new(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[0-9a-f.:/]{0,12}".prop_map(Value::from),
            "\\PC{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec((known_key(), inner), 0..5)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    /// Keys the plugins look at, in odd cases too. `dataDir` is not among them: a test must not write just anywhere.
    fn known_key() -> impl Strategy<Value = String> {
        let keys = [
            "bridge",
            "isGateway",
            "MTU",
            "vlan",
            "vlanTrunk",
            "minID",
            "ipMasq",
            "ipMasqBackend",
            "dns",
            "nameservers",
            "args",
            "cni",
            "mac",
            "ips",
            "ipam",
            "ranges",
            "subnet",
            "rangeStart",
            "gateway",
            "routes",
            "dst",
            "gw",
            "addresses",
            "address",
            "prevResult",
            "interfaces",
            "interface",
            "runtimeConfig",
            "sysctl",
            "promisc",
            "ingressPolicy",
            "portMappings",
            "hostPort",
            "containerPort",
            "protocol",
            "hostIP",
            "conditionsV4",
            "backend",
            "snat",
            "cniVersion",
            "cni.dev/valid-attachments",
            "containerID",
        ];
        prop::sample::select(keys.to_vec()).prop_map(str::to_owned)
    }

    proptest! {
        /// Whatever the configuration: an answer, and an error in the protocol's form. The namespace does not exist, so
        /// nothing outside is changed; addresses are never asked for, as the IPAM type is none of ours.
        #[test]
        fn no_configuration_breaks_a_plugin(
            body in any_json(),
            plugin in prop::sample::select(vec!["bandwidth", "bridge", "firewall", "loopback", "portmap", "ptp", "static", "tuning"]),
            command in prop::sample::select(vec!["ADD", "CHECK"]),
        ) {
            let mut config = match body {
                Value::Object(map) => map,
                other => Map::from_iter([("ipam".to_owned(), other)]),
            };
            config.insert("name".into(), "fuzz".into());
            config.insert("cniVersion".into(), "1.0.0".into());
            let variables = [
                ("CNI_COMMAND", command), ("CNI_CONTAINERID", "c"), ("CNI_NETNS", "/nowhere"), ("CNI_IFNAME", "eth0"),
                ("CNI_PATH", "/nowhere"), ("CNI_ARGS", "IgnoreUnknown=1"),
            ];
            let variables = variables.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
            // A mapping with a container address would change the host's rules.
            let with_rules = ["firewall", "portmap"].contains(&plugin);
            prop_assume!(!with_rules || config.get("prevResult").is_none());
            let outcome = run(plugin, &variables, &mut Value::Object(config).to_string().as_bytes());
            if outcome.exit_code != 0 {
                let error: Value = serde_json::from_str(&outcome.stdout).unwrap();
                prop_assert!(error["code"].is_u64() && error["msg"].is_string(), "{}", outcome.stdout);
            } else {
                // bandwidth passes a previous result on when it has nothing to limit.
                let passes = plugin == "static" || plugin == "bandwidth" || command == "CHECK";
                prop_assert!(passes, "{}", outcome.stdout);
            }
        }
    }
}
