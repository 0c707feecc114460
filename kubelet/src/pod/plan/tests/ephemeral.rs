//! Ephemeral containers: started once, whatever the others do, and part of nothing.

use super::*;
use k8s_openapi::api::core::v1::{ContainerRestartRule, ContainerRestartRuleOnExitCodes, VolumeMount};

#[test]
fn one_starts_beside_what_runs_and_never_again() {
    let debugged = || pod("p").ephemeral("d", "c").build();
    let seen = || observed("p").sandbox(true).running("c");
    check("beside", &Case::new(debugged(), seen().build()), &["start d ?"]);
    let starting = Case::new(debugged(), seen().build()).in_flight(Key::Start("d".into()), None);
    check("once", &starting, &[]);
    check("it runs", &Case::new(debugged(), seen().running("d").build()), &[]);
    check(
        "it ended",
        &Case::new(debugged(), seen().exited("d", 1, 50).build()),
        &[],
    );
    let created = seen().container("d", ContainerState::Created, 0, 0).build();
    check("its start failed", &Case::new(debugged(), created), &[]);
}

#[test]
fn many_start_one_after_the_other() {
    let debugged = || pod("p").ephemeral("d", "").ephemeral("e", "").build();
    let seen = || observed("p").sandbox(true).running("c");
    check("the first", &Case::new(debugged(), seen().build()), &["start d ?"]);
    let starting = Case::new(debugged(), seen().build()).in_flight(Key::Start("d".into()), None);
    check("while it starts", &starting, &[]);
    check(
        "then the next",
        &Case::new(debugged(), seen().running("d").build()),
        &["start e ?"],
    );
}

#[test]
fn it_needs_a_sandbox_and_no_initialisation() {
    let debugged = || pod("p").init(container("i")).ephemeral("d", "").build();
    let none = observed("p").build();
    check("no sandbox yet", &Case::new(debugged(), none), &["sandbox 0"]);
    let initialising = observed("p").sandbox(true).running("i").build();
    check("beside the first", &Case::new(debugged(), initialising), &["start d ?"]);
    let fresh = observed("p").sandbox(true).build();
    check(
        "nobody waits for it",
        &Case::new(debugged(), fresh),
        &["start d ?", "start i ?"],
    );
}

#[test]
fn it_keeps_no_pod_alive_and_ends_with_it() {
    let debugged = pod("p").policy("Never").ephemeral("d", "").build();
    let done = observed("p").sandbox(true).exited("c", 0, 50).running("d").build();
    check(
        "the pod is done",
        &Case::new(debugged.clone(), done.clone()),
        &["=> Complete"],
    );
    let ending = Case::new(debugged, done).terminating(100, 30);
    check("its end", &ending, &["stop d0 30"]);
}

#[test]
fn sidecars_wait_for_no_debugger() {
    let debugged = pod("p").init(sidecar("s")).ephemeral("d", "").build();
    let seen = observed("p").sandbox(true).running("s").running("d").build();
    let mut words = Case::new(debugged, seen).terminating(100, 30).words();
    words.sort();
    assert_eq!(words, ["stop d0 30", "stop s0 30"]);
}

#[test]
fn a_restart_of_all_leaves_it_alone() {
    let rule = ContainerRestartRule {
        action: "RestartAllContainers".into(),
        exit_codes: Some(ContainerRestartRuleOnExitCodes {
            operator: "In".into(),
            values: Some(vec![42]),
        }),
    };
    let trigger = k8s_openapi::api::core::v1::Container {
        restart_policy: Some("Never".into()),
        restart_policy_rules: Some(vec![rule]),
        ..container("c")
    };
    let debugged = pod("p").with(trigger).ephemeral("d", "").build();
    let seen = observed("p").sandbox(true).running("d").exited("c", 42, 50).build();
    check("only the trigger goes", &Case::new(debugged, seen), &["remove c0"]);
}

#[test]
fn a_volume_nobody_mounted_before_is_mounted_for_it_alone() {
    let mut debugged = pod("p").ephemeral("d", "").build();
    let ephemerals = debugged
        .spec
        .as_mut()
        .and_then(|spec| spec.ephemeral_containers.as_mut());
    ephemerals.expect("one")[0].volume_mounts = Some(vec![VolumeMount {
        name: "v".into(),
        mount_path: "/v".into(),
        ..VolumeMount::default()
    }]);
    let mut case = Case::new(debugged, observed("p").sandbox(true).build());
    check("mounted first; others go on", &case, &["volumes", "start c ?"]);
    case.memory.mounted.insert("v".into());
    check("then started", &case, &["start d ?", "start c ?"]);
}
