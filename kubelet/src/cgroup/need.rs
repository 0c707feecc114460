//! What is done to the cgroup of a pod that has to go while memory runs out, past the runtime, which may have to wait for memory itself.

use super::hierarchy::Hierarchy;
use super::{CgroupError, Cgroups, Inner};
use crate::id::PodUid;

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
