//! Events about the node itself: what its conditions turned to, whether it takes pods, that its machine was booted anew
//! (kubelet contract §5). Pure: says what is to be told of two states, and tells nobody.

use crate::events::Severity;
use crate::reason::{event, node};
use k8s_openapi::api::core::v1::NodeStatus;

/// An event to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) severity: Severity,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

fn now_is(name: &str, reason: &'static str) -> Notice {
    Notice {
        severity: Severity::Normal,
        reason,
        message: format!("Node {name} status is now: {reason}"),
    }
}

/// A condition's type, and the reasons of the events where it becomes true and where it becomes false.
const CONDITIONS: [(&str, &str, &str); 4] = [
    (
        node::MEMORY_PRESSURE,
        event::NODE_HAS_INSUFFICIENT_MEMORY,
        event::NODE_HAS_SUFFICIENT_MEMORY,
    ),
    (
        node::DISK_PRESSURE,
        event::NODE_HAS_DISK_PRESSURE,
        event::NODE_HAS_NO_DISK_PRESSURE,
    ),
    (
        node::PID_PRESSURE,
        event::NODE_HAS_INSUFFICIENT_PID,
        event::NODE_HAS_SUFFICIENT_PID,
    ),
    (node::READY, event::NODE_READY, event::NODE_NOT_READY),
];

fn condition<'a>(status: Option<&'a NodeStatus>, kind: &str) -> Option<&'a str> {
    let mut conditions = status?.conditions.iter().flatten();
    conditions.find(|c| c.type_ == kind).map(|c| c.status.as_str())
}

/// What is to be told when a status follows another. Of a node that had none yet its readiness is no news: it was never else.
pub(super) fn of_status(name: &str, old: Option<&NodeStatus>, new: &NodeStatus) -> Vec<Notice> {
    let turned = CONDITIONS.iter().filter_map(|(kind, holds, holds_not)| {
        let (before, now) = (condition(old, kind), condition(Some(new), kind)?);
        let first_of_readiness = before.is_none() && *kind == node::READY;
        let reason = if now == "True" { holds } else { holds_not };
        (before != Some(now) && !first_of_readiness).then(|| now_is(name, reason))
    });
    turned.collect()
}

/// What is to be told of a machine that runs by another boot than the node's object says.
pub(super) fn of_boot(name: &str, old: &NodeStatus, boot_id: &str) -> Option<Notice> {
    let before = old.node_info.as_ref().map(|info| info.boot_id.as_str());
    before.filter(|before| !before.is_empty() && *before != boot_id)?;
    Some(Notice {
        severity: Severity::Warning,
        reason: event::REBOOTED,
        message: format!("Node {name} has been rebooted, boot id: {boot_id}"),
    })
}

/// What is to be told when the node takes new pods, or no longer does.
pub(super) fn of_scheduling(name: &str, was_unschedulable: bool, is_unschedulable: bool) -> Option<Notice> {
    let reason = if is_unschedulable {
        event::NODE_NOT_SCHEDULABLE
    } else {
        event::NODE_SCHEDULABLE
    };
    (was_unschedulable != is_unschedulable).then(|| now_is(name, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(conditions: &[(&str, &str)]) -> NodeStatus {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(kind, status)| json!({"type": kind, "status": status}))
            .collect();
        serde_json::from_value(json!({ "conditions": conditions })).expect("a status")
    }

    #[test]
    fn conditions_are_told_when_they_turn() {
        let well = [
            ("MemoryPressure", "False"),
            ("DiskPressure", "False"),
            ("PIDPressure", "False"),
        ];
        let with = |more: &[(&str, &str)]| {
            let all: Vec<_> = more.iter().chain(&well).copied().collect();
            status(&all)
        };
        let sufficient = [
            "NodeHasSufficientMemory",
            "NodeHasNoDiskPressure",
            "NodeHasSufficientPID",
        ];
        for (what, old, new, expected) in [
            ("a new node", None, with(&[("Ready", "False")]), &sufficient[..]),
            (
                "one that only others described",
                Some(status(&[])),
                with(&[]),
                &sufficient,
            ),
            (
                "nothing turned",
                Some(with(&[("Ready", "True")])),
                with(&[("Ready", "True")]),
                &[],
            ),
            (
                "ready",
                Some(with(&[("Ready", "False")])),
                with(&[("Ready", "True")]),
                &["NodeReady"],
            ),
            (
                "ready after nobody heard of it",
                Some(with(&[("Ready", "Unknown")])),
                with(&[("Ready", "True")]),
                &["NodeReady"],
            ),
            (
                "no longer ready",
                Some(with(&[("Ready", "True")])),
                with(&[("Ready", "False")]),
                &["NodeNotReady"],
            ),
            (
                "short of everything",
                Some(with(&[])),
                status(&[
                    ("MemoryPressure", "True"),
                    ("DiskPressure", "True"),
                    ("PIDPressure", "True"),
                ]),
                &[
                    "NodeHasInsufficientMemory",
                    "NodeHasDiskPressure",
                    "NodeHasInsufficientPID",
                ],
            ),
        ] {
            let told = of_status("n", old.as_ref(), &new);
            let reasons: Vec<_> = told.iter().map(|notice| notice.reason).collect();
            assert_eq!(reasons, expected, "{what}");
            for notice in told {
                assert_eq!(notice.message, format!("Node n status is now: {}", notice.reason));
            }
        }
    }

    #[test]
    fn another_boot_is_told_and_a_first_one_is_not() {
        let of = |boot: &str| -> NodeStatus {
            let info = json!({"architecture": "", "bootID": boot, "containerRuntimeVersion": "", "kernelVersion": "",
                "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
                "systemUUID": ""});
            serde_json::from_value(json!({ "nodeInfo": info })).expect("a status")
        };
        let told = of_boot("n", &of("one"), "two").expect("told");
        assert_eq!(
            (told.severity, told.reason, told.message.as_str()),
            (Severity::Warning, "Rebooted", "Node n has been rebooted, boot id: two")
        );
        for (old, new) in [("one", "one"), ("", "two")] {
            assert_eq!(of_boot("n", &of(old), new), None, "{old} {new}");
        }
        assert_eq!(of_boot("n", &NodeStatus::default(), "two"), None);
    }

    #[test]
    fn cordons_are_told() {
        let reason = |was, is| of_scheduling("n", was, is).map(|notice| notice.reason);
        assert_eq!(reason(false, true), Some("NodeNotSchedulable"));
        assert_eq!(reason(true, false), Some("NodeSchedulable"));
        assert_eq!((reason(false, false), reason(true, true)), (None, None));
    }
}
