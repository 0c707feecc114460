//! A rule `RestartAllContainers` over a whole kubelet.

use super::*;
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition};

/// An init container that does its work, a container that runs and one whose end with 42 restarts all.
fn restarting() -> Pod {
    let rules = serde_json::json!([{"action": "RestartAllContainers",
        "exitCodes": {"operator": "In", "values": [42]}}]);
    let trigger = Container {
        restart_policy: Some("Never".into()),
        restart_policy_rules: serde_json::from_value(rules).expect("rules"),
        ..named("t")
    };
    let init = Container {
        image: Some("init:latest".into()),
        ..named("i")
    };
    let mut pod = pod("p")
        .policy("Never")
        .init(init)
        .with(named("a"))
        .with(trigger)
        .build();
    pod.spec.as_mut().expect("spec").node_name = Some("node-a".into());
    pod
}

fn bench() -> Bench {
    let bench = Bench::new();
    bench.runtime.add_image("init:latest");
    let run = Run::For {
        duration: Duration::from_secs(1),
        exit_code: 0,
    };
    let works = Behaviour {
        run,
        ..Behaviour::obedient()
    };
    bench.runtime.script_image("init:latest", works);
    bench
}

fn containers(bench: &Bench) -> Vec<ContainerStatus> {
    let status = bench.api.status("p").unwrap_or_default();
    let inits = status.init_container_statuses.unwrap_or_default();
    inits
        .into_iter()
        .chain(status.container_statuses.unwrap_or_default())
        .collect()
}

fn counts(bench: &Bench) -> Vec<(String, i32)> {
    let told = containers(bench).into_iter();
    told.map(|status| (status.name, status.restart_count)).collect()
}

fn restarting_condition(bench: &Bench) -> Option<PodCondition> {
    let conditions = bench.api.status("p").and_then(|status| status.conditions);
    let mut conditions = conditions.unwrap_or_default().into_iter();
    conditions.find(|condition| condition.type_ == "AllContainersRestarting")
}

fn is_told(bench: &Bench, status: &str) -> bool {
    restarting_condition(bench).is_some_and(|condition| condition.status == status)
}

fn times(count: i32) -> Vec<(String, i32)> {
    ["i", "a", "t"].map(|name| (name.to_owned(), count)).to_vec()
}

#[tokio::test(start_paused = true)]
async fn the_end_of_one_starts_all_from_the_beginning() {
    let bench = bench();
    // As long as removals take at least, so that users are told of it.
    bench.runtime.set_latency("RemoveContainer", Duration::from_millis(500));
    let kubelet = bench.start();
    bench.api.create(&restarting());
    bench.until("ready", |b| is_ready(b, "p")).await;
    assert_eq!((counts(&bench), is_told(&bench, "False")), (times(0), true));

    assert!(bench.runtime.crash(&"p".into(), "t", 42));
    bench.until("told", |b| is_told(b, "True")).await;
    let told = restarting_condition(&bench).expect("told");
    assert_eq!(told.reason.as_deref(), Some("RestartAllContainersStarted"));
    bench
        .until("ready again", |b| is_ready(b, "p") && is_told(b, "False"))
        .await;
    assert_eq!(counts(&bench), times(1));
    for status in containers(&bench) {
        let last = status
            .last_state
            .and_then(|last| last.terminated)
            .expect("it ran before");
        assert_eq!(
            (last.exit_code, last.reason.as_deref()),
            (137, Some("RestartingAllContainers")),
            "{}",
            status.name
        );
    }
    assert_eq!(bench.api.phases("p"), ["Pending", "Running"]);
    assert!(bench.runtime.doubled().is_empty());

    // The second time it backs off first.
    let begun = bench.clock.now();
    assert!(bench.runtime.crash(&"p".into(), "t", 42));
    bench
        .until("ready again", |b| is_ready(b, "p") && counts(b) == times(2))
        .await;
    let took = bench.clock.now().duration_since(begun).as_secs();
    assert!((10..20).contains(&took), "{took} s");

    // Another code is the container's own matter.
    assert!(bench.runtime.crash(&"p".into(), "t", 7));
    bench
        .until("over", |b| {
            containers(b)
                .iter()
                .any(|c| c.state.as_ref().is_some_and(|s| s.terminated.is_some()) && c.name == "t")
        })
        .await;
    assert_eq!(counts(&bench), times(2));
    assert_eq!(bench.running("p"), 1);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_dies_in_between_leaves_the_rest_to_the_next() {
    let bench = bench();
    // So slow that there is an in-between.
    bench.runtime.set_latency("RemoveContainer", Duration::from_secs(3));
    let kubelet = bench.start();
    bench.api.create(&restarting());
    bench.until("ready", |b| is_ready(b, "p")).await;
    let before = bench.runtime.containers();
    assert!(bench.runtime.crash(&"p".into(), "t", 42));
    bench.until("some are gone", |b| b.runtime.counts().1 < 3).await;
    kubelet.kill().await;
    let kubelet = bench.start();
    bench
        .until("ready again", |b| {
            let now = b.runtime.containers();
            let anew = now.iter().all(|c| before.iter().all(|old| old.id != c.id));
            is_ready(b, "p") && anew && now.len() == 3
        })
        .await;
    bench.until("told", |b| is_told(b, "False")).await;
    assert!(bench.runtime.doubled().is_empty());
    kubelet.kill().await;
}

/// A removal that fails is not one more crash: all containers are down meanwhile.
#[tokio::test(start_paused = true)]
async fn removals_that_fail_do_not_count_as_crashes() {
    let bench = bench();
    let mut alone = restarting();
    let spec = alone.spec.as_mut().expect("spec");
    spec.init_containers = None;
    spec.containers.retain(|container| container.name == "t");
    let kubelet = bench.start();
    bench.api.create(&alone);
    bench.until("ready", |b| is_ready(b, "p")).await;
    for _ in 0..3 {
        let error = RuntimeError::new("RemoveContainer", tonic::Code::Unknown, "no luck");
        bench.runtime.next("RemoveContainer", Mishap::Fail(error));
    }
    for (count, seconds) in [(1, 0..10), (2, 10..20), (3, 20..30)] {
        let begun = bench.clock.now();
        assert!(bench.runtime.crash(&"p".into(), "t", 42));
        bench
            .until("ready again", |b| {
                is_ready(b, "p") && counts(b) == [("t".to_owned(), count)]
            })
            .await;
        let took = bench.clock.now().duration_since(begun).as_secs();
        assert!(seconds.contains(&took), "restart {count}: {took} s");
    }
    kubelet.kill().await;
}
