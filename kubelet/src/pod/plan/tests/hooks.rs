//! Hooks in the plan: when they begin, how long they may run, what waits for them.

use super::*;
use crate::pod::memory::{PostStart, Stop};
use k8s_openapi::api::core::v1::{Container, Lifecycle, LifecycleHandler, SleepAction};

fn hook() -> Option<LifecycleHandler> {
    Some(LifecycleHandler {
        sleep: Some(SleepAction { seconds: 5 }),
        ..LifecycleHandler::default()
    })
}

fn with_pre_stop(mut container: Container) -> Container {
    container.lifecycle.get_or_insert_default().pre_stop = hook();
    container
}

fn with_post_start(mut container: Container) -> Container {
    container.lifecycle = Some(Lifecycle {
        post_start: hook(),
        ..Lifecycle::default()
    });
    container
}

fn begun(case: &mut Case, id: &str, since: i64) {
    let stop = Stop {
        since: at(since),
        reason: StopReason::PodEnds,
        hook: true,
    };
    case.memory.stops.insert(id.into(), stop);
}

fn ending(grace: i64) -> Case {
    let p = pod("p").with(with_pre_stop(container("c"))).build();
    Case::new(p, observed("p").sandbox(true).running("c").build()).terminating(100, grace)
}

#[test]
fn the_hook_comes_first_once_and_its_time_is_subtracted() {
    let mut case = ending(30);
    check("the hook", &case, &["pre-stop c0 30"]);
    assert_eq!(case.plan().wake_at, Some(at(130)));
    begun(&mut case, "c0", 100);
    case.now = 104;
    check("its time subtracted", &case, &["stop c0 26"]);
    case.now = 129;
    check("no less than two seconds", &case, &["stop c0 2"]);

    let mut case = ending(30).in_flight(Key::PreStop("c0".into()), Some(130));
    begun(&mut case, "c0", 100);
    case.now = 120;
    check("while it runs nothing else does", &case, &["pre-stop c0 10"]);
    case.now = 130;
    check("its time is over", &case, &["stop c0 2"]);
}

#[test]
fn a_shorter_grace_ends_the_hook_early_and_never_repeats_it() {
    let mut case = ending(30).in_flight(Key::PreStop("c0".into()), Some(130));
    begun(&mut case, "c0", 100);
    case.now = 103;
    case.state.terminate(Cause::Removed, &case.pod, Some(4), at(103));
    check("until then it goes on", &case, &["pre-stop c0 4"]);
    assert_eq!(case.plan().wake_at, Some(at(107)));
    case.now = 107;
    check("then the stop", &case, &["stop c0 2"]);
    case.in_flight.clear();
    check("not again", &case, &["stop c0 2"]);
}

#[test]
fn a_stop_under_way_is_given_no_hook() {
    let case = ending(30).in_flight(Key::Stop("c0".into()), Some(130));
    check("too late", &case, &[]);
}

#[test]
fn an_orphans_hook_is_found_in_its_annotation() {
    let mut seen = observed("p").sandbox(true).running("c").build();
    seen.containers[0].pre_stop = r#"{"sleep":{"seconds":3}}"#.into();
    let mut nothing = pod("p").with(container("other")).build();
    nothing.spec.as_mut().expect("spec").containers.clear();
    let case = Case::new(nothing, seen).terminating(100, 1);
    check("for the second an orphan has", &case, &["pre-stop c0 1"]);
}

#[test]
fn all_hooks_run_at_once_and_stops_go_in_order() {
    let p = pod("p")
        .init(with_pre_stop(sidecar("a")))
        .with(with_pre_stop(container("c")))
        .build();
    let seen = || observed("p").sandbox(true).running("a").running("c").build();
    let mut case = Case::new(p.clone(), seen()).terminating(100, 30);
    check("hooks", &case, &["pre-stop c0 30", "pre-stop a0 30"]);
    begun(&mut case, "a0", 100);
    begun(&mut case, "c0", 100);
    case.now = 105;
    check("the sidecar waits", &case, &["stop c0 25"]);
    assert_eq!(case.plan().wake_at, Some(at(130)), "but no longer than its grace");
    case = case.in_flight(Key::Stop("c0".into()), Some(130));
    case.now = 130;
    check("grace is over", &case, &["stop a0 2"]);
}

#[test]
fn a_container_that_was_told_to_end_ends() {
    let p = pod("p").grace(20).with(with_pre_stop(container("c"))).build();
    let mut case = Case::new(p, observed("p").sandbox(true).running("c").build());
    check("nothing is wrong with it", &case, &[]);
    let reason = StopReason::Liveness;
    let stop = Stop {
        since: at(95),
        reason,
        hook: true,
    };
    case.memory.stops.insert("c0".into(), stop);
    check("its hook ran", &case, &["stop c0 15"]);
}

#[test]
fn a_start_is_over_with_its_hook_and_others_wait() {
    let p = pod("p")
        .with(with_post_start(container("a")))
        .with(container("b"))
        .build();
    let seen = || observed("p").sandbox(true).running("a").build();
    let mut case = Case::new(p.clone(), seen());
    check("a kubelet that knows of no hook runs none", &case, &["start b ?"]);
    case.memory
        .post_starts
        .insert("a".into(), ("a0".into(), PostStart::Due));
    check("due", &case, &["post-start a0"]);
    assert!(case.plan().starting.contains("a"));
    case.memory
        .post_starts
        .insert("a".into(), ("a0".into(), PostStart::Failed));
    check("failed", &case, &["stop a0 30", "start b ?"]);
    case.memory
        .post_starts
        .insert("a".into(), ("a9".into(), PostStart::Due));
    check("another instance's", &case, &["start b ?"]);

    let mut case = Case::new(p, seen()).terminating(100, 30);
    case.memory
        .post_starts
        .insert("a".into(), ("a0".into(), PostStart::Due));
    check("the end does not wait for it", &case, &["stop a0 30"]);
}

#[test]
fn a_sidecars_hook_holds_up_what_comes_after() {
    let p = pod("p").init(with_post_start(sidecar("a"))).build();
    let mut case = Case::new(p, observed("p").sandbox(true).running("a").build());
    case.memory
        .post_starts
        .insert("a".into(), ("a0".into(), PostStart::Due));
    check("due", &case, &["post-start a0"]);
    case.memory.post_starts.clear();
    check("done", &case, &["start c ?"]);
}
