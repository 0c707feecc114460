//! Address allocation. [`range`], [`config`] and [`allocator`] decide and are pure; [`store`] keeps reservations on disk in
//! upstream's format; [`host_local`] puts them together; [`delegate`] runs whichever IPAM plugin a configuration names.

pub mod allocator;
pub mod config;
pub mod delegate;
mod draft;
pub mod host_local;
pub mod index;
pub mod range;
pub mod resolv_conf;
pub mod store;
