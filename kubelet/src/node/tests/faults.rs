//! What changes or goes wrong around a node, and comes right without a restart.

use super::*;

/// The messages of the events about two kubelets.
fn rivals(server: &Server) -> Vec<String> {
    let events = server.events.iter();
    events
        .filter(|event| event["reason"] == event::DUPLICATE_NODE_NAME && event["type"] == "Warning")
        .filter(|event| event["involvedObject"]["uid"] == "node-a")
        .filter_map(|event| event["message"].as_str().map(str::to_owned))
        .collect()
}

fn described_machine(server: &Server) -> Option<String> {
    let node = server.node.as_ref()?;
    node["status"]["nodeInfo"]["machineID"].as_str().map(str::to_owned)
}

#[tokio::test(start_paused = true)]
async fn two_kubelets_of_one_name_are_told_on_the_node_and_the_one_that_stays_describes_it() {
    let server = Arc::new(Mutex::new(Server::default()));
    let first = AtWork::on_machine(&server, "aaa", "boot");
    until(&server, "registered", |s| {
        described_machine(s).as_deref() == Some("aaa")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let second = AtWork::on_machine(&server, "bbb", "boot");
    until(&server, "told by both, each naming both", |s| {
        let told = rivals(s);
        let tells = |of: &str, other: &str| {
            let text = format!("this one is on machine \"{of}\" at 192.0.2.10:10250, the other on machine \"{other}\"");
            told.iter().any(|message| message.contains(&text))
        };
        tells("aaa", "bbb") && tells("bbb", "aaa")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(rivals(&server.lock().expect("lock")).len(), 2, "not told over and over");

    second.end().await;
    until(&server, "the first's again", |s| {
        described_machine(s).as_deref() == Some("aaa")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(1200)).await;
    first.end().await;
    let server = server.lock().expect("lock");
    assert_eq!(described_machine(&server).as_deref(), Some("aaa"));
    assert_eq!(rivals(&server).len(), 2, "over, and told no more");
}

#[tokio::test(start_paused = true)]
async fn a_restart_a_reboot_and_another_machine_in_its_place_are_no_second_kubelet() {
    let server = Arc::new(Mutex::new(Server::default()));
    for (machine, boot) in [("aaa", "one"), ("aaa", "one"), ("aaa", "two"), ("bbb", "one")] {
        let kubelet = AtWork::on_machine(&server, machine, boot);
        until(&server, "its own", |s| described_machine(s).as_deref() == Some(machine)).await;
        tokio::time::sleep(Duration::from_secs(700)).await;
        kubelet.end().await;
    }
    let server = server.lock().expect("lock");
    assert_eq!(rivals(&server), Vec::<String>::new());
    assert!(server.renewals > 200, "{}", server.renewals);
}

fn runtime_status(ready: bool) -> RuntimeStatus {
    RuntimeStatus {
        runtime_ready: ready,
        network_ready: ready,
        runtime_message: "asked".into(),
        ..RuntimeStatus::default()
    }
}

#[tokio::test(start_paused = true)]
async fn leftovers_of_the_network_are_collected_now_and_then_and_when_the_runtime_is_back() {
    let server = Arc::new(Mutex::new(Server::default()));
    let kubelet = AtWork::begin(&server);
    kubelet.status.send_replace(runtime_status(true));
    let lists = |kubelet: &AtWork| {
        let calls = kubelet.runtime.calls();
        calls.iter().filter(|call| call.starts_with("ListPodSandbox")).count()
    };
    until(&server, "collected at start", |_| lists(&kubelet) == 1).await;
    tokio::time::sleep(Duration::from_secs(590)).await;
    assert_eq!(lists(&kubelet), 1);
    kubelet
        .runtime
        .next("ListPodSandbox", Mishap::Fail(RuntimeError::deadline("ListPodSandbox")));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(lists(&kubelet), 2, "ten minutes later, and it failed");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(lists(&kubelet), 3, "so it was tried again soon");
    tokio::time::sleep(Duration::from_secs(300)).await;
    kubelet.status.send_replace(runtime_status(false));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(lists(&kubelet), 3);
    kubelet.status.send_replace(runtime_status(true));
    until(&server, "collected when it is back", |_| lists(&kubelet) == 4).await;
    kubelet.end().await;
}

#[tokio::test(start_paused = true)]
async fn another_address_is_on_the_node_within_the_status_period() {
    let server = Arc::new(Mutex::new(Server::default()));
    let (address, host_ips) = HostIps::following(facts().ips);
    let kubelet = AtWork::begin_at(&server, facts(), host_ips);
    let shown = |s: &Server, wanted: &str| {
        let patches = s.patches.iter().rev();
        let addresses = patches.filter_map(|patch| patch["status"]["addresses"].as_array());
        let newest = addresses.flatten().find(|a| a["type"] == "InternalIP");
        newest.is_some_and(|address| address["address"] == wanted)
    };
    until(&server, "its first address", |s| shown(s, "192.0.2.10")).await;
    address.send_replace(Arc::new(vec!["192.0.2.77".parse().expect("an address")]));
    let begun = tokio::time::Instant::now();
    until(&server, "its second address", |s| shown(s, "192.0.2.77")).await;
    assert!(begun.elapsed() <= Duration::from_secs(10));
    kubelet.end().await;
}

#[tokio::test(start_paused = true)]
async fn another_range_of_a_node_registered_anew_is_configured_without_a_restart() {
    let server = Arc::new(Mutex::new(Server::default()));
    let kubelet = AtWork::begin(&server);
    let file = kubelet.dir.path().join("net.d").join(network::FILE_NAME);
    let has = |cidr: &str| {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let list: Value = serde_json::from_str(&text).unwrap_or_default();
        list["plugins"][0]["ipam"]["ranges"][0][0]["subnet"] == cidr
    };
    until(&server, "the first range", |_| has("10.9.0.0/24")).await;
    {
        let mut server = server.lock().expect("lock");
        server.show("DELETED");
        server.node = None;
        server.range = "10.7.0.0/24";
    }
    until(&server, "the second range", |_| has("10.7.0.0/24")).await;
    let told = |of: &AtWork| {
        of.runtime
            .calls()
            .iter()
            .any(|call| call == "UpdateRuntimeConfig 10.7.0.0/24")
    };
    until(&server, "the runtime was told", |_| told(&kubelet)).await;
    kubelet.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_look_at_the_node_that_fails_is_tried_again_and_holds_up_nothing() {
    let server = Arc::new(Mutex::new(Server::default()));
    let mut node = AtWork::begin(&server);
    until(&server, "registered", |s| !s.patches.is_empty()).await;
    until_described(&mut node.descriptions, "the object", |view| view.known).await;
    // Registration is over: who looks at the node now is who was asked to.
    let before = {
        let mut server = server.lock().expect("lock");
        server.mishaps = [Look::Refused, Look::Hangs].into();
        server.node.as_mut().expect("a node")["spec"]["taints"] = json!([{"key": "fresh", "effect": "NoSchedule"}]);
        server.node.as_mut().expect("a node")["metadata"]["resourceVersion"] = "1001".into();
        server.calls.len()
    };
    let asked = Instant::now();
    let question = node.descriptions.ask().expect("somebody looks");
    until(&server, "a look that hangs", |s| s.mishaps.is_empty()).await;
    {
        let mut server = server.lock().expect("lock");
        let mut older = server.node.clone().expect("a node");
        older["metadata"]["resourceVersion"] = "1000".into();
        older["metadata"]["labels"]["disk"] = "ssd".into();
        older["spec"]["taints"] = json!([]);
        let newer = server.node.replace(older);
        server.show("MODIFIED");
        server.node = newer;
    }
    let labelled = |view: &NodeView| view.labels.contains_key("disk");
    let meanwhile = until_described(&mut node.descriptions, "what the watch brings", labelled).await;
    assert!(meanwhile.looked < question, "told before the look ends");
    let looks = |s: &Server| {
        let looks = s.calls[before..].iter();
        looks
            .filter(|call| call.starts_with("GET /api/v1/nodes/node-a "))
            .count()
    };
    assert_eq!(looks(&server.lock().expect("lock")), 2);

    let seen = until_described(&mut node.descriptions, "the answer", |view| view.looked == question).await;
    assert_eq!(seen.taints.len(), 1);
    assert_eq!(looks(&server.lock().expect("lock")), 3);
    assert!(asked.elapsed() < Duration::from_secs(10), "who asked still waits");
    node.end().await;
}

fn reasons(server: &Server) -> Vec<String> {
    let reason = |event: &Value| event["reason"].as_str().map(str::to_owned);
    server.events.iter().filter_map(reason).collect()
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_the_node_is_told_once() {
    let server = Arc::new(Mutex::new(Server::default()));
    let kubelet = AtWork::on_machine(&server, "aaa", "one");
    let said = |what: &str| {
        reasons(&server.lock().expect("lock"))
            .iter()
            .filter(|r| *r == what)
            .count()
    };
    let has = |what: &'static str| move |s: &Server| reasons(s).iter().any(|r| r == what);
    until(&server, "described", has("NodeHasSufficientMemory")).await;
    until(&server, "its pressure told", has("NodeHasSufficientPID")).await;
    assert_eq!(said("NodeReady") + said("NodeNotReady"), 0, "it never was else");
    kubelet.status.send_replace(runtime_status(true));
    until(&server, "ready", has("NodeReady")).await;
    kubelet.status.send_replace(runtime_status(false));
    until(&server, "not ready", has("NodeNotReady")).await;
    {
        let mut server = server.lock().expect("lock");
        let object = server.node.as_mut().expect("a node");
        object["spec"]["unschedulable"] = json!(true);
        server.show("MODIFIED");
    }
    until(&server, "cordoned", has("NodeNotSchedulable")).await;
    tokio::time::sleep(Duration::from_secs(700)).await;
    for told in [
        "NodeReady",
        "NodeNotReady",
        "NodeNotSchedulable",
        "NodeHasSufficientMemory",
        "NodeHasNoDiskPressure",
    ] {
        assert_eq!(said(told), 1, "{told}");
    }
    assert_eq!(said("Rebooted"), 0);
    kubelet.end().await;

    server.lock().expect("lock").events.clear();
    let kubelet = AtWork::on_machine(&server, "aaa", "two");
    until(&server, "booted anew", has("Rebooted")).await;
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert_eq!(said("Rebooted"), 1);
    kubelet.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_given_up_as_unknown_is_ready_again_at_the_next_look_and_told_so() {
    let server = Arc::new(Mutex::new(Server::default()));
    let kubelet = AtWork::begin(&server);
    kubelet.status.send_replace(runtime_status(true));
    until(&server, "ready", |s| last_ready(s).as_deref() == Some("True")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let patches = {
        let mut server = server.lock().expect("lock");
        server.events.clear();
        let object = server.node.as_mut().expect("a node");
        for condition in object["status"]["conditions"].as_array_mut().expect("conditions") {
            condition["status"] = json!("Unknown");
        }
        server.show("MODIFIED");
        server.patches.len()
    };
    // Long before a report is due.
    let looks = tokio::time::Instant::now();
    until(&server, "mended", |s| s.patches.len() > patches).await;
    assert!(looks.elapsed() < Duration::from_secs(30), "{:?}", looks.elapsed());
    assert_eq!(last_ready(&server.lock().expect("lock")).as_deref(), Some("True"));
    let told = |s: &Server| reasons(s).iter().any(|reason| reason == "NodeReady");
    until(&server, "told", told).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.lock().expect("lock").patches.len(), patches + 1, "once");
    kubelet.end().await;
}

#[tokio::test(start_paused = true)]
async fn how_long_a_node_took_to_start_is_told_of_one_that_was_new_alone() {
    const UNTOLD: &str = "\nkubelet_node_startup_duration_seconds 0\n";
    let server = Arc::new(Mutex::new(Server::default()));
    let kubelet = AtWork::begin(&server);
    kubelet.status.send_replace(runtime_status(true));
    let is_told = |kubelet: &AtWork| !kubelet.parts.metrics.text(&kubelet.parts.pods).contains(UNTOLD);
    until(&server, "told", |_| is_told(&kubelet)).await;
    kubelet.end().await;
    let patches = server.lock().expect("lock").patches.len();
    let kubelet = AtWork::begin(&server);
    kubelet.status.send_replace(runtime_status(true));
    until(&server, "ready", |s| s.patches.len() > patches).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!is_told(&kubelet), "its start is long over");
    kubelet.end().await;
}
