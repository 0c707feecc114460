//! Faults of the world around a pod: the pod says what is wrong, the others go on, and it comes right by itself.

use super::*;

fn statuses(bench: &Bench, pod: &str) -> Vec<k8s_openapi::api::core::v1::ContainerStatus> {
    let status = bench.api.status(pod).and_then(|status| status.container_statuses);
    status.unwrap_or_default()
}

/// The runtime goes on making a sandbox for a kubelet that was killed: its name is taken, the next kubelet uses another, and
/// the late one goes.
#[tokio::test(start_paused = true)]
async fn a_sandbox_name_that_stays_reserved_is_got_around() {
    let bench = Bench::new();
    bench
        .runtime
        .next("RunPodSandbox", Mishap::GoOn(Duration::from_secs(60)));
    let first = bench.start();
    bench.api.create(&simple("p"));
    let began = |b: &Bench| b.runtime.calls().iter().any(|call| call.starts_with("RunPodSandbox"));
    bench.until("begun", began).await;
    first.kill().await;
    let killed = bench.clock.now();
    let second = bench.start();
    bench.until("ready", |b| is_ready(b, "p")).await;
    let took = bench.clock.now().duration_since(killed).as_secs();
    assert!(took < 10, "{took} s");
    assert!(has_event(&bench, "FailedCreatePodSandBox", "is reserved for"));
    let ready = |b: &Bench| b.runtime.sandboxes().iter().filter(|s| s.ready).count();
    assert_eq!(bench.runtime.sandboxes()[0].attempt, 1);
    let removed = |b: &Bench| {
        b.runtime
            .calls()
            .iter()
            .any(|call| call.starts_with("RemovePodSandbox"))
    };
    bench.until("the late one came and went", removed).await;
    assert_eq!(bench.runtime.sandboxes().len(), 1);
    assert_eq!((ready(&bench), bench.running("p")), (1, 1));
    assert_eq!(statuses(&bench, "p")[0].restart_count, 0);
    assert!(bench.runtime.doubled().is_empty());
    second.kill().await;
}

/// Ten minutes without an API server: what runs is kept running, and everything that happened is told afterwards.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_for_ten_minutes() {
    let bench = Bench::new();
    let kubelet = bench.start();
    for name in ["stays", "crashes", "goes"] {
        bench.api.create(&simple(name));
        bench.until("ready", |b| is_ready(b, name)).await;
    }
    bench.api.set_away(true);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(bench.runtime.crash(&"crashes".into(), "c", 7));
    bench
        .until("restarted on its own", |b| {
            b.running("crashes") == 1 && b.runtime.containers().len() == 4
        })
        .await;
    bench.api.delete("goes", 30, at(0));
    tokio::time::sleep(Duration::from_secs(540)).await;
    assert_eq!((bench.running("stays"), bench.running("goes")), (1, 1));
    assert_eq!(statuses(&bench, "crashes")[0].restart_count, 0, "nobody could be told");
    bench.api.set_away(false);
    let back = bench.clock.now();
    bench
        .until("told", |b| {
            statuses(b, "crashes")[0].restart_count == 1 && is_ready(b, "crashes") && !b.api.has("goes")
        })
        .await;
    let took = bench.clock.now().duration_since(back).as_secs();
    assert!(took < 60, "{took} s");
    let ended = statuses(&bench, "crashes")[0]
        .last_state
        .clone()
        .and_then(|state| state.terminated);
    assert_eq!(ended.map(|end| end.exit_code), Some(7));
    assert_eq!(
        (bench.running("stays"), statuses(&bench, "stays")[0].restart_count),
        (1, 0)
    );
    assert!(bench.runtime.doubled().is_empty());
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn an_image_of_another_architecture_is_told_in_the_runtimes_words() {
    let bench = Bench::new();
    let kubelet = bench.start();
    let text =
        "failed to pull and unpack image \"docker.io/library/foreign:1\": no match for platform in manifest: not found";
    for _ in 0..3 {
        let error = RuntimeError::new("PullImage", tonic::Code::NotFound, text);
        bench.runtime.next("PullImage", Mishap::Fail(error));
    }
    let mut foreign = simple("foreign");
    foreign.spec.as_mut().expect("spec").containers[0].image = Some("foreign:1".into());
    bench.api.create(&foreign);
    bench.api.create(&simple("other"));
    bench.until("the other", |b| is_ready(b, "other")).await;
    let waits = |b: &Bench| {
        let state = statuses(b, "foreign").first().and_then(|c| c.state.clone());
        let waiting = state.and_then(|state| state.waiting).unwrap_or_default();
        (waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default())
    };
    bench.until("backs off", |b| waits(b).0 == "ImagePullBackOff").await;
    assert!(
        waits(&bench).1.contains("no match for platform in manifest"),
        "{:?}",
        waits(&bench)
    );
    assert!(has_event(&bench, "Failed", "no match for platform in manifest"));
    bench.runtime.add_remote_image("foreign:1");
    bench.until("comes right by itself", |b| is_ready(b, "foreign")).await;
    kubelet.kill().await;
}

/// A list that fails (a reply beyond the bound, say) takes away the sweep, not the pods.
#[tokio::test(start_paused = true)]
async fn pods_live_on_without_a_list_of_everything() {
    let bench = Bench::new();
    let kubelet = bench.start();
    bench.api.create(&simple("before"));
    bench.until("ready", |b| is_ready(b, "before")).await;
    bench.runtime.refuse_list_of_all(true);
    bench.api.create(&simple("after"));
    bench.until("ready", |b| is_ready(b, "after")).await;
    assert!(bench.runtime.crash(&"before".into(), "c", 1));
    bench
        .until("restarted", |b| statuses(b, "before")[0].restart_count == 1)
        .await;
    bench.api.delete("after", 30, at(0));
    bench.until("gone", |b| !b.api.has("after")).await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(bench.running("before"), 1);
    kubelet.kill().await;
}
