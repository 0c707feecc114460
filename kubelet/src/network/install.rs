//! Putting the CNI plugins where the runtime looks: one binary, and a link to it per plugin.
//!
//! Never replaces a file somebody else put there: who installs other plugins keeps them.

use super::NetworkError;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

/// The binary's name in the plugin directory.
pub const BINARY: &str = "cni-plugins";
/// The plugins it serves, by the names runtimes call.
pub const PLUGINS: [&str; 9] = [
    "bandwidth",
    "bridge",
    "firewall",
    "host-local",
    "loopback",
    "portmap",
    "ptp",
    "static",
    "tuning",
];

/// What became of the plugin directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installed {
    /// Whether the binary was written, because there was none or another one.
    pub binary_written: bool,
    /// Plugins that are served by somebody else's file, which stays.
    pub foreign: Vec<&'static str>,
}

/// Puts `binary` and its links into `bin_dir`. The binary appears whole or not at all, also while plugins run.
pub fn install(binary: &Path, bin_dir: &Path) -> Result<Installed, NetworkError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| NetworkError::Install { path, source }
    };
    let wanted = fs::read(binary).map_err(failed(binary))?;
    fs::create_dir_all(bin_dir).map_err(failed(bin_dir))?;
    let target = bin_dir.join(BINARY);
    let mut installed = Installed::default();
    if !fs::read(&target).is_ok_and(|present| present == wanted) {
        replace(bin_dir, &target, &wanted).map_err(failed(&target))?;
        installed.binary_written = true;
    }
    for name in PLUGINS {
        let path = bin_dir.join(name);
        match fs::read_link(&path) {
            Ok(to) if to == Path::new(BINARY) || to == target => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => match symlink(BINARY, &path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                outcome => outcome.map_err(failed(&path))?,
            },
            // Somebody else's link or file.
            _ => installed.foreign.push(name),
        }
    }
    Ok(installed)
}

fn replace(bin_dir: &Path, target: &Path, content: &[u8]) -> io::Result<()> {
    let new: PathBuf = bin_dir.join(format!(".{BINARY}.new"));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o755)
        .open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&new, target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn installed_once_updated_on_change_and_others_are_left_alone() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (binary, bin) = (dir.path().join("binary"), dir.path().join("opt/bin"));
        fs::write(&binary, "one").expect("binary");
        let first = install(&binary, &bin).expect("installed");
        assert_eq!((first.binary_written, first.foreign.len()), (true, 0));
        for name in PLUGINS {
            assert_eq!(fs::read(bin.join(name)).expect("plugin"), b"one", "{name}");
        }
        let mode = fs::metadata(bin.join(BINARY)).expect("binary").permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert_eq!(install(&binary, &bin).expect("installed"), Installed::default());

        fs::remove_file(bin.join("bridge")).expect("link");
        fs::write(bin.join("bridge"), "other").expect("plugin");
        fs::write(&binary, "two").expect("binary");
        let second = install(&binary, &bin).expect("installed");
        assert_eq!((second.binary_written, second.foreign), (true, vec!["bridge"]));
        assert_eq!(fs::read(bin.join("bridge")).expect("plugin"), b"other");
        assert_eq!(fs::read(bin.join("ptp")).expect("plugin"), b"two");
        assert_eq!(fs::read_dir(&bin).expect("dir").count(), PLUGINS.len() + 1);
    }

    #[test]
    fn a_missing_binary_is_named() {
        let dir = tempfile::tempdir().expect("temp dir");
        let error = install(&dir.path().join("none"), dir.path()).expect_err("no binary");
        assert!(error.to_string().contains("none"), "{error}");
    }
}
