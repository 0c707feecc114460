//! CNI plugins as a library: the same code runs as one multicall binary and inside a process that wants no exec.
//!
//! | module | owns |
//! |---|---|
//! | [`protocol`] | the CNI contract: environment, versions, errors, configuration reading, results, dispatch |
//! | [`plugin`] | the plugins themselves: parse, plan, apply |
//! | [`ipam`] | address allocation: ranges, the pure allocator, the store on disk, delegation |
//! | [`netlink`] | rtnetlink: a pure codec and one blocking socket |
//! | [`nft`] | nf_tables over netlink: a pure codec, batches, rule listing |
//! | [`netns`] | network namespaces: checks, and work done inside one |
//! | [`sysctl`] | kernel switches under `/proc/sys/net` |
//! | [`cidr`] | an address with its prefix length |
//!
//! Entry point: [`run`].

pub mod cidr;
pub mod ipam;
pub mod netlink;
pub mod netns;
pub mod nft;
pub mod plugin;
pub mod protocol;
mod sys;
pub mod sysctl;

pub use plugin::run;
pub use protocol::dispatch::Outcome;
