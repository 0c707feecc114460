//! Pods have devices of a plugin, over a whole kubelet.

use super::*;
use crate::device::testing::{Sample, device, well};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use proto::api::quantity::Quantity;
use proto::device_plugin as pb;
use serde_json::json;

const R: &str = "example.com/dev";

/// A pod of one container of the pod's name that wants so many devices.
fn wanting(name: &str, count: usize) -> Pod {
    let mut pod = serde_json::to_value(simple(name)).expect("a pod");
    pod["spec"]["containers"][0]["name"] = json!(name);
    pod["spec"]["containers"][0]["resources"] =
        json!({"limits": {R: count.to_string()}, "requests": {R: count.to_string()}});
    serde_json::from_value(pod).expect("a pod")
}

/// What a plugin answers.
fn answer() -> pb::ContainerAllocateResponse {
    pb::ContainerAllocateResponse {
        devices: vec![pb::DeviceSpec {
            container_path: "/dev/inside".to_owned(),
            host_path: "/dev/outside".to_owned(),
            permissions: "rw".to_owned(),
        }],
        ..Default::default()
    }
}

fn sample(devices: Vec<pb::Device>) -> Sample {
    Sample::new(devices).script(|script| script.answers = vec![answer()])
}

fn env(bench: &Bench, container: &str) -> Option<String> {
    let config = bench.runtime.container_config(container)?;
    let env = config.envs.into_iter().find(|env| env.key == "DEVICES")?;
    String::from_utf8(env.value).ok()
}

fn refused(bench: &Bench, name: &str) -> Option<(String, String)> {
    let status = bench.api.status(name)?;
    (status.phase.as_deref() == Some("Failed")).then(|| {
        let text = |text: Option<String>| text.unwrap_or_default();
        (text(status.reason), text(status.message))
    })
}

