//! When what a pod's resource claims stand for is prepared, and when it is let go of.

use super::*;
use k8s_openapi::api::core::v1::PodResourceClaim;

fn claiming() -> Pod {
    let mut pod = pod("p").build();
    pod.spec.as_mut().expect("a spec").resource_claims = Some(vec![PodResourceClaim {
        name: "gpu".into(),
        resource_claim_name: Some("c".into()),
        ..PodResourceClaim::default()
    }]);
    pod
}

#[test]
fn devices_are_there_before_the_sandbox() {
    let mut case = Case::new(claiming(), observed("p").build());
    case.memory.prepared = false;
    check("nothing before the cgroup", &case, &["prepare"]);
    case.memory.prepared = true;
    check("no sandbox before the devices", &case, &["prepareclaims"]);
    let busy = Case::new(claiming(), observed("p").build()).in_flight(Key::Claims, None);
    check("nor while they are prepared", &busy, &["prepareclaims"]);
    case.memory.failed(&Key::Claims, at(100));
    check("not again at once", &case, &[]);
    case.memory.succeeded(&Key::Claims);
    case.memory.claims_ready = true;
    check("then it", &case, &["sandbox 0"]);
    // A kubelet that was started anew finds it there: what its containers have was prepared.
    let there = Case::new(claiming(), observed("p").sandbox(true).build());
    check("a start in it", &there, &["start c ?"]);
}

#[test]
fn devices_are_let_go_of_once_nothing_runs_and_before_the_end_is_told() {
    let end = |seen: ObservedPod| Case::new(claiming(), seen).terminating(100, 30);
    let running = end(observed("p").sandbox(true).running("c").build());
    assert!(
        !running.words().iter().any(|word| word.contains("claims")),
        "{:?}",
        running.words()
    );
    let mut ended = end(observed("p").build());
    check("let go", &ended, &["releaseclaims"]);
    ended.memory.claims_released = true;
    check("then the end", &ended, &["=> Stopped"]);
    let preparing = end(observed("p").build()).in_flight(Key::Claims, None);
    check("not while they are prepared", &preparing, &[]);
    let plain = Case::new(pod("p").build(), observed("p").build()).terminating(100, 30);
    check("a pod without claims waits for nothing", &plain, &["=> Stopped"]);
}
