//! Claims of pods, from a template to their end.

use super::*;

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn template() -> Value {
    let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}});
    json!({"kind": "ResourceClaimTemplate", "apiVersion": "resource.k8s.io/v1", "metadata": {"name": "t"},
        "spec": {"spec": {"devices": {"requests": [request]}}}})
}

fn pod(name: &str) -> Value {
    let container = json!({"name": "c", "image": "nginx", "resources": {"claims": [{"name": "gpu"}]}});
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": {"containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}})
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_its_claim_and_the_claim_goes_with_it() {
    let world = World::start(0).await;
    let path = format!("{PODS}/p");
    // It waits for its template, and says so.
    world.create(PODS, pod("p")).await;
    let events = "/api/v1/namespaces/default/events?fieldSelector=reason%3DFailedResourceClaimCreation";
    world
        .until(events, |events| {
            events["items"].as_array().is_some_and(|items| !items.is_empty())
        })
        .await;
    let templates = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
    world.create(templates, template()).await;
    let recorded = world
        .until(&path, |pod| {
            pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].is_string()
        })
        .await;
    let name = recorded["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        .as_str()
        .unwrap();
    assert!(name.starts_with("p-gpu-"), "{name}");
    let claims = world.items(CLAIMS).await;
    assert_eq!(claims.len(), 1, "{claims:#?}");
    assert_eq!(claims[0]["metadata"]["name"], name);
    // Somebody allocates it for the pod, which ends: what was allocated is free again, and the claim goes.
    let one = format!("{CLAIMS}/{name}");
    let finalizer = json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}});
    world.patch(&one, finalizer).await;
    let result = json!({"request": "r", "driver": "gpu.example.com", "pool": "n", "device": "d"});
    let consumer = json!({"resource": "pods", "name": "p", "uid": recorded["metadata"]["uid"]});
    let status = json!({"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}});
    world.patch(&format!("{one}/status"), status).await;
    let ended = json!({"status": {"phase": "Failed"}});
    world.patch(&format!("{path}/status"), ended).await;
    world.until(&one, Value::is_null).await;
    assert!(world.get(&path).await.is_some(), "the pod is there yet");
}
