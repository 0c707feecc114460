//! The machine of a node under test: its files, and what they say is left of it.

use super::Bench;
use crate::host::machine::Roots;
use serde_json::json;
use std::path::PathBuf;

impl Bench {
    /// Where something in a pod's volumes is.
    pub(crate) fn volume_path(&self, pod: &str, volume: &str) -> PathBuf {
        self.root.path().join(format!("kubelet/pods/{pod}/volumes/{volume}"))
    }

    /// The directory of static pods.
    pub(crate) fn manifests(&self) -> PathBuf {
        self.root.path().join("manifests")
    }

    /// Writes a static pod whose container has that image, in place of what the file had.
    pub(crate) fn write_manifest(&self, file: &str, pod: &str, image: &str) {
        std::fs::create_dir_all(self.manifests()).expect("a directory");
        let manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": "ns"},
            "spec": {"containers": [{"name": "c", "image": image, "imagePullPolicy": "IfNotPresent"}]}});
        std::fs::write(self.manifests().join(file), manifest.to_string()).expect("a manifest");
    }

    /// Where its kubelets are told what is left of it.
    pub(super) fn machine(&self) -> Roots {
        Roots {
            proc: self.root.path().join("proc"),
            ..Roots::default()
        }
    }

    /// Sets how much memory is left of 1 GiB, MiB.
    pub(crate) fn set_memory_left(&self, mib: u64) {
        let text = format!(
            "MemTotal: 1048576 kB\nMemFree: {} kB\nInactive(file): 0 kB\n",
            mib * 1024
        );
        self.tell_machine("meminfo", &text);
    }

    /// Sets how many of 1000 process ids are left.
    pub(crate) fn set_pids_left(&self, left: u64) {
        self.tell_machine("loadavg", &format!("0.00 0.00 0.00 1/{} 1\n", 1000 - left));
        self.tell_machine("sys/kernel/pid_max", "1000\n");
    }

    /// Whole or not at all: a kubelet may be reading.
    fn tell_machine(&self, file: &str, text: &str) {
        let path = self.machine().proc.join(file);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path.with_extension("new"), text).expect("a file");
        std::fs::rename(path.with_extension("new"), path).expect("a file");
    }

    /// The node's resolver configuration.
    pub(crate) fn resolv_conf(&self) -> PathBuf {
        self.root.path().join("resolv.conf")
    }

    /// The node's own hosts file.
    pub(crate) fn hosts(&self) -> PathBuf {
        self.root.path().join("hosts")
    }

    /// The hosts file that was made for a pod.
    pub(crate) fn hosts_of(&self, pod: &str) -> String {
        let path = self.root.path().join(format!("kubelet/pods/{pod}/etc-hosts"));
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// Leaves the directory of a pod with a mount in it, as a kubelet that died does; gives the mount point.
    pub(crate) fn leave(&self, pod: &str) -> PathBuf {
        let point = self.volume_path(pod, "v");
        std::fs::create_dir_all(&point).expect("a directory");
        crate::host::Mounter::tmpfs(&*self.mounter, &point, "").expect("a mount");
        point
    }

    /// The kubelet's root directory.
    pub(crate) fn root_dir(&self) -> PathBuf {
        self.root.path().join("kubelet")
    }

    /// Directories left of pods.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let pods = self.root.path().join("kubelet/pods");
        let entries = std::fs::read_dir(pods).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }
}
