//! Keys and data: bytes that need no memory of their own while they are few, which nearly all are.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;

/// What fits beside the length, in as much room as a box would take.
const HERE_MAX: usize = 22;

/// A short list of bytes.
#[derive(Clone)]
pub enum Bytes {
    /// As many of these.
    Here(u8, [u8; HERE_MAX]),
    /// More than fit.
    There(Box<[u8]>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Here(length, bytes) => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Self::There(bytes) => bytes,
        }
    }
}

impl Bytes {
    /// Parts behind one another.
    pub fn joined(parts: &[&[u8]]) -> Self {
        let mut bytes = [0; HERE_MAX];
        let mut length = 0;
        for part in parts {
            let Some(free) = bytes.get_mut(length..length + part.len()) else {
                return Self::There(parts.concat().into());
            };
            free.copy_from_slice(part);
            length += part.len();
        }
        Self::Here(length as u8, bytes)
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self::joined(&[bytes])
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl PartialOrd for Bytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Bytes {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_ones_are_the_bytes_they_were_made_of() {
        assert_eq!(size_of::<Bytes>(), 24);
        let all: Vec<u8> = (0..60).collect();
        for length in [0, 1, HERE_MAX - 1, HERE_MAX, HERE_MAX + 1, 60] {
            for cut in [0, length / 2, length] {
                let made = Bytes::joined(&[&all[..cut], &all[cut..length]]);
                assert_eq!(*made, all[..length]);
                assert_eq!(made, Bytes::from(&all[..length]));
                assert_eq!(matches!(made, Bytes::Here(..)), length <= HERE_MAX);
            }
        }
        // Ordered as the bytes are, wherever they are kept.
        assert!(Bytes::from(&all[..30]) < Bytes::from(&all[1..3]) && Bytes::from(&all[..2]) < Bytes::from(&all[..30]));
    }
}
