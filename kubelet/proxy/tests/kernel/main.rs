//! The rules in a real kernel: connections of real sockets between network namespaces.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cases;
mod crash;
mod full;
mod net;
mod others;
mod packet;
mod ports;
mod proxy;
mod sctp;
mod spoofed;
