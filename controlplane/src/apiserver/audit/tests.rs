//! Trails through a whole server into a file.

use super::*;
use crate::apiserver::status::ApiError;
use crate::apiserver::{ApiServer, Body, Gate, Parts, Reader, body, gate};
use crate::store::memory::Memory;
use async_trait::async_trait;
use client::SystemClock;
use http::{Request, Response};
use http_body_util::BodyExt;
use std::time::Duration;

/// The open gate with an audit log; users named `stranger` are refused.
struct Audited(Arc<Audit>);

#[async_trait]
impl Gate for Audited {
    fn beneath(&self) -> Option<&dyn Gate> {
        Some(&gate::Open)
    }

    async fn impersonate(
        &self,
        _sender: &User,
        parts: &http::request::Parts,
        _reader: &Reader,
    ) -> Result<Option<User>, ApiError> {
        match parts.headers.get("impersonate-user").map(|name| name.to_str().unwrap()) {
            Some("nobody") => Err(ApiError::new(403, "Forbidden", "no")),
            name => Ok(name.map(|name| User::named(name, &["h"]))),
        }
    }

    async fn authorize(&self, user: &User, _info: &RequestInfo, _reader: &Reader) -> Result<(), ApiError> {
        match user.name.as_str() {
            "stranger" => Err(ApiError::new(403, "Forbidden", "no")),
            _ => Ok(()),
        }
    }

    fn audit(&self) -> Option<&Arc<Audit>> {
        Some(&self.0)
    }
}

const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: RequestResponse, verbs: [create, list], omitStages: [RequestReceived]}
- {level: Metadata, verbs: [watch]}
- {level: Metadata, users: [stranger], omitStages: [RequestReceived]}
";

/// The events in the file once there are `count`.
async fn events(path: &std::path::Path, count: usize) -> Vec<Value> {
    let read = || -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // What stands behind the last whole line is being written.
        let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let wait = async {
        while read().len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap();
    read()
}

async fn ask(server: &ApiServer, user: &str, method: &str, uri: &str, content: &str) -> Response<Body> {
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("content-type", "application/json")
        .header("user-agent", "test/1")
        .header("audit-id", "an-id");
    let request = request.body(body::full(content.to_owned())).unwrap();
    server.handle(Some(User::named(user, &["g"])), request).await
}

/// A server that writes what [`POLICY`] says.
async fn audited(path: &std::path::Path) -> ApiServer {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let options = LogOptions {
        path: Some(path.to_owned()),
        max_size_mb: 100,
        max_backups: 0,
        max_age_days: 0,
    };
    let log = AuditLog::open(options, Arc::clone(&clock)).unwrap();
    let audit = Audit::new(Policy::parse(POLICY).unwrap(), log, Arc::clone(&clock));
    let parts = Parts {
        store: Arc::new(Memory::new()),
        clock,
        seed: 1,
        gate: Arc::new(Audited(audit)),
    };
    ApiServer::new(parts).await.unwrap()
}

#[tokio::test]
async fn requests_are_written_as_the_policy_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let server = audited(&path).await;
    let made = ask(
        &server,
        "alice",
        "POST",
        "/api/v1/namespaces",
        r#"{"metadata":{"name":"a"}}"#,
    )
    .await;
    assert_eq!(made.status(), 201);
    made.into_body().collect().await.unwrap();
    assert_eq!(
        ask(&server, "alice", "GET", "/api/v1/namespaces/a", "").await.status(),
        200
    );
    let refused = ask(&server, "stranger", "GET", "/api/v1/namespaces/a?x=y", "").await;
    assert_eq!(refused.status(), 403);
    let mut watch = ask(&server, "alice", "GET", "/api/v1/namespaces?watch=1", "").await;
    watch.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(events(&path, 4).await.len(), 4, "the watch is not over");
    drop(watch);

    let found = events(&path, 5).await;
    let stages: Vec<(&str, &str)> = found
        .iter()
        .map(|event| (event["verb"].as_str().unwrap(), event["stage"].as_str().unwrap()))
        .collect();
    assert_eq!(
        stages,
        [
            ("create", "ResponseComplete"),
            ("get", "ResponseComplete"),
            ("watch", "RequestReceived"),
            ("watch", "ResponseStarted"),
            ("watch", "ResponseComplete"),
        ]
    );
    let create = &found[0];
    assert_eq!(create["level"], "RequestResponse");
    assert_eq!(create["auditID"], "an-id");
    assert_eq!(
        (&create["user"]["username"], &create["userAgent"]),
        (&"alice".into(), &"test/1".into())
    );
    assert_eq!(create["requestObject"]["metadata"]["name"], "a");
    assert_eq!(create["responseObject"]["kind"], "Namespace");
    assert_eq!(create["responseStatus"]["code"], 201);
    assert_eq!(create["annotations"]["authorization.k8s.io/decision"], "allow");
    let time = create["stageTimestamp"].as_str().unwrap();
    assert!(
        time.len() == "2026-01-02T03:04:05.000000Z".len() && time.ends_with('Z'),
        "{time}"
    );
    let get = &found[1];
    assert_eq!(get["requestURI"], "/api/v1/namespaces/a?x=y");
    assert_eq!(get["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(
        (&get["responseStatus"]["code"], &get["responseStatus"]["reason"]),
        (&403.into(), &"Forbidden".into())
    );
    assert_eq!(get["objectRef"]["resource"], "namespaces");
    assert!(get.get("requestObject").is_none());
}

#[tokio::test]
async fn who_acts_as_somebody_else_is_named_beside_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let server = audited(&path).await;
    let ask = async |other: &str, name: &str| {
        let request = Request::post("/api/v1/namespaces").header("impersonate-user", other);
        let content = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        server
            .handle(None, request.body(body::full(content)).unwrap())
            .await
            .status()
    };
    assert_eq!(ask("alice", "a").await, 201);
    assert_eq!(ask("nobody", "b").await, 403);
    let found = events(&path, 2).await;
    for event in &found {
        assert_eq!(event["user"]["username"], "system:admin");
    }
    assert_eq!(
        found[0]["impersonatedUser"],
        serde_json::json!({"username": "alice", "groups": ["h", "system:authenticated"]})
    );
    assert_eq!(found[0]["responseStatus"]["code"], 201);
    assert_eq!(
        (&found[1]["responseStatus"]["code"], found[1].get("impersonatedUser")),
        (&403.into(), None)
    );
}

