//! Drop-in configuration: what the `*.conf` files below `--config-dir` change (kubelet contract §1).

use super::file;
use client::ordered::Arrange;
use serde_json::{Map, Value};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A drop-in that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum DropInError {
    /// It, or a directory, cannot be read.
    #[error("read {path}")]
    Read {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not a KubeletConfiguration.
    #[error("{path}: {}", mistakes.join("; "))]
    Mistakes {
        /// The file.
        path: PathBuf,
        /// All that is wrong with it.
        mistakes: Vec<String>,
    },
}

/// An error with all its causes.
pub(super) fn chain(error: &DropInError) -> String {
    let cause = std::error::Error::source(error).map(|source| format!(": {source}"));
    format!("{error}{}", cause.unwrap_or_default())
}

/// Merges every drop-in below the directory into the tree, in lexical order. All broken ones are told, not only the first.
pub(super) fn merge(tree: &mut Map<String, Value>, directory: &Path) -> Result<(), Vec<DropInError>> {
    let mut files = Vec::new();
    let mut errors = Vec::new();
    collect(directory, &mut files, &mut errors);
    for path in files {
        match read(&path) {
            Ok(changes) => {
                let mut whole = Value::Object(std::mem::take(tree));
                json_patch::merge(&mut whole, &Value::Object(changes));
                if let Value::Object(merged) = whole {
                    *tree = merged;
                }
            }
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Every `*.conf` below a directory, each directory's entries in the order of their names.
fn collect(directory: &Path, files: &mut Vec<PathBuf>, errors: &mut Vec<DropInError>) {
    let listed = fs::read_dir(directory).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let mut entries = match listed {
        Ok(entries) => entries,
        Err(source) => {
            errors.push(DropInError::Read {
                path: directory.to_owned(),
                source,
            });
            return;
        }
    };
    entries.arrange_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&path, files, errors);
        } else if path.extension().is_some_and(|extension| extension == "conf") {
            files.push(path);
        }
    }
}

fn read(path: &Path) -> Result<Map<String, Value>, DropInError> {
    let text = fs::read_to_string(path).map_err(|source| DropInError::Read {
        path: path.to_owned(),
        source,
    })?;
    file::parse(&text).map_err(|mistakes| DropInError::Mistakes {
        path: path.to_owned(),
        mistakes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

    fn merged(base: Value, files: &[(&str, String)]) -> Result<Value, Vec<String>> {
        let directory = tempfile::tempdir().expect("temp dir");
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, text).expect("write");
        }
        let Value::Object(mut tree) = base else {
            panic!("an object")
        };
        match merge(&mut tree, directory.path()) {
            Ok(()) => Ok(Value::Object(tree)),
            Err(errors) => Err(errors.iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn drop_ins_are_merged_in_the_order_of_their_names() {
        let result = merged(
            json!({"port": 1, "clusterDNS": ["a", "b"], "evictionHard": {"x": "1", "y": "2"}, "maxPods": 5}),
            &[
                (
                    "20-last.conf",
                    format!("{HEAD}port: 20\nevictionHard: {{y: null, z: \"3\"}}\n"),
                ),
                (
                    "10-dir/a.conf",
                    format!("{HEAD}port: 10\nclusterDNS: [c]\nmaxPods: null\n"),
                ),
                ("10-dir/ignored.yaml", "broken: [".into()),
            ],
        );
        let mut result = result.expect("sound");
        for head in ["apiVersion", "kind"] {
            result.as_object_mut().expect("an object").remove(head);
        }
        assert_eq!(
            result,
            json!({"port": 20, "clusterDNS": ["c"], "evictionHard": {"x": "1", "z": "3"}})
        );
    }

    #[test]
    fn every_broken_drop_in_is_told() {
        let errors =
            merged(json!({}), &[("a.conf", "port: 1\n".into()), ("b.conf", "x: [".into())]).expect_err("broken");
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(
            errors[0].contains("a.conf") && errors[0].contains("apiVersion: must be"),
            "{errors:?}"
        );
        let absent = merge(&mut Map::new(), Path::new("/nowhere/at/all")).expect_err("absent");
        assert!(absent[0].to_string().contains("/nowhere/at/all"));
    }
}
