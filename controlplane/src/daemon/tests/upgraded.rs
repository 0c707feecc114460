//! A data directory of before, opened by the daemon of today.

use super::*;
use crate::store::disk::old_data;
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;

async fn get(daemon: &Daemon, path: &str) -> (u16, Value) {
    let request = Request::get(path)
        .body(crate::apiserver::body::full(Vec::new()))
        .unwrap();
    let root = User::named("root", &["system:masters"]);
    let response = daemon.server().handle(Some(root), request).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

/// Where the API has what is under a key, and what it is there.
const SHOWN: &[(&str, &str, &str)] = &[
    ("/registry/minions/n1", "/api/v1/nodes/n1", "v1 Node"),
    (
        "/registry/namespaces/default",
        "/api/v1/namespaces/default",
        "v1 Namespace",
    ),
    (
        "/registry/configmaps/default/text",
        "/api/v1/namespaces/default/configmaps/text",
        "v1 ConfigMap",
    ),
    (
        "/registry/deployments/default/web",
        "/apis/apps/v1/namespaces/default/deployments/web",
        "apps/v1 Deployment",
    ),
    (
        "/registry/ingress/default/web",
        "/apis/networking.k8s.io/v1/namespaces/default/ingresses/web",
        "networking.k8s.io/v1 Ingress",
    ),
    (
        "/registry/horizontalpodautoscalers/default/web",
        "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/web",
        "autoscaling/v1 HorizontalPodAutoscaler",
    ),
    (
        "/registry/events/default/e",
        "/apis/events.k8s.io/v1/namespaces/default/events/e",
        "events.k8s.io/v1 Event",
    ),
    (
        "/registry/zoo.example/lions/default/leo",
        "/apis/zoo.example/v1alpha1/namespaces/default/lions/leo",
        "zoo.example/v1alpha1 Lion",
    ),
];

// The disk's own thread writes: its time is no clock's.
#[tokio::test]
async fn a_directory_of_before_is_served_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    old_data::write(&dir.path().join("store"));
    let words = [format!("--data-dir={}", dir.path().display())];
    let config = Config::resolve(&flags::parse(words)).unwrap();
    let store = crate::daemon::stores::open(&config).await.unwrap().store;
    assert_eq!(store.current_revision().await.unwrap(), old_data::REVISION);
    let daemon = embedded(dir.path(), &store).await;
    for (key, path, of) in SHOWN {
        let old = old_data::records().find(|old| old.key == *key).unwrap();
        let was: Value = serde_json::from_str(old.value).unwrap();
        let (code, now) = get(&daemon, path).await;
        assert_eq!(code, 200, "{path}: {now}");
        let text = |field: &str| now[field].as_str().unwrap().to_owned();
        assert_eq!(format!("{} {}", text("apiVersion"), text("kind")), *of);
        assert_eq!(now["metadata"]["uid"], was["metadata"]["uid"]);
        assert_eq!(
            now["metadata"]["creationTimestamp"],
            was["metadata"]["creationTimestamp"]
        );
        let revision: u64 = now["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        // Controllers of today may have had something to do.
        assert!(revision == old.modified || revision > old_data::REVISION, "{path}");
        if old.key.contains("lions") || old.key.contains("text") {
            assert_eq!(
                (revision, &now["spec"], &now["data"]),
                (old.modified, &was["spec"], &was["data"])
            );
        }
    }
    let maps = "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1&resourceVersion";
    let (_, told) = get(&daemon, &format!("{maps}={}", old_data::REVISION - 5)).await;
    assert_eq!(
        (&told["type"], &told["object"]["code"]),
        (&json!("ERROR"), &json!(410)),
        "{told}"
    );
    daemon.stop().await;
}
