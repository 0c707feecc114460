//! A responder with real sockets, in network namespaces of its own, beside a scripted API server and scripted resolvers.

mod cluster;
mod forward;
mod interface;
mod node;
mod serve;
