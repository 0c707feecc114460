//! Whose image is whose, over a whole kubelet.

use super::*;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{LocalObjectReference, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

const PRIVATE: &str = "r.io/private:1";

fn secret(name: &str, password: &str) -> Secret {
    let text = format!(r#"{{"auths":{{"r.io":{{"username":"u","password":"{password}"}}}}}}"#);
    Secret {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("ns".into()),
            uid: Some(format!("uid-{name}")),
            ..ObjectMeta::default()
        },
        data: Some([(".dockerconfigjson".to_owned(), ByteString(text.into_bytes()))].into()),
        ..Secret::default()
    }
}

fn private(name: &str, pull_secret: Option<&str>, policy: &str) -> Pod {
    let mut pod = simple(name);
    let spec = pod.spec.as_mut().expect("spec");
    spec.containers[0].image = Some(PRIVATE.into());
    spec.containers[0].image_pull_policy = Some(policy.into());
    spec.image_pull_secrets = pull_secret.map(|name| vec![LocalObjectReference { name: name.into() }]);
    pod
}

fn waits(bench: &Bench, pod: &str, reason: &str) -> bool {
    let statuses = bench.api.status(pod).and_then(|s| s.container_statuses);
    let state = statuses.into_iter().flatten().next().and_then(|c| c.state);
    state.and_then(|s| s.waiting).and_then(|w| w.reason).as_deref() == Some(reason)
}

fn pulls(bench: &Bench) -> usize {
    bench
        .runtime
        .calls()
        .iter()
        .filter(|call| call.starts_with("PullImage"))
        .count()
}

#[tokio::test(start_paused = true)]
async fn a_private_image_is_used_by_those_who_may_pull_it() {
    let bench = Bench::new();
    bench.runtime.add_private_image(PRIVATE, "1");
    for secret in [secret("right", "1"), secret("copy", "1"), secret("wrong", "2")] {
        bench.api.add_secret(&secret);
    }
    let kubelet = bench.start();
    bench.api.create(&private("a", Some("right"), "IfNotPresent"));
    bench.until("a with its secret", |b| is_ready(b, "a")).await;
    assert_eq!(pulls(&bench), 1);

    bench.api.create(&private("b", None, "IfNotPresent"));
    bench
        .until("b without one", |b| waits(b, "b", "ImagePullBackOff"))
        .await;
    assert!(has_event(&bench, "Failed", "no basic auth credentials"));
    bench.api.create(&private("c", Some("wrong"), "IfNotPresent"));
    bench
        .until("c with another", |b| waits(b, "c", "ImagePullBackOff"))
        .await;
    bench.api.create(&private("d", None, "Never"));
    bench
        .until("d without one or a pull", |b| waits(b, "d", "ErrImageNeverPull"))
        .await;
    for name in ["b", "c", "d"] {
        bench.api.delete(name, 0, at(0));
        bench.until("gone", |b| !b.api.has(name)).await;
    }

    // The next kubelet knows whose it is, and the same login in another secret is as good.
    kubelet.kill().await;
    let kubelet = bench.start();
    let before = pulls(&bench);
    bench.api.create(&private("e", Some("copy"), "Never"));
    bench.until("e with a copy", |b| is_ready(b, "e")).await;
    let text = "already present on machine and can be accessed by the pod";
    bench.until("told", |b| has_event(b, "Pulled", text)).await;
    assert_eq!(pulls(&bench), before);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pull_secret_that_is_missing_or_broken_is_told_and_done_without() {
    let bench = Bench::new();
    bench.runtime.add_remote_image(PRIVATE);
    let mut broken = secret("broken", "1");
    broken.data = Some([(".dockerconfigjson".to_owned(), ByteString(b"{".to_vec()))].into());
    bench.api.add_secret(&broken);
    let kubelet = bench.start();
    for (name, expected) in [
        ("absent", "(absent); attempting to pull the image may not succeed."),
        ("broken", "(broken: malformed: not JSON at line 1 column 1)"),
    ] {
        bench.api.create(&private(name, Some(name), "IfNotPresent"));
        bench.until("ready", |b| is_ready(b, name)).await;
        bench
            .until("told", |b| has_event(b, "FailedToRetrieveImagePullSecret", expected))
            .await;
    }
    kubelet.kill().await;
}
