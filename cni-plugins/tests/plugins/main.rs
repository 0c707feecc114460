//! The real binary in fresh network namespaces: one that plays the host, one per container. Needs root, iproute2 and nft.
#![allow(clippy::unwrap_used)] // All of this is test code, which the lint only recognises inside #[test] functions.

mod bad_input;
mod bandwidth;
mod bridge;
mod crash;
mod differential;
mod families;
mod firewall;
mod fixture;
mod host_local;
mod loopback;
mod portmap;
mod ptp;
mod tuning;
mod vlan;
