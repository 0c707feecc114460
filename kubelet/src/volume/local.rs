//! Host paths and the size of memory volumes.

use super::SetUpError;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use proto::api::resources::{every_container_limits, pod_limits};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Makes or checks a host path as its type asks.
pub(super) fn check_host_path(path: &Path, kind: &str) -> Result<(), SetUpError> {
    let not_made = |what| {
        let path = path.to_owned();
        move |why| SetUpError::HostPathNotMade { what, path, why }
    };
    match kind {
        "" => return Ok(()),
        "DirectoryOrCreate" if !path.exists() => {
            let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
            return made.map_err(not_made("directory"));
        }
        "FileOrCreate" if !path.exists() => {
            let made = fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o644)
                .open(path);
            return match made {
                Ok(_) => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                Err(error) => Err(not_made("file")(error)),
            };
        }
        _ => {}
    }
    let found = fs::metadata(path).map(|m| m.file_type()).ok();
    let is = |test: fn(&fs::FileType) -> bool| found.as_ref().is_some_and(test);
    let (right, what) = match kind {
        "Directory" | "DirectoryOrCreate" => (is(fs::FileType::is_dir), "a directory"),
        "File" | "FileOrCreate" => (is(fs::FileType::is_file), "a file"),
        "Socket" => (is(FileTypeExt::is_socket), "a socket file"),
        "CharDevice" => (is(FileTypeExt::is_char_device), "a character device"),
        "BlockDevice" => (is(FileTypeExt::is_block_device), "a block device"),
        other => return Err(SetUpError::HostPathType(other.to_owned())),
    };
    if right {
        return Ok(());
    }
    let path = path.to_owned();
    Err(SetUpError::HostPathIsNot { path, what })
}

/// The size of a memory volume in bytes: the node's memory for pods, less where the pod as a whole or the volume is limited.
pub(super) fn memory_volume_size(pod: &Pod, size_limit: Option<i64>, node_memory: i64) -> i64 {
    let limited = |spec: &&PodSpec| every_container_limits(*spec, "memory");
    let of_pod = pod.spec.as_ref().filter(limited).and_then(|spec| {
        let limit = pod_limits(spec).get("memory")?.value();
        (limit > 0).then_some(limit)
    });
    let most = of_pod.unwrap_or(node_memory);
    size_limit.map_or(most, |limit| limit.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::spec::testing::pod;

    #[test]
    fn host_path_types() {
        let check_host_path = |path: &Path, kind: &str| check_host_path(path, kind).map_err(|error| error.to_string());
        let dir = tempfile::tempdir().expect("temp dir");
        let file = dir.path().join("file");
        fs::write(&file, "").expect("file");
        let new = dir.path().join("new/dir");
        assert_eq!(check_host_path(&new, "DirectoryOrCreate"), Ok(()));
        assert!(new.is_dir());
        assert_eq!(check_host_path(&dir.path().join("newfile"), "FileOrCreate"), Ok(()));
        assert!(check_host_path(&dir.path().join("no/parent"), "FileOrCreate").is_err());
        assert_eq!(check_host_path(Path::new("/nonexistent"), ""), Ok(()));
        assert_eq!(check_host_path(Path::new("/dev/null"), "CharDevice"), Ok(()));
        for (kind, what) in [
            ("Directory", "a directory"),
            ("DirectoryOrCreate", "a directory"),
            ("Socket", "a socket file"),
            ("CharDevice", "a character device"),
            ("BlockDevice", "a block device"),
        ] {
            let expected = format!("hostPath type check failed: {} is not {what}", file.display());
            assert_eq!(check_host_path(&file, kind), Err(expected), "{kind}");
        }
        assert!(check_host_path(dir.path(), "File").is_err());
    }

    #[test]
    fn memory_volumes_have_the_smallest_limit() {
        let limited = r#"{"containers":[{"name":"c","resources":{"limits":{"memory":"100"}}}]}"#;
        let half = r#"{"containers":[{"name":"c","resources":{"limits":{"memory":"100"}}},{"name":"d"}]}"#;
        let with_init = limited.replace(
            "{\"containers\"",
            r#"{"initContainers":[{"name":"i","resources":{"limits":{"memory":"300"}}}],"containers""#,
        );
        let of_pod = r#"{"resources":{"limits":{"memory":"400"}},"containers":[{"name":"c"}]}"#;
        for (spec, size_limit, expected) in [
            ("{}", None, 1000),
            ("{}", Some(10), 10),
            (limited, None, 100),
            (limited, Some(500), 100),
            (half, None, 1000),
            (half, Some(500), 500),
            (&with_init, None, 300),
            (of_pod, None, 400),
        ] {
            assert_eq!(
                memory_volume_size(&pod(spec), size_limit, 1000),
                expected,
                "{spec} {size_limit:?}"
            );
        }
    }
}
