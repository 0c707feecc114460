//! The node key, and what is sealed with it: ChaCha20-Poly1305 with a random nonce. What seals is bound to the name of its file, so that one file
//! in another's place does not open.
//!
//! The key lies beside the folder it seals, not in it: a copy of the folder alone (a backup, an image of a volume) tells nothing. Whoever
//! reads the whole disk, or is root, reads both; an old copy of a file put back in its own place opens.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Bytes of the key.
const KEY_LEN: usize = 32;
/// What a sealed file begins with.
const MAGIC: &[u8] = b"skiff-kept-1\n";

/// What sealing adds to a content, bytes.
pub(super) const OVERHEAD: usize = MAGIC.len() + NONCE_LEN + 16;

/// The key of this node.
pub(super) struct NodeKey(LessSafeKey);

/// How the key came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It was there.
    There,
    /// There was none.
    Made,
    /// What was there is no key; another was made.
    Replaced,
}

fn unspecified(_: ring::error::Unspecified) -> io::Error {
    io::Error::other("the system's random source or cipher failed")
}

impl NodeKey {
    /// Reads the key, or makes one that is on disk when this returns.
    ///
    /// # Errors
    /// It can be neither read nor written. A key that cannot be read is not replaced.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Found)> {
        let found = match read(path) {
            Ok(Some(bytes)) => return Ok((Self::of(&bytes)?, Found::There)),
            Ok(None) => Found::Replaced,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Found::Made,
            Err(error) => return Err(error),
        };
        let mut bytes = [0; KEY_LEN];
        SystemRandom::new().fill(&mut bytes).map_err(unspecified)?;
        let beside = path.with_extension("tmp");
        write_private(&beside, &bytes)?;
        fs::rename(&beside, path)?;
        if let Some(directory) = path.parent() {
            File::open(directory)?.sync_all()?;
        }
        Ok((Self::of(&bytes)?, found))
    }

    fn of(bytes: &[u8]) -> io::Result<Self> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, bytes).map_err(unspecified)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Seals a content for the file of that name.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(super) fn seal(&self, name: &str, mut content: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(unspecified)?;
        let unique = Nonce::assume_unique_for_key(nonce);
        self.0
            .seal_in_place_append_tag(unique, Aad::from(name.as_bytes()), &mut content)
            .map_err(unspecified)?;
        Ok([MAGIC, &nonce, &content].concat())
    }

    /// What was sealed for the file of that name under this key; nothing if it was not, or was changed since.
    pub(super) fn unseal(&self, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let rest = sealed.strip_prefix(MAGIC)?;
        let (nonce, content) = rest.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut content = content.to_vec();
        let length = self
            .0
            .open_in_place(nonce, Aad::from(name.as_bytes()), &mut content)
            .ok()?
            .len();
        content.truncate(length);
        Some(content)
    }
}

/// The bytes of a key file that only its owner can read; nothing if it is no key.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = File::open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    let mut bytes = Vec::new();
    file.take(KEY_LEN as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() == KEY_LEN).then_some(bytes))
}

/// Writes a file that only its owner can read; it is on disk when this returns.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_key_name_and_bytes_open() {
        let dir = tempfile::tempdir().expect("a directory");
        let (key, found) = NodeKey::open(&dir.path().join("a.key")).expect("a key");
        assert_eq!(found, Found::Made);
        let (other, _) = NodeKey::open(&dir.path().join("b.key")).expect("a key");
        let sealed = key.seal("one", b"secret".to_vec()).expect("sealed");
        assert_eq!(sealed.len(), 6 + OVERHEAD);
        assert!(!sealed.windows(6).any(|bytes| bytes == b"secret"));
        let (again, found) = NodeKey::open(&dir.path().join("a.key")).expect("a key");
        assert_eq!(found, Found::There);
        assert_eq!(again.unseal("one", &sealed).as_deref(), Some(&b"secret"[..]));
        assert_eq!(key.unseal("two", &sealed), None, "another file's place");
        assert_eq!(other.unseal("one", &sealed), None, "another key");
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(key.unseal("one", &changed), None, "byte {at} changed");
            assert_eq!(key.unseal("one", &sealed[..at]), None, "cut at {at}");
        }
        assert_ne!(
            key.seal("one", b"secret".to_vec()).expect("sealed"),
            sealed,
            "another nonce"
        );
    }

    #[test]
    fn what_is_no_key_is_replaced_and_nobody_else_reads_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("node.key");
        for spoiled in [&b""[..], &[7; KEY_LEN - 1], &[7; KEY_LEN + 1]] {
            fs::write(&path, spoiled).expect("written");
            assert_eq!(NodeKey::open(&path).expect("a key").1, Found::Replaced);
            assert_eq!(NodeKey::open(&path).expect("a key").1, Found::There);
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("changed");
        NodeKey::open(&path).expect("a key");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert!(NodeKey::open(&dir.path().join("none/node.key")).is_err());
    }
}
