//! Server-side apply over the wire.

use super::*;
use crate::apiserver::Reader;
use crate::apiserver::authz::forbidden;
use crate::apiserver::gate::Gate;
use crate::apiserver::request::RequestInfo;
use crate::apiserver::status::ApiError;
use crate::apiserver::user::User;
use async_trait::async_trait;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/a/deployments";

/// Applies as a manager; `query` follows its name.
async fn apply(server: &ApiServer, path: &str, manager: &str, config: &Value) -> Reply {
    let path = format!("{path}?fieldManager={manager}");
    let headers = [("content-type", "application/apply-patch+yaml")];
    send(server, "PATCH", &path, &headers, Some(config)).await
}

fn deployment(spec: Value) -> Value {
    json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "d"}, "spec": spec})
}

fn whole(replicas: i64) -> Value {
    deployment(
        json!({"replicas": replicas, "selector": {"matchLabels": {"app": "d"}}, "template": {
        "metadata": {"labels": {"app": "d"}},
        "spec": {"containers": [{"name": "c", "image": "nginx", "ports": [{"containerPort": 80}]}]}}}),
    )
}

fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let names = entries.map(|entry| {
        let text = |key: &str| entry[key].as_str().unwrap_or("").to_owned();
        format!("{} {} {}", text("manager"), text("operation"), text("subresource"))
    });
    names.map(|name| name.trim_end().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn applying_makes_changes_and_writes_nothing_the_second_time() {
    let server = server().await;
    let path = format!("{DEPLOYMENTS}/d");
    let made = apply(&server, &path, "one", &whole(2)).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(
        made.body["spec"]["strategy"]["type"], "RollingUpdate",
        "defaults are filled in"
    );
    let expected = json!({"f:spec": {"f:replicas": {}, "f:selector": {}, "f:template": {
        "f:metadata": {"f:labels": {"f:app": {}}},
        "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {},
            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}}}}});
    assert_eq!(
        made.body["metadata"]["managedFields"][0]["fieldsV1"], expected,
        "and are nobody's"
    );
    assert_eq!(
        made.body["metadata"]["managedFields"][0]["time"],
        "2026-01-01T00:00:00Z"
    );
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    let again = apply(&server, &path, "one", &whole(2)).await;
    assert_eq!((again.code, &again.body), (200, &made.body), "no write");
    let other = apply(&server, &path, "two", &deployment(json!({"replicas": 3}))).await;
    assert_eq!(other.code, 409);
    let cause =
        json!({"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".spec.replicas"});
    assert_eq!(other.body["details"], json!({"causes": [cause]}));
    assert_eq!(other.body["reason"], "Conflict");
    assert_eq!(
        other.body["message"],
        "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas"
    );
    let forced = apply(&server, &path, "two&force=true", &deployment(json!({"replicas": 3}))).await;
    assert_eq!(
        (forced.code, &forced.body["spec"]["replicas"]),
        (200, &json!(3)),
        "{}",
        forced.body
    );
    assert_eq!(forced.body["metadata"]["generation"], 2);
    let bare = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "d"}});
    let left = apply(&server, &path, "two", &bare).await;
    assert_eq!(left.body["spec"]["replicas"], 1, "nobody's any more: the default");
    assert_eq!(managers(&left.body), ["one Apply"]);
}

