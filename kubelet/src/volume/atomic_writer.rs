//! Puts a set of files into a directory so that readers see all of the old ones or all of the new ones (kubelet contract §9).
//!
//! The files are in `..<time>.<n>/`, `..data` links to that directory and every visible name links through `..data`; one rename
//! of `..data` switches them all. Unchanged content is not touched.

use super::payload::Payload;
use client::ordered::CollectOrdered;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

const DATA: &str = "..data";
const DATA_NEW: &str = "..data_tmp";
const PATH_MAX: usize = 4096;
const NAME_MAX: usize = 255;

/// Why the files could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A path that must not be in a volume.
    #[error("invalid path {path:?}: {why}")]
    Path {
        /// The path.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A file operation failed.
    #[error("{what} {path}: {why}")]
    Io {
        /// What was to be done.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        why: io::Error,
    },
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WriteError {
    let path = path.to_owned();
    move |why| WriteError::Io { what, path, why }
}

fn check_path(path: &str) -> Result<(), WriteError> {
    let bad = |why| {
        Err(WriteError::Path {
            path: path.to_owned(),
            why,
        })
    };
    if path.is_empty() {
        return bad("must not be empty");
    }
    if path.starts_with('/') {
        return bad("must be relative");
    }
    if path.len() > PATH_MAX {
        return bad("must not be longer than 4096 characters");
    }
    for part in path.split('/') {
        if part == ".." {
            return bad("must not contain '..'");
        }
        if part.len() > NAME_MAX {
            return bad("a component must not be longer than 255 characters");
        }
    }
    if path.starts_with("..") {
        return bad("must not start with '..'");
    }
    Ok(())
}

/// The first component of each path: the names a reader sees.
fn visible(payload: &Payload) -> BTreeSet<String> {
    let first = |path: &String| match Path::new(path).components().find(|c| matches!(c, Component::Normal(_))) {
        Some(Component::Normal(name)) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    };
    payload.keys().filter_map(first).collect_ordered()
}

/// All regular files below `dir`, relative to it; links are not followed.
fn files_below(dir: &Path, prefix: &Path, out: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let relative = prefix.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            files_below(&entry.path(), &relative, out)?;
        } else {
            out.insert(relative);
        }
    }
    Ok(())
}

/// The directory `..data` leads to; only a plain name inside the volume counts, whatever somebody planted there.
fn current(volume: &Path) -> Option<PathBuf> {
    let target = fs::read_link(volume.join(DATA)).ok()?;
    let mut parts = target.components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(name)), None) => {
            let dir = volume.join(name);
            fs::symlink_metadata(&dir).ok()?.is_dir().then_some(dir)
        }
        _ => None,
    }
}

fn is_current(dir: &Path, payload: &Payload) -> bool {
    let mut there = BTreeSet::new();
    if files_below(dir, Path::new(""), &mut there).is_err() {
        return false;
    }
    let wanted: BTreeSet<PathBuf> = payload
        .keys()
        .map(|path| Path::new(path).components().collect())
        .collect_ordered();
    there == wanted
        && payload
            .iter()
            .all(|(path, file)| fs::read(dir.join(path)).is_ok_and(|bytes| bytes == file.bytes))
}

fn new_directory(volume: &Path, now: Timestamp) -> Result<PathBuf, WriteError> {
    let time = now.strftime("%Y_%m_%d_%H_%M_%S").to_string();
    let mut number = u64::from(now.subsec_nanosecond().unsigned_abs());
    loop {
        let dir = volume.join(format!("..{time}.{number}"));
        match fs::DirBuilder::new().mode(0o755).create(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(failed("make directory", &dir)(error)),
        }
    }
}

