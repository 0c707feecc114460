//! The API server: one service over whatever kinds there are, reached over TLS or in process.
//!
//! [`ApiServer::handle`] is the one request path: identify, authorize ([`gate`]), then [`discovery`], [`verbs`] over the store's
//! window, or what the gate answers beyond storage. Over the network it runs under [`service`]; in process
//! [`ApiServer::client_as`] calls it with a typed identity that no network request can claim.

pub mod admission;
pub mod audit;
pub mod authn;
pub mod authz;
pub mod body;
mod deadline;
mod definitions;
pub mod discovery;
mod drain;
pub(crate) mod expiry;
mod flow;
pub mod gate;
pub mod handler_chain;
mod heavy;
pub mod kubelet_proxy;
mod negotiate;
pub mod openapi;
pub(crate) mod port_claims;
pub mod printer;
mod quota;
pub mod reader;
mod receive;
mod record;
mod reply;
pub mod request;
mod route;
mod served;
mod server;
pub mod service;
mod state;
pub mod status;
pub mod unstored;
pub mod usage;
pub mod user;
pub mod verbs;
mod write_locks;

pub use body::Body;
pub use gate::Gate;
pub use reader::Reader;
pub use server::{ApiServer, Parts};
