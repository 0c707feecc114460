//! What is said of a pod that must go because the node runs short (kubelet contract §10). Pure; the words are upstream's.

use super::pressure::Reading;
use super::rank::{Candidate, ContainerUse};
use super::threshold::{Starved, Threshold};
use crate::pod_object;
use proto::api::quantity::Quantity;
use proto::api::resources::parse_list;
use std::collections::BTreeMap;

/// Keys of the event's annotations.
const OFFENDING_CONTAINERS: &str = "offending_containers";
const OFFENDING_CONTAINERS_USAGE: &str = "offending_containers_usage";
const OFFENDING_POD: &str = "offending_pod";
const OFFENDING_POD_USAGE: &str = "offending_pod_usage";
const STARVED_RESOURCE: &str = "starved_resource";

/// The message, and the annotations of the event that tells it.
pub(super) fn of(
    threshold: &Threshold,
    reading: Reading,
    candidate: &Candidate<'_>,
) -> (String, BTreeMap<String, String>) {
    let starved = threshold.signal.starved();
    let resource = starved.as_str();
    let (wanted, available) = (threshold.amount.of(reading.capacity), starved.amount(reading.available));
    let mut message = format!(
        "The node was low on resource: {resource}. Threshold quantity: {}, available: {}. ",
        shown(wanted),
        shown(available)
    );
    let Some(used) = &candidate.used else {
        return (message, BTreeMap::new());
    };
    let mut annotations = BTreeMap::new();
    let mut annotate = |key: &str, value: String| annotations.insert(key.to_owned(), value);
    let pod = candidate.pod;
    let asked = pod_object::spec(pod)
        .resources
        .as_ref()
        .and_then(|asked| asked.requests.as_ref());
    if let (Starved::Memory, Some(request), Some(memory)) = (starved, parse_list(asked).get(resource), used.memory) {
        let (name, usage) = (pod_object::name(pod), amount(starved, memory));
        let request = shown(*request);
        message.push_str(&format!(
            "Pod {name} was using {usage}, request is {request}, has larger consumption of {resource}. "
        ));
        annotate(OFFENDING_POD, name.to_owned());
        annotate(OFFENDING_POD_USAGE, usage);
    }
    let (mut names, mut usages) = (Vec::new(), Vec::new());
    for container in pod_object::regulars(pod).iter().chain(pod_object::inits(pod)) {
        let Some(usage) = used
            .containers
            .get(&container.name)
            .and_then(|used| consumed(starved, used))
        else {
            continue;
        };
        let asked = container.resources.as_ref().and_then(|asked| asked.requests.as_ref());
        let request = parse_list(asked).get(resource).copied().unwrap_or(Quantity::ZERO);
        if starved.amount(i64::try_from(usage).unwrap_or(i64::MAX)) <= request {
            continue;
        }
        let (name, usage, request) = (&container.name, amount(starved, usage), shown(request));
        message.push_str(&format!(
            "Container {name} was using {usage}, request is {request}, has larger consumption of {resource}. "
        ));
        names.push(name.as_str());
        usages.push(usage);
    }
    annotate(OFFENDING_CONTAINERS, names.join(","));
    annotate(OFFENDING_CONTAINERS_USAGE, usages.join(","));
    annotate(STARVED_RESOURCE, resource.to_owned());
    (message, annotations)
}

/// What a container has of what runs short, if that is known of containers at all.
fn consumed(starved: Starved, used: &ContainerUse) -> Option<u64> {
    match starved {
        Starved::Memory => used.memory,
        Starved::EphemeralStorage => Some(used.layer?.0.saturating_add(used.logs?.bytes)),
        Starved::Inodes | Starved::Pids => None,
    }
}

