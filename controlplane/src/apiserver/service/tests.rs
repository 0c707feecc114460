//! The server over a real socket: TLS, both HTTP versions, client certificates, many watches on one connection.

use super::*;
use crate::apiserver::gate::{Gate, Open};
use crate::apiserver::status::ApiError;
use crate::apiserver::user::User;
use crate::apiserver::{Body, Parts, Reader, admission, body};
use crate::store::memory::Memory;
use async_trait::async_trait;
use client::SystemClock;
use http::{Request, Version};
use http_body_util::BodyExt;
use hyper_util::rt::TokioExecutor;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use serde_json::{Value, json};

mod silent;
mod unread;

/// Takes the identity from the certificate's bytes, everything else is open.
struct ByCertificate;

#[async_trait]
impl Gate for ByCertificate {
    fn beneath(&self) -> Option<&dyn Gate> {
        Some(&Open)
    }

    async fn authenticate(
        &self,
        _parts: &http::request::Parts,
        peer: Option<&[CertificateDer<'static>]>,
        _reader: &Reader,
    ) -> Result<User, ApiError> {
        let [leaf, ..] = peer.unwrap_or_default() else {
            return Err(ApiError::unauthorized());
        };
        Ok(User::named(format!("{} bytes", leaf.len()), &[]))
    }

    async fn mutate(
        &self,
        attributes: &admission::Attributes<'_>,
        object: &mut Value,
        _: Option<&Value>,
        _: &Reader,
    ) -> Result<(), ApiError> {
        object["metadata"]["labels"] = json!({"by": attributes.user.name.split(' ').next()});
        Ok(())
    }
}

struct Fixture {
    server: ApiServer,
    connections: TaskTracker,
    port: u16,
    roots: rustls::RootCertStore,
    client: (CertificateDer<'static>, Vec<u8>),
    shutdown: CancellationToken,
    ended: tokio::task::JoinHandle<()>,
}

fn certificate(name: &str) -> (CertificateDer<'static>, Vec<u8>) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (certificate.der().clone(), key.serialize_der())
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl Fixture {
    async fn start() -> Self {
        Self::start_within(Timeouts::USUAL).await
    }

    async fn start_within(timeouts: Timeouts) -> Self {
        let own = certificate("localhost");
        let client = certificate("client");
        let mut client_roots = rustls::RootCertStore::empty();
        client_roots.add(client.0.clone()).unwrap();
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(client_roots), provider())
            .allow_unauthenticated()
            .build()
            .unwrap();
        let mut tls = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![own.0.clone()], PrivateKeyDer::try_from(own.1).unwrap())
            .unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut roots = rustls::RootCertStore::empty();
        roots.add(own.0).unwrap();
        let server = ApiServer::new(Parts {
            store: Arc::new(Memory::new()),
            clock: Arc::new(SystemClock),
            seed: 1,
            gate: Arc::new(ByCertificate),
        })
        .await
        .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shutdown = CancellationToken::new();
        let (_tls, tls) = watch::channel(Arc::new(tls));
        let connections = TaskTracker::new();
        let serving = serve_within(
            timeouts,
            connections.clone(),
            listener,
            tls,
            server.clone(),
            shutdown.clone(),
        );
        let ended = tokio::spawn(serving);
        Self {
            server,
            connections,
            port,
            roots,
            client,
            shutdown,
            ended,
        }
    }

    async fn connect(&self, protocol: &[u8], with_certificate: bool) -> tokio_rustls::client::TlsStream<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        self.shake_hands(stream, protocol, with_certificate).await
    }

    async fn shake_hands<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        protocol: &[u8],
        with_certificate: bool,
    ) -> tokio_rustls::client::TlsStream<S> {
        let builder = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots.clone());
        let mut config = if with_certificate {
            let key = PrivateKeyDer::try_from(self.client.1.clone()).unwrap();
            builder.with_client_auth_cert(vec![self.client.0.clone()], key).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        tokio_rustls::TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .unwrap()
    }
}

const MAPS: &str = "https://localhost/api/v1/namespaces/a/configmaps";

fn request(method: &str, uri: &str, body: &str) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(uri)
        .header("host", "localhost")
        .body(body::full(body.to_owned()))
        .unwrap()
}

