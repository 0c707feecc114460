//! Policies against a real kernel: pods as network namespaces behind a bridge, with real connections. Needs root. Every case
//! runs in both families, and with bridged packets shown to the tables of routed ones or not.

#![allow(clippy::unwrap_used)]

mod api;
mod fixture;
mod running;
mod traffic;
