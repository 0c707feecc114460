//! How cgroups are named under each driver (kubelet contract §7). Pure.

use crate::id::PodUid;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use proto::api::qos::{QosClass, qos_class};

/// Who makes the cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupDriver {
    /// Plain directories.
    Cgroupfs,
    /// systemd slices.
    Systemd,
}

/// The names of a node's cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupNaming {
    /// The driver in force.
    pub driver: CgroupDriver,
    /// `cgroupRoot`, absolute; `/` when unset.
    pub root: String,
    /// `cgroupsPerQOS`: pods have cgroups of their own.
    pub per_qos: bool,
}

const CLASSES: [QosClass; 3] = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort];

fn class_of(pod: &Pod) -> QosClass {
    pod.spec.as_ref().map_or(QosClass::BestEffort, qos_class)
}

fn class_name(class: QosClass) -> Option<&'static str> {
    match class {
        QosClass::Guaranteed => None,
        QosClass::Burstable => Some("burstable"),
        QosClass::BestEffort => Some("besteffort"),
    }
}

impl CgroupNaming {
    fn root_parts(&self) -> impl Iterator<Item = &str> {
        self.root.split('/').filter(|part| !part.is_empty())
    }

    /// The path of a cgroup with these parts below the root, as this driver spells it. Each look at what pods use asks for all of theirs.
    fn path(&self, parts: &[&str]) -> String {
        let mut path = String::new();
        match self.driver {
            CgroupDriver::Cgroupfs => {
                for part in self.root_parts().chain(parts.iter().copied()) {
                    path.push('/');
                    path.push_str(part);
                }
            }
            CgroupDriver::Systemd => {
                let root = self.root_parts().map(|part| part.trim_end_matches(".slice"));
                let mut slice = String::new();
                for part in root.chain(parts.iter().copied()) {
                    if !slice.is_empty() {
                        slice.push('-');
                    }
                    slice.push_str(&part.replace('-', "_"));
                    path.push('/');
                    path.push_str(&slice);
                    path.push_str(".slice");
                }
            }
        }
        path
    }

    fn pod_in(&self, class: QosClass, uid: &str) -> String {
        let leaf = format!("pod{uid}");
        match class_name(class) {
            None => self.path(&["kubepods", &leaf]),
            Some(class) => self.path(&["kubepods", class, &leaf]),
        }
    }

    /// The cgroup of all pods.
    pub fn kubepods(&self) -> String {
        self.path(&["kubepods"])
    }

    /// The cgroup of a QoS class; Guaranteed pods are directly in [`Self::kubepods`].
    pub fn qos(&self, class: QosClass) -> String {
        match class_name(class) {
            None => self.kubepods(),
            Some(class) => self.path(&["kubepods", class]),
        }
    }

    /// The pod's cgroup.
    pub fn pod(&self, pod: &Pod) -> String {
        self.pod_in(class_of(pod), pod.metadata.uid.as_deref().unwrap_or_default())
    }

    /// The same, for whoever has the status the pod's worker made: its class, which never changes, need not be told anew from what all
    /// its containers ask for.
    pub fn pod_with(&self, pod: &Pod, status: &PodStatus) -> String {
        let told = status.qos_class.as_deref();
        let class = CLASSES.into_iter().find(|class| told == Some(class.as_str()));
        let class = class.unwrap_or_else(|| class_of(pod));
        self.pod_in(class, pod.metadata.uid.as_deref().unwrap_or_default())
    }

    /// Everywhere a pod of this UID can have its cgroup.
    pub fn pod_candidates(&self, uid: &str) -> [String; 3] {
        CLASSES.map(|class| self.pod_in(class, uid))
    }

    /// CRI's `cgroup_parent`: the full path, or under systemd the last slice's name; empty without cgroups per QoS class.
    pub fn pod_parent(&self, pod: &Pod) -> String {
        if !self.per_qos {
            return String::new();
        }
        let path = self.pod(pod);
        match self.driver {
            CgroupDriver::Cgroupfs => path,
            CgroupDriver::Systemd => path.rsplit('/').next().unwrap_or_default().to_owned(),
        }
    }

