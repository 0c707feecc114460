//! When a pod is resized, and what waits for it.

use super::*;
use crate::allocation::PodResources;
use crate::pod::resize::Applied;
use serde_json::json;

/// A pod whose container `c` asks for this CPU, with a policy for it.
fn asking(cpu: &str, policy: &str) -> Pod {
    let mut pod = serde_json::to_value(pod("p").with(container("c")).build()).expect("a pod");
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    pod["spec"]["containers"][0]["resizePolicy"] = json!([{"resourceName": "cpu", "restartPolicy": policy}]);
    serde_json::from_value(pod).expect("a pod")
}

/// The container runs with one CPU, and the pod was given `cpu` since.
fn given(cpu: &str, policy: &str) -> Case {
    let runs = PodResources::of(&asking("1", policy));
    let mut case = Case::new(asking(cpu, policy), observed("p").sandbox(true).running("c").build());
    case.memory.applied = Applied {
        containers: runs.containers.clone(),
        cgroup: Some(runs),
    };
    case
}

#[test]
fn a_difference_is_resized() {
    assert_eq!(given("1", "NotRequired").words(), [""; 0]);
    assert!(!given("1", "NotRequired").plan().resizing);
    let case = given("2", "NotRequired");
    assert_eq!(case.words(), ["resize"]);
    assert!(case.plan().resizing);
    let mut unknown = given("2", "NotRequired");
    unknown.memory.stale = true;
    assert!(unknown.plan().resizing, "a look that is due changes nothing of that");
}

#[test]
fn what_needs_a_restart_is_stopped_before_anything_is_changed() {
    let case = given("2", "RestartContainer");
    assert_eq!(case.words().len(), 1);
    assert!(case.words()[0].starts_with("stop "), "{:?}", case.words());
    assert!(case.plan().resizing);
}

#[test]
fn a_pod_that_ends_is_not_resized() {
    let case = given("2", "NotRequired").terminating(0, 30);
    assert!(!case.words().contains(&"resize".to_owned()), "{:?}", case.words());
    assert!(!case.plan().resizing);
}

#[test]
fn a_start_waits_for_the_cgroup_but_not_for_one_that_fails() {
    let mut case = given("2", "NotRequired");
    case.observed = observed("p").sandbox(true).build();
    assert_eq!(case.words(), ["resize"]);
    case.memory.failed(&Key::Resize, at(case.now));
    assert_eq!(case.words(), ["start c ?"]);
}
