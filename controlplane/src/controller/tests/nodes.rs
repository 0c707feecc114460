use super::*;

#[tokio::test(start_paused = true)]
async fn nodes_get_blocks_and_lose_the_not_ready_taint() {
    let world = World::start(3).await;
    let mut blocks = std::collections::BTreeSet::new();
    for name in ["n0", "n1", "n2"] {
        let path = format!("/api/v1/nodes/{name}");
        let node = world
            .until(&path, |n| {
                let told = &n["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"];
                n["spec"]["podCIDR"].is_string() && n["spec"]["taints"].is_null() && told == "0"
            })
            .await;
        blocks.insert(node["spec"]["podCIDR"].to_string());
    }
    assert_eq!(blocks.len(), 3);
    let drained = "node_collector_evictions_total{zone=\"\"} 0\n";
    assert!(world.counted().contains(drained), "{}", world.counted());
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_becomes_unknown_and_loses_its_pods() {
    let world = World::start(1).await;
    world.deploy("web", 1, "nginx").await;
    let pods = "/api/v1/namespaces/default/pods";
    world
        .until(pods, |p| p["items"][0]["status"]["phase"] == "Running")
        .await;
    world.add_node("alive").await;
    world
        .patch("/api/v1/nodes/n0", json!({"metadata": {"labels": {"silent": "yes"}}}))
        .await;
    let silent = world
        .until("/api/v1/nodes/n0", |n| {
            n["spec"]["taints"]
                .as_array()
                .is_some_and(|t| t.iter().any(|t| t["effect"] == "NoExecute"))
        })
        .await;
    let ready = silent["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["type"] == "Ready")
        .unwrap();
    assert_eq!(
        (&ready["status"], &ready["reason"]),
        (&json!("Unknown"), &json!("NodeStatusUnknown"))
    );
    world
        .until(pods, |p| {
            let all = p["items"].as_array().unwrap();
            all.len() == 1 && all[0]["spec"]["nodeName"] == "alive" && all[0]["status"]["phase"] == "Running"
        })
        .await;
    let told = |events: &Value| {
        let mut all = events["items"].as_array().into_iter().flatten();
        all.any(|event| {
            let what = (&event["type"], &event["reason"], &event["involvedObject"]["kind"]);
            what == (&json!("Warning"), &json!("NodeNotReady"), &json!("Pod"))
                && event["message"] == "Node is not ready"
        })
    };
    world.until("/api/v1/namespaces/default/events", told).await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_removed_node_are_collected() {
    let world = World::start(1).await;
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "lost", "labels": {"stuck": "yes"}},
        "spec": {"nodeName": "never", "containers": [{"name": "c", "image": "nginx"}]}});
    world.create("/api/v1/namespaces/default/pods", pod).await;
    world
        .until("/api/v1/namespaces/default/pods/lost", Value::is_null)
        .await;
}

#[tokio::test(start_paused = true)]
async fn pods_being_deleted_leave_a_node_that_is_out_of_service() {
    let world = World::start(1).await;
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "kept", "labels": {"stuck": "yes"}},
        "spec": {"nodeName": "n0", "containers": [{"name": "c", "image": "nginx"}]}});
    world.create("/api/v1/namespaces/default/pods", pod).await;
    let path = "/api/v1/namespaces/default/pods/kept";
    world.call("DELETE", path, None).await.unwrap();
    world
        .patch(
            "/api/v1/nodes/n0",
            json!({"metadata": {"labels": {"silent": "yes"}},
                "spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]}}),
        )
        .await;
    world.until(path, Value::is_null).await;
}

#[tokio::test(start_paused = true)]
async fn a_partly_disrupted_zone_keeps_its_pods_until_few_enough_are_silent() {
    let world = World::start(0).await;
    let silent = |name: &str| {
        let ready = json!({"type": "Ready", "status": "False", "reason": "KubeletNotReady"});
        json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "labels": {"silent": "yes"}}, "status": {"conditions": [ready]}})
    };
    // As long as no node is ready none is drained; then three of four are too many for a small zone.
    for name in ["s0", "s1", "s2"] {
        world.create("/api/v1/nodes", silent(name)).await;
    }
    world.add_node("r0").await;
    world.add_node("r1").await;
    let effects = |node: &Value| -> Vec<Value> {
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        taints.map(|taint| taint["effect"].clone()).collect()
    };
    for name in ["s0", "s1", "s2"] {
        let path = format!("/api/v1/nodes/{name}");
        world.until(&path, |n| effects(n) == ["NoSchedule"]).await;
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    for name in ["s0", "s1", "s2"] {
        let node = world.get(&format!("/api/v1/nodes/{name}")).await.unwrap();
        assert_eq!(effects(&node), ["NoSchedule"], "{name}");
    }
    world.call("DELETE", "/api/v1/nodes/s2", None).await.unwrap();
    for name in ["s0", "s1"] {
        let path = format!("/api/v1/nodes/{name}");
        world.until(&path, |n| effects(n).contains(&json!("NoExecute"))).await;
    }
    let drained = "node_collector_evictions_total{zone=\"\"} 2\n";
    assert!(world.counted().contains(drained), "{}", world.counted());
    let events = world.items("/api/v1/namespaces/default/events").await;
    let removing = events.iter().filter(|e| e["reason"] == "RemovingNode");
    let messages: Vec<&Value> = removing.map(|e| &e["message"]).collect();
    assert_eq!(messages, ["Node s2 event: Removing Node s2 from Controller"]);
}

