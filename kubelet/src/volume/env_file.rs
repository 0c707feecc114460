//! Files in a pod's volumes that its containers' variables are taken from (KEP-3721). Containers write them: a path that leads out
//! of its volume, or to something that is no plain file, is refused; of a file no more is read than it may have, and of what is read
//! no more is kept than was asked for.

use super::env_format::{EnvFileValues, lookup};
use super::{HostVolume, VolumeError, Volumes};
use crate::host::beneath;
use crate::id::PodUid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::Path;

/// The most such a file may have, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The longest value, bytes.
const VALUE_BYTES_MAX: usize = 32 << 10;
/// The most that is kept of all files of a container, bytes.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// How many files a container may name.
const FILES_MAX: usize = 64;

/// Which file: the volume's name, and the path inside it.
pub type EnvFile = (String, String);

impl Volumes {
    /// What these files of a pod tell of the variables wanted of each; files that are not there are not in the answer.
    ///
    /// # Errors
    /// One is there and cannot be read, or they are too many or tell too much.
    pub async fn env_files(
        &self,
        pod: &PodUid,
        volumes: &BTreeMap<String, HostVolume>,
        wanted: BTreeMap<EnvFile, BTreeSet<String>>,
    ) -> Result<BTreeMap<EnvFile, EnvFileValues>, VolumeError> {
        let wanted: Vec<_> = wanted
            .into_iter()
            .filter_map(|(file, keys)| Some((volumes.get(&file.0)?.path.clone(), file, keys)))
            .collect();
        if wanted.is_empty() {
            return Ok(BTreeMap::new());
        }
        if wanted.len() > FILES_MAX {
            return Err(VolumeError::EnvFiles("more than 64 of them are named"));
        }
        self.files(pod, move |_| {
            let (mut found, mut kept) = (BTreeMap::new(), 0);
            for (root, file, keys) in wanted {
                match read(&root, Path::new(&file.1)) {
                    Ok(text) => {
                        let told = lookup(&text, &keys, VALUE_BYTES_MAX);
                        kept += told.values.values().flatten().map(String::len).sum::<usize>();
                        if kept > KEPT_BYTES_MAX {
                            return Err(VolumeError::EnvFiles("their values have more than 1 MiB together"));
                        }
                        found.insert(file, told);
                    }
                    Err(why) if why.kind() == io::ErrorKind::NotFound => {}
                    Err(why) => {
                        let (volume, path) = file;
                        return Err(VolumeError::EnvFile { volume, path, why });
                    }
                }
            }
            Ok(found)
        })
        .await
    }
}

fn read(root: &Path, relative: &Path) -> io::Result<String> {
    let found = beneath::find(root, relative)?;
    // Looked at before it is opened: a pipe would be waited for.
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    if !fs::metadata(&path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(&path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let why = format!("it has more than {FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    // The runtime takes nothing but text.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_plain_files_of_the_volume_are_read() {
        let dir = tempfile::tempdir().expect("temp dir");
        let root = dir.path().join("volume");
        fs::create_dir_all(root.join("sub")).expect("dirs");
        fs::write(root.join("sub/env"), "A='b'\n").expect("written");
        fs::write(dir.path().join("secret"), "S='x'\n").expect("written");
        symlink("../../secret", root.join("sub/out")).expect("linked");
        symlink("env", root.join("sub/in")).expect("linked");
        nix::unistd::mkfifo(&root.join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        fs::write(root.join("large"), vec![b'a'; (1 << 20) + 1]).expect("written");
        let text = |path: &str| read(&root, Path::new(path)).map_err(|error| error.kind());
        assert_eq!(text("sub/env").as_deref(), Ok("A='b'\n"));
        assert_eq!(text("sub/in").as_deref(), Ok("A='b'\n"));
        assert_eq!(text("none"), Err(io::ErrorKind::NotFound));
        assert!(!root.join("none").exists(), "what is missing is not made");
        for bad in ["sub/out", "pipe", "sub", "large", "../secret"] {
            assert!(text(bad).is_err_and(|kind| kind != io::ErrorKind::NotFound), "{bad}");
        }
    }
}
