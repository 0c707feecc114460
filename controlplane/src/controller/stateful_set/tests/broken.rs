//! Pods that do not come to serve: what a new template does about them.

use super::*;

/// Who counted them against `maxUnavailable` would wait for ever for what the new template is to mend. (As upstream, by its change 137666.)
#[test]
fn what_serves_nobody_is_replaced_whatever_is_unavailable() {
    let with = |most: i64| {
        set(
            json!({"spec": {"podManagementPolicy": "Parallel", "updateStrategy": {"rollingUpdate": {"maxUnavailable": most}}}}),
        )
    };
    let (old, broken) = (|n| pod(n, "s-old", json!({})), |n| pod(n, "s-old", unready()));
    let all = [broken(0), broken(1), broken(2)];
    assert_eq!(steps(&with(1), &all), ["-s-2", "-s-1", "-s-0"]);
    let two = [broken(0), broken(1), old(2)];
    assert_eq!(
        steps(&with(2), &two),
        ["-s-1", "-s-0"],
        "and nothing that serves beside them"
    );
    let mended = [broken(0), pod(1, "s-new", unready()), old(2)];
    assert_eq!(steps(&with(1), &mended), ["-s-0"]);
    let strategy = json!({"rollingUpdate": {"maxUnavailable": 1, "partition": 2}});
    let partitioned = set(json!({"spec": {"podManagementPolicy": "Parallel", "updateStrategy": strategy}}));
    assert_eq!(steps(&partitioned, &all), ["-s-2"]);
}
