//! Network, processes and mounts of one's own: this program again, in namespaces that end with it, whatever it leaves there.
//!
//! Owns how it gets there. What is done inside is the caller's.

use anyhow::{Context, ensure};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set for the program inside: the directory it works in, which its parent removes.
const DIRECTORY: &str = "SKIFF_FAULTS_DIRECTORY";
/// Made there by a test that runs.
const RAN: &str = "ran";

/// Where to work, for who is inside already.
pub fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Runs this program inside, with these arguments; what it says is this process's.
///
/// # Errors
/// It cannot be run, or fails.
pub fn again<S: AsRef<OsStr>>(arguments: &[S]) -> anyhow::Result<()> {
    again_in(tempfile::tempdir()?.path(), arguments)
}

fn again_in<S: AsRef<OsStr>>(directory: &Path, arguments: &[S]) -> anyhow::Result<()> {
    let own = std::env::current_exe()?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare"]);
    // As root of a user namespace of its own for those who are not root.
    if !nix::unistd::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["sh", "-c", "mount -t tmpfs none /run && exec \"$@\"", "sh"]);
    let arguments = arguments.iter().map(|argument| OsString::from(argument.as_ref()));
    command.arg(own).args(arguments).env(DIRECTORY, directory);
    let status = command.status().context("setpriv and unshare (Debian's util-linux)")?;
    ensure!(status.success(), "what ran in namespaces of its own: {status}");
    Ok(())
}

/// Of a test: whether it is inside; if not, it has been run there.
///
/// # Panics
/// If it failed there, or nothing of that name ran.
pub fn is_inside(test: &str) -> bool {
    if let Some(directory) = directory() {
        if let Err(error) = std::fs::write(directory.join(RAN), "") {
            panic!("{test}: {error}");
        }
        return true;
    }
    if let Err(error) = run_inside(test) {
        panic!("{test}: {error:#}");
    }
    false
}

fn run_inside(test: &str) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    again_in(directory.path(), &["--exact", test, "--nocapture"])?;
    // Of a name that fits no test all tests pass.
    ensure!(directory.path().join(RAN).exists(), "there is no test of this name");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_not_there_has_not_passed() {
        let error = run_inside("isolation::tests::nobody_has_written_this_one").unwrap_err();
        assert!(error.to_string().contains("no test of this name"), "{error:#}");
    }
}
