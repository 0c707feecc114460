use super::*;

#[tokio::test(start_paused = true)]
async fn a_created_object_is_complete_and_can_be_read_back() {
    let server = server().await;
    let created = post(&server, MAPS, &config_map("m", json!({"k": "v"}))).await;
    assert_eq!(created.code, 201, "{}", created.body);
    assert_eq!(created.body["kind"], "ConfigMap");
    assert_eq!(created.body["apiVersion"], "v1");
    assert_eq!(created.body["metadata"]["namespace"], "a");
    assert_eq!(created.body["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(created.body["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert!(created.headers.contains_key("audit-id"));
    assert_eq!(created.headers["cache-control"], "no-cache, private");
    let read = get(&server, &format!("{MAPS}/m")).await;
    assert_eq!((read.code, &read.body), (200, &created.body));
    let again = post(&server, MAPS, &config_map("m", json!({}))).await;
    assert_eq!(
        (again.code, &again.body["message"]),
        (409, &json!("configmaps \"m\" already exists"))
    );
    assert_eq!(again.body["reason"], "AlreadyExists");
    let missing = get(&server, &format!("{MAPS}/x")).await;
    assert_eq!(
        (missing.code, &missing.body["message"]),
        (404, &json!("configmaps \"x\" not found"))
    );
}

#[tokio::test(start_paused = true)]
async fn bad_bodies_are_refused_by_name() {
    let server = server().await;
    let mut wrong_version = config_map("m", json!({}));
    wrong_version["apiVersion"] = json!("v2");
    let reply = post(&server, MAPS, &wrong_version).await;
    let text = "the API version in the data (v2) does not match the expected API version (v1)";
    assert_eq!((reply.code, &reply.body["message"]), (400, &json!(text)));
    let mut elsewhere = config_map("m", json!({}));
    elsewhere["metadata"]["namespace"] = json!("b");
    assert_eq!(post(&server, MAPS, &elsewhere).await.code, 400);
    let mut revision = config_map("m", json!({}));
    revision["metadata"]["resourceVersion"] = json!("1");
    let reply = post(&server, MAPS, &revision).await;
    assert_eq!(reply.code, 500);
    let protobuf = [("content-type", "application/vnd.kubernetes.protobuf")];
    assert_eq!(send(&server, "POST", MAPS, &protobuf, Some(&json!({}))).await.code, 400);
    let csv = [("content-type", "text/csv")];
    assert_eq!(send(&server, "POST", MAPS, &csv, Some(&json!({}))).await.code, 415);
    let reply = send(&server, "GET", MAPS, &[("accept", "text/html")], None).await;
    assert_eq!((reply.code, &reply.body["reason"]), (406, &json!("NotAcceptable")));
    let huge = config_map("m", json!({"k": "x".repeat(3 << 20)}));
    let reply = post(&server, MAPS, &huge).await;
    assert_eq!(
        (reply.code, &reply.body["reason"]),
        (413, &json!("RequestEntityTooLarge"))
    );
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_warn_refuse_or_pass_as_asked() {
    let server = server().await;
    let mut object = config_map("m", json!({}));
    object["dat"] = json!(1);
    let warned = post(&server, MAPS, &object).await;
    assert_eq!(warned.code, 201);
    assert_eq!(warned.headers["warning"], "299 - \"unknown field \\\"dat\\\"\"");
    object["metadata"]["name"] = json!("n");
    let strict = post(&server, &format!("{MAPS}?fieldValidation=Strict"), &object).await;
    let text =
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"dat\"";
    assert_eq!((strict.code, &strict.body["message"]), (400, &json!(text)));
    let ignored = post(&server, &format!("{MAPS}?fieldValidation=Ignore"), &object).await;
    assert_eq!(ignored.code, 201);
    assert!(!ignored.headers.contains_key("warning"));
}

#[tokio::test(start_paused = true)]
async fn generated_names_differ_and_dry_runs_store_nothing() {
    let server = server().await;
    let object = json!({"metadata": {"generateName": "web-"}});
    let first = post(&server, MAPS, &object).await;
    let second = post(&server, MAPS, &object).await;
    let name = first.body["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    assert_ne!(first.body["metadata"]["name"], second.body["metadata"]["name"]);
    let before = server.store().current_revision().await.unwrap();
    let dry = post(&server, &format!("{MAPS}?dryRun=All"), &config_map("dry", json!({}))).await;
    assert_eq!(dry.code, 201);
    assert!(dry.body["metadata"]["resourceVersion"].is_null());
    assert_eq!(server.store().current_revision().await.unwrap(), before);
    assert_eq!(
        post(&server, &format!("{MAPS}?dryRun=x"), &config_map("dry", json!({})))
            .await
            .code,
        422
    );
}

#[tokio::test(start_paused = true)]
async fn updates_are_conditional_and_a_change_of_nothing_writes_nothing() {
    let server = server().await;
    let path = format!("{MAPS}/m");
    let created = post(&server, MAPS, &config_map("m", json!({"k": "1"}))).await.body;
    let same = put(&server, &path, &created).await;
    assert_eq!((same.code, &same.body), (200, &created), "byte-identical: no write");
    let mut changed = created.clone();
    changed["data"]["k"] = json!("2");
    let updated = put(&server, &path, &changed).await.body;
    assert_ne!(
        updated["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
    assert_eq!(updated["metadata"]["uid"], created["metadata"]["uid"]);
    let stale = put(&server, &path, &changed).await;
    assert_eq!((stale.code, &stale.body["reason"]), (409, &json!("Conflict")));
    assert_eq!(
        stale.body["message"],
        "Operation cannot be fulfilled on configmaps \"m\": the object has been modified; please apply your changes to the \
         latest version and try again"
    );
    let forced = put(&server, &path, &config_map("m", json!({"k": "3"}))).await;
    assert_eq!(forced.code, 200, "no revision: unconditional for this kind");
    let mut other = config_map("m", json!({}));
    other["metadata"]["uid"] = json!("x");
    assert_eq!(put(&server, &path, &other).await.code, 409);
    assert_eq!(
        put(&server, &path, &config_map("n", json!({}))).await.code,
        400,
        "another name"
    );
    assert_eq!(
        put(&server, &format!("{MAPS}/n"), &config_map("n", json!({})))
            .await
            .code,
        404
    );
    let lease = json!({"metadata": {"name": "l"}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/a/leases";
    assert_eq!(
        put(&server, &format!("{leases}/l"), &lease).await.code,
        201,
        "created by PUT"
    );
    let reply = put(&server, &format!("{leases}/l"), &lease).await;
    assert_eq!(reply.code, 422, "{}", reply.body);
    assert!(
        reply.body["message"]
            .as_str()
            .unwrap()
            .ends_with("must be specified for an update")
    );
}

#[tokio::test(start_paused = true)]
async fn patches_of_all_forms_apply_and_pin_only_on_request() {
    let server = server().await;
    let path = format!("{MAPS}/m");
    let created = post(&server, MAPS, &config_map("m", json!({"a": "1", "b": "2"})))
        .await
        .body;
    let merged = patch(&server, &path, "merge", &json!({"data": {"a": null, "c": "3"}})).await;
    assert_eq!(merged.body["data"], json!({"b": "2", "c": "3"}), "{}", merged.body);
    let ops = json!([{"op": "replace", "path": "/data/b", "value": "9"}]);
    assert_eq!(patch(&server, &path, "json", &ops).await.body["data"]["b"], "9");
    let labels = json!({"metadata": {"labels": {"x": "y"}}});
    assert_eq!(
        patch(&server, &path, "strategic-merge", &labels).await.body["metadata"]["labels"]["x"],
        "y"
    );
    let unchanged = patch(&server, &path, "merge", &labels).await.body;
    let again = patch(&server, &path, "merge", &labels).await.body;
    assert_eq!(unchanged, again, "no write");
    let pinned = json!({"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "data": {"b": "0"}});
    assert_eq!(patch(&server, &path, "merge", &pinned).await.code, 409);
    assert_eq!(patch(&server, &format!("{MAPS}/x"), "merge", &labels).await.code, 404);
    let bad = json!([{"op": "remove", "path": "/data/none"}]);
    assert_eq!(patch(&server, &path, "json", &bad).await.code, 422);
    let csv = [("content-type", "text/csv")];
    let reply = send(&server, "PATCH", &path, &csv, Some(&json!({}))).await;
    let accepted = "the body of the request was in an unknown format - accepted media types include: \
        application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, \
        application/apply-patch+yaml";
    assert_eq!((reply.code, &reply.body["message"]), (415, &json!(accepted)));
}

#[tokio::test(start_paused = true)]
async fn racing_patches_all_land() {
    let server = server().await;
    post(&server, MAPS, &config_map("m", json!({}))).await;
    let tasks = (0..20).map(|number| {
        let server = server.clone();
        let body = json!({"data": {(format!("k{number}")): "v"}});
        async move { patch(&server, &format!("{MAPS}/m"), "merge", &body).await.code }
    });
    let codes = futures::future::join_all(tasks).await;
    assert!(codes.iter().all(|code| *code == 200), "{codes:?}");
    let read = get(&server, &format!("{MAPS}/m")).await.body;
    assert_eq!(read["data"].as_object().unwrap().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_isolated_and_generation_counts_specs() {
    let server = server().await;
    let deployments = "/apis/apps/v1/namespaces/a/deployments";
    let object = json!({"metadata": {"name": "d"}, "status": {"replicas": 9}, "spec": {
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}});
    let created = post(&server, deployments, &object).await;
    assert_eq!(created.code, 201, "{}", created.body);
    assert_eq!(created.body["metadata"]["generation"], 1);
    assert_eq!(
        created.body["status"]["replicas"],
        Value::Null,
        "clients do not create status"
    );
    let path = format!("{deployments}/d");
    let both = json!({"spec": {"replicas": 5}, "status": {"replicas": 4}});
    let status = patch(&server, &format!("{path}/status"), "merge", &both).await.body;
    assert_eq!(
        (&status["status"]["replicas"], &status["metadata"]["generation"]),
        (&json!(4), &json!(1))
    );
    assert_ne!(status["spec"]["replicas"], 5);
    let spec = patch(
        &server,
        &path,
        "merge",
        &json!({"spec": {"replicas": 5}, "status": {"replicas": 0}}),
    )
    .await
    .body;
    assert_eq!(
        (&spec["status"]["replicas"], &spec["metadata"]["generation"]),
        (&json!(4), &json!(2))
    );
    let scale = get(&server, &format!("{path}/scale")).await.body;
    assert_eq!(
        (&scale["kind"], &scale["spec"]["replicas"]),
        (&json!("Scale"), &json!(5))
    );
    assert_eq!(scale["status"], json!({"replicas": 4, "selector": "app=d"}));
    let mut wanted = scale.clone();
    wanted["spec"]["replicas"] = json!(2);
    let scaled = put(&server, &format!("{path}/scale"), &wanted).await;
    assert_eq!(
        (scaled.code, &scaled.body["spec"]["replicas"]),
        (200, &json!(2)),
        "{}",
        scaled.body
    );
    assert_eq!(
        put(&server, &format!("{path}/scale"), &wanted).await.code,
        409,
        "the revision is old now"
    );
    let patched = patch(
        &server,
        &format!("{path}/scale"),
        "merge",
        &json!({"spec": {"replicas": 3}}),
    )
    .await;
    assert_eq!(patched.body["spec"]["replicas"], 3, "{}", patched.body);
    assert_eq!(get(&server, &path).await.body["metadata"]["generation"], 4);
    let negative = patch(
        &server,
        &format!("{path}/scale"),
        "merge",
        &json!({"spec": {"replicas": -1}}),
    )
    .await;
    assert_eq!(negative.code, 422);
}

#[tokio::test(start_paused = true)]
async fn pods_are_bound_once_and_end_by_grace() {
    let server = server().await;
    let created = post(&server, PODS, &pod("p")).await;
    assert_eq!(created.code, 201, "{}", created.body);
    let binding = json!({"kind": "Binding", "apiVersion": "v1", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n1"}});
    let bound = post(&server, &format!("{PODS}/p/binding"), &binding).await;
    assert_eq!(
        (bound.code, &bound.body["status"]),
        (201, &json!("Success")),
        "{}",
        bound.body
    );
    assert_eq!(post(&server, &format!("{PODS}/p/binding"), &binding).await.code, 409);
    let read = get(&server, &format!("{PODS}/p")).await.body;
    assert_eq!(read["spec"]["nodeName"], "n1");
    let running = json!({"status": {"phase": "Running"}});
    assert_eq!(
        patch(&server, &format!("{PODS}/p/status"), "merge", &running)
            .await
            .code,
        200
    );
    let ending = delete(&server, &format!("{PODS}/p")).await;
    assert_eq!(ending.code, 200);
    assert_eq!(ending.body["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(ending.body["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    let uid = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "other"}});
    let path = format!("{PODS}/p");
    assert_eq!(send(&server, "DELETE", &path, &[], Some(&uid)).await.code, 409);
    let last = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": created.body["metadata"]["uid"]}});
    let gone = send(&server, "DELETE", &path, &[], Some(&last)).await;
    assert_eq!((gone.code, &gone.body["kind"]), (200, &json!("Pod")));
    assert_eq!(get(&server, &path).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn finalizers_complete_a_deletion_and_statuses_tell_what_went() {
    let server = server().await;
    let mut object = config_map("m", json!({}));
    object["metadata"]["finalizers"] = json!(["a.example/x"]);
    post(&server, MAPS, &object).await;
    let path = format!("{MAPS}/m");
    let held = delete(&server, &path).await;
    assert_eq!(held.body["metadata"]["deletionGracePeriodSeconds"], 0, "{}", held.body);
    let again = post(&server, MAPS, &config_map("m", json!({}))).await;
    assert_eq!(
        again.body["message"],
        "object is being deleted: configmaps \"m\" already exists"
    );
    let released = patch(&server, &path, "merge", &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(released.code, 200, "{}", released.body);
    assert_eq!(get(&server, &path).await.code, 404);
    let uid = post(&server, MAPS, &config_map("n", json!({}))).await.body["metadata"]["uid"].clone();
    let gone = delete(&server, &format!("{MAPS}/n")).await;
    assert_eq!(gone.body["status"], "Success");
    assert_eq!(
        gone.body["details"],
        json!({"name": "n", "kind": "configmaps", "uid": uid})
    );
    assert_eq!(delete(&server, &format!("{MAPS}/n")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn namespaces_go_by_finalize() {
    let server = server().await;
    let created = post(&server, "/api/v1/namespaces", &json!({"metadata": {"name": "z"}})).await;
    assert_eq!(created.code, 201, "{}", created.body);
    assert_eq!(created.body["spec"]["finalizers"], json!(["kubernetes"]));
    let ending = delete(&server, "/api/v1/namespaces/z").await;
    assert_eq!(ending.body["status"]["phase"], "Terminating");
    let mut empty = get(&server, "/api/v1/namespaces/z").await.body;
    assert_eq!(empty["status"]["phase"], "Terminating");
    empty["spec"]["finalizers"] = json!([]);
    let done = put(&server, "/api/v1/namespaces/z/finalize", &empty).await;
    assert_eq!(done.code, 200, "{}", done.body);
    assert_eq!(get(&server, "/api/v1/namespaces/z").await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_deletes_the_pod() {
    let server = server().await;
    post(&server, PODS, &pod("p")).await;
    let eviction = json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "p"}});
    let reply = post(&server, &format!("{PODS}/p/eviction"), &eviction).await;
    assert_eq!(
        (reply.code, &reply.body["status"]),
        (201, &json!("Success")),
        "{}",
        reply.body
    );
    assert_eq!(
        get(&server, &format!("{PODS}/p")).await.code,
        404,
        "it was never scheduled"
    );
}

#[tokio::test(start_paused = true)]
async fn events_are_forgotten_an_hour_after_their_last_write() {
    let server = server().await;
    let events = "/api/v1/namespaces/a/events";
    let event = |name: &str| {
        json!({"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "namespace": "a", "name": "p"},
            "reason": "Started", "message": "m", "type": "Normal", "source": {"component": "kubelet"}})
    };
    for name in ["old", "renewed"] {
        let created = post(&server, events, &event(name)).await;
        assert_eq!(created.code, 201, "{}", created.body);
    }
    post(&server, MAPS, &config_map("m", json!({}))).await;
    tokio::time::sleep(std::time::Duration::from_secs(3000)).await;
    let again = patch(&server, &format!("{events}/renewed"), "merge", &json!({"count": 2})).await;
    assert_eq!(again.code, 200, "{}", again.body);
    assert_eq!(get(&server, &format!("{events}/old")).await.code, 200);
    tokio::time::sleep(std::time::Duration::from_secs(1000)).await;
    assert_eq!(get(&server, &format!("{events}/old")).await.code, 404);
    assert_eq!(get(&server, &format!("{events}/renewed")).await.code, 200);
    assert_eq!(get(&server, &format!("{MAPS}/m")).await.code, 200, "only events expire");
}

#[tokio::test(start_paused = true)]
async fn a_generated_name_is_known_to_what_is_made_of_it() {
    let server = server().await;
    let job = json!({"metadata": {"generateName": "j-"}, "spec": {"template": {"spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i"}]}}}});
    let made = post(&server, "/apis/batch/v1/namespaces/a/jobs", &job).await.body;
    let name = made["metadata"]["name"].clone();
    assert!(
        name.as_str().unwrap().starts_with("j-") && name.as_str().unwrap().len() == 7,
        "{name}"
    );
    for labels in [
        &made["metadata"]["labels"],
        &made["spec"]["template"]["metadata"]["labels"],
    ] {
        for key in ["job-name", "batch.kubernetes.io/job-name"] {
            assert_eq!(labels.get(key).unwrap_or(&name), &name, "{labels}");
        }
    }
    assert_eq!(made["spec"]["template"]["metadata"]["labels"]["job-name"], name);
}

#[tokio::test(start_paused = true)]
async fn writers_are_told_what_has_no_effect_and_what_is_deprecated() {
    let server = server().await;
    let told = |reply: &Reply| -> Vec<String> {
        let all = reply.headers.get_all("warning").iter();
        all.map(|value| value.to_str().unwrap().to_owned()).collect()
    };
    let ingress = |name: &str| {
        let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
        json!({"metadata": {"name": name}, "spec": {"defaultBackend": backend}})
    };
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/a/ingresses";
    let text = "299 - \"ingresses.networking.k8s.io: no controller of ours leads traffic by them (another one may)\"";
    assert_eq!(told(&post(&server, ingresses, &ingress("q")).await), [text]);
    let dry = post(&server, &format!("{ingresses}?dryRun=All"), &ingress("r")).await;
    assert_eq!((dry.code, told(&dry)), (201, vec![text.to_owned()]));
    let one = format!("{ingresses}/q");
    let read = get(&server, &one).await;
    assert_eq!(told(&read), [""; 0]);
    assert_eq!(told(&put(&server, &one, &read.body).await), [text]);
    assert_eq!(
        told(&patch(&server, &one, "merge", &json!({"metadata": {"labels": {"a": "b"}}})).await),
        [text]
    );
    assert_eq!(told(&post(&server, MAPS, &config_map("m", json!({}))).await), [""; 0]);
    let mut pod = pod("p");
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "g"}]);
    pod["spec"]["nodeSelector"] = json!({"beta.kubernetes.io/os": "linux"});
    let told_of_pod = told(&post(&server, PODS, &pod).await);
    assert_eq!(told_of_pod.len(), 2, "{told_of_pod:?}");
    assert!(
        told_of_pod[0].contains("use \\\"kubernetes.io/os\\\" instead"),
        "{told_of_pod:?}"
    );
    assert!(told_of_pod[1].contains("resourceClaims"), "{told_of_pod:?}");
    let endpoints = get(&server, "/api/v1/namespaces/a/endpoints").await;
    assert!(told(&endpoints)[0].contains("v1 Endpoints is deprecated in v1.33+"));
}

#[tokio::test]
async fn warnings_come_with_errors_too() {
    let server = server().await;
    let reply = get(&server, "/api/v1/namespaces/a/endpoints/nope").await;
    assert_eq!(reply.code, 404);
    let warning = reply.headers["warning"].to_str().unwrap();
    assert!(warning.contains("deprecated"), "{warning}");
}
