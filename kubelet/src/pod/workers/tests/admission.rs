//! What pods hold of their node, over a whole kubelet.

use super::*;
use k8s_openapi::api::core::v1::{ContainerPort, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use proto::api::quantity::Quantity;

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
