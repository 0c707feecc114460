//! The node agent: everything between a pod's desired state at the API server and its processes on this node.
//!
//! Dependencies point inward: `volume`, `cgroup`, `image`, `probe` and `runtime` never import [`pod`]; pure modules (plans,
//! statuses, limits, specs) never import tokio, tonic or `std::fs`. Nothing here is process-global: a kubelet is a value.

pub mod admission;
pub mod allocation;
pub mod api_status;
pub mod autonomy;
pub mod boot;
pub mod certificate;
pub mod cgroup;
mod checksum;
pub mod cluster_network;
pub mod collect;
pub mod config;
pub mod container_log;
pub mod dbus;
pub mod device;
pub mod downward;
pub mod dra;
pub mod events;
pub mod eviction;
pub mod expansion;
pub mod heartbeat;
pub mod host;
pub mod id;
pub mod image;
pub mod kubelet;
pub mod log;
pub mod metrics;
pub mod network;
pub mod node;
pub mod node_shutdown;
pub mod objects;
pub mod oom;
pub mod parts;
pub mod pinning;
pub mod planted;
pub mod plugin;
pub mod pod;
pub mod pod_object;
pub mod pod_resources;
pub mod probe;
pub mod rate;
pub mod reason;
mod rpc;
pub mod runtime;
pub mod server;
pub mod source;
pub mod stats;
pub mod user_namespace;
pub mod volume;
pub mod wake;