#[tokio::test(start_paused = true)]
async fn yaml_dry_runs_and_pinned_revisions() {
    let server = server().await;
    let path = format!("{MAPS}/m?fieldManager=one");
    let yaml = |path: String, text: &'static str| {
        let request = Request::builder().method("PATCH").uri(path);
        let request = request.header("content-type", "application/apply-patch+yaml");
        let body = body::full(text.as_bytes());
        let server = server.clone();
        async move {
            let response = raw(&server, request.body(body).unwrap()).await;
            let code = response.status().as_u16();
            let headers = response.headers().clone();
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&bytes).unwrap();
            Reply { code, headers, body }
        }
    };
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  a: '1'\n  a: '2'\n";
    let strict = yaml(format!("{path}&fieldValidation=Strict"), text).await;
    let message = "error strict decoding YAML: duplicate field \"data.a\"";
    assert_eq!((strict.code, &strict.body["message"]), (400, &json!(message)));
    let dry = yaml(format!("{path}&dryRun=All"), text).await;
    assert_eq!((dry.code, &dry.body["data"]["a"]), (201, &json!("2")));
    assert_eq!(dry.headers["warning"], "299 - \"duplicate field \\\"data.a\\\"\"");
    assert_eq!(get(&server, &format!("{MAPS}/m")).await.code, 404);
    assert_eq!(yaml(path.clone(), text).await.code, 201);
    assert_eq!(yaml(path, "a: [").await.code, 400);
    let mut pinned = config_map("m", json!({"a": "3"}));
    pinned["metadata"]["resourceVersion"] = json!("1");
    assert_eq!(apply(&server, &format!("{MAPS}/m"), "one", &pinned).await.code, 409);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_applied_is_said_in_upstreams_words() {
    let server = server().await;
    let path = format!("{MAPS}/m");
    let good = config_map("m", json!({"a": "1"}));
    let but = |pointer: &str, value: Value| {
        let mut config = good.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        config.pointer_mut(parent).unwrap()[key] = value;
        config
    };
    let table = [
        (
            "",
            good.clone(),
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
        ),
        (
            "a%07",
            good.clone(),
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: \"a\\u0007\": invalid character U+0007 (at \
             position 1)",
        ),
        (
            "one",
            but("/metadata/managedFields", json!([])),
            400,
            "metadata.managedFields must be nil",
        ),
        (
            "one",
            but("/kind", json!("Secret")),
            400,
            "invalid object type: /v1, Kind=Secret",
        ),
        (
            "one",
            but("/apiVersion", json!("apps/v1")),
            400,
            "invalid object type: apps/v1, Kind=ConfigMap",
        ),
        ("one", json!([1]), 400, "invalid object type: /, Kind="),
        (
            "one",
            but("/dat", json!({})),
            500,
            "failed to create typed patch object (/m; /v1, Kind=ConfigMap): .dat: field not declared in schema",
        ),
        (
            "one",
            but("/metadata/name", json!("n")),
            400,
            "the name of the object (n) does not match the name on the URL (m)",
        ),
        (
            "one",
            but("/metadata/namespace", json!("b")),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "one",
            but("/metadata/uid", json!("u")),
            409,
            "Operation cannot be fulfilled on configmaps \"m\": uid mismatch: the provided object specified uid u, and no existing \
             object was found",
        ),
    ];
    for (manager, config, code, message) in table {
        let reply = apply(&server, &path, manager, &config).await;
        assert_eq!(
            (reply.code, &reply.body["message"]),
            (code, &json!(message)),
            "{config}"
        );
    }
    let forced = send(
        &server,
        "PATCH",
        &format!("{path}?force=true"),
        &[("content-type", "application/merge-patch+json")],
        Some(&json!({})),
    )
    .await;
    assert_eq!(forced.code, 422);
    let missing = apply(
        &server,
        &format!("{DEPLOYMENTS}/d/status"),
        "one",
        &deployment(json!({})),
    )
    .await;
    assert_eq!(missing.code, 404, "a part of what is not there");
    let long = post(&server, &format!("{MAPS}?fieldManager={}", "x".repeat(129)), &good).await;
    let message = "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes";
    assert_eq!((long.code, &long.body["message"]), (422, &json!(message)));
}

