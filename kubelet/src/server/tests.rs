//! The server over loopback TLS, with pods in memory, the scripted runtime and a pretended API server that judges.

mod certificates;
mod connections;
mod pages;
mod streams;

use super::*;
use crate::certificate::serving::{Offered, Serving};
use crate::config::{AuthorizationMode, ServerConfig as Settings, ServingTls};
use crate::id::PodUid;
use crate::metrics::Gates;
use crate::parts::testing::{context, dependencies};
use crate::pod::view::{Life, PodSnapshot};
use crate::runtime::fake::FakeRuntime;
use crate::runtime::observed::{ContainerState, ObservedContainer, ObservedPod};
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// An API server that knows the tokens `good` and `weak` and lets `good` do everything.
fn api() -> kube::Client {
    let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
        let path = request.uri().path().to_owned();
        let body = request
            .into_body()
            .collect()
            .await
            .map_err(std::io::Error::other)?
            .to_bytes();
        let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut answer = asked.clone();
        if path.ends_with("/tokenreviews") {
            answer["status"] = match asked["spec"]["token"].as_str() {
                Some(name @ ("good" | "weak")) => {
                    json!({"authenticated": true, "user": {"username": name, "groups": ["g"]}})
                }
                _ => json!({"authenticated": false}),
            };
        } else {
            answer["status"] = json!({"allowed": asked["spec"]["user"] == "good"});
        }
        Ok::<_, std::io::Error>(http::Response::new(Full::new(bytes::Bytes::from(answer.to_string()))))
    });
    kube::Client::new(service, "default")
}

fn settings() -> Settings {
    Settings {
        enabled: true,
        address: [127, 0, 0, 1].into(),
        port: 0,
        healthz: None,
        tls_files: None,
        tls: ServingTls::default(),
        tls_bootstrap: false,
        client_ca: None,
        read_only_port: None,
        anonymous: false,
        token_webhook: Some(Duration::from_secs(60)),
        authorization: AuthorizationMode::Webhook {
            allowed: Duration::from_secs(60),
            denied: Duration::from_secs(60),
        },
        handlers: Handlers::default(),
        stream_idle: Duration::from_secs(60),
    }
}

pub(crate) fn container(name: &str, state: ContainerState, log: &Path, attempt: u32) -> ObservedContainer {
    ObservedContainer {
        id: format!("{name}-{attempt}").as_str().into(),
        sandbox: None,
        pod: PodUid::from("u-1"),
        name: name.into(),
        attempt,
        restart_count: attempt,
        hash: None,
        state,
        image: "busybox".into(),
        image_ref: String::new(),
        created_at: Timestamp::UNIX_EPOCH,
        started_at: None,
        finished_at: None,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        log_path: log.to_string_lossy().into_owned(),
        termination_file: None,
        termination_policy: "File".into(),
        pre_stop: String::new(),
        ports: String::new(),
        stop_signal: None,
        user: None,
    }
}

/// A clock that may be ahead.
#[derive(Default)]
struct MovedClock(AtomicI64);

