//! What stands in the place of a value that is stored and cannot be read, so that whoever reads everything goes on, and whoever asks
//! for the key is told why. Pure.
//!
//! No value begins so: what is stored is an object's text.

use bytes::Bytes;

const MARK: &[u8] = b"\0unreadable\0";

/// In place of what is stored under `key`; the text is upstream's.
pub fn mark(key: &str, why: &str) -> Bytes {
    let why = format!("unable to transform key {key:?}: {why}");
    Bytes::from([MARK, why.as_bytes()].concat())
}

/// Why there is no value; `None` if there is one.
pub fn reason(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value.strip_prefix(MARK)?).ok()
}
