//! Whose image is whose, over a whole kubelet.

use super::*;
use crate::image::provider::Setup;
use crate::image::provider::testing::{Asked, login, played, provider};
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

/// A plugin that gives the password of the private image, to pods of the service account `sa` if it is asked by token.
fn with_plugin(bench: &mut Bench, token: Option<serde_json::Value>) -> Asked {
    let asked = Asked::default();
    let run = played(&asked, |_| login("Image", "r.io", "1"));
    bench.providers = Setup::scripted(vec![(provider("p", token), run)]);
    bench.runtime.add_private_image(PRIVATE, "1");
    bench.api.add_service_account("sa", &[]);
    asked
}

fn asked_times(asked: &Asked) -> usize {
    asked.lock().map(|asked| asked.len()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn what_is_pulled_with_the_nodes_plugin_is_every_pods() {
    let mut bench = Bench::new();
    let asked = with_plugin(&mut bench, None);
    bench.api.add_secret(&secret("wrong", "2"));
    let kubelet = bench.start();
    bench.api.create(&private("a", Some("wrong"), "IfNotPresent"));
    bench
        .until("the plugin's comes after the secret's", |b| is_ready(b, "a"))
        .await;
    assert_eq!((pulls(&bench), asked_times(&asked)), (2, 1));
    tokio::time::sleep(Duration::from_secs(120)).await;
    bench.api.create(&private("b", None, "Never"));
    bench.until("b without anything", |b| is_ready(b, "b")).await;
    assert_eq!(
        (pulls(&bench), asked_times(&asked)),
        (2, 1),
        "nobody is asked for what is everybody's"
    );
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_pulled_for_a_service_account_is_that_accounts() {
    let mut bench = Bench::new();
    let attributes = serde_json::json!({"serviceAccountTokenAudience": "aud", "cacheType": "ServiceAccount", "requireServiceAccount": true});
    let asked = with_plugin(&mut bench, Some(attributes));
    bench.api.add_service_account("other", &[]);
    let kubelet = bench.start();
    let of = |name: &str, account: &str, policy: &str| {
        let mut pod = private(name, None, policy);
        pod.spec.as_mut().expect("spec").service_account_name = Some(account.into());
        pod
    };
    bench.api.create(&of("a", "sa", "IfNotPresent"));
    bench.until("a with its account", |b| is_ready(b, "a")).await;
    bench.api.create(&of("b", "sa", "Never"));
    bench.until("b of the same account", |b| is_ready(b, "b")).await;
    assert_eq!(pulls(&bench), 1);
    bench.api.create(&of("c", "other", "Never"));
    bench
        .until("c of another", |b| waits(b, "c", "ErrImageNeverPull"))
        .await;
    bench.api.create(&private("d", None, "Never"));
    bench.until("d of none", |b| waits(b, "d", "ErrImageNeverPull")).await;
    kubelet.kill().await;
    let record = std::fs::read_dir(bench.root_dir().join("image_manager/pulled")).expect("records");
    let record = record.flatten().next().expect("a record").path();
    let text = std::fs::read_to_string(record).expect("read");
    assert!(
        text.contains(
            r#"{"r.io/private":{"kubernetesServiceAccounts":[{"namespace":"ns","name":"sa","uid":"uid-sa"}]}}"#
        ),
        "{text}"
    );
    assert!(!text.contains("token of"), "{text}");
    assert!(asked_times(&asked) >= 1);
}

#[tokio::test(start_paused = true)]
async fn the_record_of_an_image_goes_after_the_image() {
    use crate::runtime::Runtime;
    let bench = Bench::new();
    bench.runtime.add_private_image(PRIVATE, "1");
    bench.api.add_secret(&secret("right", "1"));
    let records = || {
        let entries = std::fs::read_dir(bench.root_dir().join("image_manager/pulled"));
        entries.map_or(0, Iterator::count)
    };
    let kubelet = bench.start();
    bench.api.create(&private("a", Some("right"), "IfNotPresent"));
    bench.until("ready", |b| is_ready(b, "a")).await;
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert_eq!(records(), 1, "it is there");
    bench.api.delete("a", 0, at(0));
    bench.until("gone", |b| !b.api.has("a")).await;
    bench.runtime.remove_image(PRIVATE).await.expect("removed");
    bench.until("its record, too", |_| records() == 0).await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pull_whose_kubelet_died_is_nobodys_afterwards() {
    let bench = Bench::new();
    bench.runtime.add_private_image(PRIVATE, "1");
    bench.runtime.add_image(PRIVATE);
    let pulling = bench.root_dir().join("image_manager/pulling");
    std::fs::create_dir_all(&pulling).expect("made");
    let text =
        format!(r#"{{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"{PRIVATE}"}}"#);
    let name = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(PRIVATE.as_bytes()));
    std::fs::write(pulling.join(format!("sha256-{name}")), text).expect("written");
    let kubelet = bench.start();
    bench
        .until("settled", |_| {
            std::fs::read_dir(&pulling).is_ok_and(|left| left.count() == 0)
        })
        .await;
    bench.api.create(&private("a", None, "Never"));
    bench.until("refused", |b| waits(b, "a", "ErrImageNeverPull")).await;
    kubelet.kill().await;
}

/// The image each start was made with, and that the container it made is the one the pod names now.
fn started_with(bench: &Bench, pod: &str) -> Vec<String> {
    let wanted = bench.api.pod(pod).and_then(|pod| pod.spec).expect("a spec");
    let hash = crate::pod::spec::container_hash(&wanted.containers[0]);
    let containers = bench.runtime.containers();
    assert!(
        containers.iter().all(|c| c.hash.as_ref() == Some(&hash)),
        "{containers:?}"
    );
    containers.into_iter().map(|c| c.image_ref).collect()
}

fn rename(bench: &Bench, pod: &str, image: &str) {
    bench
        .api
        .edit(pod, |pod| pod["spec"]["containers"][0]["image"] = image.into());
}

#[tokio::test(start_paused = true)]
async fn a_mended_typo_is_pulled_at_once() {
    let bench = Bench::new();
    bench.runtime.add_remote_image("app:right");
    let kubelet = bench.start();
    let mut pod = simple("p");
    pod.spec.as_mut().expect("spec").containers[0].image = Some("app:wrnog".into());
    bench.api.create(&pod);
    // Two failures: the next try is twenty seconds away.
    bench.until("failed twice", |b| pulls(b) == 2).await;
    bench.until("it waits", |b| waits(b, "p", "ImagePullBackOff")).await;
    let mended = bench.clock.now();
    rename(&bench, "p", "app:right");
    bench.until("ready", |b| is_ready(b, "p")).await;
    let took = bench.clock.now().duration_since(mended).as_secs();
    assert!(took < 5, "{took} s");
    assert_eq!((pulls(&bench), started_with(&bench, "p").len()), (3, 1));
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_changes_during_its_pull_is_never_started_as_the_other() {
    let bench = Bench::new();
    for image in ["app:1", "app:2"] {
        bench.runtime.add_remote_image(image);
    }
    bench.runtime.set_latency("PullImage", Duration::from_secs(30));
    let kubelet = bench.start();
    let mut pod = simple("p");
    pod.spec.as_mut().expect("spec").containers[0].image = Some("app:1".into());
    bench.api.create(&pod);
    bench.until("the pull began", |b| pulls(b) == 1).await;
    rename(&bench, "p", "app:2");
    bench.until("ready", |b| is_ready(b, "p")).await;
    assert_eq!(started_with(&bench, "p"), [image_of(&bench, "app:2").await]);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_changes_while_volumes_wait_is_never_started_as_the_other() {
    let bench = Bench::new();
    let directory = tempfile::tempdir().expect("temp dir");
    let late = directory.path().join("late");
    for image in ["app:1", "app:2"] {
        bench.runtime.add_remote_image(image);
    }
    let kubelet = bench.start();
    let mut pod = serde_json::to_value(simple("p")).expect("a pod");
    pod["spec"]["containers"][0]["image"] = "app:1".into();
    pod["spec"]["containers"][0]["volumeMounts"] = serde_json::json!([{"name": "v", "mountPath": "/v"}]);
    pod["spec"]["volumes"] = serde_json::json!([{"name": "v", "hostPath": {"path": late, "type": "Directory"}}]);
    bench.api.create(&serde_json::from_value(pod).expect("a pod"));
    bench
        .until("the image is there", |b| has_event(b, "Pulled", "app:1"))
        .await;
    rename(&bench, "p", "app:2");
    bench
        .until("the other is there", |b| has_event(b, "Pulled", "app:2"))
        .await;
    std::fs::create_dir(&late).expect("a directory");
    bench.until("ready", |b| is_ready(b, "p")).await;
    assert_eq!(started_with(&bench, "p"), [image_of(&bench, "app:2").await]);
    kubelet.kill().await;
}

/// The id of a present image.
async fn image_of(bench: &Bench, name: &str) -> String {
    use crate::runtime::Runtime;
    let image = bench.runtime.image_status(name).await.expect("an answer");
    image.expect("present").id
}

/// A pod that mounts the private image beside what it runs.
fn mounting(name: &str, pull_secret: Option<&str>) -> Pod {
    let mut pod = serde_json::to_value(private(name, pull_secret, "IfNotPresent")).expect("a pod");
    pod["spec"]["volumes"] =
        serde_json::json!([{"name": "i", "image": {"reference": PRIVATE, "pullPolicy": "Always"}}]);
    pod["spec"]["containers"][0]["image"] = "img:latest".into();
    pod["spec"]["containers"][0]["volumeMounts"] =
        serde_json::json!([{"name": "i", "mountPath": "/i", "subPath": "models"}]);
    serde_json::from_value(pod).expect("a pod")
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_an_image_that_is_pulled_with_the_pods_secrets() {
    let bench = Bench::new();
    bench.runtime.add_private_image(PRIVATE, "1");
    bench.api.add_secret(&secret("right", "1"));
    let kubelet = bench.start();
    bench.api.create(&mounting("a", Some("right")));
    bench.until("ready", |b| is_ready(b, "a")).await;
    let mounted = bench.runtime.mounted_images();
    let id = format!("sha256:{}", hex::encode(PRIVATE));
    assert_eq!(mounted, [(id, "models".to_owned())]);
    assert_eq!(pulls(&bench), 1);
    bench
        .until("told", |b| {
            has_event(b, "Pulled", "Successfully pulled image \"r.io/private:1\"")
        })
        .await;

    bench.api.create(&mounting("b", None));
    bench.until("b without", |b| waits(b, "b", "ErrImagePull")).await;
    bench.until("b waits", |b| waits(b, "b", "ImagePullBackOff")).await;
    bench
        .until("told", |b| {
            has_event(b, "BackOff", "Back-off pulling image \"r.io/private:1\"")
        })
        .await;
    assert_eq!(bench.running("b"), 0);
    kubelet.kill().await;
}
