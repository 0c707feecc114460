//! Any bytes as a plugin's configuration: an answer, and a refusal in the protocol's form (contract §1.5).
//!
//! The first byte chooses plugin and verb. `hack/fuzz` runs this without privileges in a network namespace of its own, so
//! no configuration changes anything outside.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const VERBS: [&str; 6] = ["ADD", "CHECK", "DEL", "GC", "STATUS", "VERSION"];

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, configuration)) = bytes.split_first() else {
        return;
    };
    let plugins: Vec<&str> = cni_plugins::plugin::names().collect();
    let choice = usize::from(choice);
    let variables: BTreeMap<String, String> = [
        ("CNI_COMMAND", VERBS[choice % VERBS.len()]),
        ("CNI_CONTAINERID", "c"),
        ("CNI_NETNS", "/nowhere"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/nowhere"),
        ("CNI_ARGS", "IgnoreUnknown=1"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    let plugin = plugins[choice / VERBS.len() % plugins.len()];
    let outcome = cni_plugins::run(plugin, &variables, &mut &*configuration);
    if outcome.exit_code != 0 {
        let error: Value = serde_json::from_str(&outcome.stdout).expect("an error is JSON");
        assert!(error["code"].is_u64() && error["msg"].is_string(), "{}", outcome.stdout);
    }
});
