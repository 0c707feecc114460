//! Handlers of runtime classes, and what pods may ask of them, over a whole kubelet.

use super::*;
use proto::cri;
use serde_json::{Value, json};

fn shaped(spec: &Value) -> Pod {
    let mut pod = serde_json::to_value(simple("p")).expect("a pod");
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    serde_json::from_value(pod).expect("a pod")
}

fn handler(name: &str, can: bool) -> cri::RuntimeHandler {
    cri::RuntimeHandler {
        name: name.to_owned(),
        features: Some(cri::RuntimeHandlerFeatures {
            recursive_read_only_mounts: can,
            user_namespaces: can,
        }),
    }
}

#[tokio::test(start_paused = true)]
async fn a_class_names_the_handler_and_one_that_is_not_there_is_told() {
    let bench = Bench::new();
    bench.api.add_runtime_class("sandboxed", "kata");
    let kubelet = bench.start();
    bench.api.create(&shaped(&json!({"runtimeClassName": "sandboxed"})));
    bench.until("ready", |b| is_ready(b, "p")).await;
    assert_eq!(bench.runtime.sandboxes()[0].handler, "kata");
    bench.api.remove("p");
    bench.until("gone", |b| b.runtime.counts() == (0, 0)).await;
    bench.api.create(&shaped(&json!({"runtimeClassName": "none"})));
    let told = "Failed to create pod sandbox: runtimeclass.node.k8s.io \"none\" not found";
    bench
        .until("told", |b| has_event(b, "FailedCreatePodSandBox", told))
        .await;
    assert_eq!(bench.runtime.counts(), (0, 0));
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn users_of_its_own_are_given_where_the_handler_can() {
    let bench = Bench::new();
    bench.runtime.set_features(vec![handler("", true)], None);
    let kubelet = bench.start();
    bench.api.create(&shaped(&json!({"hostUsers": false})));
    bench.until("ready", |b| is_ready(b, "p")).await;
    let sandbox = bench.runtime.sandbox_config("p").and_then(|config| config.linux);
    let container = bench.runtime.container_config("c").and_then(|config| config.linux);
    let of_sandbox = sandbox.and_then(|linux| linux.security_context?.namespace_options?.userns_options);
    let of_container = container.and_then(|linux| linux.security_context?.namespace_options?.userns_options);
    let users = of_sandbox.expect("users");
    assert_eq!(users.mode, cri::NamespaceMode::Pod as i32);
    assert_eq!((users.uids[0].host_id, users.uids[0].length), (65_536, 65_536));
    assert_eq!(of_container.as_ref(), Some(&users));
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn users_of_its_own_are_refused_where_it_cannot() {
    let bench = Bench::new();
    let kubelet = bench.start();
    bench.api.create(&shaped(&json!({"hostUsers": false})));
    let told = "can't set `spec.hostUsers: false`, runtime does not support user namespaces";
    bench
        .until("told", |b| has_event(b, "FailedCreatePodSandBox", told))
        .await;
    assert_eq!(bench.runtime.counts(), (0, 0), "never with the node's users");
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn mounts_below_are_read_only_as_the_handler_can_and_told_so() {
    let mounted = |mode: &str| {
        let mut pod = shaped(&json!({"volumes": [{"name": "v", "emptyDir": {}}]}));
        let mount = json!([{"name": "v", "mountPath": "/v", "readOnly": true, "recursiveReadOnly": mode}]);
        pod.spec.as_mut().expect("spec").containers[0].volume_mounts = serde_json::from_value(mount).expect("mounts");
        pod
    };
    for (can, told) in [(true, "Enabled"), (false, "Disabled")] {
        let bench = Bench::new();
        bench.runtime.set_features(vec![handler("", can)], None);
        let kubelet = bench.start();
        bench.api.create(&mounted("IfPossible"));
        bench.until("ready", |b| is_ready(b, "p")).await;
        let mounts = bench.runtime.container_config("c").map(|config| config.mounts);
        assert_eq!(mounts.expect("mounts")[0].recursive_read_only, can);
        let statuses = bench.api.status("p").and_then(|status| status.container_statuses);
        let mounts = statuses.and_then(|mut statuses| statuses.remove(0).volume_mounts);
        assert_eq!(mounts.expect("told")[0].recursive_read_only.as_deref(), Some(told));
        kubelet.kill().await;
    }
    let bench = Bench::new();
    let kubelet = bench.start();
    bench.api.create(&mounted("Enabled"));
    let told = "requested recursive read-only mode, but it is not supported by the runtime";
    bench.until("refused", |b| has_event(b, "Failed", told)).await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn groups_are_kept_out_only_where_the_runtime_can() {
    let strict = json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}});
    let bench = Bench::new();
    let kubelet = bench.start();
    bench.api.create(&shaped(&strict));
    let reason = |b: &Bench| b.api.status("p").and_then(|status| status.reason);
    bench
        .until("refused", |b| {
            reason(b).as_deref() == Some("SupplementalGroupsPolicyNotSupported")
        })
        .await;
    kubelet.kill().await;
    let bench = Bench::new();
    let features = cri::RuntimeFeatures {
        supplemental_groups_policy: true,
        ..Default::default()
    };
    bench.runtime.set_features(Vec::new(), Some(features));
    let kubelet = bench.start();
    bench.api.create(&shaped(&strict));
    bench.until("ready", |b| is_ready(b, "p")).await;
    kubelet.kill().await;
}
