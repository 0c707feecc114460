//! What is served where: paths and methods, and the names of objects in both.

use super::*;

#[tokio::test(start_paused = true)]
async fn what_is_not_served_is_refused_in_upstreams_way() {
    let server = server().await;
    let reply = delete(&server, "/api/v1/namespaces").await;
    assert_eq!((reply.code, &reply.body["reason"]), (405, &json!("MethodNotAllowed")));
    for path in ["/apis/x/v1/y", "/apis/apps/v9/y", "/nothing"] {
        let reply = get(&server, path).await;
        assert_eq!(
            (reply.code, &reply.body),
            (404, &json!("404 page not found\n")),
            "{path}"
        );
    }
    for path in [
        "/api/v1/nothings",
        "/apis/apps/v1/nothings",
        "/api/v1/namespaces/a/nodes",
        "/api/v1/pods/p",
        "/api/v1/namespaces/a/pods/p/nothing",
        "/api/v1/namespaces/a/pods/p/status/nothing",
        "/api/v1/namespaces/a/pods/p/log/nothing",
        "/api/v1/namespaces/a/configmaps/m/status",
    ] {
        let reply = get(&server, path).await;
        assert_eq!(
            (reply.code, &reply.body["kind"], &reply.body["message"]),
            (
                404,
                &json!("Status"),
                &json!("the server could not find the requested resource")
            ),
            "{path}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn names_stand_in_the_path_or_in_the_object_never_in_both_or_none() {
    let server = server().await;
    let other = config_map("other", json!({}));
    let spaces = "/api/v1/namespaces";
    let review = json!({"spec": {"nonResourceAttributes": {}}});
    for (path, body) in [
        (format!("{MAPS}/named"), &other),
        (format!("{spaces}/named"), &json!({"metadata": {"name": "other"}})),
        (
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/x".to_owned(),
            &review,
        ),
    ] {
        let reply = post(&server, &path, body).await;
        assert_eq!(
            (reply.code, &reply.body["reason"]),
            (405, &json!("MethodNotAllowed")),
            "{path}"
        );
    }
    assert_eq!(get(&server, &format!("{MAPS}/other")).await.code, 404);
    assert_eq!(get(&server, &format!("{spaces}/other")).await.code, 404);
    assert_eq!(put(&server, MAPS, &other).await.code, 405);
    assert_eq!(patch(&server, MAPS, "merge", &json!({})).await.code, 405);

    post(&server, MAPS, &config_map("m", json!({}))).await;
    let nameless = json!({"data": {"a": "c"}});
    let reply = put(&server, &format!("{MAPS}/m"), &nameless).await;
    let text = "the name of the object (m based on URL) was undeterminable: name must be provided";
    assert_eq!((reply.code, &reply.body["message"]), (400, &json!(text)));
    let removal = json!({"metadata": {"name": null}});
    let reply = patch(&server, &format!("{MAPS}/m"), "merge", &removal).await;
    assert_eq!((reply.code, &reply.body["message"]), (400, &json!(text)));
    let services = "/api/v1/namespaces/a/services";
    let service = json!({"spec": {"ports": [{"port": 1}]}});
    assert_eq!(put(&server, &format!("{services}/s"), &service).await.code, 400);
    post(&server, PODS, &pod("p")).await;
    let target = json!({"target": {"kind": "Node", "name": "n"}});
    assert_eq!(post(&server, &format!("{PODS}/p/binding"), &target).await.code, 400);
}

#[tokio::test(start_paused = true)]
async fn a_put_to_what_is_not_there_finds_nothing_or_makes_a_new_one() {
    let server = server().await;
    let budgets = "/apis/policy/v1/namespaces/a/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1}});
    let reply = put(&server, &format!("{budgets}/b"), &budget).await;
    assert_eq!(reply.code, 404, "no revision, but nothing to have one: {}", reply.body);
    post(&server, budgets, &budget).await;
    let reply = put(&server, &format!("{budgets}/b"), &budget).await;
    let text = "poddisruptionbudgets.policy \"b\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified \
        for an update";
    assert_eq!((reply.code, &reply.body["message"]), (422, &json!(text)));

    let path = "/apis/coordination.k8s.io/v1/namespaces/a/leases/l";
    let lost = json!({"metadata": {"name": "l", "uid": "abc", "resourceVersion": "5"}});
    let reply = put(&server, path, &lost).await;
    let text = "Operation cannot be fulfilled on leases.coordination.k8s.io \"l\": Precondition failed: UID in \
        precondition: abc, UID in object meta: ";
    assert_eq!((reply.code, &reply.body["message"]), (409, &json!(text)));
    assert_eq!(get(&server, path).await.code, 404, "another lease is not made");
    let stale = json!({"metadata": {"name": "l", "resourceVersion": "5"}});
    assert_eq!(put(&server, path, &stale).await.code, 201);
}

#[tokio::test(start_paused = true)]
async fn a_scale_is_shown_as_one() {
    let server = server().await;
    let deployments = "/apis/apps/v1/namespaces/a/deployments";
    let labels = json!({"app": "d"});
    let object = json!({"metadata": {"name": "d"}, "spec": {"replicas": 3, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}});
    post(&server, deployments, &object).await;
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let path = format!("{deployments}/d/scale?includeObject=Object");
    let shown = send(&server, "GET", &path, &table, None).await.body;
    let columns = shown["columnDefinitions"].as_array().unwrap();
    let columns: Vec<&str> = columns.iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "Desired", "Available", "Age"], "{shown}");
    let row = &shown["rows"][0];
    assert_eq!(row["cells"], json!(["d", 3, 0, "0s"]));
    assert_eq!(row["object"]["kind"], "Scale");
}

