//! What containers' logs take on disk: counted anew for everybody who asks within a second, and only then. Only the runtime and the
//! kubelet write there, a few files a container; the rest of what pods have is [`super::files`]'s.

use super::shared::Shared;
use crate::host::FileWork;
use crate::host::usage;
use crate::parts::Parts;
use crate::pod::spec;
use crate::pod_object;
use k8s_openapi::api::core::v1::Pod;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long is counted; what is not counted by then is absent.
const COUNT: Duration = Duration::from_secs(1);
/// How long whoever asks waits for a file system that hangs.
const DEADLINE: Duration = Duration::from_secs(2);

/// The logs of one container, rotated ones included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogUse {
    /// The pod's.
    pub uid: String,
    /// The pod's.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The container's name.
    pub container: String,
    /// Bytes on the file system.
    pub bytes: u64,
}

/// Counts logs.
pub struct Logs {
    work: FileWork,
    newest: Shared<Vec<LogUse>>,
}

impl Default for Logs {
    fn default() -> Self {
        Self {
            work: FileWork::new(DEADLINE),
            newest: Shared::default(),
        }
    }
}

impl Logs {
    /// What the containers of this node's pods have; a container that has no logs yet is absent.
    pub async fn of(&self, parts: &Parts) -> Arc<Vec<LogUse>> {
        self.newest.get(|_| true, self.anew(parts)).await
    }

    async fn anew(&self, parts: &Parts) -> Vec<LogUse> {
        let pods = parts.pods.list();
        let active = pods.iter().filter(|pod| pod.active);
        let places = active
            .flat_map(|pod| places(&pod.pod, &spec::pod_log_directory(&pod.pod, &parts.context)))
            .collect();
        let count = move |given_up: &AtomicBool| count(places, given_up);
        let counted = self.work.run_for("logs", COUNT, count).await;
        counted.unwrap_or_else(|error| {
            tracing::warn!(%error, "what containers' logs take cannot be counted");
            Vec::new()
        })
    }
}

/// Where the logs of a pod's containers are, nothing counted yet.
fn places(pod: &Pod, directory: &Path) -> Vec<(LogUse, PathBuf)> {
    let of = |text: &Option<String>| text.clone().unwrap_or_default();
    let place = |name: &String| {
        let log = LogUse {
            uid: of(&pod.metadata.uid),
            namespace: of(&pod.metadata.namespace),
            pod: of(&pod.metadata.name),
            container: name.clone(),
            bytes: 0,
        };
        (log, directory.join(name))
    };
    pod_object::containers(pod)
        .map(|(_, container)| place(&container.name))
        .collect()
}

/// Counts; a directory that is not there, or cannot be read, tells nothing.
fn count(places: Vec<(LogUse, PathBuf)>, given_up: &AtomicBool) -> Vec<LogUse> {
    let counted = |(mut log, path): (LogUse, PathBuf)| {
        let usage = usage::tree(&path, given_up).ok()?;
        log.bytes = usage.bytes;
        (usage.inodes > 0 && !usage.incomplete).then_some(log)
    };
    places.into_iter().filter_map(counted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::spec::testing::pod;
    use std::fs;

    #[test]
    fn each_containers_files_are_counted_and_no_others() {
        let dir = tempfile::tempdir().expect("temp dir");
        let pod = pod(r#"{"initContainers":[{"name":"first"}],"containers":[{"name":"web"},{"name":"new"}]}"#);
        for (path, kib) in [
            ("web/0.log", 64),
            ("web/0.log.1", 32),
            ("first/0.log", 8),
            ("stray/0.log", 512),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("in a directory")).expect("made");
            fs::write(path, vec![b'x'; kib << 10]).expect("written");
        }
        let told = count(places(&pod, dir.path()), &AtomicBool::new(false));
        let names: Vec<&str> = told.iter().map(|log| log.container.as_str()).collect();
        assert_eq!(
            names,
            ["first", "web"],
            "what has no logs yet is not told, nor what is nobody's"
        );
        // A directory takes a block or two itself.
        let bounds = [8 << 10..32 << 10, 96 << 10..128 << 10];
        for (log, bounds) in told.iter().zip(bounds) {
            assert!(bounds.contains(&log.bytes), "{log:?}");
            assert_eq!(Some(log.uid.as_str()), pod.metadata.uid.as_deref());
        }
        let nobody = count(places(&pod, dir.path()), &AtomicBool::new(true));
        assert_eq!(nobody, [], "what is not counted to its end is not told");
    }
}
