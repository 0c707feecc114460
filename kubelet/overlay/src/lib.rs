//! How pods of this node reach those of others.
//!
//! Each node has ranges of addresses for its pods (`spec.podCIDRs`). A node's overlay leads each other node's ranges to that
//! node: through a VXLAN tunnel, or (`host-gw`) straight by the network the nodes share. It speaks flannel's language on the
//! Node objects (annotations, device names, VNI and port; contract cni.md §6), so that nodes with flannel and nodes with this
//! make one network.
//!
//! | module | owns |
//! |---|---|
//! | [`peer`] | reading a Node: ranges, addresses, flannel's annotations (pure) |
//! | [`plan`] | what the kernel is to hold, and which nodes cannot be reached and why (pure) |
//! | [`state`], [`diff`] | what the kernel holds, and the steps from one state to another (pure) |
//! | [`publish`] | what other nodes are told of this one (pure) |
//! | [`masquerade`] | the rules by which only what leaves the cluster gets the node's address (pure but for writing them) |
//! | [`own`] | what of the machine's interfaces is this node's own (pure) |
//! | `probe` | what arrives through a tunnel: checksums of the network card's, packets of full size |
//! | [`trial`] | tests of the tunnels, which are apart from the turns |
//! | `forward` | chains of others that drop what is forwarded |
//! | [`kernel`] | looking at the kernel and changing it |
//! | [`run`] | the one loop: nodes and the kernel's news in, changes out |
//!
//! Whose things are whose: everything permanent on the devices `flannel.1` and `flannel-v6.1` is the overlay's, and so are
//! routes that carry [`state::PROTOCOL`]; nothing else is ever changed or removed. When it ends, all of it stays: traffic goes
//! on, and the next start takes it over as it is. [`remove`] takes it away.
//!
//! It never decides which range a node has, never makes a pod's interface, and never drops a packet.

mod apply;
pub mod diff;
mod forward;
pub mod kernel;
pub mod masquerade;
pub mod own;
pub mod peer;
pub mod plan;
mod probe;
pub mod publish;
mod run;
pub mod settings;
pub mod state;
pub mod trial;

pub use kernel::remove;
pub use run::{Error, Notice, Sources, run};
pub use settings::{Backend, Settings};