#[tokio::test(start_paused = true)]
async fn slices_of_devices_are_chosen_by_node_and_driver() {
    let server = server().await;
    let slices = "/apis/resource.k8s.io/v1/resourceslices";
    for (name, node, driver) in [
        ("a", "n1", "x.example"),
        ("b", "n2", "x.example"),
        ("c", "n2", "y.example"),
    ] {
        let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
        let slice = json!({"metadata": {"name": name}, "spec": {"driver": driver, "nodeName": node, "pool": pool}});
        let made = post(&server, slices, &slice).await;
        assert_eq!(made.code, 201, "{}", made.body);
    }
    for (selector, expected) in [
        ("spec.nodeName%3Dn2", vec!["b", "c"]),
        ("spec.driver%3Dx.example", vec!["a", "b"]),
        ("spec.driver%3Dx.example,spec.nodeName%3Dn2", vec!["b"]),
        ("metadata.name%3Dc", vec!["c"]),
    ] {
        let list = get(&server, &format!("{slices}?fieldSelector={selector}")).await;
        assert_eq!(list.code, 200, "{}", list.body);
        let items = list.body["items"].as_array().unwrap();
        let found: Vec<&str> = items
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(found, expected, "{selector}");
    }
    assert_eq!(
        get(&server, &format!("{slices}?fieldSelector=spec.pool%3Dp"))
            .await
            .code,
        400
    );
}

#[tokio::test(start_paused = true)]
async fn selectors_that_cannot_be_read_say_why() {
    let server = server().await;
    for (query, text) in [
        ("labelSelector=a,,b", "found ',', expected: identifier after ','"),
        ("fieldSelector=x", "invalid selector: 'x'; can't understand 'x'"),
    ] {
        let reply = get(&server, &format!("{MAPS}?{query}")).await;
        assert_eq!((reply.code, &reply.body["message"]), (400, &json!(text)));
    }
}

/// The clock is the real one: a nanosecond is over when a reply is ready.
#[tokio::test]
async fn what_is_ready_when_its_time_is_over_is_an_error_and_no_broken_connection() {
    let server = server().await;
    assert_eq!(get(&server, &format!("{MAPS}?timeout=30s")).await.code, 200);
    let late = get(&server, &format!("{MAPS}?timeout=1ns")).await;
    assert_eq!(
        (late.code, &late.body["message"]),
        (
            504,
            &json!("Timeout: request did not complete within the allotted timeout")
        )
    );
}
