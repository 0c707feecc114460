//! What cgroups of pods have used.
//!
//! Whoever asks may have to act at once, as eviction does: reading waits for no other work on the cgroup, which may wait for systemd, half a
//! minute for each of its jobs.

use super::{CgroupError, Cgroups, TREE, Usage, uid_of};
use k8s_openapi::api::core::v1::Pod;
use std::path::PathBuf;

impl Cgroups {
    /// The file by which the kernel tells that pods together are at the limit of their memory (`memory.events.local`,
    /// cgroup-v2.rst; without `.local` each container at a limit of its own would be told, too); nothing where they are held to none, or
    /// the trees are cgroup v1's.
    pub fn limit_events(&self) -> Option<PathBuf> {
        self.memory_limit()?;
        let tree = self.inner.hierarchy.as_ref().filter(|tree| tree.is_unified())?;
        let kubepods = self.inner.settings.naming.kubepods();
        let below = tree.tree_of("memory")?.join(kubepods.trim_start_matches('/'));
        Some(below.join("memory.events.local"))
    }

    /// CPU time and memory of a pod, or of all pods for `None`; `None` inside where the kernel says nothing.
    ///
    /// # Errors
    /// A cgroup hangs.
    pub async fn usage(&self, pod: Option<Pod>) -> Result<Usage, CgroupError> {
        let of = pod.as_ref().map_or_else(|| TREE.to_owned(), uid_of);
        self.work(
            &format!("{of} usage"),
            move |inner, tree| {
                let path = match &pod {
                    Some(pod) => inner.settings.naming.pod(pod),
                    None => inner.settings.naming.kubepods(),
                };
                Ok(tree.usage(&path))
            },
            Usage::default(),
        )
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CgroupDriver, CgroupNaming, CgroupSettings};
    use super::*;
    use crate::pod::spec::testing::pod;
    use std::sync::mpsc;
    use std::time::Duration;

    #[tokio::test]
    async fn what_is_used_is_told_while_other_work_on_the_same_cgroup_hangs() {
        let mount = tempfile::tempdir().expect("temp dir");
        std::fs::write(mount.path().join("cgroup.controllers"), "memory\n").expect("written");
        let naming = CgroupNaming {
            driver: CgroupDriver::Cgroupfs,
            root: "/".to_owned(),
            per_qos: true,
        };
        let pod = pod(r#"{"containers":[{"name":"c"}]}"#);
        for (path, bytes) in [(naming.kubepods(), "700\n"), (naming.pod(&pod), "300\n")] {
            let dir = mount.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(&dir).expect("made");
            std::fs::write(dir.join("memory.current"), bytes).expect("written");
        }
        let settings = CgroupSettings::with_defaults(naming);
        let cgroups = Cgroups::open(mount.path(), "/nowhere", settings).expect("a tree");
        // As a call of systemd's does that is not answered.
        let mut hung = Vec::new();
        for key in [TREE.to_owned(), uid_of(&pod)] {
            let (go_on, hangs) = mpsc::channel::<()>();
            let (begun, is_begun) = tokio::sync::oneshot::channel();
            let job = cgroups
                .files
                .run(&key, move || begun.send(()).is_ok() && hangs.recv().is_ok());
            let job = tokio::spawn(job);
            is_begun.await.expect("begun");
            hung.push((go_on, job));
        }
        for (of, bytes) in [(None, 700), (Some(pod), 300)] {
            let told = tokio::time::timeout(Duration::from_secs(60), cgroups.usage(of)).await;
            let told = told.expect("it waits for nobody").expect("told");
            assert_eq!(told.memory, Some(bytes));
        }
        for (go_on, job) in hung {
            go_on.send(()).expect("it hangs still");
            assert_eq!(job.await.expect("ended").ok(), Some(true));
        }
    }
}
