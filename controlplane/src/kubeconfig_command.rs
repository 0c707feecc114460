//! `controlplane kubeconfig`: issues a client certificate and prints a kubeconfig that carries it.

use crate::pki;
use anyhow::Context;
use clap::Parser;
use client::{Clock, SystemClock};
use std::path::PathBuf;

/// Print a kubeconfig with a freshly issued client certificate.
#[derive(Debug, Parser)]
#[command(name = "controlplane kubeconfig")]
struct Arguments {
    /// The control plane's data directory, where the CA is.
    #[arg(long, default_value = crate::config::DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// User name (the certificate's CN), such as system:node:NAME.
    #[arg(long)]
    user: String,
    /// Group (the certificate's O); may stand several times.
    #[arg(long = "group")]
    groups: Vec<String>,
    /// URL of the API server.
    #[arg(long)]
    server: String,
}

/// Runs the subcommand with the words after its name.
///
/// # Errors
/// A flag is missing or unknown, or the data directory holds no CA.
pub fn run(words: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let words = std::iter::once("controlplane kubeconfig".to_owned()).chain(words);
    let words = match Arguments::try_parse_from(words) {
        Ok(words) => words,
        Err(error) if !error.use_stderr() => {
            error.print()?;
            return Ok(());
        }
        Err(error) => anyhow::bail!("{}", error.to_string().trim_start_matches("error: ").trim_end()),
    };
    anyhow::ensure!(
        words.server.starts_with("https://"),
        "--server {} must be an https:// URL",
        words.server
    );
    let now = SystemClock.now();
    let text = pki::user_kubeconfig(&words.data_dir, &words.user, &words.groups, &words.server, now);
    print!("{}", text.context("cannot issue a kubeconfig")?);
    Ok(())
}
