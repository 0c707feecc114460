//! Logs and upgrades through the daemon to a kubelet that only pretends to be one: TLS, client certificate, streams, half-close.

#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use client::SystemClock;
use controlplane::apiserver::user::User;
use controlplane::config::{Config, flags};
use controlplane::daemon::{Daemon, Host};
use futures::StreamExt;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

type Content = BoxBody<Bytes, Infallible>;

/// What the pretended kubelet was asked, head by head.
type Seen = mpsc::UnboundedReceiver<(http::request::Parts, Option<Vec<u8>>)>;

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A kubelet on a loopback port: streams logs that never end, echoes upgraded streams and says `bye` after their end.
async fn kubelet(client_ca: &str) -> (u16, Seen) {
    let issued = rcgen::generate_simple_self_signed(["anything".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(issued.signing_key.serialize_der()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(client_ca.as_bytes()).unwrap())
        .unwrap();
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![issued.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await.unwrap();
                let peer = stream.get_ref().1.peer_certificates().map(|chain| chain[0].to_vec());
                let service = service_fn(move |request: Request<Incoming>| {
                    let (sender, peer) = (sender.clone(), peer.clone());
                    async move { Ok::<_, Infallible>(answer(request, &sender, peer)) }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection
                    .serve_connection(TokioIo::new(stream), service)
                    .with_upgrades()
                    .await;
            });
        }
    });
    (port, seen)
}

fn answer(
    mut request: Request<Incoming>,
    sender: &mpsc::UnboundedSender<(http::request::Parts, Option<Vec<u8>>)>,
    peer: Option<Vec<u8>>,
) -> Response<Content> {
    let upgraded = hyper::upgrade::on(&mut request);
    let (parts, _) = request.into_parts();
    let (path, wants_upgrade) = (parts.uri.path().to_owned(), parts.headers.contains_key("upgrade"));
    sender.send((parts, peer)).unwrap();
    if path.starts_with("/exec/default/moved") {
        return Response::builder()
            .status(302)
            .header("location", "https://192.0.2.1/steal")
            .body(Empty::new().boxed())
            .unwrap();
    }
    if path.starts_with("/containerLogs/default/broken") {
        let text = http_body_util::Full::new(Bytes::from_static(b"container \"c\" is waiting to start"));
        return Response::builder().status(400).body(text.boxed()).unwrap();
    }
    if !wants_upgrade {
        let first = futures::stream::iter([Ok(Frame::data(Bytes::from_static(b"first line\n")))]);
        let endless = first.chain(futures::stream::pending());
        return Response::new(BodyExt::boxed(StreamBody::new(endless)));
    }
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgraded.await.unwrap());
        let mut buffer = [0; 1024];
        loop {
            match stream.read(&mut buffer).await.unwrap() {
                0 => break,
                count => stream.write_all(&buffer[..count]).await.unwrap(),
            }
        }
        stream.write_all(b"bye").await.unwrap();
        stream.shutdown().await.unwrap();
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "Upgrade")
        .header("upgrade", "SPDY/3.1")
        .header("x-stream-protocol-version", "v4.channel.k8s.io")
        .body(Empty::new().boxed())
        .unwrap()
}

struct World {
    daemon: Daemon,
    port: u16,
    seen: Seen,
    dir: tempfile::TempDir,
}

