//! As much of D-Bus as this kubelet speaks: the wire ([`message`]), and a conversation over the machine's bus ([`bus`]).
//!
//! Knows no service: what is said to systemd is [`crate::cgroup::systemd`]'s, which talks to systemd's own socket, and what is said
//! to logind is [`crate::node_shutdown`]'s.

pub mod bus;
pub(crate) mod message;
