//! Who comes to own what by ordinary writes.

use super::*;
use crate::managed_fields::testing::{entry, managers};

#[tokio::test(start_paused = true)]
async fn programs_own_what_they_write_under_their_own_names() {
    let server = server().await;
    let agent = [("user-agent", "kubectl/v1.36.2 (linux/amd64) kubernetes/abc")];
    let made = send(&server, "POST", PODS, &agent, Some(&pod("p"))).await.body;
    assert_eq!(managers(&made), ["kubectl"], "{made}");
    let own = entry(&made, "kubectl");
    assert_eq!(
        (&own["operation"], &own["apiVersion"]),
        (&json!("Update"), &json!("v1"))
    );
    let fields = &own["fieldsV1"];
    assert!(
        fields["f:spec"]["f:restartPolicy"].is_object(),
        "defaults are the creator's: {fields}"
    );
    assert!(fields.get("f:status").is_none(), "the status is the server's: {fields}");
    let path = format!("{PODS}/p");
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    assert_eq!(post(&server, &format!("{path}/binding"), &binding).await.code, 201);
    let bound = get(&server, &path).await.body;
    assert_eq!(
        bound["metadata"]["managedFields"], made["metadata"]["managedFields"],
        "as upstream"
    );
    let kubelet = [
        ("user-agent", "kubelet/v1.36"),
        ("content-type", "application/merge-patch+json"),
    ];
    let status = json!({"status": {"phase": "Running"}});
    let running = send(&server, "PATCH", &format!("{path}/status"), &kubelet, Some(&status))
        .await
        .body;
    let own = entry(&running, "kubelet");
    assert_eq!(own["subresource"], "status");
    assert_eq!(own["fieldsV1"], json!({"f:status": {"f:phase": {}}}));
    let named = format!("{path}?fieldManager=me");
    let labels = json!({"metadata": {"labels": {"x": "y"}}});
    let labelled = patch(&server, &named, "strategic-merge", &labels).await.body;
    assert_eq!(
        entry(&labelled, "me")["fieldsV1"],
        json!({"f:metadata": {"f:labels": {"f:x": {}}}})
    );
    let unchanged = patch(&server, &named, "strategic-merge", &labels).await.body;
    assert_eq!(unchanged, labelled, "no write");
    let ending = delete(&server, &path).await.body;
    assert_eq!(
        ending["metadata"]["managedFields"],
        labelled["metadata"]["managedFields"]
    );
}

#[tokio::test(start_paused = true)]
async fn every_form_of_reply_shows_the_owners() {
    let server = server().await;
    let made = post(&server, MAPS, &config_map("m", json!({"a": "b"}))).await.body;
    assert_eq!(managers(&made), ["unknown"]);
    let accept = |shape: &str| format!("application/json;as={shape};g=meta.k8s.io;v=v1");
    let read = |path: String, shape: &'static str| {
        let server = &server;
        async move {
            send(server, "GET", &path, &[("accept", &accept(shape))], None)
                .await
                .body
        }
    };
    let partial = read(format!("{MAPS}/m"), "PartialObjectMetadata").await;
    assert_eq!(managers(&partial), ["unknown"]);
    let list = read(MAPS.to_owned(), "PartialObjectMetadataList").await;
    assert_eq!(managers(&list["items"][0]), ["unknown"]);
    let table = read(MAPS.to_owned(), "Table").await;
    assert_eq!(managers(&table["rows"][0]["object"]), ["unknown"]);
    assert_eq!(managers(&get(&server, MAPS).await.body["items"][0]), ["unknown"]);
}