fn health(bench: &Bench, name: &str) -> Vec<String> {
    let status = bench.api.status(name).unwrap_or_default();
    let containers = status.container_statuses.into_iter().flatten();
    let of = containers.flat_map(|status| status.allocated_resources_status.into_iter().flatten());
    let all = of.flat_map(|of| of.resources.into_iter().flatten());
    all.map(|of| format!("{} {}", of.resource_id, of.health.unwrap_or_default()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn devices_are_given_kept_over_a_restart_and_given_back() {
    let bench = Bench::new();
    let kubelet = bench.start();
    let plugin = sample(well(&["a", "b"]));
    plugin.register(&kubelet.parts.devices, R).await;
    bench.api.create(&wanting("p", 1));
    bench.until("ready", |b| is_ready(b, "p")).await;
    assert_eq!(env(&bench, "p").as_deref(), Some("a"));
    let config = bench.runtime.container_config("p").expect("created");
    assert_eq!(config.devices[0].container_path, "/dev/inside");
    bench.until("told", |b| health(b, "p") == ["a Healthy"]).await;
    plugin.lists(vec![device("a", false, &[]), device("b", true, &[])]);
    bench.until("told", |b| health(b, "p") == ["a Unhealthy"]).await;
    plugin.lists(well(&["a", "b"]));

    // Another kubelet: what runs keeps what it has, and nobody new comes before the plugin does.
    kubelet.kill().await;
    let kubelet = bench.start();
    bench.api.create(&wanting("early", 1));
    bench.until("refused", |b| refused(b, "early").is_some()).await;
    let why = "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices example.com/dev, which is unexpected";
    assert_eq!(
        refused(&bench, "early"),
        Some(("UnexpectedAdmissionError".to_owned(), why.to_owned()))
    );
    plugin.register(&kubelet.parts.devices, R).await;
    bench.api.create(&wanting("q", 1));
    bench.until("ready", |b| is_ready(b, "q")).await;
    assert_eq!(env(&bench, "q").as_deref(), Some("b"), "the other is taken");

    bench.runtime.script_image("img:latest", Behaviour::obedient());
    bench.api.delete("p", 1, at(0));
    bench.until("gone", |b| !b.api.has("p")).await;
    bench.api.create(&wanting("r", 1));
    bench.until("ready", |b| is_ready(b, "r")).await;
    assert_eq!(env(&bench, "r").as_deref(), Some("a"), "it is free again");
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_hangs_holds_up_its_own_pods_alone() {
    let bench = Bench::new();
    let kubelet = bench.start();
    let plugin = sample(well(&["a"])).script(|script| script.hangs = true);
    plugin.register(&kubelet.parts.devices, R).await;
    bench.api.create(&wanting("hangs", 1));
    bench.until("asked", |_| !plugin.calls().is_empty()).await;
    bench.api.create(&simple("other"));
    bench.until("ready", |b| is_ready(b, "other")).await;
    assert_eq!(refused(&bench, "hangs"), None, "it is still waited for");
    bench.until("refused", |b| refused(b, "hangs").is_some()).await;
    let (reason, message) = refused(&bench, "hangs").expect("refused");
    assert_eq!(reason, "UnexpectedAdmissionError");
    assert!(message.contains("Allocate took longer than 120 s"), "{message}");
    let plugin = plugin.script(|script| script.hangs = false);
    bench.api.create(&wanting("next", 1));
    bench.until("ready", |b| is_ready(b, "next")).await;
    assert_eq!(plugin.calls().len(), 2, "the device was free again");
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_that_goes_while_it_waits_for_a_device_leaves_the_room_it_held() {
    let mut bench = Bench::new();
    for (name, amount) in [("cpu", "1"), ("pods", "10")] {
        let amount = Quantity::parse(amount).expect("a quantity");
        bench.allocatable.insert(name.to_owned(), amount);
    }
    let cpu = |mut pod: Pod, amount: &str, priority: i32| {
        let spec = pod.spec.as_mut().expect("spec");
        spec.priority = Some(priority);
        let resources = spec.containers[0].resources.get_or_insert_default();
        let requests = resources.requests.get_or_insert_default();
        requests.insert("cpu".to_owned(), Text(amount.into()));
        pod
    };
    let kubelet = bench.start();
    let plugin = sample(well(&["a", "b"]));
    plugin.register(&kubelet.parts.devices, R).await;
    bench.api.create(&cpu(wanting("holder", 1), "100m", 0));
    bench.until("ready", |b| is_ready(b, "holder")).await;
    assert_eq!(env(&bench, "holder").as_deref(), Some("a"));
    bench.api.create(&cpu(simple("large"), "800m", 0));
    bench.until("ready", |b| is_ready(b, "large")).await;
    // Others make room for it, and its device goes meanwhile.
    bench.api.create(&cpu(wanting("vip", 1), "800m", 2_000_000_000));
    bench.until("being ended", |b| has_event(b, "Preempting", "")).await;
    plugin.lists(vec![device("a", true, &[]), device("b", false, &[])]);
    bench
        .runtime
        .set_latency("StopContainer", Duration::from_secs(1_000_000));
    bench.api.remove("holder");
    bench
        .until("it waits", |b| has_event(b, "WaitingForRoom", "holder_ns"))
        .await;
    bench.api.remove("vip");
    bench.api.create(&cpu(simple("next"), "800m", 0));
    bench
        .until("judged", |b| is_ready(b, "next") || refused(b, "next").is_some())
        .await;
    assert!(is_ready(&bench, "next"));
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_goes_while_its_plugin_is_asked_leaves_nothing() {
    let bench = Bench::new();
    let kubelet = bench.start();
    let plugin = sample(well(&["a"])).script(|script| script.hangs = true);
    plugin.register(&kubelet.parts.devices, R).await;
    bench.api.create(&wanting("goes", 1));
    bench.until("asked", |_| !plugin.calls().is_empty()).await;
    bench.api.remove("goes");
    let devices = kubelet.parts.devices.clone();
    bench.until("given back", |_| !devices.is_held(|_| true)).await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_is_let_in_with_is_its_own_before_its_plugin_has_said_anything() {
    let bench = Bench::new();
    let kubelet = bench.start();
    let plugin = sample(well(&["a", "b", "c"])).script(|script| {
        script.preferred = Some(Vec::new());
        script.hangs = true;
    });
    plugin.register(&kubelet.parts.devices, R).await;
    bench.api.create(&wanting("first", 2));
    bench.until("asked", |_| !plugin.calls().is_empty()).await;
    bench.api.create(&wanting("second", 2));
    bench.until("refused", |b| refused(b, "second").is_some()).await;
    assert_eq!(refused(&bench, "first"), None, "its plugin is still asked");
    assert_eq!(
        plugin.calls(),
        ["prefer 2 of a,b,c with "],
        "nobody was asked for the second"
    );
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn what_no_plugin_gives_is_judged_by_the_nodes_object_once_that_was_looked_at_again() {
    let bench = Bench::new();
    let amounts = |dongles: &str| {
        let of = |amount: &str| Quantity::of(&Text(amount.to_owned()));
        [(R.to_owned(), of("0")), ("example.com/dongle".to_owned(), of(dongles))].into()
    };
    let mut node = bench.described.current();
    node.extended = amounts("1");
    bench.described.publish(node.clone());
    let mut questions = bench.described.questions();
    let kubelet = bench.start();
    // What the object says of a plugin's devices is behind what the plugin says.
    sample(well(&["a"])).register(&kubelet.parts.devices, R).await;
    bench.api.create(&wanting("device", 1));
    bench.until("ready", |b| is_ready(b, "device")).await;
    let with_dongle = |name: &str| {
        let mut pod = wanting(name, 1);
        let resources = pod.spec.as_mut().expect("spec").containers[0].resources.as_mut();
        let resources = resources.expect("resources");
        for list in [&mut resources.limits, &mut resources.requests] {
            *list = Some([("example.com/dongle".to_owned(), Text("1".to_owned()))].into());
        }
        pod
    };
    bench.api.create(&with_dongle("first"));
    bench.until("ready", |b| is_ready(b, "first")).await;
    bench.api.create(&with_dongle("second"));
    questions.changed().await.expect("a question");
    assert_eq!(refused(&bench, "second"), None, "nobody looked yet");
    node.extended = amounts("2");
    node.looked = *questions.borrow_and_update();
    bench.described.publish(node.clone());
    bench.until("ready", |b| is_ready(b, "second")).await;
    bench.api.create(&with_dongle("third"));
    questions.changed().await.expect("a question");
    node.looked = *questions.borrow_and_update();
    bench.described.publish(node);
    bench.until("refused", |b| refused(b, "third").is_some()).await;
    let (reason, _) = refused(&bench, "third").expect("refused");
    assert_eq!(reason, "OutOfexample.com/dongle");
    kubelet.kill().await;
}
