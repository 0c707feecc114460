//! Nodes that are rebooted while no API server answers: a runtime that lost everything, and a kubelet on what its disk has.

use super::decide::Item;
use super::{Kept, KeptToken, Useless, discard, lock};
use crate::events::Recorder;
use crate::id::PodUid;
use crate::kubelet::testing::{Alive, Bench};
use crate::objects::{Objects, TokenRequestKey};
use crate::pod::testing::{at, pod};
use crate::rate::Rate;
use crate::runtime::fake::{Behaviour, FakeRuntime, Run};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.autonomy = true;
    bench
}

/// The runtime of a machine that was switched off: it has its images, and nothing else.
fn reboot(bench: &mut Bench) {
    bench.runtime = FakeRuntime::new(bench.clock.clone(), 7);
    bench.runtime.add_image("img:latest");
    bench.runtime.add_image("other:1");
}

fn on_node(name: &str, change: impl FnOnce(&mut Value)) -> Pod {
    let mut of_node = serde_json::to_value(pod(name).build()).expect("a tree");
    of_node["metadata"]["uid"] = json!(format!("uid-{name}"));
    of_node["spec"]["nodeName"] = json!("node-a");
    of_node["spec"]["containers"][0]["imagePullPolicy"] = json!("IfNotPresent");
    change(&mut of_node);
    serde_json::from_value(of_node).expect("a pod")
}

fn secret(name: &str, value: &str) -> Secret {
    let mut secret = Secret::default();
    secret.metadata.name = Some(name.to_owned());
    secret.metadata.namespace = Some("ns".to_owned());
    secret.metadata.uid = Some(format!("uid-{name}"));
    secret.metadata.resource_version = Some("1".to_owned());
    secret.data = Some(BTreeMap::from([("key".to_owned(), ByteString(value.into()))]));
    secret
}

fn with_secret(name: &str, of: &str) -> Pod {
    on_node(name, |pod| {
        pod["spec"]["volumes"] = json!([{"name": "s", "secret": {"secretName": of}}]);
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "s", "mountPath": "/s"}]);
        pod["spec"]["containers"][0]["env"] =
            json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": of, "key": "key"}}}]);
    })
}

fn folder(bench: &Bench) -> PathBuf {
    let manifests = bench.manifests();
    manifests.parent().expect("a parent").join("kubelet/node-autonomy")
}

fn files(bench: &Bench, prefix: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(folder(bench)).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(prefix)).collect()
}

