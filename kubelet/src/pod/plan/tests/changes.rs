//! What a plan changes in the memory, and when.

use super::*;
use crate::pod::memory::Change;
use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, ContainerRestartRuleOnExitCodes};

fn taken(case: &Case) -> Memory {
    let mut memory = case.memory.clone();
    case.plan().changes.iter().for_each(|change| memory.take(change));
    memory
}

fn waits(memory: &Memory, container: &str) -> Option<u64> {
    memory.crashes.get(container).map(|crash| crash.wait.as_secs())
}

#[test]
fn a_restart_begins_the_back_off_and_one_that_runs_already_does_not_again() {
    let seen = || observed("p").sandbox(true).exited("c", 1, 90).build();
    let first = Case::new(pod("p").build(), seen());
    assert_eq!(
        (first.words(), waits(&taken(&first), "c")),
        (vec!["start c 1".into()], Some(10))
    );
    let mut again = Case::new(pod("p").build(), seen());
    again.memory = taken(&first);
    again.now = 95;
    assert_eq!(again.words(), [""; 0], "it waits now");
    again.now = 100;
    assert_eq!(waits(&taken(&again), "c"), Some(20), "90 + 10 s");
    let running = Case::new(pod("p").build(), seen()).in_flight(Key::Start("c".into()), None);
    assert_eq!(running.plan().changes, []);
    let new = Case::new(pod("p").build(), observed("p").sandbox(true).build());
    assert_eq!((new.words(), new.plan().changes), (vec!["start c ?".into()], vec![]));
}

#[test]
fn a_stop_is_told_when_it_begins_and_forgotten_with_its_container() {
    let ending = Case::new(pod("p").build(), observed("p").sandbox(true).running("c").build()).terminating(100, 30);
    let told = |case: &Case| {
        let changes = case.plan().changes;
        changes.into_iter().find_map(|change| match change {
            Change::Stopping { told, .. } => Some(told),
            _ => None,
        })
    };
    assert_eq!(told(&ending), Some(Some("Stopping container c".into())));
    let mut shorter = Case::new(ending.pod.clone(), ending.observed.clone());
    shorter.memory = taken(&ending);
    let shorter = shorter.terminating(100, 5).in_flight(Key::Stop("c0".into()), Some(130));
    assert_eq!(told(&shorter), None, "the same stop with less grace");
    let mut gone = Case::new(ending.pod.clone(), observed("p").sandbox(true).build());
    gone.memory = taken(&ending);
    assert_eq!(gone.memory.stops.len(), 1);
    assert_eq!(taken(&gone).stops.len(), 0);
}

#[test]
fn a_removal_to_start_anew_counts_once_the_container_is_gone() {
    let rule = ContainerRestartRule {
        action: "RestartAllContainers".into(),
        exit_codes: Some(ContainerRestartRuleOnExitCodes {
            operator: "In".into(),
            values: Some(vec![42]),
        }),
    };
    let trigger = Container {
        restart_policy: Some("Never".into()),
        restart_policy_rules: Some(vec![rule]),
        ..container("c")
    };
    let restarting = pod("p").with(trigger).build();
    let mut case = Case::new(restarting, observed("p").sandbox(true).exited("c", 42, 90).build());
    check("removed", &case, &["remove c0"]);
    case.memory = taken(&case);
    assert_eq!(
        (waits(&case.memory, "c"), case.memory.restart_count_min["c"]),
        (None, 1)
    );
    case.memory = taken(&case);
    assert_eq!(waits(&case.memory, "c"), None, "a removal that fails is not one more");
    case.observed = observed("p").sandbox(true).build();
    assert_eq!(waits(&taken(&case), "c"), Some(10));
    assert!(taken(&case).uncounted_crashes.is_empty());
}

#[test]
fn a_stop_of_what_the_runtime_lost_is_for_a_restart_whatever_the_policy() {
    let lost = observed("p")
        .sandbox(true)
        .container("c", ContainerState::Unknown, 0, 0)
        .build();
    let case = Case::new(pod("p").policy("Never").build(), lost);
    check("stopped", &case, &["stop c0 30"]);
    assert!(taken(&case).restart_wanted.contains("c"));
    let running = observed("p").sandbox(true).running("c").build();
    let ending = Case::new(pod("p").policy("Never").build(), running).terminating(100, 30);
    assert!(taken(&ending).restart_wanted.is_empty(), "the pod's end is none");
}