fn amount(starved: Starved, value: u64) -> String {
    shown(starved.amount(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn shown(amount: Quantity) -> String {
    amount.to_api().0
}

#[cfg(test)]
mod tests {
    use super::super::rank::PodUse;
    use super::super::threshold::{Amount, Signal};
    use super::*;
    use crate::host::usage::TreeUsage;
    use crate::pod::spec::testing::pod;
    use std::time::Duration;

    const SPEC: &str = r#"{"initContainers":[{"name":"side","restartPolicy":"Always"}],
        "containers":[{"name":"a","resources":{"requests":{"memory":"1Mi","ephemeral-storage":"1Ki"}}},{"name":"b"},{"name":"c"}]}"#;

    fn told(spec: &str, signal: Signal, percent: bool, used: Option<PodUse>) -> (String, BTreeMap<String, String>) {
        let pod = pod(spec);
        let amount = match percent {
            true => Amount::Percent(10.0),
            false => Amount::Quantity(Quantity::parse("100Mi").expect("a quantity")),
        };
        let threshold = Threshold {
            signal,
            amount,
            grace: Duration::ZERO,
            reclaim: None,
        };
        let reading = Reading {
            available: 50 << 20,
            capacity: 1 << 30,
        };
        of(&threshold, reading, &Candidate { pod: &pod, used })
    }

    fn used() -> PodUse {
        let container = |memory: u64, layer, logs: Option<u64>| ContainerUse {
            memory: Some(memory),
            layer: Some((layer, 1)),
            logs: logs.map(|bytes| TreeUsage {
                bytes,
                ..TreeUsage::default()
            }),
        };
        PodUse {
            memory: Some(10 << 20),
            processes: Some(7),
            containers: [
                ("a".to_owned(), container(1 << 20, 1000, Some(24))),
                ("b".to_owned(), container(4096, 1000, None)),
                ("side".to_owned(), container(2 << 20, 0, Some(1024))),
            ]
            .into(),
            volumes: TreeUsage::default(),
            ..PodUse::default()
        }
    }

    #[test]
    fn memory_names_what_was_wanted_what_was_left_and_who_has_more_than_it_asked_for() {
        let (message, annotations) = told(SPEC, Signal::MemoryAvailable, false, Some(used()));
        assert_eq!(
            message,
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
             Container b was using 4Ki, request is 0, has larger consumption of memory. \
             Container side was using 2Mi, request is 0, has larger consumption of memory. "
        );
        let expected = [
            ("offending_containers", "b,side"),
            ("offending_containers_usage", "4Ki,2Mi"),
            ("starved_resource", "memory"),
        ];
        let annotations: Vec<(&str, &str)> = annotations.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(annotations, expected);
    }

    #[test]
    fn a_pod_that_asks_as_a_whole_is_named_as_a_whole() {
        let spec = r#"{"resources":{"requests":{"memory":"3Mi"}},"containers":[{"name":"c"}]}"#;
        let (message, annotations) = told(spec, Signal::AllocatableMemoryAvailable, true, Some(used()));
        assert!(
            message.contains("was using 10Mi, request is 3Mi, has larger consumption of memory. "),
            "{message}"
        );
        assert_eq!(annotations.get("offending_pod_usage").map(String::as_str), Some("10Mi"));
    }

    #[test]
    fn disk_inodes_and_process_ids() {
        let (message, _) = told(SPEC, Signal::ImageFsAvailable, false, Some(used()));
        assert_eq!(
            message,
            "The node was low on resource: ephemeral-storage. Threshold quantity: 100Mi, available: 50Mi. \
             Container side was using 1Ki, request is 0, has larger consumption of ephemeral-storage. "
        );
        for (signal, begin) in [
            (
                Signal::NodeFsInodesFree,
                "The node was low on resource: inodes. Threshold quantity: 100Mi, available: 52428800. ",
            ),
            (
                Signal::PidAvailable,
                "The node was low on resource: pids. Threshold quantity: 100Mi, available: 52428800. ",
            ),
        ] {
            let (message, annotations) = told(SPEC, signal, false, Some(used()));
            assert_eq!(message, begin);
            assert_eq!(annotations.get("offending_containers").map(String::as_str), Some(""));
        }
        let (message, annotations) = told(SPEC, Signal::MemoryAvailable, false, None);
        assert!(
            message.ends_with("available: 50Mi. ") && annotations.is_empty(),
            "{message}"
        );
    }
}
