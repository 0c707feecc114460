//! Kernel switches under `/proc/sys/net`, of the calling thread's network namespace.

use std::fs::File;
use std::io::{self, Read};

/// The longest value that is read, bytes.
const LONGEST: usize = 512 << 10;

/// A switch that cannot be set.
#[derive(Debug, thiserror::Error)]
#[error("failed to set {name} to {value:?}")]
pub struct Error {
    /// Path below `/proc/sys/net`.
    pub name: String,
    /// The wanted value.
    pub value: String,
    /// Why.
    #[source]
    pub source: io::Error,
}

fn path(name: &str) -> String {
    format!("/proc/sys/net/{name}")
}

/// Writes a value; `name` is the path below `/proc/sys/net`.
pub fn set(name: &str, value: &str) -> Result<(), Error> {
    std::fs::write(path(name), value).map_err(|source| Error {
        name: name.to_owned(),
        value: value.to_owned(),
        source,
    })
}

/// Writes a value unless it is there already, so a read-only `/proc` with the right value is fine.
pub fn ensure(name: &str, value: &str) -> Result<(), Error> {
    match get(name) {
        Some(current) if current == value => Ok(()),
        _ => set(name, value),
    }
}

/// Reads a value; `None` when there is no such switch.
pub fn get(name: &str) -> Option<String> {
    read(name).ok().map(|text| text.trim().to_owned())
}

/// Reads a value as the kernel writes it, in one piece: lists (bitmaps) have an end after the first read, however short that was.
///
/// # Errors
/// There is no such switch, or its value does not end with its line: it may be cut.
pub fn read(name: &str) -> io::Result<String> {
    let mut bytes = vec![0; LONGEST];
    let length = File::open(path(name))?.read(&mut bytes)?;
    bytes.truncate(length);
    match String::from_utf8(bytes) {
        Ok(text) if text.ends_with('\n') => Ok(text),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "its value is not one whole line",
        )),
    }
}
