//! `controlplane backup FILE` and `controlplane restore FILE`.
//!
//! Owns what is refused, and what is told. The file is the module above's, the store `disk::snapshot`'s.

use super::{Backup, Header, socket};
use crate::pki;
use crate::store::disk::moved;
use crate::store::disk::snapshot::{self, Beginning, Snapshots};
use crate::store::{Revision, StoreError};
use anyhow::Context;
use clap::Parser;
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How far the revision goes on beyond the backup's: more than was written between it and the end of the cluster it is of. etcd's
/// advice for its own restores.
pub(crate) const BUMP: Revision = 1_000_000_000;

/// Write all objects of a revision to a file; the daemon may run meanwhile.
#[derive(Debug, Parser)]
#[command(name = "controlplane backup")]
struct BackupArguments {
    /// The file, which must not exist. Only its owner may read it.
    file: PathBuf,
    /// The control plane's data directory.
    #[arg(long, default_value = crate::config::DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
}

/// Make the objects of a backup those of a control plane that does not run.
#[derive(Debug, Parser)]
#[command(name = "controlplane restore")]
struct RestoreArguments {
    /// The backup.
    file: PathBuf,
    /// The control plane's data directory.
    #[arg(long, default_value = crate::config::DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Give up the objects that are there.
    #[arg(long)]
    replace: bool,
    /// Take the backup of a cluster with other certificates and keys: its tokens and client certificates are not accepted.
    #[arg(long)]
    other_cluster: bool,
    /// How far the revision goes on beyond the backup's: at least what was written since.
    #[arg(long, default_value_t = BUMP)]
    bump_revision: Revision,
}

fn arguments<T: Parser>(name: &str, words: impl Iterator<Item = String>) -> anyhow::Result<Option<T>> {
    let words = std::iter::once(name.to_owned()).chain(words);
    match T::try_parse_from(words) {
        Ok(words) => Ok(Some(words)),
        Err(error) if !error.use_stderr() => {
            error.print()?;
            Ok(None)
        }
        Err(error) => anyhow::bail!("{}", error.to_string().trim_start_matches("error: ").trim_end()),
    }
}

/// Runs `backup` with the words after its name.
///
/// # Errors
/// The file is there already, there is no store, or either cannot be read or written.
pub fn backup(words: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let Some(words) = arguments::<BackupArguments>("controlplane backup", words)? else {
        return Ok(());
    };
    let (header, count) = take(&words.data_dir, &words.file)?;
    let file = words.file.display();
    println!("{count} objects of revision {} are in {file}", header.revision);
    Ok(())
}

fn take(data_dir: &Path, file: &Path) -> anyhow::Result<(Header, u64)> {
    anyhow::ensure!(!file.exists(), "{} is there already", file.display());
    let mut beside = file.as_os_str().to_owned();
    beside.push(".tmp");
    let beside = PathBuf::from(beside);
    let taken = take_to(data_dir, &beside).and_then(|found| {
        std::fs::rename(&beside, file).with_context(|| format!("cannot make {}", file.display()))?;
        let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(found)
    });
    if taken.is_err() {
        // The error that matters is the first one.
        let _ = std::fs::remove_file(&beside);
    }
    taken
}

fn take_to(data_dir: &Path, beside: &Path) -> anyhow::Result<(Header, u64)> {
    let shown = || format!("cannot write {}", beside.display());
    match std::fs::remove_file(beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).with_context(shown),
        _ => {}
    }
    let mut options = File::options();
    let options = options.write(true).create_new(true).mode(0o600);
    let mut out = options.open(beside).with_context(shown)?;
    let store = data_dir.join("store");
    moved::check(&store)?;
    let connected = socket::connect_for_backup(&store);
    match connected {
        Ok(mut stream) => {
            std::io::copy(&mut stream, &mut out).with_context(shown)?;
        }
        // Nobody serves it: the daemon does not run, or the lock says who does.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            let snapshots = Snapshots::of_closed(&store)?;
            super::write(&snapshots, &pki::fingerprint(data_dir)?, &mut BufWriter::new(&mut out))?;
        }
        Err(error) => return Err(error).with_context(|| format!("cannot ask the daemon on {}", data_dir.display())),
    }
    out.sync_all().with_context(shown)?;
    let read = || Backup::open(BufReader::new(File::open(beside).map_err(super::BackupError::Read)?))?.verify();
    read().with_context(|| "the daemon has not given all of it".to_owned())
}

/// Runs `restore` with the words after its name.
///
/// # Errors
/// The backup is not whole or another cluster's, objects are there already, or the daemon runs.
pub fn restore(words: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let Some(words) = arguments::<RestoreArguments>("controlplane restore", words)? else {
        return Ok(());
    };
    let (revision, count) = put_back(&words)?;
    println!("{count} objects are restored; the revision goes on from {revision}");
    Ok(())
}

fn put_back(words: &RestoreArguments) -> anyhow::Result<(Revision, u64)> {
    let shown = || words.file.display().to_string();
    let open = || -> Result<_, super::BackupError> {
        Backup::open(BufReader::new(
            File::open(&words.file).map_err(super::BackupError::Read)?,
        ))
    };
    // All of it, before anything is touched.
    let (header, _) = open().and_then(Backup::verify).with_context(shown)?;
    let present = pki::fingerprint(&words.data_dir)?;
    anyhow::ensure!(
        words.other_cluster || present.is_empty() || header.cluster.is_empty() || present == header.cluster,
        "{} is of a cluster with other certificates and keys than those in {}: put its pki directory there, or say --other-cluster",
        words.file.display(),
        words.data_dir.join("pki").display()
    );
    let revision = header.revision.checked_add(words.bump_revision);
    let revision = revision.context("--bump-revision is too large")?;
    pki::files::make_private_dir(&words.data_dir)?;
    let mut backup = open().with_context(shown)?;
    let mut next = || {
        let record = backup.next_record();
        record.map_err(|error| StoreError::Unusable(format!("{} {error}", words.file.display())))
    };
    let begins = Beginning {
        format: header.format,
        revision,
        replaces: words.replace,
    };
    let written = snapshot::write(&words.data_dir.join("store"), begins, &mut next);
    let hint = "say --replace to give up what is there";
    let count = written.map_err(|error| match error.to_string() {
        text if text.ends_with("holds a store already") => anyhow::anyhow!("{text}: {hint}"),
        text => anyhow::anyhow!("{text}"),
    })?;
    Ok((revision, count))
}

#[cfg(test)]
mod tests;
