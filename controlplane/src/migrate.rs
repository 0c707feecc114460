//! `controlplane migrate`: a cluster's objects from the embedded store into etcd, and back, while it goes on read-only.
//!
//! Owns the order: the source is closed to writes, everything of one revision is copied, both sides are compared, the source is closed
//! for good, the target is opened. Whoever dies in between leaves a source that is whole and a target that is known to be unfinished; whoever
//! dies after the source was closed for good is helped by the same command once more. Values go as they are stored: what is encrypted
//! stays so, under the same keys. Never writes into a store that is in use.

mod digest;
pub mod giving;
mod to_disk;
mod to_etcd;

use crate::store::{Revision, StoreError};
use anyhow::Context;
use clap::{Parser, ValueEnum};
use etcd::{Deadlines, Options, TlsFiles};
use std::path::PathBuf;

/// What is moved, once it is there.
#[derive(Debug, PartialEq, Eq)]
struct Moved {
    count: u64,
    /// How many of them are encrypted.
    encrypted: u64,
    /// The revision the objects are of, as the source told it.
    revision: Revision,
}

impl Moved {
    fn tell_of_keys(&self) {
        if let Some(text) = self.of_keys() {
            println!("{text}");
        }
    }

    /// What is to be known of keys, if they are needed.
    fn of_keys(&self) -> Option<String> {
        (self.encrypted > 0).then(|| {
            format!(
                "{} of them are encrypted: start it with the same --encryption-provider-config, they cannot be read without its keys",
                self.encrypted
            )
        })
    }
}

/// Where the objects are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Target {
    /// In etcd; they are in the data directory now.
    Etcd,
    /// In the data directory; they are in etcd now.
    Embedded,
}

/// Move all objects from the data directory into etcd, or back.
///
/// Control planes of this version may run: they refuse writes from then on, and are to be stopped and started with the other store's
/// flags afterwards. Stop before you begin whatever else writes under --etcd-prefix: control planes of other versions and API servers
/// of another make know nothing of a move. With --replace stop also what still runs on the store that is given up.
///
/// A move that is killed leaves the source as it was, or is finished by the same command once more.
#[derive(Debug, Parser)]
#[command(name = "controlplane migrate")]
struct Arguments {
    /// Where the objects are to be.
    #[arg(long, value_enum)]
    to: Target,
    /// The control plane's data directory.
    #[arg(long, default_value = crate::config::DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// URLs of etcd's members, separated by commas.
    #[arg(long, required = true, value_delimiter = ',')]
    etcd_servers: Vec<String>,
    /// CA bundle to verify etcd's servers with.
    #[arg(long)]
    etcd_cafile: Option<PathBuf>,
    /// Certificate to show etcd's servers.
    #[arg(long)]
    etcd_certfile: Option<PathBuf>,
    /// Key of the certificate.
    #[arg(long)]
    etcd_keyfile: Option<PathBuf>,
    /// What all keys in etcd begin with.
    #[arg(long, default_value = "/registry")]
    etcd_prefix: String,
    /// Give up what an unfinished move has left in the target, or a store that was moved away from there.
    #[arg(long)]
    replace: bool,
}

impl Arguments {
    fn options(&self) -> Options {
        Options {
            servers: self.etcd_servers.clone(),
            tls: TlsFiles {
                ca: self.etcd_cafile.clone(),
                cert: self.etcd_certfile.clone(),
                key: self.etcd_keyfile.clone(),
            },
            prefix: self.etcd_prefix.clone(),
            compaction_interval: None,
            deadlines: Deadlines::default(),
        }
    }

    fn plan(&self) -> Plan {
        Plan {
            store: self.data_dir.join("store"),
            options: self.options(),
            replaces: self.replace,
        }
    }
}

/// What both ways are told.
struct Plan {
    /// The embedded store's directory.
    store: PathBuf,
    /// The cluster of etcd.
    options: Options,
    /// Whether what is unfinished or left may go.
    replaces: bool,
}

impl Plan {
    /// Whether encrypted values are bound to other places in etcd than in the embedded store.
    fn is_bound(&self) -> bool {
        self.options.prefix.trim_matches('/') != "registry"
    }

    /// Where the objects are in etcd, for people.
    fn etcd(&self) -> String {
        format!(
            "etcd at {} under {}",
            self.options.servers.join(","),
            self.options.prefix
        )
    }
}

/// Why a value cannot be moved.
fn bound(key: &str) -> String {
    format!("{key} is encrypted, and bound to its key: it can be read under --etcd-prefix=/registry only")
}

/// A name for a move, which both sides are marked with.
fn name() -> String {
    // 0 is what has not been moved.
    format!("{:016x}", rand::random::<u64>().max(1))
}

/// Runs `migrate` with the words after its name.
///
/// # Errors
/// The target is not empty, the source is not there or changes, or either fails; the source is as it was then, unless the text says
/// that the move has only to be finished.
pub fn run(words: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let words = std::iter::once("controlplane migrate".to_owned()).chain(words);
    let words = match Arguments::try_parse_from(words) {
        Ok(words) => words,
        Err(error) if !error.use_stderr() => return Ok(error.print()?),
        Err(error) => anyhow::bail!("{}", error.to_string().trim_start_matches("error: ").trim_end()),
    };
    anyhow::ensure!(
        words.etcd_certfile.is_some() == words.etcd_keyfile.is_some(),
        "--etcd-certfile and --etcd-keyfile must be given together"
    );
    // Leases are kept alive while others block.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let plan = words.plan();
    match words.to {
        Target::Etcd => {
            let moved = runtime.block_on(to_etcd::run(&plan))?;
            println!(
                "{} objects of revision {} are in {}: stop the control plane and start it with --etcd-servers",
                moved.count,
                moved.revision,
                plan.etcd()
            );
            moved.tell_of_keys();
        }
        Target::Embedded => {
            let moved = runtime.block_on(to_disk::run(&plan))?;
            println!(
                "{} objects of revision {} are in {}: stop all control planes and start one on this data directory, without --etcd-servers",
                moved.count,
                moved.revision,
                plan.store.display()
            );
            moved.tell_of_keys();
        }
    }
    Ok(())
}

/// What a side says that cannot go on.
fn wrong(why: impl std::fmt::Display) -> StoreError {
    StoreError::Unusable(why.to_string())
}

#[cfg(test)]
mod tests;
