//! What a container uses, from CRI's words to ours. Pure.

use super::super::ContainerUsage;
use crate::id::PodUid;
use crate::runtime::labels;
use proto::cri as pb;

pub(super) fn usage(stats: pb::ContainerStats) -> ContainerUsage {
    let value = |value: Option<pb::UInt64Value>| value.map(|value| value.value);
    let attributes = stats.attributes.unwrap_or_default();
    let label = |name: &str| attributes.labels.get(name).cloned();
    let (cpu, memory) = (stats.cpu.unwrap_or_default(), stats.memory.unwrap_or_default());
    let swap = stats.swap.unwrap_or_default();
    let layer = stats.writable_layer.unwrap_or_default();
    ContainerUsage {
        pod: label(labels::POD_UID).map(PodUid::from),
        name: label(labels::CONTAINER_NAME).unwrap_or_default(),
        at_nanos: cpu.timestamp.max(memory.timestamp),
        cpu_nanos: value(cpu.usage_core_nano_seconds),
        cpu_rate: value(cpu.usage_nano_cores),
        working_set: value(memory.working_set_bytes),
        memory: value(memory.usage_bytes),
        rss: value(memory.rss_bytes),
        swap: value(swap.swap_usage_bytes),
        swap_left: value(swap.swap_available_bytes),
        layer: value(layer.used_bytes).zip(value(layer.inodes_used)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_told_is_not_zero() {
        let value = |value| Some(pb::UInt64Value { value });
        let stats = pb::ContainerStats {
            attributes: Some(pb::ContainerAttributes {
                labels: [
                    (labels::CONTAINER_NAME.to_owned(), "c".to_owned()),
                    (labels::POD_UID.to_owned(), "u".to_owned()),
                ]
                .into(),
                ..Default::default()
            }),
            cpu: Some(pb::CpuUsage {
                timestamp: 5,
                usage_core_nano_seconds: value(7),
                ..Default::default()
            }),
            swap: Some(pb::SwapUsage {
                swap_usage_bytes: value(3),
                swap_available_bytes: value(4),
                ..Default::default()
            }),
            ..Default::default()
        };
        let expected = ContainerUsage {
            pod: Some("u".into()),
            name: "c".into(),
            at_nanos: 5,
            cpu_nanos: Some(7),
            swap: Some(3),
            swap_left: Some(4),
            ..ContainerUsage::default()
        };
        assert_eq!(usage(stats), expected);
    }
}
