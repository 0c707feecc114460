//! What the process tells of itself, and checkpoints.

use super::*;
use crate::metrics::{ProbeResult, Probed};
use crate::probe::outcome::Kind;
use crate::runtime::RuntimeError;
use crate::runtime::fake::Mishap;
use tonic::Code;

#[tokio::test]
async fn what_the_process_tells_of_itself() {
    let bench = bench().await;
    let probed = Probed {
        namespace: "shop".into(),
        pod: "web".into(),
        uid: "u-1".into(),
        container: "main".into(),
        kind: Kind::Liveness,
    };
    let took = Duration::from_millis(1);
    let probes = &bench.server.parts.metrics.probes;
    probes.checked(&probed, ProbeResult::Failed, took);
    for (path, code, part) in [
        ("/statusz", 200, "kubelet statusz"),
        ("/flagz", 200, "kubelet flagz"),
        ("/debug/pprof/", 200, "cmdline"),
        ("/debug/pprof/profile", 501, "a profile of Go's runtime"),
        ("/metrics/cadvisor", 200, "\ncontainer_scrape_error 0\n"),
        ("/metrics/cadvisor", 200, "machine_memory_bytes{boot_id="),
        (
            "/metrics/cadvisor",
            200,
            "container_memory_working_set_bytes{container=\"\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"} ",
        ),
        ("/metrics/probes", 200, "# HELP prober_probe_total [BETA] "),
        (
            "/metrics",
            200,
            "\nkubernetes_feature_enabled{name=\"ContainerStopSignals\",stage=\"ALPHA\"} 0\n",
        ),
        ("/metrics", 200, "process_resident_memory_bytes"),
        ("/metrics", 200, "kubelet_certificate_manager_client_ttl_seconds +Inf"),
        ("/healthz/syncloop", 200, "ok"),
        (
            "/metrics/slis",
            200,
            "kubernetes_healthcheck{name=\"syncloop\",type=\"healthz\"} 1",
        ),
        ("/healthz/nothing", 404, ""),
        ("/debug/flags/v", 405, ""),
        ("/logs/no-such-file-anywhere", 404, ""),
    ] {
        let (found, text) = bench.get(Some("good"), path).await;
        assert!(found == code && text.contains(part), "{path}: {found} {text}");
        assert_eq!(bench.get(None, path).await.0, 401, "{path}");
    }
    let text = bench.get(Some("good"), "/metrics").await.1;
    assert!(!text.contains("# EOF"), "scrapers of the classic format read it");
}

#[tokio::test]
async fn a_checkpoint_is_written_below_the_kubelets_directory_by_post_alone() {
    let bench = bench().await;
    let post = |path: &str| {
        let request = hyper::Request::post(path)
            .header("host", "node-a")
            .header("authorization", "Bearer good");
        request.body(Empty::new()).expect("request")
    };
    let root = "/checkpoint/shop/web";
    assert_eq!(bench.get(Some("good"), &format!("{root}/main")).await.0, 405);
    assert_eq!(bench.send(false, post(&format!("{root}/late"))).await.0, 404);
    assert_eq!(bench.send(false, post("/checkpoint/shop/none/main")).await.0, 404);
    assert_eq!(bench.send(false, post(&format!("{root}/main?timeout=x"))).await.0, 400);
    let (code, text) = bench.send(false, post(&format!("{root}/main"))).await;
    let written: Value = serde_json::from_str(&text).expect("JSON");
    let path = written["items"][0].as_str().expect("a path");
    assert!(
        code == 200 && path.contains("/checkpoints/checkpoint-web_shop-main-"),
        "{text}"
    );
    assert!(Path::new(path).exists());
    bench.runtime.next(
        "CheckpointContainer",
        Mishap::Fail(RuntimeError::new("CheckpointContainer", Code::Unimplemented, "no")),
    );
    let (code, text) = bench.send(false, post(&format!("{root}/main"))).await;
    assert!(
        code == 501 && text.contains("the container runtime cannot do that"),
        "{text}"
    );
    // A failed dump leaves nothing that would count.
    let directory = bench.dir.path().join("checkpoints");
    std::fs::remove_dir_all(&directory).expect("removed");
    let failed = Mishap::Fail(RuntimeError::new("CheckpointContainer", Code::Unknown, "half done"));
    bench.runtime.next("CheckpointContainer", failed);
    assert_eq!(bench.send(false, post(&format!("{root}/main"))).await.0, 500);
    let left = std::fs::read_dir(&directory).expect("made").count();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn the_configuration_and_the_usage_are_told() {
    let bench = bench().await;
    let (code, shown) = bench.get(Some("good"), "/configz").await;
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!((code, &shown["kubeletconfig"]["port"]), (200, &json!(10250)));
    let (code, shown) = bench.get(Some("good"), "/stats/summary").await;
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!((code, &shown["node"]["nodeName"]), (200, &json!("node-a")));
    assert!(shown["node"]["memory"]["availableBytes"].as_u64() > Some(0), "{shown}");
    assert!(shown["node"]["fs"]["capacityBytes"].as_u64() > Some(0), "{shown}");
    assert_eq!(shown["pods"].as_array().map(Vec::len), Some(1));
    let (_, shown) = bench.get(Some("good"), "/stats/summary?only_cpu_and_memory=true").await;
    assert!(!shown.contains("capacityBytes"), "{shown}");
    let (_, shown) = bench.get(Some("good"), "/metrics/resource").await;
    assert!(shown.contains("\nnode_cpu_usage_seconds_total "), "{shown}");
}
