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

/// What happened while nobody could take an event is told afterwards: nothing in the queue is given up meanwhile.
#[tokio::test(start_paused = true)]
async fn events_outlive_an_api_server_that_is_away_for_ten_minutes() {
    let bench = Bench::new();
    let run = Run::For {
        duration: Duration::from_secs(100),
        exit_code: 3,
    };
    bench.runtime.script_image(
        "img:latest",
        Behaviour {
            run,
            ..Behaviour::default()
        },
    );
    let kubelet = bench.start();
    bench.api.create(&simple("p"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    bench.until("told", |b| has_event(b, "Started", "")).await;
    bench.api.set_away(true);
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert!(!has_event(&bench, "BackOff", ""), "nobody could be told");
    bench.api.set_away(false);
    bench
        .until("told", |b| {
            has_event(b, "BackOff", "Back-off restarting failed container c")
        })
        .await;
    kubelet.kill().await;
}

/// Two kubelets of one name, each with a runtime of its own: both run the pod, and neither ends what the other runs.
#[tokio::test(start_paused = true)]
async fn two_kubelets_of_one_name_leave_each_others_containers_alone() {
    let first = Bench::new();
    let second = Bench::beside(&first);
    let (one, two) = (first.start(), second.start());
    first.api.create(&simple("p"));
    for bench in [&first, &second] {
        bench
            .until("running", |b| b.running("p") == 1 && is_ready(b, "p"))
            .await;
    }
    tokio::time::sleep(Duration::from_secs(1200)).await;
    two.kill().await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    for bench in [&first, &second] {
        assert_eq!(bench.running("p"), 1);
        let calls = bench.runtime.calls();
        let ended = calls
            .iter()
            .filter(|call| call.starts_with("Stop") || call.starts_with("Remove"));
        assert_eq!(ended.collect::<Vec<_>>(), Vec::<&String>::new());
    }
    assert_eq!(statuses(&first, "p")[0].restart_count, 0);
    let again = second.start();
    first.api.delete("p", 30, at(0));
    for bench in [&first, &second] {
        bench
            .until("gone", |b| b.runtime.counts() == (0, 0) && b.leftovers().is_empty())
            .await;
    }
    assert!(!first.api.has("p"));
    one.kill().await;
    again.kill().await;
}

/// A sandbox is made, and its first status cannot be had: that is told, and the pod starts in that sandbox all the same.
#[tokio::test(start_paused = true)]
async fn a_new_sandbox_of_which_the_runtime_says_nothing_is_told() {
    let bench = Bench::new();
    let kubelet = bench.start();
    for _ in 0..2 {
        let error = RuntimeError::new("PodSandboxStatus", tonic::Code::Unknown, "no luck");
        bench.runtime.next("PodSandboxStatus", Mishap::Fail(error));
    }
    bench.api.create(&simple("p"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    let message = "Unable to get pod sandbox status: rpc error: code = Unknown desc = no luck";
    bench
        .until("told", |b| has_event(b, "FailedPodSandBoxStatus", message))
        .await;
    let made = bench.runtime.calls();
    assert_eq!(made.iter().filter(|call| call.starts_with("RunPodSandbox")).count(), 1);
    kubelet.kill().await;
}

/// A look at one pod that hangs: that pod says so, the others come and go, and it comes right by itself.
#[tokio::test(start_paused = true)]
async fn a_runtime_that_hangs_on_one_pod() {
    let bench = Bench::new();
    let kubelet = bench.start();
    bench.runtime.next("ContainerStatus", Mishap::Hang);
    bench.api.create(&simple("stuck"));
    let begun = bench.clock.now();
    let asked = |b: &Bench| b.runtime.calls().iter().any(|call| call.starts_with("ContainerStatus"));
    bench.until("the runtime hangs", asked).await;
    bench.api.create(&simple("other"));
    bench.until("the other", |b| is_ready(b, "other")).await;
    bench.api.delete("other", 30, at(0));
    bench.until("the other is gone", |b| !b.api.has("other")).await;
    let took = bench.clock.now().duration_since(begun).as_secs();
    assert!(took < 60 && !is_ready(&bench, "stuck"), "{took} s");
    bench
        .until("told", |b| {
            has_event(
                b,
                "FailedSync",
                "error determining status: rpc error: code = DeadlineExceeded",
            )
        })
        .await;
    bench.until("it came right", |b| is_ready(b, "stuck")).await;
    assert_eq!(bench.running("stuck"), 1);
    assert!(bench.runtime.doubled().is_empty());
    kubelet.kill().await;
}

/// Looking at what an earlier kubelet left hangs: pods start all the same, and what was left goes once it can be looked at.
#[tokio::test(start_paused = true)]
async fn an_orphan_that_cannot_be_looked_at_holds_nobody_up() {
    let bench = Bench::new();
    let first = bench.start();
    bench.api.create(&simple("orphan"));
    bench.until("ready", |b| is_ready(b, "orphan")).await;
    first.kill().await;
    bench.api.remove("orphan");
    bench.runtime.next("ContainerStatus", Mishap::Hang);
    let begun = bench.clock.now();
    let second = bench.start();
    bench.api.create(&simple("p"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    let took = bench.clock.now().duration_since(begun).as_secs();
    assert!(took < 60, "{took} s");
    assert_eq!(bench.running("orphan"), 1, "it could not be looked at yet");
    bench.until("the orphan is gone", |b| b.running("orphan") == 0).await;
    assert_eq!(bench.running("p"), 1);
    second.kill().await;
}

/// Another address of the node reaches its pods' statuses, those on its own network included, without a restart.
#[tokio::test(start_paused = true)]
async fn a_node_that_gets_another_address() {
    let bench = Bench::new();
    let kubelet = bench.start();
    let mut on_host = simple("host");
    on_host.spec.as_mut().expect("spec").host_network = Some(true);
    bench.api.create(&on_host);
    bench.api.create(&simple("own"));
    let ips = |b: &Bench, name: &str| {
        let status = b.api.status(name).unwrap_or_default();
        (status.host_ip.unwrap_or_default(), status.pod_ip.unwrap_or_default())
    };
    for name in ["host", "own"] {
        bench.until("ready", |b| is_ready(b, name)).await;
    }
    assert_eq!(ips(&bench, "host"), ("192.0.2.10".into(), "192.0.2.10".into()));
    let own = ips(&bench, "own").1;
    bench.move_to("192.0.2.77");
    bench
        .until("told of both", |b| {
            ips(b, "host") == ("192.0.2.77".into(), "192.0.2.77".into())
                && ips(b, "own") == ("192.0.2.77".into(), own.clone())
        })
        .await;
    assert_eq!((bench.running("host"), bench.running("own")), (1, 1));
    kubelet.kill().await;
}

/// The directory of an earlier pod is on a file system that hangs: pods start and end all the same, and what is left goes once
/// it can. The clock is the machine's: a paused one stands still while a thread works.
#[tokio::test]
async fn leftovers_that_hang_hold_no_pod_up() {
    let bench = Bench::new();
    let hung = bench.leave("old");
    bench.mounter.hang(&hung);
    bench.leave("other");
    let kubelet = bench.start();
    bench.api.create(&simple("p"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    bench
        .until("the other is gone", |b| !b.leftovers().contains(&"other".to_owned()))
        .await;
    bench.api.delete("p", 1, bench.clock.now());
    bench.until("gone", |b| !b.api.has("p")).await;
    assert_eq!(bench.leftovers(), ["old"]);
    // A pod of that very UID waits for what is left of its namesake.
    bench.api.create(&simple("old"));
    bench.api.create(&simple("q"));
    bench.until("ready", |b| is_ready(b, "q")).await;
    assert!(bench.api.status("old").unwrap_or_default().phase.is_none());
    bench.mounter.go_on();
    bench.until("ready", |b| is_ready(b, "old")).await;
    kubelet.kill().await;
}

/// Anybody's directory among the logs names no pod: nothing but a pod's own logs goes by such a name.
#[tokio::test(start_paused = true)]
async fn a_name_among_the_logs_takes_no_pods_directories() {
    let bench = Bench::new();
    let logs = bench.resolv_conf().with_file_name("logs");
    for name in ["a__", "a_b_.", "a_b_..", "ns_old_gone", "notes"] {
        std::fs::create_dir_all(logs.join(name)).expect("a directory");
    }
    std::fs::write(logs.join("a_b_c"), "a file").expect("written");
    bench.leave("old");
    let kubelet = bench.start();
    bench.api.create(&simple("p"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    bench.until("released", |b| b.leftovers() == ["p"]).await;
    bench.until("its logs", |_| !logs.join("ns_old_gone").exists()).await;
    for name in ["a__", "a_b_.", "a_b_..", "notes", "a_b_c"] {
        assert!(logs.join(name).exists(), "{name} is no pod's");
    }
    assert_eq!(bench.leftovers(), ["p"]);
    kubelet.kill().await;
}

/// Whoever changes the node's files has the next pod see it, not the next kubelet.
#[tokio::test(start_paused = true)]
async fn the_nodes_own_files_are_read_when_a_sandbox_is_made() {
    let bench = Bench::new();
    let kubelet = bench.start();
    let on_the_node = |name: &str| {
        let mut pod = simple(name);
        let spec = pod.spec.as_mut().expect("spec");
        spec.host_network = Some(true);
        spec.dns_policy = Some("Default".into());
        pod
    };
    bench.api.create(&on_the_node("first"));
    bench.until("ready", |b| is_ready(b, "first")).await;
    assert_eq!(bench.runtime.nameservers("first"), ["192.0.2.1"]);
    assert!(bench.hosts_of("first").contains("127.0.0.1 node"));
    std::fs::write(bench.resolv_conf(), "nameserver 192.0.2.2\n").expect("written");
    std::fs::write(bench.hosts(), "127.0.0.1 renamed\n").expect("written");
    bench.api.create(&on_the_node("second"));
    bench.until("ready", |b| is_ready(b, "second")).await;
    assert_eq!(bench.runtime.nameservers("second"), ["192.0.2.2"]);
    assert!(bench.hosts_of("second").contains("127.0.0.1 renamed"));
    // Without the file no pod can be told whom to ask: it says so, and starts once it is there.
    std::fs::remove_file(bench.resolv_conf()).expect("removed");
    bench.api.create(&on_the_node("third"));
    bench
        .until("told", |b| {
            has_event(b, "FailedCreatePodSandBox", "resolv.conf: No such file")
        })
        .await;
    std::fs::write(bench.resolv_conf(), "nameserver 192.0.2.3\n").expect("written");
    bench.until("ready", |b| is_ready(b, "third")).await;
    kubelet.kill().await;
}
