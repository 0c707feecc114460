//! The API server: one service over a table of kinds, reached over TLS or in process.

pub mod admission;
pub mod authn;
pub mod authz;
pub mod discovery;
pub mod edge;
pub mod extra;
pub mod kubelet_proxy;
pub mod openapi;
pub mod reader;
pub mod request;
pub mod service;
pub mod status;
pub mod table;
pub mod user;
pub mod verbs;