/// Taints as `kubectl taint` writes them: nobody says when they were added.
#[tokio::test(start_paused = true)]
async fn a_taint_ends_pods_when_they_have_stood_it_for_their_time() {
    let world = World::start(1).await;
    let pods = "/api/v1/namespaces/default/pods";
    let tolerant = |name: &str, seconds: i64| {
        let toleration =
            json!({"key": "hard", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name},
            "spec": {"nodeName": "n0", "containers": [{"name": "c", "image": "nginx"}], "tolerations": [toleration]}})
    };
    for (name, seconds) in [("short", 60), ("long", 600), ("for-ever", i64::MAX)] {
        world.create(pods, tolerant(name, seconds)).await;
    }
    let taint = |taints: Value| json!({"spec": {"taints": taints}});
    let node = "/api/v1/nodes/n0";
    let hard = json!([{"key": "hard", "effect": "NoExecute"}]);
    let tainted = tokio::time::Instant::now();
    world.patch(node, taint(hard)).await;
    world.until(&format!("{pods}/short"), Value::is_null).await;
    let took = tainted.elapsed().as_secs();
    assert!((60..63).contains(&took), "after {took} s");
    // Who comes to a taint that is older than its time has its time all the same.
    world.create(pods, tolerant("late", 50)).await;
    tokio::time::sleep(Duration::from_secs(45)).await;
    assert!(world.get(&format!("{pods}/late")).await.is_some());
    world.until(&format!("{pods}/late"), Value::is_null).await;
    world.patch(node, taint(json!([]))).await;
    let cancelled = |events: &Value| {
        let mut all = events["items"].as_array().into_iter().flatten();
        all.any(|event| {
            let from = (&event["reason"], &event["source"]["component"]);
            from == (&json!("TaintManagerEviction"), &json!("taint-eviction-controller"))
                && event["message"] == "Cancelling deletion of Pod default/long"
        })
    };
    world.until("/api/v1/namespaces/default/events", cancelled).await;
    tokio::time::sleep(Duration::from_secs(700)).await;
    for name in ["long", "for-ever"] {
        assert!(world.get(&format!("{pods}/{name}")).await.is_some(), "{name}");
    }
}

/// Kubelets renew their leases every ten seconds, and tell their status every five minutes.
#[tokio::test(start_paused = true)]
async fn a_node_that_renews_its_lease_is_left_alone_until_its_grace_is_over() {
    let world = World::start(0).await;
    world.add_node("n0").await;
    let mute = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "mute", "labels": {"silent": "yes"}}});
    world.create("/api/v1/nodes", mute).await;
    let silent = json!({"metadata": {"labels": {"silent": "yes"}}});
    world.patch("/api/v1/nodes/n0", silent).await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let renewed = || json!({"spec": {"renewTime": format!("{:.6}", world.clock.now())}});
    for name in ["n0", "mute"] {
        let lease = json!({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": name}});
        world.create(leases, lease).await;
    }
    let untainted = |node: &Value| node["spec"]["taints"].is_null();
    world.until("/api/v1/nodes/n0", untainted).await;
    let wakings = || {
        let counted = world.counted();
        let mut lines = counted.lines();
        let count = lines.find_map(|line| line.strip_prefix("workqueue_adds_total{name=\"node-controller\"} "));
        count.unwrap().parse::<u32>().unwrap()
    };
    let is_unknown = |node: &Value| {
        let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|c| c["type"] == "Ready" && c["status"] == "Unknown")
    };
    let mut last = tokio::time::Instant::now();
    let begun = wakings();
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        for name in ["n0", "mute"] {
            world.patch(&format!("{leases}/{name}"), renewed()).await;
            let node = world.get(&format!("/api/v1/nodes/{name}")).await.unwrap();
            assert!(!is_unknown(&node), "{node:#}");
        }
        last = tokio::time::Instant::now();
    }
    // The one that never said that it is ready is looked at for each renewal, the other one when its grace would be over: with each
    // renewal it would be sixty and more. What their first writes and events wake is among it.
    let woken = wakings() - begun;
    assert!((30..56).contains(&woken), "{woken} wakings in 300 s");
    for (name, grace) in [("n0", 50), ("mute", 60)] {
        world.until(&format!("/api/v1/nodes/{name}"), is_unknown).await;
        let silent = last.elapsed().as_secs();
        assert!((grace..grace + 2).contains(&silent), "{name}: after {silent} s");
    }
}