#[tokio::test(start_paused = true)]
async fn the_list_can_be_replaced_and_emptied_but_not_through_subresources() {
    let server = server().await;
    let path = format!("{MAPS}/m");
    post(&server, MAPS, &config_map("m", json!({"a": "b"}))).await;
    let csa = "kubectl-client-side-apply";
    let list = json!([{"manager": csa, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:data": {"f:a": {}}}}]);
    let upgrade = json!([{"op": "replace", "path": "/metadata/managedFields", "value": list}]);
    let moved = patch(&server, &path, "json", &upgrade).await;
    assert_eq!((moved.code, managers(&moved.body)), (200, vec![csa]));
    assert_eq!(moved.body["metadata"]["managedFields"], list);
    let broken = json!({"metadata": {"managedFields": [{"manager": "x"}]}});
    assert_eq!(
        patch(&server, &path, "merge", &broken).await.body,
        moved.body,
        "no write"
    );
    for wiped in [json!([]), json!([{}])] {
        patch(&server, &path, "json", &upgrade).await;
        let wipe = json!({"metadata": {"managedFields": wiped}});
        let bare = patch(&server, &path, "merge", &wipe).await.body;
        assert!(bare["metadata"].get("managedFields").is_none(), "{bare}");
    }
    let changed = patch(&server, &path, "merge", &json!({"data": {"a": "c"}})).await.body;
    assert!(
        changed["metadata"].get("managedFields").is_none(),
        "not tracked until somebody applies"
    );
}

#[tokio::test(start_paused = true)]
async fn replicas_are_owned_through_the_scale() {
    let server = server().await;
    let deployments = "/apis/apps/v1/namespaces/a/deployments";
    let object = json!({"metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}});
    post(&server, &format!("{deployments}?fieldManager=maker"), &object).await;
    let path = format!("{deployments}/d/scale?fieldManager=scaler");
    let same = patch(&server, &path, "merge", &json!({"spec": {"replicas": 1}})).await;
    assert_eq!(same.code, 200);
    let before = get(&server, &format!("{deployments}/d")).await.body;
    assert_eq!(managers(&before), ["maker"], "the same number is nobody's change");
    let scaled = patch(&server, &path, "merge", &json!({"spec": {"replicas": 3}})).await;
    assert_eq!(scaled.body["spec"]["replicas"], 3, "{}", scaled.body);
    let after = get(&server, &format!("{deployments}/d")).await.body;
    let own = entry(&after, "scaler");
    assert_eq!(
        (&own["subresource"], &own["apiVersion"]),
        (&json!("scale"), &json!("apps/v1"))
    );
    assert_eq!(own["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    assert!(entry(&after, "maker")["fieldsV1"]["f:spec"].get("f:replicas").is_none());
    let mut wanted = get(&server, &format!("{deployments}/d/scale")).await.body;
    wanted["spec"]["replicas"] = json!(4);
    let put = put(&server, &format!("{deployments}/d/scale?fieldManager=other"), &wanted).await;
    assert_eq!(put.code, 200, "{}", put.body);
    let last = get(&server, &format!("{deployments}/d")).await.body;
    assert!(
        managers(&last).contains(&"other") && !managers(&last).contains(&"scaler"),
        "{last}"
    );
}

#[tokio::test]
async fn parts_of_this_process_have_upstreams_names() {
    use crate::apiserver::user::User;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, PostParams};
    let server = server().await;
    for (user, program) in [
        (
            User::service_account("kube-system", "deployment-controller"),
            "kube-controller-manager",
        ),
        (User::named("system:kube-scheduler", &[]), "kube-scheduler"),
        (User::named("system:apiserver", &["system:masters"]), "kube-apiserver"),
        (User::service_account("a", "mine"), "unknown"),
    ] {
        let maps: Api<ConfigMap> = Api::namespaced(server.client_as(user), "a");
        let map: ConfigMap =
            serde_json::from_value(json!({"metadata": {"generateName": "m-"}, "data": {"a": "b"}})).unwrap();
        let made = maps.create(&PostParams::default(), &map).await.unwrap();
        let entries = made.metadata.managed_fields.unwrap();
        assert_eq!(entries[0].manager.as_deref(), Some(program));
    }
}

#[tokio::test(start_paused = true)]
async fn fields_are_named_as_the_requests_version_names_them() {
    let server = server().await;
    let base = |version: &str| format!("/apis/autoscaling/{version}/namespaces/a/horizontalpodautoscalers");
    let object = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 5, "targetCPUUtilizationPercentage": 60,
        "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}});
    post(&server, &format!("{}?fieldManager=old", base("v1")), &object).await;
    let changed = json!({"spec": {"maxReplicas": 6, "minReplicas": 2}});
    let path = format!("{}/h?fieldManager=new", base("v2"));
    let read = patch(&server, &path, "merge", &changed).await.body;
    let old = entry(&read, "old");
    assert_eq!(old["apiVersion"], "autoscaling/v1");
    assert!(
        old["fieldsV1"]["f:spec"]["f:targetCPUUtilizationPercentage"].is_object(),
        "{old}"
    );
    assert!(old["fieldsV1"]["f:spec"].get("f:maxReplicas").is_none(), "{old}");
    let new = entry(&read, "new");
    assert_eq!(new["apiVersion"], "autoscaling/v2");
    assert_eq!(
        new["fieldsV1"],
        json!({"f:spec": {"f:maxReplicas": {}, "f:minReplicas": {}}})
    );
}

fn owned_map(manager: &str, subresource: &str) -> Value {
    json!({"metadata": {"name": "m", "managedFields": [{"manager": manager, "operation": "Update", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "subresource": subresource, "fieldsV1": {"f:data": {}}}]}, "data": {}})
}

#[tokio::test(start_paused = true)]
async fn managers_that_a_client_names_are_checked() {
    let server = server().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let (long, part) = ("m".repeat(129), "s".repeat(257));
    for (manager, subresource, problem) in [
        (long.as_str(), "", "manager: Too long: may not be more than 128 bytes"),
        (
            "a\u{7}b",
            "",
            "manager: Invalid value: \"a\\u0007b\": invalid character U+0007 (at position 1)",
        ),
        (
            "a",
            part.as_str(),
            "subresource: Too long: may not be more than 256 bytes",
        ),
    ] {
        let refused = post(&server, maps, &owned_map(manager, subresource)).await;
        let message = format!("ConfigMap \"m\" is invalid: metadata.managedFields[0].{problem}");
        assert_eq!((refused.code, &refused.body["message"]), (422, &json!(message)));
    }
    assert_eq!(post(&server, maps, &owned_map("a", "")).await.code, 201);
    let refused = send(&server, "PUT", &format!("{maps}/m"), &[], Some(&owned_map(&long, ""))).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    let kept = get(&server, &format!("{maps}/m")).await.body;
    assert_eq!(managers(&kept)[0], "a", "{kept}");
}

#[tokio::test(start_paused = true)]
async fn what_is_too_large_with_its_owners_alone_is_stored_without() {
    let server = server().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let keys: serde_json::Map<String, Value> = (0..170_000).map(|key| (format!("k{key}"), json!(""))).collect();
    let map = json!({"metadata": {"name": "m"}, "data": keys});
    let made = post(&server, maps, &map).await;
    assert_eq!(made.code, 201, "{}", made.body["message"]);
    assert!(made.body["metadata"].get("managedFields").is_none());
    let changed = send(&server, "PUT", &format!("{maps}/m"), &[], Some(&map)).await;
    assert_eq!(changed.code, 200, "{}", changed.body["message"]);
}