async fn world(pods: &[&str]) -> World {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&tokens, "root,root,1,\"system:masters\"\nviewer,viewer,2\n").unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let words = [
        format!("--data-dir={}", dir.path().display()),
        "--store=memory".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={free}"),
        format!("--token-auth-file={}", tokens.display()),
    ];
    let config = Config::resolve(&flags::parse(words)).unwrap();
    let host = Host {
        clock: Arc::new(SystemClock),
        seed: 1,
        hostname: "test".to_owned(),
        address: "127.0.0.1".parse().unwrap(),
        proc: "/proc".into(),
    };
    let daemon = Daemon::start(&config, host).await.unwrap();
    let ca = std::fs::read_to_string(dir.path().join("pki/ca.crt")).unwrap();
    let (kubelet_port, seen) = kubelet(&ca).await;
    let client = daemon.server().client_as(User::named("root", &["system:masters"]));
    let send = async |method: &str, uri: &str, object: Value| {
        let media = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let request = Request::builder().method(method).uri(uri).header("content-type", media);
        let request = request.body(object.to_string().into_bytes()).unwrap();
        client.request::<Value>(request).await.unwrap()
    };
    send("POST", "/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}}}});
    send("PATCH", "/api/v1/nodes/n/status", status).await;
    for pod in pods {
        let pod =
            json!({"metadata": {"name": pod}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
        send("POST", "/api/v1/namespaces/default/pods", pod).await;
    }
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/exec"]});
    let role = json!({"metadata": {"name": "get-exec"}, "rules": [rule]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    send("POST", &format!("{rbac}/clusterroles"), role).await;
    let binding = json!({"metadata": {"name": "viewer"}, "subjects": [{"kind": "User", "name": "viewer"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "get-exec"}});
    send("POST", &format!("{rbac}/clusterrolebindings"), binding).await;
    World {
        daemon,
        port: free,
        seen,
        dir,
    }
}

impl World {
    /// Sends one request over a connection of its own.
    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response<Incoming> {
        let mut roots = rustls::RootCertStore::empty();
        let ca = std::fs::read(self.dir.path().join("pki/ca.crt")).unwrap();
        roots.add(CertificateDer::from_pem_slice(&ca).unwrap()).unwrap();
        let tls = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tcp = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = tokio_rustls::TlsConnector::from(Arc::new(tls))
            .connect(name, tcp)
            .await
            .unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        sender
            .send_request(request.body(Empty::<Bytes>::new()).unwrap())
            .await
            .unwrap()
    }
}

const POD: &str = "/api/v1/namespaces/default/pods";
const ROOT: (&str, &str) = ("authorization", "Bearer root");
const SPDY: [(&str, &str); 2] = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];

async fn text(response: Response<Incoming>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_come_line_by_line_and_errors_as_status() {
    let mut world = world(&["p", "broken"]).await;
    let mut response = world
        .ask("GET", &format!("{POD}/p/log?follow=true&tailLines=3"), &[ROOT])
        .await;
    assert_eq!(response.status(), 200);
    // The stream has not ended; the line is there all the same.
    let frame = tokio::time::timeout(Duration::from_secs(20), response.frame())
        .await
        .unwrap();
    assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "first line\n");
    let (parts, peer) = world.seen.recv().await.unwrap();
    assert_eq!(parts.uri, "/containerLogs/default/p/c?follow=true&tailLines=3");
    assert!(!parts.headers.contains_key("authorization"));
    assert!(peer.is_some(), "the client certificate was shown");
    let response = world.ask("GET", &format!("{POD}/broken/log"), &[ROOT]).await;
    assert_eq!(response.status(), 400);
    let status: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(status["message"], "container \"c\" is waiting to start");
    let response = world.ask("GET", &format!("{POD}/none/log"), &[ROOT]).await;
    assert_eq!(response.status(), 404);
    world.daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgraded_stream_carries_bytes_both_ways_and_ends_in_halves() {
    let mut world = world(&["p"]).await;
    let path = format!("{POD}/p/exec?command=cat&stdin=true&stdout=true");
    let headers = [
        ROOT,
        SPDY[0],
        SPDY[1],
        ("x-stream-protocol-version", "v4.channel.k8s.io"),
    ];
    let response = world.ask("POST", &path, &headers).await;
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["x-stream-protocol-version"], "v4.channel.k8s.io");
    let (parts, _) = world.seen.recv().await.unwrap();
    assert_eq!(parts.uri, "/exec/default/p/c?input=1&output=1&command=cat");
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    let sent: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
    let (mut read, mut write) = tokio::io::split(&mut stream);
    let (_, echoed) = tokio::join!(
        async {
            write.write_all(&sent).await.unwrap();
            write.shutdown().await.unwrap();
        },
        async {
            let mut echoed = Vec::new();
            let all = read.read_to_end(&mut echoed);
            tokio::time::timeout(Duration::from_secs(30), all)
                .await
                .unwrap()
                .unwrap();
            echoed
        }
    );
    assert_eq!(echoed.len(), sent.len() + 3);
    assert!(echoed.starts_with(&sent) && echoed.ends_with(b"bye"));
    world.daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_must_not_pass_does_not() {
    let mut world = world(&["p", "moved"]).await;
    let exec = |pod: &str| format!("{POD}/{pod}/exec?command=cat&stdin=true");
    let root = [ROOT, SPDY[0], SPDY[1]];
    // A node that redirects would send the API server's credentials elsewhere.
    let response = world.ask("POST", &exec("moved"), &root).await;
    assert_eq!(response.status(), 502);
    world.seen.recv().await.unwrap();
    // Reading is not enough to run something, whatever the method.
    let viewer = [("authorization", "Bearer viewer"), SPDY[0], SPDY[1]];
    let response = world.ask("GET", &exec("p"), &viewer).await;
    assert_eq!(response.status(), 403);
    assert!(
        text(response)
            .await
            .contains("cannot create resource \\\"pods/exec\\\"")
    );
    // kubectl tries WebSocket first and falls back when this is not 101.
    let socket = [
        ROOT,
        SPDY[0],
        ("upgrade", "websocket"),
        ("sec-websocket-protocol", "v5.channel.k8s.io"),
    ];
    let response = world.ask("GET", &exec("p"), &socket).await;
    assert_eq!(response.status(), 400);
    assert_eq!(world.ask("POST", &exec("p"), &[ROOT]).await.status(), 400);
    assert!(world.seen.try_recv().is_err(), "the kubelet heard of none of these");
    world.daemon.stop().await;
}