    /// The cgroup that a configuration names, of others' making: under systemd its last part is a slice, and says all above it.
    pub fn named(&self, name: &str) -> String {
        match self.driver {
            CgroupDriver::Cgroupfs => {
                let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).collect();
                format!("/{}", parts.join("/"))
            }
            CgroupDriver::Systemd => {
                let slice = name.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
                let parts: Vec<&str> = slice.trim_end_matches(".slice").split('-').collect();
                let slices = (1..=parts.len()).map(|n| format!("{}.slice", parts[..n].join("-")));
                format!("/{}", slices.collect::<Vec<_>>().join("/"))
            }
        }
    }

    /// The cgroup of all pods as upstream's messages spell it, a list of its parts.
    pub(super) fn kubepods_parts(&self) -> String {
        let parts = self.root_parts().chain(["kubepods"]);
        let parts: Vec<String> = parts.map(|part| format!("{part:?}")).collect();
        format!("[{}]", parts.join(" "))
    }

    /// The UID in the last part of a pod cgroup's path; `None` for other cgroups.
    pub fn uid_of(&self, name: &str) -> Option<PodUid> {
        match self.driver {
            CgroupDriver::Cgroupfs => PodUid::from_file_name(name.strip_prefix("pod")?),
            CgroupDriver::Systemd => {
                let (_, uid) = name.strip_suffix(".slice")?.rsplit_once("-pod")?;
                PodUid::from_file_name(&uid.replace('_', "-"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::spec::testing::pod;

    const GUARANTEED: &str = r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1","memory":"1Gi"}}}]}"#;
    const BURSTABLE: &str = r#"{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}"#;

    #[test]
    fn names() {
        let naming = |driver, root: &str| CgroupNaming {
            driver,
            root: root.into(),
            per_qos: true,
        };
        for (naming, spec, path, parent) in [
            (
                naming(CgroupDriver::Cgroupfs, "/"),
                GUARANTEED,
                "/kubepods/podu-1",
                "/kubepods/podu-1",
            ),
            (
                naming(CgroupDriver::Cgroupfs, "/skiff"),
                BURSTABLE,
                "/skiff/kubepods/burstable/podu-1",
                "/skiff/kubepods/burstable/podu-1",
            ),
            (
                naming(CgroupDriver::Cgroupfs, ""),
                "{}",
                "/kubepods/besteffort/podu-1",
                "/kubepods/besteffort/podu-1",
            ),
            (
                naming(CgroupDriver::Systemd, "/"),
                BURSTABLE,
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice",
                "kubepods-burstable-podu_1.slice",
            ),
            (
                naming(CgroupDriver::Systemd, "/"),
                GUARANTEED,
                "/kubepods.slice/kubepods-podu_1.slice",
                "kubepods-podu_1.slice",
            ),
        ] {
            assert_eq!(naming.pod(&pod(spec)), path);
            assert_eq!(naming.pod_parent(&pod(spec)), parent);
            let leaf = path.rsplit('/').next().expect("a last part");
            assert_eq!(naming.uid_of(leaf), Some(PodUid::from("u-1")), "{path}");
        }
    }

    #[test]
    fn a_class_that_is_told_is_taken_and_any_other_word_is_not() {
        let naming = CgroupNaming {
            driver: CgroupDriver::Cgroupfs,
            root: "/".into(),
            per_qos: true,
        };
        for (told, path) in [
            (Some("Guaranteed"), "/kubepods/podu-1"),
            (Some("BestEffort"), "/kubepods/besteffort/podu-1"),
            (Some("guaranteed"), "/kubepods/burstable/podu-1"),
            (None, "/kubepods/burstable/podu-1"),
        ] {
            let status = PodStatus {
                qos_class: told.map(str::to_owned),
                ..PodStatus::default()
            };
            assert_eq!(naming.pod_with(&pod(BURSTABLE), &status), path, "{told:?}");
        }
    }

    #[test]
    fn a_cgroup_that_names_no_pod_is_none_of_a_pod() {
        for (driver, leaves) in [
            (CgroupDriver::Cgroupfs, ["pod", "pod.", "pod..", "besteffort"]),
            (
                CgroupDriver::Systemd,
                ["kubepods-pod.slice", "kubepods-pod..slice", "pod.slice", "x"],
            ),
        ] {
            let naming = CgroupNaming {
                driver,
                root: "/".into(),
                per_qos: true,
            };
            for leaf in leaves {
                assert_eq!(naming.uid_of(leaf), None, "{leaf}");
            }
        }
    }

    #[test]
    fn without_cgroups_per_qos_there_is_no_parent() {
        let naming = CgroupNaming {
            driver: CgroupDriver::Cgroupfs,
            root: "/".into(),
            per_qos: false,
        };
        assert_eq!(naming.pod_parent(&pod("{}")), "");
    }
}
