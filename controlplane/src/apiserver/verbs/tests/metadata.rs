//! What becomes of the metadata that a request sends.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_owner_is_named_once_and_who_names_it_twice_is_told() {
    let server = server().await;
    let owner = |uid: &str, name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
    let twice = json!([
        owner("u", "p"),
        owner("u", "other"),
        owner("u", "p"),
        owner("v", "p"),
        owner("u", "p")
    ]);
    let once = json!([owner("u", "p"), owner("u", "other"), owner("v", "p")]);
    let text = |when: &str| {
        format!(
            "299 - \".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may \
             reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: u, u\""
        )
    };
    let mut map = config_map("m", json!({}));
    map["metadata"]["ownerReferences"] = twice.clone();
    let path = format!("{MAPS}/m");
    let check = |reply: Reply, code: u16, when: &str| {
        let warnings: Vec<&str> = reply
            .headers
            .get_all("warning")
            .iter()
            .map(|one| one.to_str().unwrap())
            .collect();
        assert_eq!((reply.code, warnings), (code, vec![&*text(when)]), "{}", reply.body);
        assert_eq!(reply.body["metadata"]["ownerReferences"], once);
    };
    check(post(&server, MAPS, &map).await, 201, "");
    let mut other = map.clone();
    other["data"] = json!({"a": "b"});
    check(put(&server, &path, &other).await, 200, "");
    let change = json!({"metadata": {"ownerReferences": twice}, "data": {"a": "c"}});
    check(
        patch(&server, &path, "merge", &change).await,
        200,
        " after mutating admission happens",
    );
    let stored = get(&server, &path).await;
    assert_eq!(stored.body["metadata"]["ownerReferences"], once);
    assert!(!put(&server, &path, &stored.body).await.headers.contains_key("warning"));
}

#[tokio::test(start_paused = true)]
async fn a_status_brings_labels_to_some_kinds_alone() {
    let server = server().await;
    let attachments = "/apis/storage.k8s.io/v1/volumeattachments";
    let attachment = json!({"metadata": {"name": "a", "finalizers": ["a.b/c"]}, "spec": {"attacher": "x.example",
        "nodeName": "n", "source": {"persistentVolumeName": "p"}}});
    let made = post(&server, attachments, &attachment).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let sent = json!({"metadata": {"labels": {"x": "y"}, "finalizers": null}, "status": {"attached": true}});
    let told = patch(&server, &format!("{attachments}/a/status"), "merge", &sent)
        .await
        .body;
    let metadata = &told["metadata"];
    assert_eq!(
        (
            &told["status"]["attached"],
            metadata.get("labels"),
            &metadata["finalizers"]
        ),
        (&json!(true), None, &json!(["a.b/c"])),
        "{told}"
    );
    post(&server, PODS, &pod("p")).await;
    let labelled = patch(&server, &format!("{PODS}/p/status"), "merge", &sent_labels()).await;
    assert_eq!(labelled.body["metadata"]["labels"]["x"], "y", "as upstream");
}

fn sent_labels() -> Value {
    json!({"metadata": {"labels": {"x": "y"}}, "status": {"phase": "Running"}})
}

#[tokio::test(start_paused = true)]
async fn a_status_is_put_without_a_revision_where_the_object_may_be() {
    let server = server().await;
    let budgets = "/apis/policy/v1/namespaces/a/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1}});
    let made = post(&server, budgets, &budget).await.body;
    let path = format!("{budgets}/b/status");
    let mut sent = made.clone();
    sent["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert_eq!(put(&server, &path, &sent).await.code, 422);
    assert_eq!(put(&server, &path, &made).await.code, 200);
    let mut sent = post(&server, PODS, &pod("p")).await.body;
    sent["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert_eq!(put(&server, &format!("{PODS}/p/status"), &sent).await.code, 200);
}
