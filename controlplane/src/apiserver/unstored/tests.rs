//! Reviews through a server: what is echoed, and the room it takes.

use super::*;
use crate::apiserver::authn::AuthnParts;
use crate::apiserver::gate::{Gate, Open};
use crate::store::memory::Memory;
use async_trait::async_trait;
use client::{Clock, TokioClock};
use http_body_util::BodyExt;
use serde_json::json;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const LARGE_BYTES: usize = 100 << 10;

/// The open gate, with reviews.
struct Reviewing(UnstoredEndpoints);

#[async_trait]
impl Gate for Reviewing {
    fn beneath(&self) -> Option<&dyn Gate> {
        Some(&Open)
    }

    async fn other(
        &self,
        server: &ApiServer,
        user: &User,
        info: &RequestInfo,
        request: Request<Body>,
    ) -> Result<Response<Body>, Request<Body>> {
        match self.0.handle(server, user, info, request).await {
            Answered::Yes(Ok(response)) => Ok(response),
            Answered::Yes(Err(error)) => {
                let status = error.to_status();
                Ok(reply::error(&error, &status, Output::JSON))
            }
            Answered::Not(request) => Err(request),
        }
    }
}

async fn server() -> ApiServer {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()));
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let names = vec!["api".to_owned()];
    let tokens = Tokens::new(&key.serialize_pem(), &key.public_key_pem(), names.clone(), names);
    let tokens = Arc::new(tokens.unwrap());
    let authn = Arc::new(Authn::new(AuthnParts {
        client_certificates: None,
        token_file: Default::default(),
        tokens: Arc::clone(&tokens),
        anonymous: false,
        clock: Arc::clone(&clock),
    }));
    let endpoints = UnstoredEndpoints {
        authn,
        authz: Arc::default(),
        tokens,
        health: Health::default(),
        url: "https://192.0.2.1:6443".to_owned(),
        proc: PathBuf::from("/proc"),
        usage: None,
    };
    let parts = crate::apiserver::Parts {
        store: Arc::new(Memory::new()),
        clock,
        seed: 1,
        gate: Arc::new(Reviewing(endpoints)),
    };
    ApiServer::new(parts).await.unwrap()
}

async fn review(server: &ApiServer, path: &str, spec: Value) -> Response<Body> {
    let body = body::full(json!({ "spec": spec }).to_string());
    let response = server.handle(None, Request::post(path).body(body).unwrap()).await;
    assert_eq!(response.status(), 201);
    response
}

async fn text(response: Response<Body>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

#[tokio::test(start_paused = true)]
async fn a_review_says_nothing_of_fields_it_does_not_have() {
    let server = server().await;
    let asked = json!({"verb": "get", "resource": "pods", "junk": "x".repeat(LARGE_BYTES)});
    let spec = json!({"resourceAttributes": asked, "more": vec![json!({}); 1000]});
    let answer: Value = serde_json::from_slice(&text(review(&server, REVIEWS, spec).await).await).unwrap();
    assert_eq!(
        answer,
        json!({
            "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
            "metadata": {},
            "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
            "status": {"allowed": true},
        })
    );
}

#[tokio::test(start_paused = true)]
async fn options_of_reviews_are_those_of_other_bodies() {
    let server = server().await;
    let body = json!({"spec": {"resourceAttributes": {}, "foo": 1}}).to_string();
    for (query, code, text, warning) in [
        ("", 201, "", "299 - \"unknown field \\\"spec.foo\\\"\""),
        ("fieldValidation=Ignore", 201, "", ""),
        (
            "fieldValidation=Strict",
            400,
            "SelfSubjectAccessReview in version \"v1\" cannot be handled as a SelfSubjectAccessReview: strict decoding error: \
             unknown field \"spec.foo\"",
            "",
        ),
        (
            "dryRun=Foo",
            422,
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Foo\"]: supported values: \"All\"",
            "",
        ),
    ] {
        let request = Request::post(format!("{REVIEWS}?{query}")).body(body::full(body.clone()));
        let response = server.handle(None, request.unwrap()).await;
        let told = response.headers().get("warning");
        let told = told.map_or("", |value| value.to_str().unwrap()).to_owned();
        assert_eq!((response.status().as_u16(), told.as_str()), (code, warning), "{query}");
        let answer: Value = serde_json::from_slice(&self::text(response).await).unwrap();
        assert_eq!(answer["message"].as_str().unwrap_or(""), text, "{query}");
    }
    let token = "/api/v1/namespaces/a/serviceaccounts/x/token?dryRun=Foo";
    let response = server
        .handle(None, Request::post(token).body(body::full("{}")).unwrap())
        .await;
    assert_eq!(response.status(), 422);
}

#[tokio::test(start_paused = true)]
async fn a_large_review_takes_room_until_it_is_sent() {
    let server = server().await;
    let spec = json!({"resourceAttributes": {"verb": "get", "resource": "pods", "name": "x".repeat(LARGE_BYTES)}});
    for (path, factor) in [(REVIEWS.to_owned(), 1), (format!("{REVIEWS}?pretty=1"), 8)] {
        let response = review(&server, &path, spec.clone()).await;
        let held = server.flow().reply_bytes();
        assert!(held >= factor * LARGE_BYTES, "{held}");
        assert!(text(response).await.len() > LARGE_BYTES);
        assert_eq!(server.flow().reply_bytes(), 0);
    }
}
