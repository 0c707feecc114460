//! What is done to the cgroup of a pod that has to go while memory runs out, past the runtime, which may have to wait for memory itself.

use super::hierarchy::Hierarchy;
use super::{CgroupError, Cgroups, Inner};
use crate::id::PodUid;

/// Lifts all that a kubelet before this one restrained: it may not have come to end those pods, which would crawl for ever. Nothing else
/// uses `memory.high` of a pod's cgroup.
pub(super) fn release_all(inner: &Inner, tree: &Hierarchy) -> Result<(), CgroupError> {
    for uid in inner.pods(tree)? {
        let paths = inner.settings.naming.pod_candidates(uid.as_str());
        paths.iter().for_each(|path| tree.release(path));
    }
    Ok(())
}

impl Cgroups {
    /// Lets the pod's processes take hardly any memory beyond what they have: each wait for more is long (`memory.high`). They go on otherwise.
    /// On v1 there is no such thing.
    ///
    /// # Errors
    /// A cgroup hangs.
    pub async fn restrain_pod(&self, uid: &PodUid) -> Result<(), CgroupError> {
        let key = format!("{uid} restrain");
        let uid = uid.clone();
        let restrain = move |inner: &Inner, tree: &Hierarchy| {
            let paths = inner.settings.naming.pod_candidates(uid.as_str());
            paths.iter().for_each(|path| tree.restrain(path));
            Ok(())
        };
        self.work(&key, restrain, ()).await
    }

    /// Kills everything that runs in the pod's cgroup, in any QoS class, past the runtime. The kernel does it as one; where it has no file
    /// for that, process by process.
    ///
    /// # Errors
    /// A cgroup hangs.
    pub async fn kill_pod(&self, uid: &PodUid) -> Result<(), CgroupError> {
        // Not behind other work on this pod, which may wait for memory.
        let key = format!("{uid} kill");
        let uid = uid.clone();
        let kill = move |inner: &Inner, tree: &Hierarchy| {
            for path in inner.settings.naming.pod_candidates(uid.as_str()) {
                if !tree.kill(&path) {
                    inner.end_strays(tree, &path);
                }
            }
            Ok(())
        };
        self.work(&key, kill, ()).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CgroupDriver, CgroupNaming, CgroupSettings};
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn who_was_restrained_by_a_kubelet_that_died_is_free_again() {
        let mount = tempfile::tempdir().expect("temp dir");
        fs::write(mount.path().join("cgroup.controllers"), "memory\n").expect("written");
        let naming = CgroupNaming {
            driver: CgroupDriver::Cgroupfs,
            root: "/".to_owned(),
            per_qos: true,
        };
        let dir = mount.path().join("kubepods/burstable/podu-1");
        fs::create_dir_all(&dir).expect("made");
        for (file, text) in [("memory.current", "700\n"), ("memory.high", "max\n")] {
            fs::write(dir.join(file), text).expect("written");
        }
        let high = || fs::read_to_string(dir.join("memory.high")).expect("there");
        let open = || Cgroups::open(mount.path(), "/nowhere", CgroupSettings::with_defaults(naming.clone()));
        let first = open().expect("a tree");
        first.setup().await.expect("set up");
        assert_eq!(high(), "max\n", "nothing is written where nothing is to be lifted");
        first.restrain_pod(&"u-1".into()).await.expect("restrained");
        assert!(high().starts_with("700"));
        let second = open().expect("a tree");
        second.setup().await.expect("set up");
        assert_eq!(high(), "max");
    }
}
