//! One directory tree as one layer: a tar stream that depends on nothing but the tree's content.
//!
//! Owners become root, times become the epoch and entries are sorted, so that the same tree has the same digest on
//! every machine. Never follows a symbolic link.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What went wrong, and at which path.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LayerError {
    /// A path of the tree could not be read.
    #[error("reading {}", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// An entry could not be written to the stream.
    #[error("writing the layer entry {}", path.display())]
    Write {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Sockets, devices and pipes have no place in these images.
    #[error("{}: neither file, directory nor symbolic link", path.display())]
    UnsupportedType {
        /// The path.
        path: PathBuf,
    },
}

/// Writes `root`'s content (not `root` itself) to `out`.
///
/// # Errors
/// [`LayerError`], with the path that could not be read or written.
pub(crate) fn write(root: &Path, out: impl Write) -> Result<(), LayerError> {
    let mut builder = tar::Builder::new(out);
    append_directory(&mut builder, root, Path::new(""))?;
    builder.finish().map_err(|source| LayerError::Write {
        path: root.to_owned(),
        source,
    })
}

fn append_directory(builder: &mut tar::Builder<impl Write>, root: &Path, inside: &Path) -> Result<(), LayerError> {
    let directory = root.join(inside);
    let read = |source| LayerError::Read {
        path: directory.clone(),
        source,
    };
    let mut names = fs::read_dir(&directory)
        .map_err(read)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<io::Result<Vec<_>>>()
        .map_err(read)?;
    names.sort();
    for name in names {
        let inside = inside.join(name);
        append_entry(builder, root, &inside)?;
        let is_directory = fs::symlink_metadata(root.join(&inside)).is_ok_and(|metadata| metadata.is_dir());
        if is_directory {
            append_directory(builder, root, &inside)?;
        }
    }
    Ok(())
}

fn append_entry(builder: &mut tar::Builder<impl Write>, root: &Path, inside: &Path) -> Result<(), LayerError> {
    let path = root.join(inside);
    let read = |source| LayerError::Read {
        path: path.clone(),
        source,
    };
    let write = |source| LayerError::Write {
        path: path.clone(),
        source,
    };
    let metadata = fs::symlink_metadata(&path).map_err(read)?;
    let mut header = tar::Header::new_gnu();
    header.set_mode(metadata.permissions().mode() & 0o7777);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    if metadata.is_dir() {
        header.set_entry_type(tar::EntryType::Directory);
        builder.append_data(&mut header, inside, io::empty()).map_err(write)
    } else if metadata.is_symlink() {
        header.set_entry_type(tar::EntryType::Symlink);
        let target = fs::read_link(&path).map_err(read)?;
        builder.append_link(&mut header, inside, target).map_err(write)
    } else if metadata.is_file() {
        header.set_size(metadata.len());
        let file = fs::File::open(&path).map_err(read)?;
        builder.append_data(&mut header, inside, file).map_err(write)
    } else {
        Err(LayerError::UnsupportedType { path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(names: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("dir")).unwrap();
        for name in names {
            fs::write(root.path().join("dir").join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("/absent", root.path().join("link")).unwrap();
        root
    }

    fn bytes(root: &Path) -> Vec<u8> {
        let mut out = Vec::new();
        write(root, &mut out).unwrap();
        out
    }

    #[test]
    fn the_same_content_made_in_another_order_is_the_same_layer() {
        assert_eq!(
            bytes(tree(&["a", "b", "c"]).path()),
            bytes(tree(&["c", "a", "b"]).path())
        );
        assert_ne!(bytes(tree(&["a", "b"]).path()), bytes(tree(&["a", "c"]).path()));
    }

    #[test]
    fn entries_are_sorted_belong_to_root_and_links_are_not_followed() {
        let layer = bytes(tree(&["b", "a"]).path());
        let mut archive = tar::Archive::new(layer.as_slice());
        let mut seen = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!(
                (header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()),
                (0, 0, 0)
            );
            seen.push((entry.path().unwrap().display().to_string(), header.entry_type()));
        }
        let expected = [
            ("dir", tar::EntryType::Directory),
            ("dir/a", tar::EntryType::Regular),
            ("dir/b", tar::EntryType::Regular),
            ("link", tar::EntryType::Symlink),
        ];
        assert_eq!(seen, expected.map(|(path, kind)| (path.to_owned(), kind)));
    }

    #[test]
    fn a_socket_is_refused_by_name() {
        let root = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.path().join("s")).unwrap();
        let error = write(root.path(), io::sink()).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("/s: neither file, directory nor symbolic link"),
            "{error}"
        );
    }
}