/// A list longer than any object goes to its reader piece by piece, and to the log without its items.
#[tokio::test]
async fn a_long_list_is_not_held_for_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let server = audited(&path).await;
    let maps = "/api/v1/namespaces/a/configmaps";
    for (count, is_noted) in [(1, true), (5, false)] {
        for number in 0..count {
            let object = serde_json::json!({"metadata": {"name": format!("m{number}"), "namespace": "a"}, "data": {"k": "x".repeat(900_000)}});
            let key = format!("/registry/configmaps/a/m{count}{number}");
            let bytes = crate::store::value::testing::as_stored(&key, &object);
            let expect = crate::store::Expect::Absent;
            server.store().put(&key, bytes, expect).await.unwrap();
        }
        server.reader().refresh().await.unwrap();
        let before = events(&path, 0).await.len();
        let mut list = ask(&server, "alice", "GET", maps, "").await;
        list.body_mut().frame().await.unwrap().unwrap();
        if is_noted {
            assert_eq!(events(&path, 0).await.len(), before, "the reply is not over");
        }
        list.into_body().collect().await.unwrap();
        let found = events(&path, before + 1).await;
        let last = found.last().unwrap();
        assert_eq!(last["responseObject"]["items"].is_array(), is_noted);
        assert_eq!(last["annotations"]["audit.k8s.io/truncated"] == "true", !is_noted);
    }
}

#[tokio::test]
async fn the_body_of_a_request_that_has_none_is_not_read_for_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let server = audited(&directory.path().join("audit.log")).await;
    let request = Request::get("/api/v1/namespaces/a/configmaps").header("content-type", "application/json");
    let endless = body::stream(futures::stream::pending());
    let answered = server.handle(None, request.body(endless).unwrap());
    let response = tokio::time::timeout(Duration::from_secs(30), answered).await.unwrap();
    assert_eq!(response.status(), 200);
}