fn fill(dir: &Path, payload: &Payload) -> Result<(), WriteError> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).map_err(failed("set mode of", dir))?;
    for (path, file) in payload {
        let target = dir.join(path);
        if let Some(parent) = target.parent() {
            let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(parent);
            made.map_err(failed("make directory", parent))?;
        }
        fs::write(&target, &file.bytes).map_err(failed("write", &target))?;
        // Explicitly: the umask has no say.
        let mode = fs::Permissions::from_mode(file.mode);
        fs::set_permissions(&target, mode).map_err(failed("set mode of", &target))?;
        if let Some(owner) = file.owner {
            std::os::unix::fs::chown(&target, Some(owner), None).map_err(failed("set owner of", &target))?;
        }
    }
    Ok(())
}

fn link_visible(volume: &Path, names: &BTreeSet<String>) -> Result<(), WriteError> {
    for name in names {
        let link = volume.join(name);
        let target = Path::new(DATA).join(name);
        if fs::read_link(&link).is_ok_and(|to| to == target) {
            continue;
        }
        // A subPath of a key that was not there yet made a directory of its name.
        crate::host::tree::remove(&link).map_err(failed("remove", &link))?;
        symlink(&target, &link).map_err(failed("link", &link))?;
    }
    Ok(())
}

/// Removes every entry of the volume that belongs to an earlier content: stale names and directories.
fn sweep(volume: &Path, keep: &Path, names: &BTreeSet<String>) -> Result<(), WriteError> {
    let entries = fs::read_dir(volume).map_err(failed("read", volume))?;
    for entry in entries {
        let path = entry.map_err(failed("read", volume))?.path();
        let name = path
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        if name == DATA || path == keep || names.contains(&name) {
            continue;
        }
        crate::host::tree::remove(&path).map_err(failed("remove", &path))?;
    }
    Ok(())
}

/// Writes the payload; `own` gives the new directory its ownership before anyone can see it.
pub(super) fn write(
    volume: &Path,
    payload: &Payload,
    now: Timestamp,
    own: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), WriteError> {
    payload.keys().try_for_each(|path| check_path(path))?;
    let names = visible(payload);
    if let Some(dir) = current(volume).filter(|dir| is_current(dir, payload)) {
        // A crash after the switch may have left links or old directories behind.
        link_visible(volume, &names)?;
        return sweep(volume, &dir, &names);
    }
    let dir = new_directory(volume, now)?;
    fill(&dir, payload)?;
    own(&dir).map_err(failed("set ownership of", &dir))?;
    let link = volume.join(DATA_NEW);
    crate::host::tree::remove(&link).map_err(failed("remove", &link))?;
    symlink(dir.file_name().unwrap_or_default(), &link).map_err(failed("link", &link))?;
    let data = volume.join(DATA);
    fs::rename(&link, &data).map_err(failed("rename", &link))?;
    link_visible(volume, &names)?;
    sweep(volume, &dir, &names)
}

