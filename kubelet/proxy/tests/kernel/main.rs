//! The rules in a real kernel: connections of real sockets between network namespaces.

mod cases;
mod net;
mod proxy;
