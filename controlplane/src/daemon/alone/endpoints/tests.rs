use super::*;
use kube::client::Body;
use std::sync::Mutex;

/// An API server that knows the token `good`, and lets its user read metrics.
fn server(asked: Arc<Mutex<Vec<Value>>>) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let asked = Arc::clone(&asked);
        async move {
            let body = request.into_body().collect_bytes().await?;
            let review: Value = serde_json::from_slice(&body).unwrap_or_default();
            let status = match review["kind"].as_str() {
                Some("TokenReview") if review["spec"]["token"] == "good" => {
                    json!({"authenticated": true, "user": {"username": "prometheus", "groups": ["g"], "uid": "u"}})
                }
                Some("TokenReview") if review["spec"]["token"] == "other" => {
                    json!({"authenticated": true, "user": {"username": "other"}})
                }
                Some("SubjectAccessReview") => json!({"allowed": review["spec"]["user"] == "prometheus"}),
                _ => json!({"authenticated": false}),
            };
            asked.lock().unwrap().push(review);
            let reply = Body::from(json!({"status": status}).to_string().into_bytes());
            Ok::<_, kube::Error>(http::Response::new(reply))
        }
    });
    kube::Client::new(service, "default")
}

fn endpoints(asked: &Arc<Mutex<Vec<Value>>>) -> Arc<Endpoints> {
    let metrics = Arc::new(Metrics::default());
    metrics.leading("kube-scheduler").set(1);
    Endpoints::new(metrics, Fence::default(), server(Arc::clone(asked)), "/proc".into())
}

fn get(path: &str, token: Option<&str>) -> Request<()> {
    let request = Request::get(path);
    let request = match token {
        Some(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
        None => request,
    };
    request.body(()).unwrap()
}

#[tokio::test]
async fn health_is_open_and_metrics_are_for_whom_the_api_server_lets() {
    let asked = Arc::default();
    let endpoints = endpoints(&asked);
    let code = async |path: &str, token| endpoints.answer(&get(path, token)).await.status().as_u16();
    for path in ["/healthz", "/livez", "/readyz", "/healthz/leaderElection"] {
        assert_eq!(code(path, None).await, 200, "{path}");
    }
    assert_eq!(code("/configz", Some("good")).await, 404);
    assert!(asked.lock().unwrap().is_empty(), "nobody needs to be asked about those");
    assert_eq!(code("/metrics", Some("good")).await, 200);
    assert_eq!(code("/metrics", Some("other")).await, 403);
    assert_eq!(code("/metrics", Some("bad")).await, 401);
    assert_eq!(code("/metrics", None).await, 403);
    let long = "x".repeat(TOKEN_BYTES + 1);
    let before = asked.lock().unwrap().len();
    assert_eq!(code("/metrics", Some(&long)).await, 401);
    assert_eq!(
        asked.lock().unwrap().len(),
        before,
        "what is no token is not asked about"
    );
    let spec = &asked.lock().unwrap()[1]["spec"];
    assert_eq!(
        *spec,
        json!({"user": "prometheus", "groups": ["g"], "uid": "u", "extra": null,
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"}})
    );
}

#[tokio::test]
async fn only_get_is_answered() {
    let asked = Arc::default();
    let request = Request::post("/metrics").body(()).unwrap();
    let reply = endpoints(&asked).answer(&request).await;
    assert_eq!(reply.status(), 405);
}

#[tokio::test]
async fn it_is_served_over_tls_until_the_end() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let identity = Identity {
        cert_pem: made.cert.pem(),
        key_pem: made.signing_key.serialize_pem(),
    };
    let config = super::tls(&identity, Path::new("test")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (_keep, tls) = watch::channel(config);
    let (asked, shutdown) = (Arc::default(), CancellationToken::new());
    let serving = tokio::spawn(serve(listener, tls, endpoints(&asked), shutdown.clone()));
    let mut config = kube::Config::new(format!("https://localhost:{port}").parse().unwrap());
    config.root_cert = Some(vec![made.cert.der().to_vec()]);
    config.auth_info.token = Some("good".to_owned().into());
    let client = client::connect::from_config(config, &client::connect::Options::new("test")).unwrap();
    let text = async |path: &str| {
        let request = Request::get(path).body(Vec::new()).unwrap();
        client.request_text(request).await.unwrap()
    };
    assert_eq!(text("/healthz").await, "ok");
    let metrics = text("/metrics").await;
    for line in [
        "leader_election_master_status{name=\"kube-scheduler\"} 1",
        "kubernetes_build_info",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    shutdown.cancel();
    serving.await.unwrap();
}