#[cfg(test)]
mod tests {
    use super::super::payload::File;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let file = |text: &str| File {
            bytes: text.as_bytes().to_vec(),
            mode: 0o640,
            owner: None,
        };
        files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), file(text)))
            .collect()
    }

    fn put(dir: &Path, payload: &Payload, second: i64) {
        let now = Timestamp::from_second(second).expect("in range");
        write(dir, payload, now, |_| Ok(())).expect("written");
    }

    fn seen(dir: &Path) -> BTreeMap<String, String> {
        fn walk(dir: &Path, prefix: &str, out: &mut BTreeMap<String, String>) {
            for entry in fs::read_dir(dir).expect("dir") {
                let entry = entry.expect("entry");
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.starts_with("..") {
                    continue;
                }
                let path = entry.path();
                if path.is_dir() {
                    walk(&path, &format!("{prefix}{name}/"), out);
                } else {
                    out.insert(format!("{prefix}{name}"), fs::read_to_string(&path).expect("file"));
                }
            }
        }
        let mut out = BTreeMap::new();
        walk(dir, "", &mut out);
        out
    }

    #[test]
    fn layout_and_modes() {
        let dir = tempfile::tempdir().expect("temp dir");
        put(dir.path(), &payload(&[("a", "1"), ("sub/b", "2")]), 1);
        assert_eq!(
            fs::read_link(dir.path().join("a")).expect("link"),
            Path::new("..data/a")
        );
        assert_eq!(
            fs::read_link(dir.path().join("sub")).expect("link"),
            Path::new("..data/sub")
        );
        let data = fs::read_link(dir.path().join(DATA)).expect("link");
        assert_eq!(data, Path::new("..1970_01_01_00_00_01.0"));
        let mode = fs::metadata(dir.path().join("sub/b"))
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o640);
    }

    #[test]
    fn unchanged_content_is_not_touched_and_changed_content_leaves_nothing_behind() {
        let dir = tempfile::tempdir().expect("temp dir");
        put(dir.path(), &payload(&[("a", "1"), ("old", "x")]), 1);
        let before = fs::read_link(dir.path().join(DATA)).expect("link");
        put(dir.path(), &payload(&[("a", "1"), ("old", "x")]), 2);
        assert_eq!(fs::read_link(dir.path().join(DATA)).expect("link"), before);
        put(dir.path(), &payload(&[("a", "2")]), 3);
        assert_eq!(seen(dir.path()), BTreeMap::from([("a".into(), "2".into())]));
        assert_eq!(
            fs::read_dir(dir.path()).expect("dir").count(),
            3,
            "a, ..data and its directory"
        );
    }

    #[test]
    fn planted_links_are_neither_followed_nor_trusted() {
        let dir = tempfile::tempdir().expect("temp dir");
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).expect("dir");
        fs::write(outside.join("precious"), "x").expect("file");
        let volume = dir.path().join("v");
        fs::create_dir(&volume).expect("dir");
        put(&volume, &payload(&[("a", "1")]), 1);
        fs::remove_file(volume.join(DATA)).expect("unlink");
        symlink(&outside, volume.join(DATA)).expect("plant");
        symlink(&outside, volume.join("..evil")).expect("plant");
        put(&volume, &payload(&[("a", "1")]), 2);
        assert_eq!(seen(&volume), BTreeMap::from([("a".into(), "1".into())]));
        assert!(outside.join("precious").exists());
        assert!(fs::symlink_metadata(volume.join("..evil")).is_err());
    }

    #[test]
    fn bad_paths_are_refused_before_anything_is_written() {
        let long = "x".repeat(300);
        for bad in ["", "/abs", "..", "a/../b", "..a", long.as_str()] {
            let dir = tempfile::tempdir().expect("temp dir");
            let result = write(
                dir.path(),
                &payload(&[("ok", "1"), (bad, "2")]),
                Timestamp::UNIX_EPOCH,
                |_| Ok(()),
            );
            assert!(matches!(result, Err(WriteError::Path { .. })), "{bad}");
            assert_eq!(fs::read_dir(dir.path()).expect("dir").count(), 0);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        /// After any sequence of writes a reader sees exactly the last payload, and nothing else is left.
        #[test]
        fn the_last_payload_is_what_is_there(
            sequence in proptest::collection::vec(
                proptest::collection::btree_map("[abc]{1,2}(/[xy])?", "[01]{0,2}", 0..4), 1..5)
        ) {
            let dir = tempfile::tempdir().expect("temp dir");
            let mut last = BTreeMap::new();
            for (second, files) in sequence.into_iter().enumerate() {
                // A name cannot be a file and a directory at once.
                let files: BTreeMap<String, String> = files
                    .iter()
                    .filter(|(path, _)| !files.keys().any(|other| other.starts_with(&format!("{path}/"))))
                    .map(|(path, text)| (path.clone(), text.clone()))
                    .collect();
                let list: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
                put(dir.path(), &payload(&list), i64::try_from(second).expect("small"));
                last = files;
            }
            prop_assert_eq!(seen(dir.path()), last);
            let hidden = fs::read_dir(dir.path()).expect("dir").filter(|e| {
                e.as_ref().expect("entry").file_name().to_string_lossy().starts_with("..")
            }).count();
            prop_assert_eq!(hidden, 2);
        }
    }
}