fn told(bench: &Bench) -> Vec<String> {
    let events = bench.api.events().into_iter();
    events
        .filter(|(reason, _)| reason == "NodeAutonomy")
        .map(|(_, message)| message)
        .collect()
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// A kubelet that runs pod `a` and has kept it.
async fn one_kept(bench: &Bench) -> Alive {
    bench.api.create(&on_node("a", |_| {}));
    let kubelet = bench.start();
    bench.until("it runs", |b| b.running("uid-a") == 1).await;
    pass(15).await;
    kubelet
}

/// Kills the kubelet, and starts one on the rebooted machine with nobody to ask.
async fn reboot_alone(bench: &mut Bench, kubelet: Alive) -> Alive {
    pass(15).await;
    kubelet.kill().await;
    bench.api.set_away(true);
    reboot(bench);
    bench.start()
}

#[tokio::test(start_paused = true)]
async fn pods_start_again_without_an_api_server_and_are_reconciled_when_it_returns() {
    let mut bench = bench();
    bench.runtime.add_image("other:1");
    bench.api.add_secret(&secret("s", "sesame"));
    for name in ["stays", "deleted", "changed"] {
        bench.api.create(&with_secret(name, "s"));
    }
    let kubelet = bench.start();
    let all = |b: &Bench| {
        ["stays", "deleted", "changed"]
            .iter()
            .all(|name| b.running(&format!("uid-{name}")) == 1)
    };
    bench.until("all run", all).await;
    let kubelet = reboot_alone(&mut bench, kubelet).await;
    pass(8).await;
    assert_eq!(bench.runtime.running().len(), 0, "the API server may still answer");
    bench.until("all run again", all).await;
    let path = bench.volume_path("uid-stays", "kubernetes.io~secret").join("s/key");
    assert_eq!(fs::read_to_string(path).expect("a file"), "sesame");
    for file in files(&bench, "") {
        let bytes = fs::read(folder(&bench).join(file)).expect("there");
        assert!(
            !bytes.windows(8).any(|part| part == b"c2VzYW1l" || part == b"uid-stay"),
            "it is sealed"
        );
    }
    let phase = |name: &str| kubelet.pods.get("ns", name).and_then(|pod| pod.status.phase.clone());
    assert_eq!(phase("stays").as_deref(), Some("Running"));

    bench.api.remove("deleted");
    bench.api.edit("changed", |pod| {
        pod["spec"]["containers"][0]["image"] = json!("other:1")
    });
    bench.api.create(&with_secret("new", "s"));
    pass(60).await;
    assert!(all(&bench), "nobody ends before the API server has answered");
    bench.api.set_away(false);
    bench
        .until("reconciled", |b| {
            let images = b.runtime.calls();
            let changed = images.iter().any(|call| format!("{call:?}").contains("other:1"));
            b.running("uid-deleted") == 0 && b.running("uid-new") == 1 && changed && b.running("uid-changed") == 1
        })
        .await;
    pass(30).await;
    assert_eq!(bench.runtime.running().len(), 3, "nothing is doubled");
    assert_eq!(
        bench.api.status("stays").and_then(|s| s.phase).as_deref(),
        Some("Running")
    );
    assert_eq!(
        files(&bench, "pod-").len(),
        3,
        "what the API server has not is not kept"
    );
    assert_eq!(told(&bench), [""; 0]);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn without_the_setting_nothing_is_kept_and_nothing_starts() {
    let mut bench = Bench::new();
    bench.api.create(&on_node("p", |_| {}));
    let kubelet = bench.start();
    bench.until("it runs", |b| b.running("uid-p") == 1).await;
    let kubelet = reboot_alone(&mut bench, kubelet).await;
    pass(60).await;
    assert_eq!(bench.runtime.running().len(), 0);
    assert!(!folder(&bench).exists());
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_starts_beside_an_api_server_waits_for_it() {
    let mut bench = bench();
    for name in ["a", "b"] {
        bench.api.create(&on_node(name, |_| {}));
    }
    let kubelet = bench.start();
    bench.until("both run", |b| b.runtime.running().len() == 2).await;
    pass(15).await;
    kubelet.kill().await;
    bench.api.remove("a");
    reboot(&mut bench);
    let kubelet = bench.start();
    bench.until("one runs", |b| b.running("uid-b") == 1).await;
    pass(60).await;
    assert!(
        !bench
            .runtime
            .calls()
            .iter()
            .any(|call| format!("{call:?}").contains("RunPodSandbox a"))
    );
    assert_eq!(files(&bench, "pod-").len(), 1);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_deleted_or_is_over_does_not_come_back() {
    let mut bench = bench();
    let never = |name: &str| on_node(name, |pod| pod["spec"]["restartPolicy"] = json!("Never"));
    let after = |seconds, exit_code| Behaviour {
        run: Run::For {
            duration: Duration::from_secs(seconds),
            exit_code,
        },
        ..Behaviour::obedient()
    };
    let two = on_node("half", |pod| {
        pod["spec"]["restartPolicy"] = json!("OnFailure");
        let mut second = pod["spec"]["containers"][0].clone();
        second["name"] = json!("done");
        second["image"] = json!("short:1");
        pod["spec"]["containers"].as_array_mut().expect("a list").push(second);
    });
    let of_short = |name: &str| {
        let mut short = never(name);
        short.spec.as_mut().expect("a spec").containers[0].image = Some("short:1".to_owned());
        short
    };
    bench.runtime.add_image("short:1");
    bench.runtime.script_image("short:1", after(2, 0));
    for pod in [two, of_short("job"), on_node("gone", |_| {}), on_node("ending", |_| {})] {
        bench.api.create(&pod);
    }
    let kubelet = bench.start();
    let is_over = |b: &Bench| b.api.status("job").and_then(|s| s.phase).as_deref() == Some("Succeeded");
    bench
        .until("all ran", |b| {
            is_over(b) && b.running("uid-half") == 1 && b.running("uid-gone") == 1
        })
        .await;
    pass(15).await;
    assert_eq!(files(&bench, "pod-").len(), 4);
    bench.api.delete("gone", 1, at(0));
    bench.until("its object is gone", |b| !b.api.has("gone")).await;
    assert_eq!(files(&bench, "pod-").len(), 3, "before that nothing was kept of it");
    // The order to end is the last that is heard.
    bench.runtime.script_image(
        "img:latest",
        Behaviour {
            stops_after: Some(Duration::from_secs(3600)),
            ..Behaviour::default()
        },
    );
    bench.api.delete("ending", 3600, at(0));
    pass(1).await;
    kubelet.kill().await;
    bench.api.set_away(true);
    reboot(&mut bench);
    bench.runtime.add_image("short:1");
    let kubelet = bench.start();
    bench
        .until("the other container runs", |b| b.running("uid-half") == 1)
        .await;
    pass(120).await;
    let calls = format!("{:?}", bench.runtime.calls());
    for name in ["job", "gone", "ending"] {
        assert!(!calls.contains(&format!("RunPodSandbox {name}")), "{name} came back");
    }
    assert!(!calls.contains("short:1"), "a container that was done ran again");
    bench.api.set_away(false);
    bench.until("ended", |b| !b.api.has("ending")).await;
    assert_eq!(
        bench.api.status("job").and_then(|s| s.phase).as_deref(),
        Some("Succeeded")
    );
    assert_eq!(bench.running("uid-half"), 1);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn spoiled_files_are_told_and_the_other_pods_start() {
    let mut bench = bench();
    bench.api.add_secret(&secret("s", "sesame"));
    bench.api.create(&on_node("a", |_| {}));
    bench.api.create(&with_secret("b", "s"));
    let kubelet = bench.start();
    bench.until("both run", |b| b.runtime.running().len() == 2).await;
    pass(15).await;
    kubelet.kill().await;
    let objects = files(&bench, "object-");
    assert_eq!(objects.len(), 1);
    for object in objects {
        fs::write(folder(&bench).join(object), "not sealed").expect("written");
    }
    fs::write(folder(&bench).join(format!("pod-{}", "0".repeat(64))), "no pod").expect("written");
    bench.api.set_away(true);
    reboot(&mut bench);
    let kubelet = bench.start();
    bench.until("the whole one runs", |b| b.running("uid-a") == 1).await;
    pass(60).await;
    assert_eq!(bench.running("uid-b"), 0, "without its secret it waits");
    bench.api.set_away(false);
    bench.until("both run", |b| b.runtime.running().len() == 2).await;
    bench.until("told", |b| told(b).len() >= 2).await;
    let told = told(&bench);
    assert!(
        told.iter().any(|text| text.contains("1 of 3 kept pods cannot be read")),
        "{told:?}"
    );
    assert!(
        told.iter().any(|text| text.contains("what a pod needs cannot be read")),
        "{told:?}"
    );
    pass(15).await;
    assert_eq!(files(&bench, "pod-").len(), 2, "what nobody needs goes");
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn without_its_key_nothing_is_believed_and_a_new_one_is_made() {
    let mut bench = bench();
    let kubelet = one_kept(&bench).await;
    kubelet.kill().await;
    fs::remove_file(folder(&bench).with_extension("key")).expect("a key");
    bench.api.set_away(true);
    reboot(&mut bench);
    let kubelet = bench.start();
    pass(60).await;
    assert_eq!(bench.runtime.running().len(), 0);
    bench.api.set_away(false);
    bench.until("it runs", |b| b.running("uid-a") == 1).await;
    bench
        .until("told", |b| {
            told(b).iter().any(|text| text.contains("the node key is gone"))
        })
        .await;
    let kubelet = reboot_alone(&mut bench, kubelet).await;
    bench.until("it runs again", |b| b.running("uid-a") == 1).await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_change_is_not_written_and_a_disk_that_refuses_stops_no_pod() {
    let bench = bench();
    let kubelet = one_kept(&bench).await;
    let inode = |b: &Bench| {
        let name = files(b, "pod-").pop_first().expect("a file");
        let metadata = fs::metadata(folder(b).join(name)).expect("there");
        std::os::unix::fs::MetadataExt::ino(&metadata)
    };
    let before = inode(&bench);
    pass(60).await;
    assert_eq!(inode(&bench), before, "not written again");
    // Nothing can be written where a directory is in the way.
    let in_the_way = folder(&bench).join("unfinished.tmp");
    fs::create_dir(&in_the_way).expect("made");
    for name in ["b", "c"] {
        bench.api.create(&on_node(name, |_| {}));
    }
    bench.until("all run", |b| b.runtime.running().len() == 3).await;
    pass(300).await;
    assert_eq!(told(&bench).len(), 1, "{:?}", told(&bench));
    assert_eq!(files(&bench, "pod-").len(), 1);
    fs::remove_dir(&in_the_way).expect("removed");
    pass(70).await;
    assert_eq!(files(&bench, "pod-").len(), 3);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_kept_goes_with_the_setting() {
    let mut bench = bench();
    let kubelet = one_kept(&bench).await;
    kubelet.kill().await;
    let key = folder(&bench).with_extension("key");
    assert!(key.exists() && files(&bench, "pod-").len() == 1);
    bench.autonomy = false;
    let kubelet = bench.start();
    pass(1).await;
    assert!(!key.exists() && !folder(&bench).exists());
    kubelet.kill().await;
    bench.autonomy = true;
    bench.api.set_away(true);
    reboot(&mut bench);
    let kubelet = bench.start();
    pass(60).await;
    assert_eq!(bench.runtime.running().len(), 0, "it may be long gone");
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_does_not_open_is_not_believed_later() {
    let mut bench = bench();
    let kubelet = one_kept(&bench).await;
    kubelet.kill().await;
    fs::create_dir(folder(&bench).join("unfinished.tmp")).expect("made");
    bench.api.set_away(true);
    reboot(&mut bench);
    let kubelet = bench.start();
    pass(60).await;
    assert_eq!(bench.runtime.running().len(), 0);
    bench.api.set_away(false);
    bench.until("it runs", |b| b.running("uid-a") == 1).await;
    let lost = |b: &Bench| {
        told(b)
            .iter()
            .any(|text| text.contains("could not be opened and was removed"))
    };
    bench.until("told", lost).await;
    pass(15).await;
    assert_eq!(files(&bench, "pod-").len(), 1, "it is kept anew");
    kubelet.kill().await;
    // Where nothing can be removed, either, no kubelet runs.
    let file = tempfile::NamedTempFile::new().expect("a file");
    assert!(matches!(discard(file.path()), Err(Useless::Stays(_))));
    let opened = Kept::open(file.path(), "node-a", recorder(&bench));
    assert!(matches!(opened, Err(Useless::Stays(_))));
}

fn recorder(bench: &Bench) -> Recorder {
    Recorder::new(bench.clock.clone(), "node-a", None, Rate::default(), 1).0
}

#[tokio::test(start_paused = true)]
async fn a_kept_token_is_fallen_back_on_and_is_no_plugins() {
    let bench = bench();
    let dir = tempfile::tempdir().expect("a directory");
    let kept = Arc::new(Kept::open(dir.path(), "node-a", recorder(&bench)).expect("a folder"));
    let key = TokenRequestKey {
        pod_uid: PodUid::from("u"),
        pod_name: "p".into(),
        namespace: "ns".into(),
        service_account: "sa".into(),
        service_account_uid: String::new(),
        audience: "aud".into(),
        expiration_seconds: 3600,
    };
    let token = KeptToken {
        value: "old".into(),
        expires: bench.clock.now().as_second() + 600,
    };
    let text = serde_json::to_vec(&token).expect("JSON");
    let name = Item::Token(key.clone()).file_name();
    lock(&kept.folder).write(&name, text).expect("written");
    kept.restore();
    bench.api.set_away(true);
    let objects = Objects::new(bench.api.client(), bench.clock.clone(), 1).with_kept(Some(kept.clone()));
    assert_eq!(objects.token(&key).await.expect("kept").value, "old");
    let of_plugin = TokenRequestKey {
        service_account_uid: "uid-sa".into(),
        ..key.clone()
    };
    assert!(objects.token(&of_plugin).await.is_err(), "asked of the API server");
    kept.answered();
    assert_eq!(objects.token(&key).await.expect("still good").value, "old");
    pass(600).await;
    assert!(objects.token(&key).await.is_err(), "it has expired");
    bench.api.set_away(false);
    bench.api.add_service_account("sa", &[]);
    assert!(
        objects
            .token(&key)
            .await
            .expect("a new one")
            .value
            .starts_with("token of")
    );
}

#[tokio::test(start_paused = true)]
async fn a_runtime_class_is_kept_though_no_start_asked_for_it() {
    let bench = bench();
    bench.api.add_runtime_class("gvisor", "runsc");
    let objects = Objects::new(bench.api.client(), bench.clock.clone(), 1);
    assert_eq!(objects.known_handler("gvisor"), None, "not told yet");
    let told = async {
        while objects.known_handler("gvisor").is_none() {
            pass(1).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.expect("told");
}
