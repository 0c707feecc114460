//! What pods hold of their node, over a whole kubelet.

use super::*;
use crate::admission::placement::NodeView;
use k8s_openapi::api::core::v1::{ContainerPort, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use proto::api::quantity::Quantity;
use serde_json::json;

/// A node with one slot and one CPU.
fn small() -> Bench {
    let mut bench = Bench::new();
    for (name, amount) in [("cpu", "1"), ("pods", "1")] {
        let amount = Quantity::of(&Text(amount.into()));
        bench.allocatable.insert(name.to_owned(), amount);
    }
    bench
}

/// A pod that needs all of it, and a host port; it runs once.
fn greedy(name: &str) -> Pod {
    let mut pod = simple(name);
    let spec = pod.spec.as_mut().expect("spec");
    spec.restart_policy = Some("Never".into());
    spec.containers[0].resources = Some(ResourceRequirements {
        requests: Some([("cpu".to_owned(), Text("1".into()))].into()),
        ..ResourceRequirements::default()
    });
    spec.containers[0].ports = Some(vec![ContainerPort {
        host_port: Some(80),
        container_port: 80,
        ..ContainerPort::default()
    }]);
    pod
}

fn phase(bench: &Bench, pod: &str) -> Option<String> {
    bench.api.status(pod)?.phase
}

fn reason(bench: &Bench, pod: &str) -> Option<String> {
    bench.api.status(pod)?.reason
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_finished_holds_nothing_of_its_node_though_its_object_stays() {
    let bench = small();
    let run = Run::For {
        duration: Duration::from_secs(5),
        exit_code: 0,
    };
    let behaviour = Behaviour {
        run,
        ..Behaviour::default()
    };
    bench.runtime.script_image("img:latest", behaviour);
    let kubelet = bench.start();
    bench.api.create(&greedy("first"));
    bench.until("it runs", |b| is_ready(b, "first")).await;
    bench.api.create(&greedy("too-early"));
    bench
        .until("no room", |b| reason(b, "too-early").as_deref() == Some("OutOfpods"))
        .await;
    let over = |b: &Bench, pod: &str| phase(b, pod).as_deref() == Some("Succeeded");
    bench.until("it is over", |b| over(b, "first")).await;
    bench.api.create(&greedy("second"));
    bench.until("the next one ran", |b| over(b, "second")).await;
    assert!(bench.api.has("first"), "its object is still there");
    kubelet.kill().await;

    // The next kubelet finds both finished, and counts neither.
    let kubelet = bench.start();
    bench.api.create(&greedy("third"));
    bench.until("and another", |b| over(b, "third")).await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_its_way_out_holds_what_it_has_also_for_the_next_kubelet() {
    let bench = small();
    let kubelet = bench.start();
    bench.api.create(&greedy("first"));
    bench.until("it runs", |b| is_ready(b, "first")).await;
    kubelet.kill().await;
    bench.runtime.set_latency("StopContainer", Duration::from_secs(20));
    bench.api.delete("first", 60, at(0));
    let mut second = greedy("second");
    // Older by its object, but it does not run.
    second.metadata.creation_timestamp = None;
    bench.api.create(&second);
    let kubelet = bench.start();
    bench
        .until("no room yet", |b| reason(b, "second").as_deref() == Some("OutOfpods"))
        .await;
    bench.until("the first is gone", |b| !b.api.has("first")).await;
    bench.api.create(&greedy("third"));
    bench.until("then there is", |b| is_ready(b, "third")).await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_one_that_was_deleted_at_once_and_still_ends() {
    let bench = small();
    let kubelet = bench.start();
    bench.api.create(&greedy("first"));
    bench.until("it runs", |b| is_ready(b, "first")).await;
    bench.runtime.set_latency("StopContainer", Duration::from_secs(20));
    bench.api.remove("first");
    let mut large = greedy("large");
    let requests = Some([("cpu".to_owned(), Text("2".into()))].into());
    large.spec.as_mut().expect("spec").containers[0].resources = Some(ResourceRequirements {
        requests,
        ..ResourceRequirements::default()
    });
    bench.api.create(&large);
    bench.api.create(&greedy("second"));
    // No wait helps this one.
    bench
        .until("refused", |b| reason(b, "large").as_deref() == Some("OutOfcpu"))
        .await;
    assert_eq!((phase(&bench, "second"), reason(&bench, "second")), (None, None));
    bench.until("its turn", |b| is_ready(b, "second")).await;
    kubelet.kill().await;
}

/// A kubelet whose one pod was deleted, and never ends.
async fn with_one_that_hangs(bench: &Bench) -> crate::kubelet::testing::Alive {
    let kubelet = bench.start();
    bench.api.create(&greedy("first"));
    bench.until("it runs", |b| is_ready(b, "first")).await;
    bench
        .runtime
        .set_latency("StopContainer", Duration::from_secs(1_000_000));
    bench.api.remove("first");
    kubelet
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_no_longer_for_a_deleted_one_than_that_may_take_and_says_so() {
    let bench = small();
    let kubelet = with_one_that_hangs(&bench).await;
    bench.api.create(&greedy("second"));
    let waiting = "Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1; \
                   waiting up to 45s for pods that end: first_ns";
    bench.until("told", |b| has_event(b, "WaitingForRoom", waiting)).await;
    let began = bench.clock.now();
    assert_eq!((phase(&bench, "second"), reason(&bench, "second")), (None, None));
    bench
        .until("refused", |b| reason(b, "second").as_deref() == Some("OutOfpods"))
        .await;
    let waited = bench.clock.now().duration_since(began).as_secs();
    assert!((30..=60).contains(&waited), "{waited} s");
    let told = bench
        .api
        .events()
        .iter()
        .filter(|(_, text)| text.contains("waiting"))
        .count();
    assert_eq!(told, 1);
    // What hangs is not waited for anew.
    bench.api.create(&greedy("third"));
    let began = bench.clock.now();
    bench
        .until("refused", |b| reason(b, "third").as_deref() == Some("OutOfpods"))
        .await;
    let waited = bench.clock.now().duration_since(began).as_secs();
    assert!(waited < 10, "{waited} s");
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_came_back_while_it_ended_is_waited_for_anew_when_it_goes_again() {
    let bench = small();
    let kubelet = bench.start();
    bench.api.create(&greedy("first"));
    bench.until("it runs", |b| is_ready(b, "first")).await;
    bench.runtime.set_latency("StopContainer", Duration::from_secs(70));
    bench.api.remove("first");
    bench.api.create(&greedy("second"));
    bench
        .until("refused", |b| reason(b, "second").as_deref() == Some("OutOfpods"))
        .await;
    bench.api.create(&greedy("first"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.api.remove("first");
    bench.api.create(&greedy("third"));
    bench
        .until("its turn", |b| {
            is_ready(b, "third") || phase(b, "third").as_deref() == Some("Failed")
        })
        .await;
    assert!(is_ready(&bench, "third"));
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_starts_though_a_deleted_one_hangs() {
    let bench = small();
    let kubelet = with_one_that_hangs(&bench).await;
    let mut critical = greedy("critical");
    let spec = critical.spec.as_mut().expect("spec");
    spec.priority = Some(2_000_000_000);
    spec.containers[0].ports = None;
    bench.api.create(&critical);
    bench.until("it runs", |b| is_ready(b, "critical")).await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_fit_its_node_says_why() {
    let bench = Bench::new();
    let kubelet = bench.start();
    let cases = [
        (
            "sysctl",
            json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
            "SysctlForbidden",
            "Pod was rejected: forbidden sysctl: \"kernel.msgmax\" not allowlisted",
        ),
        (
            "selector",
            json!({"nodeSelector": {"disk": "ssd"}}),
            "NodeAffinity",
            "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        ),
        (
            "system",
            json!({"os": {"name": "windows"}}),
            "PodOSNotSupported",
            "Pod was rejected: Failed to admit pod as the OS field doesn't match node OS",
        ),
        (
            "confined",
            json!({"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}),
            "AppArmor",
            "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host",
        ),
    ];
    for (name, wish, expected, message) in cases {
        let mut pod = serde_json::to_value(simple(name)).expect("a pod");
        for (field, value) in wish.as_object().expect("fields") {
            pod["spec"][field] = value.clone();
        }
        bench.api.create(&serde_json::from_value(pod).expect("a pod"));
        bench
            .until(expected, |b| reason(b, name).as_deref() == Some(expected))
            .await;
        let status = bench.api.status(name).expect("a status");
        assert_eq!(
            (status.phase.as_deref(), status.message.as_deref()),
            (Some("Failed"), Some(message))
        );
        bench
            .until("told", |b| b.api.events().iter().any(|(r, _)| r == expected))
            .await;
    }
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_judged_by_a_node_that_is_not_known_yet() {
    let bench = Bench::new();
    bench.described.publish(NodeView::default());
    let mut questions = bench.described.questions();
    let kubelet = bench.start();
    let mut pod = simple("p");
    pod.spec.as_mut().expect("spec").node_selector = Some([("disk".to_owned(), "ssd".to_owned())].into());
    bench.api.create(&pod);
    bench.write_manifest("static.json", "static", "img:latest");
    bench
        .until("static pods wait for nobody", |b| is_ready(b, "static-node-a"))
        .await;
    assert_eq!(reason(&bench, "p"), None);
    bench.described.publish(NodeView {
        labels: [("disk".to_owned(), "ssd".to_owned())].into(),
        known: true,
        ..NodeView::default()
    });
    bench.until("ready", |b| is_ready(b, "p")).await;

    // The pod may be there before the label it was bound for.
    let mut pod = simple("early");
    pod.spec.as_mut().expect("spec").node_selector = Some([("rack".to_owned(), "7".to_owned())].into());
    bench.api.create(&pod);
    questions.changed().await.expect("a question");
    let mut node = bench.described.current();
    node.labels.insert("rack".to_owned(), "7".to_owned());
    node.looked = *questions.borrow_and_update();
    bench.described.publish(node);
    bench.until("ready", |b| is_ready(b, "early")).await;

    let hard = json!({"key": "gone", "effect": "NoExecute"});
    let mut node = bench.described.current();
    node.taints = vec![serde_json::from_value(hard).expect("a taint")];
    bench.described.publish(node.clone());
    bench.api.create(&simple("late"));
    questions.changed().await.expect("a question");
    assert_eq!(reason(&bench, "late"), None, "nobody looked yet");
    node.looked = *questions.borrow_and_update();
    bench.described.publish(node.clone());
    bench
        .until("tainted", |b| reason(b, "late").as_deref() == Some("TaintToleration"))
        .await;
    assert!(is_ready(&bench, "p"), "what runs is not judged again");

    // The taint is gone already, and this kubelet has not been told.
    bench.api.create(&simple("welcome"));
    questions.changed().await.expect("a question");
    node.taints.clear();
    node.looked = *questions.borrow_and_update();
    bench.described.publish(node.clone());
    bench.until("ready", |b| is_ready(b, "welcome")).await;

    // An API server that does not answer holds a refusal up for a while, not for ever.
    node.labels.remove("rack");
    bench.described.publish(node);
    let mut pod = simple("lost");
    pod.spec.as_mut().expect("spec").node_selector = Some([("rack".to_owned(), "7".to_owned())].into());
    bench.api.create(&pod);
    bench
        .until("refused", |b| reason(b, "lost").as_deref() == Some("NodeAffinity"))
        .await;
    kubelet.kill().await;
}
