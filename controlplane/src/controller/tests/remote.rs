//! The same controllers over a real socket: TLS, HTTP/2, a kubeconfig file.

use super::*;
use crate::apiserver::service::serve;
use client::connect;
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Serves over TLS on loopback; gives the port and the certificate to trust.
async fn served(server: ApiServer, shutdown: CancellationToken) -> (u16, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (_keep, tls) = watch::channel(Arc::new(tls));
        serve(listener, tls, server, shutdown).await;
    });
    (port, certificate.pem())
}

fn kubeconfig(port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://localhost:{port}', certificate-authority: ca.pem}}}}]\n\
         users: [{{name: u, user: {{token: secret}}}}]\n"
    )
}

#[tokio::test]
async fn controllers_work_over_one_http2_connection() {
    let parts = Parts {
        store: Arc::new(Memory::new()),
        clock: Arc::new(client::SystemClock),
        seed: 7,
        gate: Arc::new(crate::apiserver::gate::Open),
    };
    let server = ApiServer::new(parts).await.unwrap();
    let shutdown = CancellationToken::new();
    let (port, pem) = served(server, shutdown.clone()).await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("ca.pem"), pem).unwrap();
    let path = dir.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig(port)).unwrap();
    let client = connect::from_kubeconfig(&path, &connect::Options::new("test"))
        .await
        .unwrap();
    let request = Request::get("/api").body(kube::client::Body::empty()).unwrap();
    let reply = client.send(request).await.unwrap();
    assert_eq!((reply.version(), reply.status().as_u16()), (http::Version::HTTP_2, 200));
    let remote = client.clone();
    let client_for = Arc::new(move |_: &str| remote.clone());
    let controllers = spawn_all(ControllerContext {
        informers: read(&*client_for, 1, Kept::Asked),
        client_for,
        clock: Arc::new(client::SystemClock),
        seed: 1,
        cluster_cidr: None,
        root_ca_pem: tokio::sync::watch::channel("PEM".to_owned()).1,
        authority: None,
        sign: None,
        selection: Default::default(),
        rates: Default::default(),
        options: Default::default(),
        metrics: Arc::default(),
        shutdown: shutdown.clone(),
    });
    let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "default"}});
    call(&client, "POST", "/api/v1/namespaces", Some(namespace))
        .await
        .unwrap();
    let body = Some(deployment("web", 3, "nginx"));
    call(&client, "POST", "/apis/apps/v1/namespaces/default/deployments", body)
        .await
        .unwrap();
    let made = async {
        loop {
            let pods = call(&client, "GET", "/api/v1/namespaces/default/pods", None)
                .await
                .unwrap();
            if pods["items"].as_array().unwrap().len() == 3 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(60), made).await.expect("three pods");
    shutdown.cancel();
    timeout(Duration::from_secs(10), controllers.join_all())
        .await
        .expect("controllers end on shutdown");
}
