//! Volumes: how long their mounting and unmounting takes, how many there are, and images as volumes (kubelet contract §13).
//!
//! Statistics of volumes (`kubelet_volume_stats_*`) are of claims alone, upstream too: none is here before claims are.

use super::labels::{Histograms, Labels, Numbers, counter, histograms, label, numbers};
use crate::pod::view::PodSnapshot;
use crate::volume;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Seconds.
const OPERATION_BUCKETS: &[f64] = &[
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0,
];

/// What is done to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeOperation {
    /// It is made ready for its pod.
    Mount,
    /// It is taken away.
    Unmount,
}

/// Counts what becomes of volumes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct VolumeMetrics {
    operations: Histograms,
    total: Numbers,
    images: Counter,
    images_mounted: Counter,
    images_failed: Counter,
}

impl VolumeMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let r = registry;
        Self {
            operations: histograms(
                r,
                "storage_operation_duration_seconds",
                "Time that work on volumes took, by kind of volume and of work",
                OPERATION_BUCKETS,
            ),
            total: numbers(
                r,
                "volume_manager_total_volumes",
                "Volumes of the pods here, as they are wanted and as they are",
            ),
            images: counter(
                r,
                "kubelet_image_volume_requested",
                "Images that containers mount as volumes",
            ),
            images_mounted: counter(
                r,
                "kubelet_image_volume_mounted_succeed",
                "Mounts of images as volumes that worked",
            ),
            images_failed: counter(
                r,
                "kubelet_image_volume_mounted_errors",
                "Mounts of images as volumes that failed",
            ),
        }
    }

    /// Counts work on a volume and how it ended. Plugins are a fixed set.
    pub fn did(&self, operation: VolumeOperation, plugin: &'static str, took: Duration, worked: bool) {
        let of = vec![
            ("volume_plugin", plugin.into()),
            (
                "operation_name",
                match operation {
                    VolumeOperation::Mount => "volume_mount",
                    VolumeOperation::Unmount => "volume_unmount",
                }
                .into(),
            ),
            ("status", if worked { "success" } else { "fail-unknown" }.into()),
            ("migrated", "false".into()),
        ];
        self.operations.get_or_create(&of).observe(took.as_secs_f64());
    }

    /// Counts the images a container to be started mounts, by `mounts`; whether they were mounted, where that is known.
    pub fn images(&self, volumes: usize, mounts: usize, mounted: Option<bool>) {
        let count = |number| u64::try_from(number).unwrap_or(u64::MAX);
        self.images.inc_by(count(volumes));
        match mounted {
            Some(true) => self.images_mounted.inc_by(count(mounts)),
            Some(false) => self.images_failed.inc_by(count(mounts)),
            None => 0,
        };
    }

    /// Counts the volumes there are now.
    pub(super) fn count(&self, pods: &[Arc<PodSnapshot>]) {
        let mut numbers: BTreeMap<(&'static str, &'static str), f64> = BTreeMap::new();
        for pod in pods {
            for plugin in volume::plugins(&pod.pod) {
                // Those there once were are told as none, so that nobody takes an old number for the present one.
                let (wanted, there) = (!pod.life.ending, pod.life.volumes);
                *numbers.entry(("desired_state_of_world", plugin)).or_default() += f64::from(u8::from(wanted));
                *numbers.entry(("actual_state_of_world", plugin)).or_default() += f64::from(u8::from(there));
            }
        }
        self.total.clear();
        for ((state, plugin), number) in numbers.into_iter().filter(|(_, number)| *number > 0.0) {
            self.total.get_or_create(&counted(plugin, state)).set(number);
        }
    }
}

fn counted(plugin: &'static str, state: &'static str) -> Labels {
    let mut of = label("plugin_name", plugin);
    of.push(("state", state.into()));
    of
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::view::Life;
    use crate::runtime::observed::ObservedPod;
    use k8s_openapi::api::core::v1::Pod;
    use prometheus_client::encoding::text::encode;
    use serde_json::json;

    #[test]
    fn volumes_are_counted_by_plugin_as_they_are_wanted_and_as_they_are() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {
            "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "secret": {"secretName": "s"}}, {"name": "unused", "emptyDir": {}},
                {"name": "c", "emptyDir": {}}],
            "containers": [{"name": "c", "volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/b"},
                {"name": "c", "mountPath": "/c"}]}]}}))
        .expect("a pod");
        let pod = Arc::new(pod);
        let snapshot = |volumes, ending| {
            Arc::new(PodSnapshot {
                pod: pod.clone(),
                status: Arc::default(),
                observed: Arc::new(ObservedPod::empty("u".into())),
                active: true,
                ended: false,
                life: Life {
                    present: true,
                    ending,
                    volumes,
                },
            })
        };
        let mut registry = Registry::default();
        let metrics = VolumeMetrics::register(&mut registry);
        let counted = |pods: &[Arc<PodSnapshot>]| {
            metrics.count(pods);
            let mut text = String::new();
            encode(&mut text, &registry).expect("text");
            let lines = text
                .lines()
                .filter_map(|line| line.strip_prefix("volume_manager_total_volumes{plugin_name="));
            let mut lines: Vec<String> = lines.map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let line = |plugin: &str, state: &str, number: u8| {
            format!("\"kubernetes.io/{plugin}\",state=\"{state}_state_of_world\"}} {number}.0")
        };
        assert_eq!(
            counted(&[snapshot(true, false), snapshot(false, false), snapshot(true, true)]),
            [
                line("empty-dir", "actual", 4),
                line("empty-dir", "desired", 4),
                line("secret", "actual", 2),
                line("secret", "desired", 2),
            ]
        );
        assert_eq!(counted(&[snapshot(false, true)]), [""; 0]);
    }
}