#[tokio::test]
async fn http1_and_the_client_certificate_reach_the_request_path() {
    let fixture = Fixture::start().await;
    for (with_certificate, expected) in [(true, 201), (false, 401)] {
        let stream = fixture.connect(b"http/1.1", with_certificate).await;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        let driver = tokio::spawn(connection);
        let path = "/api/v1/namespaces/a/configmaps";
        let response = sender
            .send_request(request("POST", path, r#"{"metadata":{"name":"m"}}"#))
            .await
            .unwrap();
        assert_eq!(
            (response.version(), response.status().as_u16()),
            (Version::HTTP_11, expected)
        );
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let object: Value = serde_json::from_slice(&bytes).unwrap();
        if with_certificate {
            let size = fixture.client.0.len().to_string();
            assert_eq!(object["metadata"]["labels"]["by"], json!(size));
        }
        drop(sender);
        driver.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_request_may_have_hundreds_of_headers_over_http1() {
    let fixture = Fixture::start().await;
    let stream = fixture.connect(b"http/1.1", true).await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut many = request("GET", "/api/v1/namespaces/a/configmaps", "");
    for i in 0..400 {
        let name: http::HeaderName = format!("x-{i}").parse().unwrap();
        many.headers_mut().insert(name, http::HeaderValue::from_static("1"));
    }
    assert_eq!(sender.send_request(many).await.unwrap().status(), 200);
}

#[tokio::test]
async fn hundreds_of_watches_share_one_connection_and_end_with_the_server() {
    let fixture = Fixture::start().await;
    let stream = fixture.connect(b"h2", true).await;
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    let driver = tokio::spawn(connection);
    let mut watches = Vec::new();
    for _ in 0..300 {
        sender.ready().await.unwrap();
        let response = sender
            .send_request(request("GET", &format!("{MAPS}?watch=1"), ""))
            .await
            .unwrap();
        assert_eq!((response.version(), response.status().as_u16()), (Version::HTTP_2, 200));
        watches.push(response.into_body());
    }
    let created = sender
        .send_request(request("POST", MAPS, r#"{"metadata":{"name":"m"}}"#))
        .await
        .unwrap();
    assert_eq!(created.status(), 201);
    for watch in &mut watches {
        let frame = tokio::time::timeout(Duration::from_secs(20), watch.frame())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        let event: Value = serde_json::from_slice(&frame.into_data().unwrap()).unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["metadata"]["name"]),
            (&json!("ADDED"), &json!("m"))
        );
    }
    fixture.shutdown.cancel();
    for mut watch in watches {
        let end = tokio::time::timeout(Duration::from_secs(20), watch.frame())
            .await
            .unwrap();
        assert!(end.is_none_or(|frame| frame.is_ok_and(|frame| frame.into_data().is_ok_and(|data| data.is_empty()))));
    }
    drop(sender);
    tokio::time::timeout(Duration::from_secs(20), fixture.ended)
        .await
        .unwrap()
        .unwrap();
    // The client's side has nothing left to say; how it ends is not the point.
    let _ = driver.await;
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_limit_are_told_to_come_back() {
    /// Never finishes admission.
    struct Stuck;

    #[async_trait]
    impl Gate for Stuck {
        fn beneath(&self) -> Option<&dyn Gate> {
            Some(&Open)
        }

        async fn authenticate(
            &self,
            _: &http::request::Parts,
            _: Option<&[CertificateDer<'static>]>,
            _: &Reader,
        ) -> Result<User, ApiError> {
            Ok(User::named("u", &[]))
        }

        async fn mutate(
            &self,
            _: &admission::Attributes<'_>,
            _: &mut Value,
            _: Option<&Value>,
            _: &Reader,
        ) -> Result<(), ApiError> {
            std::future::pending().await
        }
    }

    let server = ApiServer::new(Parts {
        store: Arc::new(Memory::new()),
        clock: Arc::new(SystemClock),
        seed: 1,
        gate: Arc::new(Stuck),
    })
    .await
    .unwrap();
    let path = "/api/v1/namespaces/a/configmaps";
    // Without stored levels there is one beside the exempt one; a user has half of its places, and nobody waits in it.
    let body = r#"{"metadata":{"name":"m"}}"#;
    let all = futures::future::join_all((0..305).map(|_| server.handle(None, request("POST", path, body))));
    let codes: Vec<u16> = all.await.iter().map(|response| response.status().as_u16()).collect();
    let count = |wanted: u16| codes.iter().filter(|code| **code == wanted).count();
    assert_eq!(
        (count(429), count(504)),
        (5, 300),
        "those who had a place met their deadline"
    );
}
