use super::*;

#[tokio::test(start_paused = true)]
async fn an_image_the_runtime_fails_on_holds_no_other_and_costs_no_record() {
    use crate::kubelet::testing::Bench;
    use crate::runtime::fake::Mishap;
    let bench = Bench::new();
    let files = |kind: &str| {
        let entries = std::fs::read_dir(bench.root_dir().join("image_manager").join(kind));
        entries.map_or(0, Iterator::count)
    };
    let pulling = bench.root_dir().join("image_manager/pulling");
    std::fs::create_dir_all(&pulling).expect("made");
    for image in ["r.io/a:1", "r.io/b:1"] {
        let intent = serde_json::json!({"kind": "ImagePullIntent", "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "image": image});
        let name = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(image.as_bytes()));
        std::fs::write(pulling.join(format!("sha256-{name}")), intent.to_string()).expect("written");
        bench.runtime.add_image(image);
    }
    let fails = |call| bench.runtime.next(call, Mishap::Fail(RuntimeError::deadline(call)));
    fails("ImageStatus");
    let kubelet = bench.start();
    bench.until("the other is settled", |_| files("pulling") == 1).await;
    bench.until("so is this", |_| files("pulling") == 0).await;
    assert_eq!(files("pulled"), 2);
    // One is gone, and the runtime fails: first whoever lists, then whoever asks by name.
    bench.runtime.remove_image("r.io/a:1").await.expect("removed");
    for call in ["ListImages", "ImageStatus"] {
        fails(call);
        let called = || {
            bench
                .runtime
                .calls()
                .iter()
                .filter(|done| done.starts_with(call))
                .count()
        };
        let before = called();
        bench.until("asked", |_| called() > before).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(files("pulled"), 2, "{call}");
    }
    bench.until("its record is gone", |_| files("pulled") == 1).await;
    kubelet.kill().await;
}

#[test]
fn durations_read_as_go_prints_them() {
    let cases = [
        (45, "45ms"),
        (1000, "1s"),
        (1230, "1.23s"),
        (62_500, "1m2.5s"),
        (120_000, "2m0s"),
        (3_660_000, "1h1m0s"),
    ];
    for (millis, text) in cases {
        assert_eq!(go_duration(Duration::from_millis(millis)), text);
    }
}

#[test]
fn reasons_are_told_in_upstreams_words() {
    let told = |code: tonic::Code, text: &str| {
        let error = RuntimeError::new("PullImage", code, text);
        let reason = reason_of(&error);
        (reason, waiting_message("r.io/a", reason, puller::text(&error)))
    };
    use tonic::Code::{NotFound, Unavailable, Unknown};
    for (code, text, reason, message) in [
        (
            Unknown,
            "RegistryUnavailable: no route",
            "RegistryUnavailable",
            "image pull failed for r.io/a because the registry is unavailable: no route",
        ),
        (
            Unavailable,
            "SignatureValidationFailed",
            "SignatureValidationFailed",
            "image pull failed for r.io/a because the signature validation failed",
        ),
        (Unknown, "no", "ErrImagePull", "no"),
        (NotFound, "no", "ErrImagePull", "rpc error: code = NotFound desc = no"),
    ] {
        assert_eq!(told(code, text), (reason, message.to_owned()));
    }
}

#[test]
fn policies_default_by_tag() {
    let of = |image: &str, policy: Option<&str>| {
        Policy::of(&Container {
            image: Some(image.into()),
            image_pull_policy: policy.map(Into::into),
            ..Container::default()
        })
    };
    assert_eq!(of("nginx", None), Policy::Always);
    assert_eq!(of("nginx:latest", None), Policy::Always);
    assert_eq!(of("nginx:1.27", None), Policy::IfNotPresent);
    assert_eq!(of("nginx", Some("Never")), Policy::Never);
}
