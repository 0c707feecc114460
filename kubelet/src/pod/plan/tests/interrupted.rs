//! Starts that an earlier kubelet died over.

use super::*;
use serde_json::json;

/// A container of a pod that never restarts, as containerd 1.6 leaves one whose caller went away (`StartError`).
fn never_ran(policy: &str) -> Case {
    let mut seen = observed("p").sandbox(true).exited("c", 128, 50).build();
    seen.containers[0].started_at = None;
    Case::new(pod("p").policy(policy).build(), seen)
}

fn take(case: &mut Case) {
    let changes = case.plan().changes;
    changes.iter().for_each(|change| case.memory.take(change));
}

#[test]
fn a_container_that_never_ran_is_started_whatever_its_policy() {
    for policy in ["Never", "OnFailure", "Always"] {
        check(policy, &never_ran(policy), &["start c 1"]);
    }
    let mut case = never_ran("Never");
    take(&mut case);
    assert_eq!(case.memory.interrupted, [ContainerId::from("c0")].into());
    // Its status, with what looks like an end, is told before the next turn; and that start fails before there is a container.
    let ended = json!({"terminated": {"exitCode": 128, "containerID": "containerd://c0"}});
    let status = json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": ended});
    case.pod.status = serde_json::from_value(json!({"containerStatuses": [status]})).expect("a status");
    case.memory.waiting.insert(
        "c".into(),
        Waiting {
            reason: "CreateContainerError".into(),
            message: String::new(),
        },
    );
    check("told, and tried in vain", &case, &["start c 1"]);
    case.memory.interrupted.clear();
    check("told by an earlier kubelet", &case, &["=> Complete"]);
    case.pod.status = None;
    check("failed in this kubelet", &case, &["=> Complete"]);
    case.observed.containers.clear();
    case.memory.interrupted.insert("c0".into());
    take(&mut case);
    assert!(case.memory.interrupted.is_empty(), "what is gone is forgotten");
}

#[test]
fn a_start_that_goes_on_here_is_not_interrupted() {
    let case = never_ran("Never").in_flight(Key::Start("c".into()), None);
    assert_eq!(case.plan().changes, []);
    let mut ran = never_ran("Never");
    ran.observed.containers[0].started_at = Some(at(40));
    check("it ran", &ran, &["=> Complete"]);
}
