//! Reads files that a kubelet left for the next one. What is there instead, whoever put it there, costs no more than such a file may.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The largest file that is read, bytes: many times what a full node's may be.
const BYTES_MAX: u64 = 256 << 20;

/// What is in a plain file.
///
/// # Errors
/// It is not there, is no plain file (a pipe is not waited for), or is too large.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_up_to(path, BYTES_MAX)
}

fn read_up_to(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    match u64::try_from(bytes.len()) {
        Ok(length) if length <= most => Ok(bytes),
        _ => Err(io::Error::other(format!("it has more than {most} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_file_is_read_up_to_a_bound_and_nothing_else() {
        let directory = tempfile::tempdir().expect("temp dir");
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("file"), "1234").expect("written");
        assert_eq!(read_up_to(&path("file"), 4).expect("read"), b"1234");
        let told = |name: &str| read_up_to(&path(name), 3).expect_err(name).to_string();
        assert_eq!(told("file"), "it has more than 3 bytes");
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        assert_eq!(told("pipe"), "it is no plain file");
        assert_eq!(told("."), "it is no plain file");
        let none = read(&path("none")).expect_err("not there");
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }
}
