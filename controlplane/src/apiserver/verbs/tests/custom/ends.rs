//! How definitions end, and what they leave alone.

use super::*;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/a/leases";

#[tokio::test(start_paused = true)]
async fn a_definition_of_what_is_built_in_takes_nothing_of_it_along() {
    let server = server().await;
    let lease = json!({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "kept"}});
    assert_eq!(post(&server, LEASES, &lease).await.code, 201);
    let mut built_in = definition();
    built_in["metadata"] = json!({"name": "leases.coordination.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://example.com/approved"}});
    built_in["spec"]["group"] = json!("coordination.k8s.io");
    built_in["spec"]["names"] = json!({"plural": "leases", "kind": "Lease"});
    let made = post(&server, DEFINITIONS, &built_in).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let path = format!("{DEFINITIONS}/leases.coordination.k8s.io");
    until(&server, &path, |reply| has(reply, "NamesAccepted", "False")).await;
    assert_eq!(delete(&server, &path).await.code, 200);
    until(&server, &path, |reply| reply.code == 404).await;
    assert_eq!(get(&server, &format!("{LEASES}/kept")).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn objects_go_with_their_definition_though_no_version_is_served() {
    let server = server().await;
    define(&server, &definition()).await;
    assert_eq!(
        post(&server, LIONS, &lion("leo", &json!({"name": "leo"}))).await.code,
        201
    );
    let path = format!("{DEFINITIONS}/lions.zoo.example");
    let unserved = json!([{"op": "replace", "path": "/spec/versions/0/served", "value": false}]);
    assert_eq!(patch(&server, &path, "json", &unserved).await.code, 200);
    until(&server, LIONS, |reply| reply.code == 404).await;
    assert_eq!(delete(&server, &path).await.code, 200);
    until(&server, &path, |reply| reply.code == 404).await;
    define(&server, &definition()).await;
    assert_eq!(get(&server, LIONS).await.body["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_behind_the_end_of_a_definition() {
    let server = server().await;
    define(&server, &definition()).await;
    let prefix = "zoo.example/lions";
    // The request has come while the definition took objects, and waits.
    let ending = server.write_locks().end_of(prefix).await;
    let late = lion("late", &json!({"name": "late"}));
    let mut making = std::pin::pin!(post(&server, LIONS, &late));
    assert!(futures::poll!(&mut making).is_pending());
    let path = format!("{DEFINITIONS}/lions.zoo.example");
    let watch = async {
        assert_eq!(delete(&server, &path).await.code, 200);
        until(&server, &path, |reply| has(reply, "Terminating", "True")).await;
        tokio::time::timeout(Duration::from_secs(30), std::future::pending::<()>())
            .await
            .unwrap_err();
        drop(ending);
    };
    let (refused, ()) = tokio::join!(making, watch);
    assert!([403, 404].contains(&refused.code), "{}", refused.body);
    until(&server, &path, |reply| reply.code == 404).await;
    assert!(
        server
            .store()
            .range("/registry/zoo.example/")
            .await
            .unwrap()
            .1
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_of_a_schema_that_was_tightened_loses_its_finalizer() {
    let server = server().await;
    define(&server, &definition()).await;
    let mut held = lion("held", &json!({"name": "leo", "age": 40}));
    held["metadata"]["finalizers"] = json!(["zoo.example/keeper"]);
    assert_eq!(post(&server, LIONS, &held).await.code, 201);
    let path = format!("{DEFINITIONS}/lions.zoo.example");
    let age = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/age/maximum";
    let tighter = json!([{"op": "replace", "path": age, "value": 9}]);
    assert_eq!(patch(&server, &path, "json", &tighter).await.code, 200);
    let probe = format!("{LIONS}?dryRun=All");
    let young = lion("young", &json!({"name": "leo", "age": 10}));
    for _ in 0..100 {
        if post(&server, &probe, &young).await.code == 422 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let held = format!("{LIONS}/held");
    let other = json!({"spec": {"name": "leona"}});
    assert_eq!(
        patch(&server, &held, "merge", &other).await.code,
        200,
        "age is as it was"
    );
    let older = json!({"spec": {"age": 39}});
    assert_eq!(patch(&server, &held, "merge", &older).await.code, 422);
    assert_eq!(delete(&server, &held).await.code, 200);
    let freed = patch(&server, &held, "merge", &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(freed.code, 200, "{}", freed.body);
    assert_eq!(get(&server, &held).await.code, 404);
}
