//! The objects as their keeper leaves them.

use super::*;
use crate::apiserver::Parts;
use crate::apiserver::gate::Open;
use crate::apiserver::user::User;
use crate::store::memory::Memory;
use client::TokioClock;

const NOW: &str = "2026-01-01T00:00:00Z";

fn stored(wanted: &Value, annotation: Option<&str>, generation: i64) -> Value {
    let mut object = wanted.clone();
    object["metadata"]["generation"] = json!(generation);
    object["metadata"]["annotations"] = annotation.map_or(json!({}), |text| json!({AUTOUPDATE: text}));
    object
}

fn named(name: &str) -> Value {
    let all = priority_levels();
    all.into_iter().find(|level| level["metadata"]["name"] == name).unwrap()
}

#[test]
fn what_is_ours_is_put_right_and_what_was_taken_over_is_left() {
    let wanted = named("system");
    // annotation, generation, whether the spec was changed; the annotation and the shares afterwards, or nothing to write
    for (annotation, generation, is_changed, expected) in [
        (Some("true"), 1, false, None),
        (Some("true"), 2, true, Some(("true", 30))),
        (Some("false"), 2, true, None),
        (Some("false"), 1, false, None),
        (None, 1, false, Some(("true", 30))),
        (None, 2, true, Some(("false", 7))),
        (Some("maybe"), 2, true, Some(("false", 7))),
    ] {
        let mut object = stored(&wanted, annotation, generation);
        if is_changed {
            object["spec"]["limited"]["nominalConcurrencyShares"] = json!(7);
        }
        let found = repaired(&object, &wanted).map(|object| {
            let shares = object["spec"]["limited"]["nominalConcurrencyShares"].as_i64().unwrap();
            (
                object["metadata"]["annotations"][AUTOUPDATE]
                    .as_str()
                    .unwrap()
                    .to_owned(),
                shares,
            )
        });
        let expected = expected.map(|(text, shares)| (text.to_owned(), shares));
        assert_eq!(found, expected, "{annotation:?} {generation} {is_changed}");
    }
    // Mandatory ones belong to nobody else, but for the two numbers of the exempt level.
    let wanted = named("catch-all");
    let mut object = stored(&wanted, Some("false"), 2);
    object["spec"]["limited"]["nominalConcurrencyShares"] = json!(7);
    let found = repaired(&object, &wanted).unwrap();
    assert_eq!(found["spec"], wanted["spec"]);
    assert_eq!(annotation(&found), Some("true"));
    let wanted = named("exempt");
    let mut object = stored(&wanted, Some("true"), 2);
    object["spec"]["exempt"]["nominalConcurrencyShares"] = json!(7);
    assert_eq!(repaired(&object, &wanted), None);
}

#[test]
fn what_is_suggested_no_longer_goes() {
    let old = |name: &str, annotation: &str| {
        let mut object = stored(&named("system"), Some(annotation), 1);
        object["metadata"]["name"] = json!(name);
        Arc::new(object)
    };
    let stored: Vec<Arc<Value>> = priority_levels().into_iter().map(Arc::new).collect();
    let stored = [stored, vec![old("of-an-old-release", "true"), old("mine", "false")]].concat();
    let changes = objects(LEVELS, &stored, priority_levels());
    let told: Vec<_> = changes
        .iter()
        .map(|change| (change.method.as_str(), change.name.as_str()))
        .collect();
    assert_eq!(told, [("DELETE", "of-an-old-release")]);
}

async fn server() -> ApiServer {
    let parts = Parts {
        store: Arc::new(Memory::new()),
        clock: Arc::new(TokioClock::starting_at(NOW.parse().unwrap())),
        seed: 1,
        gate: Arc::new(Open),
    };
    ApiServer::new(parts).await.unwrap()
}

async fn send(client: &kube::Client, method: &str, path: &str, body: Value) {
    let request = http::Request::builder()
        .method(method)
        .uri(format!("/apis/{GROUP}/v1/{path}"));
    let media = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let request = request.header("content-type", media);
    let body = body.to_string().into_bytes();
    client.request::<Value>(request.body(body).unwrap()).await.unwrap();
}

/// Waits until the object is there and `is` so.
async fn until(server: &ApiServer, plural: &str, name: &str, is: impl Fn(&Value) -> bool) {
    let wait = async {
        loop {
            server.reader().refresh().await.unwrap();
            if server
                .reader()
                .get(GROUP, plural, "", name)
                .is_some_and(|object| is(&object))
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
    assert!(waited.is_ok(), "{plural} {name}");
}

fn dangles(schema: &Value) -> &str {
    let conditions = list(schema, &["status", "conditions"]);
    conditions.first().map_or("", |condition| text(condition, &["status"]))
}

#[tokio::test(start_paused = true)]
async fn edits_and_deletions_are_undone_and_what_dangles_says_so() {
    let server = server().await;
    let client = server.client_as(User::named("root", &["system:masters"]));
    ensure(&server, &client).await.unwrap();
    let before = server.store().current_revision().await.unwrap();
    server.reader().refresh().await.unwrap();
    ensure(&server, &client).await.unwrap();
    assert_eq!(
        server.store().current_revision().await.unwrap(),
        before,
        "nothing is written twice"
    );
    let shutdown = CancellationToken::new();
    let keeping = tokio::spawn(keep(server.clone(), shutdown.clone()));
    for name in ["catch-all", "system-nodes"] {
        let uid = server.reader().get(GROUP, SCHEMAS, "", name).unwrap()["metadata"]["uid"].clone();
        send(&client, "DELETE", &format!("{SCHEMAS}/{name}"), json!({})).await;
        until(&server, SCHEMAS, name, |object| {
            object["metadata"]["uid"] != uid && dangles(object) == "False"
        })
        .await;
    }
    let precedence = |wanted: i64| move |object: &Value| object["spec"]["matchingPrecedence"] == wanted;
    send(
        &client,
        "PATCH",
        &format!("{SCHEMAS}/probes"),
        json!({"spec": {"matchingPrecedence": 7}}),
    )
    .await;
    until(&server, SCHEMAS, "probes", precedence(2)).await;
    let taken = json!({"metadata": {"annotations": {AUTOUPDATE: "false"}}, "spec": {"matchingPrecedence": 7,
        "priorityLevelConfiguration": {"name": "nowhere"}}});
    send(&client, "PATCH", &format!("{SCHEMAS}/probes"), taken).await;
    until(&server, SCHEMAS, "probes", |object| dangles(object) == "True").await;
    let probes = server.reader().get(GROUP, SCHEMAS, "", "probes").unwrap();
    assert!(precedence(7)(&probes));
    assert_eq!(
        probes["status"]["conditions"][0],
        json!({"type": "Dangling", "status": "True", "reason": "NotFound", "lastTransitionTime":
            probes["status"]["conditions"][0]["lastTransitionTime"],
            "message": "This FlowSchema references the PriorityLevelConfiguration object named \"nowhere\" but there is no such object"})
    );
    shutdown.cancel();
    keeping.await.unwrap();
}
