use super::*;
use crate::testing::api::Server;
use crate::told::Told;
use serde_json::json;

fn flags(words: &[&str]) -> Flags {
    flags::parse(words.iter().map(|word| (*word).to_owned())).expect("flags")
}

#[tokio::test]
async fn only_the_own_node_and_what_is_ours_is_asked_for() {
    let server = Server::new();
    let informers = informers(&server.client(), "n1");
    informers.nodes.synced().await;
    informers.rules.services.synced().await;
    informers.rules.slices.synced().await;
    let asked = server.asked();
    let ours = "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name%2C%21service.kubernetes.io%2Fheadless";
    for (path, selector) in [
        ("/api/v1/nodes?", "fieldSelector=metadata.name%3Dn1"),
        ("/api/v1/services?", ours),
        ("/apis/discovery.k8s.io/v1/endpointslices?", ours),
    ] {
        let of_path: Vec<&String> = asked.iter().filter(|asked| asked.starts_with(path)).collect();
        assert!(
            !of_path.is_empty() && of_path.iter().all(|asked| asked.contains(selector)),
            "{path}: {asked:?}"
        );
    }
}

#[tokio::test]
async fn events_are_posted_in_turn_and_the_writer_ends_with_whoever_tells() {
    let server = Server::new();
    let (tell, writing) = events::channel(server.client(), "h1");
    for reason in ["Starting", "FailedToStartMetricServer"] {
        tell(Told {
            kind: "Node",
            namespace: String::new(),
            name: "n1".into(),
            is_warning: false,
            reason,
            action: "StartKubeProxy",
            note: String::new(),
        });
    }
    drop(tell);
    writing.await;
    let posted = server.posted.borrow();
    let reasons: Vec<_> = posted.iter().map(|event| event["reason"].clone()).collect();
    assert_eq!(reasons, [json!("Starting"), json!("FailedToStartMetricServer")]);
    assert_eq!(server.asked(), [""; 0], "nothing but posts");
}

#[tokio::test(start_paused = true)]
async fn another_text_of_the_file_ends_the_program() {
    // Files are read on this thread, so that the clock stands meanwhile.
    client::blocking::run_on_this_thread();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, "a").unwrap();
    let watching = changes(file.clone());
    tokio::pin!(watching);
    let waits = |seconds| Duration::from_secs(seconds);
    assert!(
        tokio::time::timeout(waits(60), &mut watching).await.is_err(),
        "nothing changed"
    );
    std::fs::remove_file(&file).unwrap();
    assert!(
        tokio::time::timeout(waits(60), &mut watching).await.is_err(),
        "being replaced"
    );
    std::fs::write(&file, "b").unwrap();
    tokio::time::timeout(waits(60), &mut watching)
        .await
        .expect("another text");
}

#[test]
fn a_configuration_is_written_and_refused_before_anything_begins() {
    let folder = tempfile::tempdir().unwrap();
    let written = folder.path().join("out.yaml");
    let to = format!("--write-config-to={}", written.display());
    run(&flags(&[&to, "--proxy-mode=nftables"]), |_| {}).expect("written");
    let text = std::fs::read_to_string(&written).unwrap();
    assert!(text.contains("mode: \"nftables\"\n"), "{text}");
    let from = format!("--config={}", written.display());
    let again = config::load(&flags(&[&from])).expect("read again");
    assert_eq!(config::written(&again), text);
    std::fs::write(
        &written,
        "kind: KubeProxyConfiguration\napiVersion: kubeproxy.config.k8s.io/v1alpha1\noomScoreAdj: 5000\n",
    )
    .unwrap();
    let error = run(&flags(&[&from]), |_| panic!("the log begins once it is known how")).expect_err("refused");
    let expected = "failed validate:\n  KubeProxyConfiguration.KubeProxyLinuxConfiguration.OOMScoreAdj: Invalid value: 5000: must be within the range [-1000, 1000]";
    assert_eq!(chain(&error), expected);
    let missing = run(&flags(&["--config=/nonexistent/proxy.yaml"]), |_| {}).expect_err("no such file");
    assert!(
        chain(&missing).starts_with("failed complete: read /nonexistent/proxy.yaml: No such file"),
        "{}",
        chain(&missing)
    );
}