impl client::Clock for MovedClock {
    fn now(&self) -> Timestamp {
        Timestamp::now() + jiff::SignedDuration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

type TlsStream = tokio_rustls::client::TlsStream<TcpStream>;

struct Bench {
    address: SocketAddr,
    read_only: SocketAddr,
    roots: rustls::RootCertStore,
    stop: CancellationToken,
    offered: watch::Sender<Offered>,
    clock: Arc<MovedClock>,
    dir: tempfile::TempDir,
    runtime: FakeRuntime,
    server: Arc<Server>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn bench() -> Bench {
    bench_with(Handlers::default(), ServingTls::default()).await
}

async fn bench_with(handlers: Handlers, offered: ServingTls) -> Bench {
    let dir = tempfile::tempdir().expect("temp dir");
    let (now_log, old_log) = (dir.path().join("1.log"), dir.path().join("0.log"));
    std::fs::write(&now_log, "2026-11-20T10:00:00Z stdout F now\n").expect("log");
    std::fs::write(&old_log, "2026-11-20T09:00:00Z stdout F before\n").expect("log");
    let observed = ObservedPod {
        uid: PodUid::from("u-1"),
        sandboxes: vec![],
        containers: vec![
            container("main", ContainerState::Running, &now_log, 1),
            container("main", ContainerState::Exited, &old_log, 0),
        ],
    };
    let spec = r#"{"containers":[{"name":"main"},{"name":"late"}]}"#;
    let mut pod = crate::pod::spec::testing::pod(spec);
    // What was delivered is older than what the worker knows.
    pod.status = Some(PodStatus {
        phase: Some("Unknown".to_owned()),
        ..PodStatus::default()
    });
    let status: PodStatus = serde_json::from_value(json!({"phase": "Pending",
        "containerStatuses": [{"name": "late", "ready": false, "restartCount": 0, "image": "", "imageID": "",
        "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}))
    .expect("status");
    let clock = Arc::new(MovedClock::default());
    let runtime = FakeRuntime::new(clock.clone(), 0);
    let mut node = context();
    node.root_dir = dir.path().to_owned();
    let (parts, _sink, _) = Parts::new(dependencies(dir.path(), node, Arc::new(runtime.clone()), clock.clone()));
    parts.pods.publish(
        PodUid::from("u-1"),
        PodSnapshot {
            pod: Arc::new(pod),
            status: Arc::new(status),
            observed: Arc::new(observed),
            active: true,
            ended: false,
            life: Life::default(),
        },
    );
    let of_server = ServerSettings {
        handlers,
        stream_idle: Duration::from_secs(60),
        configuration: json!({"kind": "KubeletConfiguration", "port": 10250}),
        roots: Roots::default(),
        certificates: Certificates::default(),
        level: LogLevel::default(),
        flags: BTreeMap::new(),
        gates: Gates::default(),
    };
    let auth = Auth::new(&settings(), Some(api()), "node-a");
    let mut server = Server::new(parts, auth, of_server);
    Arc::get_mut(&mut server).expect("nobody else's").checkpoints = checkpoint::Turn::with_space();
    let plain = bind([127, 0, 0, 1].into(), 0, "test").await.expect("port");
    let read_only = plain.local_addr().expect("address");
    certificates::client_of_new_authority(dir.path());
    let ca_file = dir.path().join("ca.crt");
    let mut serving =
        Serving::self_signed(&dir.path().join("pki"), "node-a", &[], Some(&ca_file)).expect("certificate");
    serving = serving.offering(offered);
    let (offered, receiver) = watch::channel(serving.config().expect("tls"));
    let listener = bind([127, 0, 0, 1].into(), 0, "test").await.expect("port");
    let address = listener.local_addr().expect("address");
    let stop = CancellationToken::new();
    tokio::spawn(serve_read_only(plain, server.clone(), stop.clone()));
    tokio::spawn(serve_tls(listener, receiver, server.clone(), stop.clone()));
    let mut roots = rustls::RootCertStore::empty();
    let own = CertificateDer::from_pem_file(dir.path().join("pki/kubelet.crt")).expect("pem");
    roots.add(own).expect("root");
    Bench {
        address,
        read_only,
        roots,
        stop,
        offered,
        clock,
        dir,
        runtime,
        server,
    }
}

impl Bench {
    /// A connection after its handshake.
    async fn greeted(&self, with_certificate: bool) -> TlsStream {
        self.greeted_at(self.address, with_certificate).await
    }

    async fn greeted_at(&self, address: SocketAddr, with_certificate: bool) -> TlsStream {
        self.greeted_for(address, with_certificate, &[]).await
    }

    /// By who says that it speaks these protocols.
    async fn greeted_for(&self, address: SocketAddr, with_certificate: bool, protocols: &[&[u8]]) -> TlsStream {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(self.roots.clone());
        let mut config = if with_certificate {
            let chain = vec![CertificateDer::from_pem_file(self.dir.path().join("client.crt")).expect("pem")];
            let key = rustls::pki_types::PrivateKeyDer::from_pem_file(self.dir.path().join("client.key")).expect("pem");
            builder.with_client_auth_cert(chain, key).expect("client certificate")
        } else {
            builder.with_no_client_auth()
        };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let socket = TcpStream::connect(address).await.expect("connect");
        let name = ServerName::try_from("node-a").expect("name");
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        connector.connect(name, socket).await.expect("handshake")
    }

    async fn send(&self, with_certificate: bool, request: hyper::Request<Empty<bytes::Bytes>>) -> (u16, String) {
        let stream = self.greeted(with_certificate).await;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .expect("http");
        tokio::spawn(connection);
        let answer = sender.send_request(request).await.expect("an answer");
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("body").to_bytes();
        (code, String::from_utf8_lossy(&body).into_owned())
    }

    async fn get(&self, token: Option<&str>, path: &str) -> (u16, String) {
        let mut request = hyper::Request::get(path).header("host", "node-a");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        self.send(false, request.body(Empty::new()).expect("request")).await
    }
}

#[tokio::test]
async fn nobody_unknown_and_the_weak_are_kept_out() {
    let bench = bench().await;
    assert_eq!(bench.get(None, "/pods").await, (401, "Unauthorized".into()));
    assert_eq!(bench.get(Some("bad"), "/pods").await.0, 401);
    let (code, text) = bench.get(Some("weak"), "/pods").await;
    assert_eq!(code, 403);
    assert_eq!(
        text,
        "Forbidden (user=weak, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"
    );
    assert_eq!(bench.get(Some("good"), "/healthz").await, (200, "ok".into()));
}

#[tokio::test]
async fn a_client_certificate_is_an_identity() {
    let bench = bench().await;
    let request = hyper::Request::get("/pods")
        .header("host", "node-a")
        .body(Empty::new())
        .expect("request");
    let (code, text) = bench.send(true, request).await;
    assert_eq!(code, 200);
    let list: Value = serde_json::from_str(&text).expect("json");
    assert_eq!(
        (&list["kind"], &list["items"][0]["metadata"]["name"]),
        (&json!("PodList"), &json!("web"))
    );
    assert!(list["items"][0].get("kind").is_none());
    let status = &list["items"][0]["status"];
    assert_eq!(status["phase"], "Pending", "the worker's, not the delivered one");
    assert_eq!(status["containerStatuses"][0]["name"], "late");
}

#[tokio::test]
async fn logs_and_their_mistakes() {
    let bench = bench().await;
    let root = "/containerLogs/shop/web";
    for (path, code, text) in [
        (format!("{root}/main"), 200, "now\n"),
        (format!("{root}/main?previous=true"), 200, "before\n"),
        (
            format!("{root}/main?timestamps=true"),
            200,
            "2026-11-20T10:00:00.000000000Z now\n",
        ),
        (
            format!("{root}/late?previous=true"),
            400,
            "previous terminated container \"late\" in pod \"web\" not found\n",
        ),
        (
            format!("{root}/late"),
            400,
            "container \"late\" in pod \"web\" is waiting to start: trying and failing to pull image\n",
        ),
        (
            format!("{root}/none"),
            404,
            "container \"none\" not found in pod \"web\"\n",
        ),
        (
            "/containerLogs/shop/none/c".into(),
            404,
            "pod \"shop/none\" does not exist\n",
        ),
    ] {
        assert_eq!(bench.get(Some("good"), &path).await, (code, text.to_owned()), "{path}");
    }
    assert_eq!(
        bench.get(Some("good"), &format!("{root}/main?tailLines=-1")).await.0,
        422
    );
}

#[tokio::test]
async fn streams_want_an_upgrade_and_a_container_that_runs() {
    let bench = bench().await;
    let post = |path: &str, upgrade: &str| {
        let request = hyper::Request::post(path)
            .header("host", "node-a")
            .header("authorization", "Bearer good")
            .header("connection", "Upgrade")
            .header("upgrade", upgrade);
        request.body(Empty::new()).expect("request")
    };
    let exec = "/exec/shop/web/main?command=ls&output=1";
    assert_eq!(bench.send(false, post(exec, "h2c")).await.0, 400);
    assert_eq!(
        bench
            .send(false, post("/exec/shop/web/main?command=ls", "SPDY/3.1"))
            .await
            .0,
        400
    );
    let (code, text) = bench
        .send(false, post("/exec/shop/web/late?command=ls&output=1", "SPDY/3.1"))
        .await;
    assert_eq!((code, text.as_str()), (500, "container not found (\"late\")\n"));
    assert_eq!(
        bench
            .send(false, post("/exec/shop/none/main?command=ls&output=1", "SPDY/3.1"))
            .await
            .0,
        404
    );
    let mut keyless = post(exec, "websocket");
    let offered = hyper::header::HeaderValue::from_static("v5.channel.k8s.io");
    keyless.headers_mut().insert("sec-websocket-protocol", offered);
    let (code, text) = bench.send(false, keyless).await;
    assert_eq!(code, 400, "refused before the runtime is asked: {text}");
    let taken = bench
        .server
        .streams
        .clone()
        .try_acquire_many_owned(1000)
        .expect("all places");
    assert_eq!(bench.send(false, post(exec, "SPDY/3.1")).await.0, 429);
    let calls = bench.runtime.calls();
    assert!(
        !calls.iter().any(|call| call.starts_with("Exec")),
        "nothing was asked for: {calls:?}"
    );
    drop(taken);
    let taken = std::iter::repeat_with(|| bench.server.of_pods.take("u-1".into()));
    let taken: Vec<_> = taken.take_while(Option::is_some).collect();
    let (code, text) = bench.send(false, post(exec, "SPDY/3.1")).await;
    assert_eq!((taken.len(), code), (100, 429), "{text}");
    drop(taken);
    for upgrade in ["SPDY/3.1", "websocket"] {
        let (code, text) = bench.send(false, post(exec, upgrade)).await;
        assert_eq!(code, 500, "the scripted runtime has no streams");
        assert!(text.contains("Unimplemented"), "{text}");
    }
}

#[tokio::test]
async fn metrics_and_a_taken_port() {
    let bench = bench().await;
    let (code, text) = bench.get(Some("good"), "/metrics").await;
    assert_eq!(code, 200);
    assert!(
        text.contains("kubelet_running_containers{container_state=\"running\"} 1"),
        "{text}"
    );
    let error = bind(bench.address.ip(), bench.address.port(), "port")
        .await
        .expect_err("taken");
    assert_eq!(error.to_string(), format!("listen on {} for port", bench.address));
}

#[tokio::test]
async fn the_read_only_port_asks_nobody_and_changes_nothing() {
    let bench = bench().await;
    let get = async |method: &str, path: &str| {
        let socket = TcpStream::connect(bench.read_only).await.expect("connect");
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket))
            .await
            .expect("http");
        tokio::spawn(connection);
        let request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header("host", "node-a");
        let request = request.body(Empty::<bytes::Bytes>::new()).expect("request");
        let answer = sender.send_request(request).await.expect("an answer");
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("body").to_bytes();
        (code, String::from_utf8_lossy(&body).into_owned())
    };
    assert_eq!(get("GET", "/healthz").await, (200, "ok".into()));
    assert_eq!(get("GET", "/pods").await.0, 200);
    assert_eq!(get("GET", "/metrics").await.0, 200);
    assert_eq!(get("GET", "/stats/summary").await.0, 200);
    for (method, path) in [
        ("POST", "/run/ns/p/main"),
        ("GET", "/containerLogs/ns/p/main"),
        ("GET", "/configz"),
        ("GET", "/exec/ns/p/main"),
    ] {
        assert_eq!(
            get(method, path).await,
            (405, "Debug endpoints are disabled.\n".into()),
            "{path}"
        );
    }
}

#[tokio::test]
async fn what_runs_commands_or_shows_logs_can_be_switched_off() {
    let off = Handlers {
        debugging: false,
        ..Handlers::default()
    };
    let bench = bench_with(off, ServingTls::default()).await;
    for path in [
        "/exec/ns/p/main",
        "/%65xec/ns/p/main",
        "//exec/ns/p/main",
        "/exec%2Fns/p/main",
        "/containerLogs/ns/p/main",
        "/runningpods/",
        "/logs/kubelet.log",
    ] {
        let expected = (405, "Debug endpoints are disabled.\n".to_owned());
        assert_eq!(bench.get(Some("good"), path).await, expected, "{path}");
        assert_eq!(
            bench.get(None, path).await.0,
            401,
            "strangers are not even told: {path}"
        );
    }
    for path in ["/configz", "//configz", "/%63onfigz"] {
        assert_eq!(bench.get(Some("good"), path).await.0, 404, "{path}");
    }
    assert_eq!(bench.get(Some("good"), "/pods").await.0, 200);
    let metrics = bench.get(Some("good"), "/metrics").await.1;
    let counted =
        r#"kubelet_http_requests_total{method="GET",path="exec",server_type="readwrite",long_running="true"} 4"#;
    assert!(metrics.contains(counted), "{metrics}");
}
