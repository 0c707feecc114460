//! What two stores are compared by: how many keys there are, and a sum over all of them with their values, in whatever order they come. Pure.

use sha2::{Digest as _, Sha256};

/// How a value begins that is encrypted, and bound to its key.
pub(super) const ENCRYPTED: &[u8] = b"k8s:enc:";

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digest {
    pub(super) count: u64,
    /// How many values are encrypted.
    pub(super) encrypted: u64,
    sum: [u8; 32],
}

impl Digest {
    /// Takes a key with its value.
    pub(super) fn add(&mut self, key: &str, value: &[u8]) {
        let mut hash = Sha256::new();
        hash.update((key.len() as u64).to_be_bytes());
        hash.update(key);
        hash.update(value);
        let hash = hash.finalize();
        self.sum
            .iter_mut()
            .zip(hash.iter())
            .for_each(|(sum, byte)| *sum ^= byte);
        self.count += 1;
        self.encrypted += u64::from(value.starts_with(ENCRYPTED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(records: &[(&str, &str)]) -> Digest {
        let mut digest = Digest::default();
        records
            .iter()
            .for_each(|(key, value)| digest.add(key, value.as_bytes()));
        digest
    }

    #[test]
    fn the_order_does_not_count_and_everything_else_does() {
        let all = of(&[("/a", "1"), ("/b", "2")]);
        assert_eq!(of(&[("/a", "k8s:enc:x"), ("/b", "k8s")]).encrypted, 1);
        assert_eq!(all, of(&[("/b", "2"), ("/a", "1")]));
        for other in [
            &[("/a", "2"), ("/b", "1")][..],
            &[("/a", "1")],
            &[("/a", "1"), ("/b", "")],
            &[("/a", "1"), ("/b", "2"), ("/c", "")],
            &[("/a1", ""), ("/b", "2")],
        ] {
            assert_ne!(all, of(other), "{other:?}");
        }
    }
}
