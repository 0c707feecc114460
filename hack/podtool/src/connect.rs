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
    Ok(Client::try_from(config(kubeconfig).await?)?)
}

/// As [`client`], acting as another user.
///
/// # Errors
/// As [`client`].
pub(crate) async fn client_as(kubeconfig: &Path, user: &str) -> anyhow::Result<Client> {
    let mut config = config(kubeconfig).await?;
    config.auth_info.impersonate = Some(user.to_owned());
    Ok(Client::try_from(config)?)
}

async fn config(kubeconfig: &Path) -> anyhow::Result<Config> {
    let context = || format!("reading {}", kubeconfig.display());
    let file = Kubeconfig::read_from(kubeconfig).with_context(context)?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .with_context(context)?;
    config.read_timeout = None;
    Ok(config)
}
