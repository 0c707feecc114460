//! The plugins. Each is a value in one table; [`run`] serves a call of one of them.

use std::collections::BTreeMap;
use std::io::Read;

use crate::protocol::dispatch::{Outcome, Plugin, serve};

pub mod bridge;
pub mod host_local;
pub mod iptables;
pub mod loopback;
pub mod masquerade;
pub mod portmap;
pub mod rule_note;
pub mod static_ipam;

/// Every plugin in this program.
static ALL: [&Plugin; 5] = [
    &bridge::PLUGIN,
    &host_local::PLUGIN,
    &loopback::PLUGIN,
    &portmap::PLUGIN,
    &static_ipam::PLUGIN,
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
