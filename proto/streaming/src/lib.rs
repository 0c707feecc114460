//! Streams into containers: exec, attach and port-forward as Kubernetes speaks them over one upgraded connection.
//!
//! Owns the frames of SPDY/3.1 ([`spdy`], pure), the handshake of WebSockets ([`websocket`]) and the way between the two
//! ([`translate`], [`tunnel`]): newer clients speak WebSocket, container runtimes SPDY. Never opens a connection, never decides
//! who may do what, and keeps nothing once a stream has ended. Sources: KEP-4006, kubelet contract §12, control-plane contract
//! §2.1, SPDY Protocol Draft 3.1, RFC 6455.

pub mod plain;
pub mod spdy;
pub mod translate;
pub mod tunnel;
pub mod websocket;

mod silence;
