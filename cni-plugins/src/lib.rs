//! CNI plugins as a library: the same code runs as one multicall binary and inside a process that wants no exec.
//!
//! | module | owns |
//! |---|---|
//! | [`protocol`] | the CNI contract: environment, versions, errors, configuration reading, results, dispatch |
//! | [`plugin`] | the plugins themselves: parse, plan, apply |
//! | [`ipam`] | address allocation: ranges, the pure allocator, the store on disk, delegation |
//!
//! The kernel is spoken to by the crate [`netlink`].
//!
//! Entry point: [`run`].

pub mod ipam;
pub mod plugin;
pub mod protocol;

pub use plugin::run;
pub use protocol::dispatch::Outcome;
