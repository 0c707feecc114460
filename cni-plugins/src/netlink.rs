//! rtnetlink. [`codec`] builds and reads messages and is pure; [`socket`] is the one blocking socket, with retries for
//! interrupted dumps; [`link`], [`address`], [`route`], [`traffic`] and [`conntrack`] hold the messages this crate needs.

pub mod address;
pub mod codec;
pub mod conntrack;
pub mod link;
pub mod route;
pub mod socket;
pub mod traffic;
pub mod wire;

pub use socket::{Error, Protocol, Socket};