#[tokio::test(start_paused = true)]
async fn endpoints_are_applied_to_apart() {
    let server = server().await;
    let path = format!("{DEPLOYMENTS}/d");
    apply(&server, &path, "one", &whole(2)).await;
    let status = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "d", "labels": {"x": "y"}},
        "spec": {"replicas": 9}, "status": {"replicas": 2}});
    let done = apply(&server, &format!("{path}/status"), "ctl", &status).await.body;
    assert_eq!(
        (&done["status"]["replicas"], &done["spec"]["replicas"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(managers(&done), ["ctl Apply status", "one Apply"]);
    assert_eq!(
        done["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:status": {"f:replicas": {}}})
    );
    let scale =
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "d"}, "spec": {"replicas": 5}});
    let refused = apply(&server, &format!("{path}/scale"), "hpa", &scale).await;
    let message = "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas";
    assert_eq!((refused.code, &refused.body["message"]), (409, &json!(message)));
    let scaled = apply(&server, &format!("{path}/scale"), "hpa&force=true", &scale).await;
    assert_eq!(
        (scaled.code, &scaled.body["spec"]["replicas"]),
        (200, &json!(5)),
        "{}",
        scaled.body
    );
    let mut other = scale.clone();
    other["metadata"]["name"] = json!("other");
    let other = apply(&server, &format!("{path}/scale"), "hpa&force=true", &other).await;
    assert_eq!(other.code, 400, "{}", other.body);
    let object = get(&server, &path).await.body;
    assert!(managers(&object).contains(&"hpa Apply scale".to_owned()), "{object}");
    let conflict = apply(&server, &path, "one", &whole(2)).await;
    assert_eq!(
        conflict.body["message"],
        "Apply failed with 1 conflict: conflict with \"hpa\" with subresource \"scale\": .spec.replicas"
    );
}

#[tokio::test(start_paused = true)]
async fn racing_appliers_all_land() {
    let server = server().await;
    let tasks = (0..12).map(|number| {
        let server = server.clone();
        let config = config_map("m", json!({(format!("k{number}")): "v"}));
        async move {
            let manager = format!("m{number}");
            apply(&server, &format!("{MAPS}/m"), &manager, &config).await.code
        }
    });
    let codes = futures::future::join_all(tasks).await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 1, "{codes:?}");
    assert!(codes.iter().all(|code| matches!(code, 200 | 201)), "{codes:?}");
    let read = get(&server, &format!("{MAPS}/m")).await.body;
    assert_eq!(read["data"].as_object().unwrap().len(), 12);
    assert_eq!(managers(&read).len(), 12);
}

/// Everybody may do everything but create.
struct NothingNew;

#[async_trait]
impl Gate for NothingNew {
    fn beneath(&self) -> Option<&dyn Gate> {
        Some(&Open)
    }

    async fn authorize(&self, user: &User, info: &RequestInfo, _reader: &Reader) -> Result<(), ApiError> {
        match info.verb.as_str() {
            "create" => Err(forbidden(user, info, "")),
            _ => Ok(()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_may_patch_and_not_create_applies_to_what_is_there_alone() {
    let store = Arc::new(Memory::new());
    let with = async |gate: Arc<dyn Gate>| {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        let parts = Parts {
            store: Arc::clone(&store) as _,
            clock: Arc::new(TokioClock::starting_at(start)),
            seed: 7,
            gate,
        };
        ApiServer::new(parts).await.unwrap()
    };
    let path = format!("{DEPLOYMENTS}/d");
    let confined = with(Arc::new(NothingNew)).await;
    let refused = apply(&confined, &path, "one", &whole(2)).await;
    assert_eq!(refused.code, 403, "{}", refused.body);
    let message = refused.body["message"].as_str().unwrap();
    assert!(message.contains("cannot create resource \"deployments\""), "{message}");
    assert_eq!(get(&confined, &path).await.code, 404);
    assert_eq!(
        apply(&with(Arc::new(Open)).await, &path, "one", &whole(2)).await.code,
        201
    );
    let changed = with(Arc::new(NothingNew)).await;
    assert_eq!(apply(&changed, &path, "one", &whole(3)).await.code, 200);
}
