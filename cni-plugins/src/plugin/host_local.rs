//! The `host-local` plugin: addresses from ranges, kept on this host. The work is in [`crate::ipam::host_local`].

use crate::ipam::host_local;
use crate::protocol::dispatch::Plugin;
use crate::protocol::version::ALL;

/// The plugin.
pub static PLUGIN: Plugin = Plugin {
    name: "host-local",
    versions: &ALL,
    add: host_local::add,
    del: host_local::del,
    check: host_local::check,
    gc: host_local::gc,
    status: host_local::status,
};
