//! Plugins that register by a socket of theirs (kubelet contract §13).

use super::labels::{Labels, Numbers, numbers};
use prometheus_client::registry::Registry;
use std::path::Path;

/// Counts plugins. Cheap to clone.
#[derive(Clone)]
pub struct PluginMetrics {
    all: Numbers,
}

impl PluginMetrics {
    pub(super) fn register(r: &mut Registry) -> Self {
        let name = "plugin_manager_total_plugins";
        let help = "Plugins by their sockets, those that are there and those that are registered";
        Self {
            all: numbers(r, name, help),
        }
    }

    /// Tells the sockets that are there, and those whose plugins are registered; others are not told of any more. The registry bounds how
    /// many there are.
    pub fn are<'a>(&self, there: impl Iterator<Item = &'a Path>, registered: impl Iterator<Item = &'a Path>) {
        self.all.clear();
        let all = there.map(|path| (path, "desired_state_of_world"));
        for (path, state) in all.chain(registered.map(|path| (path, "actual_state_of_world"))) {
            let path = path.to_string_lossy().into_owned();
            let of: Labels = vec![("socket_path", path.into()), ("state", state.into())];
            self.all.get_or_create(&of).set(1.0);
        }
    }
}
