//! Notes of rule handles, so that removing the rules of one attachment does not list those of all others.
//!
//! A note is never the truth: before a rule is deleted by its handle, its comment is read and compared; without a note, or
//! with a wrong one, the chains are listed. Notes live in `/run`, as the rules end with the boot too, in a folder per network
//! namespace. Folders of namespaces that are gone are swept by garbage collection, and whenever a new one is made.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha512};

use netlink::nft::{Batch, Chain, Connection, Error, Rule};

const FOLDER: &str = "/run/cni/rules";

/// The first sixteen digits of the SHA-512, by which upstream's plugins shorten names.
pub fn hash(text: &str) -> String {
    Sha512::digest(text.as_bytes())
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The note about the rules of one attachment in the calling thread's network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleNote {
    path: PathBuf,
}

/// The folder of the calling thread's network namespace.
fn own_folder() -> PathBuf {
    let namespace = fs::metadata("/proc/thread-self/ns/net").map_or(0, |metadata| metadata.ino());
    Path::new(FOLDER).join(namespace.to_string())
}

impl RuleNote {
    /// The note of a kind of rules, such as `masquerade`, and a key that is usable as a file name.
    pub fn new(kind: &str, key: &str) -> Self {
        Self {
            path: own_folder().join(format!("{kind}-{key}")),
        }
    }

    /// All notes of a kind whose key begins so, each with its label.
    pub fn all(kind: &str, key_prefix: &str) -> Vec<(Self, String)> {
        let wanted = format!("{kind}-{key_prefix}");
        let Ok(entries) = fs::read_dir(own_folder()) else {
            return Vec::new();
        };
        let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
        let matching = paths.filter(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(&wanted))
        });
        matching
            .map(|path| {
                let text = fs::read_to_string(&path).unwrap_or_default();
                let label = text.lines().next().unwrap_or_default().to_owned();
                (Self { path }, label)
            })
            .collect()
    }

    /// Whether there is one.
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// Writes the note: a label and, by position in the list of chains, the rules' handles. Failing is no failure, as the
    /// rules are then found by listing.
    pub fn write(&self, label: &str, handles: &[(usize, u64)]) {
        let lines: String = handles
            .iter()
            .map(|(chain, handle)| format!("\n{chain} {handle}"))
            .collect();
        let text = format!("{label}{lines}");
        if fs::write(&self.path, &text).is_ok() {
            return;
        }
        // The first note of this namespace.
        sweep();
        let _ = fs::create_dir_all(own_folder()).and_then(|()| fs::write(&self.path, text));
    }

    /// Removes the note alone.
    pub fn forget(&self) {
        let _ = fs::remove_file(&self.path);
    }

    /// Removes the rules of `chains` that are ours, and the note.
    pub fn remove_rules(
        &self,
        connection: &mut Connection,
        chains: &[Chain<'_>],
        is_ours: impl Fn(&Rule) -> bool,
    ) -> Result<(), Error> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        if !remove_noted(connection, chains, &text, &is_ours)? {
            for chain in chains {
                connection.delete_rules(*chain, &is_ours)?;
            }
        }
        let _ = fs::remove_file(&self.path);
        Ok(())
    }
}

/// Removes the notes of network namespaces that are gone. Should one be gone only from here, its notes are missed by nobody
/// but the clock: its rules are found by listing.
pub fn sweep() {
    let Ok(entries) = fs::read_dir(FOLDER) else {
        return;
    };
    let living = living_namespaces();
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        // A file is an older version's note; nobody reads it any more.
        if is_folder && name.parse().is_ok_and(|namespace: u64| living.contains(&namespace)) {
            continue;
        }
        let path = entry.path();
        let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
    }
}

/// The network namespaces some process is in or some mount holds.
fn living_namespaces() -> BTreeSet<u64> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut living: BTreeSet<u64> = mounts.lines().filter_map(mounted_namespace).collect();
    living.extend(fs::metadata("/proc/thread-self/ns/net").map(|metadata| metadata.ino()));
    for process in fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok) {
        living.extend(fs::metadata(process.path().join("ns/net")).map(|metadata| metadata.ino()));
    }
    living
}

/// The network namespace a line of `mountinfo` mounts: its fourth field is `net:[NUMBER]`.
fn mounted_namespace(line: &str) -> Option<u64> {
    let root = line.split(' ').nth(3)?;
    root.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

fn read_handle(line: &str) -> Option<(usize, u64)> {
    let (chain, handle) = line.split_once(' ')?;
    Some((chain.parse().ok()?, handle.parse().ok()?))
}

/// Deletes the noted rules if each of them is what the note says. Otherwise false, and nothing is deleted.
fn remove_noted(
    connection: &mut Connection,
    chains: &[Chain<'_>],
    note: &str,
    is_ours: impl Fn(&Rule) -> bool,
) -> Result<bool, Error> {
    let mut batch = Batch::new();
    for line in note.lines().skip(1) {
        let Some((index, handle)) = read_handle(line) else {
            return Ok(false);
        };
        let Some(chain) = chains.get(index) else {
            return Ok(false);
        };
        match connection.rule(*chain, handle)? {
            Some(rule) if is_ours(&rule) => batch.delete_rule(*chain, handle),
            _ => return Ok(false),
        }
    }
    if batch.is_empty() {
        return Ok(false);
    }
    match connection.commit(&batch) {
        Ok(_) => Ok(true),
        Err(Error::Commit(error)) if error.is_missing() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_upstreams() {
        assert_eq!(hash("unit-test"), "6fd94d501e58f0aa");
    }

    #[test]
    fn namespaces_held_by_mounts_are_seen() {
        let line = "40 30 0:4 net:[4026532321] /run/netns/x rw shared:5 - nsfs nsfs rw";
        assert_eq!(mounted_namespace(line), Some(4_026_532_321));
        for other in [
            "",
            "29 1 8:1 / / rw - ext4 /dev/sda rw",
            "1 2 0:4 mnt:[5] /x rw - nsfs nsfs rw",
        ] {
            assert_eq!(mounted_namespace(other), None);
        }
        let own = fs::metadata("/proc/self/ns/net").unwrap().ino();
        assert!(living_namespaces().contains(&own));
    }

    #[test]
    fn lines_are_read_or_refused() {
        assert_eq!(read_handle("1 77"), Some((1, 77)));
        for line in ["", "1", "a 7", "1 b", "1 2 3", "-1 5"] {
            assert_eq!(read_handle(line), None, "{line}");
        }
    }
}
