//! The mark of a pod's end in its directory: since when its containers are being stopped, and with how much grace.
//!
//! It is of this kubelet alone, so that the next one goes on with what is left of the grace instead of beginning it anew.
//! A mark is there whole or not at all, and goes with the pod's directory.

use super::VolumeError;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;

const FILE_NAME: &str = "ending";

/// The end of a pod, as the kubelet that began it left it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ending {
    /// When it began.
    pub since: Timestamp,
    /// The grace from then on, seconds.
    pub grace_seconds: i64,
    /// The message of a pod that outgrew its limits on local storage: what it wrote may be gone when it is looked at again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_exceeded: Option<String>,
    /// Why a pod fails that went for the node's sake: the node may have recovered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Failed>,
}

/// Reason and message of a pod that fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Pod-level reason.
    pub reason: String,
    /// Pod-level message.
    pub message: String,
}

/// What is marked; what cannot be read or understood is nothing.
pub(super) fn read(pod_dir: &Path) -> Option<Ending> {
    serde_json::from_slice(&fs::read(pod_dir.join(FILE_NAME)).ok()?).ok()
}

/// Leaves the mark. A directory that is not there is not made: the pod may be going.
pub(super) fn write(pod_dir: &Path, ending: &Ending) -> Result<(), VolumeError> {
    if read(pod_dir).as_ref() == Some(ending) {
        return Ok(());
    }
    let path = pod_dir.join(FILE_NAME);
    // Containers of one pod are stopped side by side, each with a mark to leave.
    let new = pod_dir.join(format!("{FILE_NAME}.{:?}", std::thread::current().id()));
    let text = serde_json::to_vec(ending).map_err(io::Error::from);
    let written = text
        .and_then(|text| fs::write(&new, text))
        .and_then(|()| fs::rename(&new, &path));
    written.map_err(|why| VolumeError::PodDirectory { path, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_nonsense_is_none() {
        let dir = tempfile::tempdir().expect("temp dir");
        assert_eq!(read(dir.path()), None);
        let ending = Ending {
            since: "2026-01-02T03:04:05.678Z".parse().expect("a time"),
            grace_seconds: 30,
            storage_exceeded: None,
            failed: None,
        };
        write(dir.path(), &ending).expect("written");
        assert_eq!(read(dir.path()).as_ref(), Some(&ending));
        let shorter = Ending {
            grace_seconds: 5,
            storage_exceeded: Some("too much".to_owned()),
            ..ending
        };
        write(dir.path(), &shorter).expect("written");
        assert_eq!(read(dir.path()).as_ref(), Some(&shorter));
        let earlier = r#"{"since":"2026-01-02T03:04:05Z","graceSeconds":7}"#;
        fs::write(dir.path().join(FILE_NAME), earlier).expect("written");
        assert_eq!(
            read(dir.path()).map(|ending| ending.storage_exceeded),
            Some(None),
            "an older kubelet's"
        );
        assert_eq!(fs::read_dir(dir.path()).expect("dir").count(), 1);
        fs::write(dir.path().join(FILE_NAME), "{").expect("written");
        assert_eq!(read(dir.path()), None);
        assert!(write(&dir.path().join("gone"), &shorter).is_err());
    }
}
