//! All containers start anew: in which order what there is goes, and what is left afterwards.

use super::*;
use k8s_openapi::api::core::v1::Container;

fn trigger(name: &str) -> Container {
    let rules = serde_json::json!([{"action": "RestartAllContainers",
        "exitCodes": {"operator": "In", "values": [42]}}]);
    Container {
        restart_policy: Some("Never".into()),
        restart_policy_rules: serde_json::from_value(rules).expect("rules"),
        ..container(name)
    }
}

fn restarting(observed: ObservedPod) -> Case {
    let p = pod("p")
        .policy("Never")
        .init(container("i"))
        .init(sidecar("s"))
        .with(container("a"))
        .with(trigger("t"))
        .build();
    Case::new(p, observed)
}

#[test]
fn others_are_stopped_and_removed_and_the_one_that_ended_goes_last() {
    let all = || observed("p").sandbox(true).exited("i", 0, 5).running("s").running("a");
    let case = restarting(all().exited("t", 42, 90).build());
    check("without grace", &case, &["stop a0 2", "stop s0 2", "remove i0"]);
    let case = restarting(all().exited("t", 7, 90).build());
    check("another code ends it alone", &case, &[]);

    let dead = || observed("p").sandbox(true).exited("a", 137, 92);
    let case = restarting(dead().exited("t", 42, 90).build());
    check("what is dead goes", &case, &["remove a0"]);
    let alone = || observed("p").sandbox(true).exited("t", 42, 90).build();
    check("last", &restarting(alone()), &["remove t0"]);
    let starting = restarting(alone()).in_flight(Key::Start("a".into()), None);
    check("one more is on its way", &starting, &[]);
    let nothing = restarting(observed("p").sandbox(true).build());
    check("from the beginning", &nothing, &["start i ?"]);
}

#[test]
fn no_pre_stop_hook_runs_and_longer_stops_are_shortened() {
    let mut a = container("a");
    let hook = serde_json::json!({"preStop": {"sleep": {"seconds": 5}}});
    a.lifecycle = serde_json::from_value(hook).expect("a lifecycle");
    let p = pod("p").with(a).with(trigger("t")).build();
    let seen = observed("p").sandbox(true).running("a").exited("t", 42, 90).build();
    let case = Case::new(p, seen);
    check("no hook", &case, &["stop a0 2"]);
    let case = case.in_flight(Key::Stop("a0".into()), Some(130));
    check("shortened", &case, &["stop a0 2"]);
}

#[test]
fn who_ends_so_again_and_again_backs_off() {
    let mut case = restarting(observed("p").sandbox(true).running("a").exited("t", 42, 90).build());
    let crash = Crash {
        key: crash::key(&trigger("t")),
        wait: Duration::from_secs(20),
        updated: at(80),
    };
    case.memory.crashes.insert("t".into(), crash);
    check("the others go at once", &case, &["stop a0 2"]);
    case.observed = observed("p").sandbox(true).exited("t", 42, 90).build();
    check("it waits", &case, &[]);
    let plan = case.plan();
    assert_eq!(plan.wake_at, Some(at(110)));
    assert_eq!(plan.waiting["t"].reason, "CrashLoopBackOff");
    case.now = 110;
    check("then it goes", &case, &["remove t0"]);
}

#[test]
fn a_pod_that_ends_starts_nothing_anew() {
    let seen = observed("p").sandbox(true).running("a").exited("t", 42, 90).build();
    let case = restarting(seen).terminating(100, 30);
    check("ends with its grace", &case, &["stop a0 30"]);
}
