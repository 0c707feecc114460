//! API connector, informer and clock: what both the node agent and the control plane need to talk to an API server.
//!
//! [`connect`] makes HTTP/2 clients, [`kubeconfig`] reads what they are configured by, `outbound` tells where they go another way than the environment says, `spread` opens connections for many watches, [`informer`] keeps a local copy of a resource, [`clock`] is the one seam for wall time,
//! [`blocking`] says where work that holds up a thread runs, [`tree`] and [`ordered`] keep the code small that reads objects and fills
//! maps, [`json_text`] looks into text, [`memory`] what the allocator holds, [`beat`] has loops wake together. Never interprets an object beyond its
//! metadata.

pub mod backoff;
pub mod beat;
pub mod blocking;
pub mod clock;
pub mod connect;
mod early;
pub mod identity;
pub mod informer;
pub mod json_text;
pub mod kubeconfig;
pub mod memory;
mod observe;
pub mod ordered;
mod outbound;
mod spread;
pub mod tree;

pub use backoff::Backoff;
#[cfg(any(test, feature = "test-util"))]
pub use clock::TokioClock;
pub use clock::{Clock, SystemClock};
pub use identity::{Identity, IdentityError};
pub use informer::{Informer, Key, Reflector};
pub use tree::AsTree;
