//! Overlays in the kernel: nodes and pods are network namespaces that end with the test, the API server is a table in this
//! process. Needs root and iproute2.
#![allow(clippy::unwrap_used)] // All of this is test code, which the lint only recognises inside #[test] functions.

mod faults;
mod lab;
mod life;
mod many;
mod server;
