//! How plugins of a node make themselves known (kubelet contract §8): each puts a socket below `plugins_registry`, is asked who it
//! is, handed to whoever works with plugins of its type, and told how that went.
//!
//! [`registry`] owns which sockets are registered, `plan` decides what is to be done about them, [`sockets`] finds them, `client`
//! speaks to them. Nothing here knows what a plugin is for: that is its [`Handler`]'s.

mod client;
mod plan;
pub mod registry;
pub mod sockets;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub(crate) use client::{Connections, channel, dial};
pub use registry::Registry;

use std::path::PathBuf;

/// The type of drivers for dynamic resource allocation.
pub const DRA: &str = "DRAPlugin";
/// The type of drivers of volumes.
pub const CSI: &str = "CSIPlugin";
/// The type of device plugins that register this way.
pub const DEVICE: &str = "DevicePlugin";

/// A plugin as it told of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// Its name, such as a driver's.
    pub name: String,
    /// The socket of its registration: of two that name one endpoint each stands and goes for itself.
    pub socket: PathBuf,
    /// The socket it serves at; that of its registration unless it says otherwise.
    pub endpoint: PathBuf,
    /// The versions or services it says it has.
    pub versions: Vec<String>,
}

/// Works with the plugins of one type. What it refuses is told to the plugin in its words.
#[tonic::async_trait]
pub trait Handler: Send + Sync {
    /// Takes a plugin on, from now until [`Handler::deregister`].
    ///
    /// # Errors
    /// It is of no use. The plugin is told so and asked again later.
    async fn register(&self, plugin: &Plugin) -> Result<(), Refusal>;

    /// Its socket is gone, or was made anew.
    fn deregister(&self, plugin: &Plugin);
}

/// Why a plugin was not taken on, by the step that refused it: upstream's messages differ.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// What it says of itself does not do.
    #[error("RegisterPlugin error -- plugin validation failed with err: {0}")]
    Invalid(String),
    /// It cannot be taken on now.
    #[error("RegisterPlugin error -- plugin registration failed with err: {0}")]
    Failed(String),
}
