//! A responder with real sockets, in network namespaces of its own, beside a scripted API server and scripted resolvers.
// What is not as expected fails the test.
#![allow(clippy::unwrap_used)]

mod autopath;
mod cluster;
mod forward;
mod interface;
mod node;
mod serve;
mod strangers;
