//! The way to an API server.

use std::path::Path;

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// A client of the current context; replies, watches too, may take as long as they like.
///
/// # Errors
/// If the file cannot be used.
pub(crate) async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let context = || format!("reading {}", kubeconfig.display());
    let file = Kubeconfig::read_from(kubeconfig).with_context(context)?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .with_context(context)?;
    config.read_timeout = None;
    Ok(Client::try_from(config)?)
}
