//! Keys that hold what does not belong there, and the one way to be rid of it (KEP-3926).

use super::*;
use crate::apiserver::Reader;
use crate::apiserver::authz::forbidden;
use crate::apiserver::gate::Gate;
use crate::apiserver::request::RequestInfo;
use crate::apiserver::status::ApiError;
use crate::apiserver::user::User;
use crate::store::Expect;
use async_trait::async_trait;

const OPTION: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
const KEY: &str = "/registry/configmaps/a/bad";

/// Allows everything but this.
struct Careful;

#[async_trait]
impl Gate for Careful {
    fn beneath(&self) -> Option<&dyn Gate> {
        Some(&Open)
    }

    async fn authorize(&self, user: &User, info: &RequestInfo, _reader: &Reader) -> Result<(), ApiError> {
        match info.verb.as_str() {
            "unsafe-delete-ignore-read-errors" => Err(forbidden(user, info, "")),
            _ => Ok(()),
        }
    }
}

async fn with_misfit(gate: Arc<dyn Gate>) -> ApiServer {
    let server = ApiServer::new(Parts {
        store: Arc::new(Memory::new()),
        clock: Arc::new(TokioClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())),
        seed: 7,
        gate,
    });
    let server = server.await.unwrap();
    let good = config_map("good", json!({"k": "v"}));
    assert_eq!(post(&server, MAPS, &good).await.code, 201);
    let secret = r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"bad","namespace":"a"}}"#;
    server.store().put(KEY, secret.into(), Expect::Absent).await.unwrap();
    server
}

async fn told(server: &ApiServer, path: &str, body: Option<&Value>) -> (u16, String) {
    let reply = send(server, "DELETE", path, &[], body).await;
    (
        reply.code,
        reply.body["message"].as_str().unwrap_or_default().to_owned(),
    )
}

#[tokio::test(start_paused = true)]
async fn what_does_not_belong_there_goes_by_its_own_option_alone() {
    let server = with_misfit(Arc::new(Open)).await;
    let one = format!("{MAPS}/bad");
    assert_eq!(delete(&server, &one).await.code, 500);
    assert_eq!(told(&server, &one, Some(&json!({OPTION: false}))).await.0, 500);
    for (beside, value) in [
        ("dryRun", json!(["All"])),
        ("propagationPolicy", json!("Background")),
        ("orphanDependents", json!(true)),
        ("gracePeriodSeconds", json!(0)),
        ("preconditions", json!({"uid": "u"})),
    ] {
        let (code, message) = told(&server, &one, Some(&json!({OPTION: true, beside: value}))).await;
        let why = format!("{OPTION}: Invalid value: true: cannot be set together with .{beside}");
        assert!(code == 422 && message.contains(&why), "{code} {message}");
    }
    let (code, message) = told(&server, &format!("{MAPS}/good"), Some(&json!({OPTION: true}))).await;
    let why = "is exclusively used to delete corrupt object(s), try again by removing this option";
    assert!(code == 422 && message.ends_with(why), "{code} {message}");
    let (code, message) = told(&server, MAPS, Some(&json!({OPTION: true}))).await;
    let why = "is not allowed with DELETECOLLECTION, try again after removing the option";
    assert!(code == 422 && message.ends_with(why), "{code} {message}");
    assert_eq!(
        told(&server, &format!("{MAPS}/none"), Some(&json!({OPTION: true})))
            .await
            .0,
        404
    );

    let reply = send(&server, "DELETE", &format!("{one}?{OPTION}=true"), &[], None).await;
    let details = json!({"name": "bad", "kind": "configmaps"});
    assert_eq!(
        (reply.code, &reply.body["status"], &reply.body["details"]),
        (200, &json!("Success"), &details)
    );
    assert!(server.store().range(KEY).await.unwrap().1.is_empty());
    assert_eq!(get(&server, &one).await.code, 404);
    let names: Vec<Value> = get(&server, MAPS).await.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["good"]);
}

#[tokio::test(start_paused = true)]
async fn who_may_delete_may_not_do_that_yet() {
    let server = with_misfit(Arc::new(Careful)).await;
    let (code, message) = told(&server, &format!("{MAPS}/bad"), Some(&json!({OPTION: true}))).await;
    let start = "configmaps \"bad\" is forbidden: not permitted to do \"unsafe-delete-ignore-read-errors\", reason: ";
    assert!(code == 403 && message.starts_with(start), "{code} {message}");
    assert_eq!(delete(&server, &format!("{MAPS}/good")).await.code, 200);
    assert_eq!(get(&server, MAPS).await.code, 500, "it is still there");
}
