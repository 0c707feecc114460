//! The chain as a whole, over a real CA and a memory store.

use super::*;
use crate::apiserver::authz::Authz;
use crate::pki::{
    Identity,
    authority::{Authority, Subject},
    tls,
};
use crate::store::value::testing::as_stored;
use crate::store::window::Window;
use crate::store::{Expect, Store, memory::Memory};
use client::TokioClock;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls_pki_types::pem::PemObject;

const START: i64 = 1_800_000_000;

struct World {
    authn: Authn,
    reader: Reader,
    _window: Window,
    store: Arc<dyn Store>,
    authority: Authority,
    _dir: tempfile::TempDir,
}

fn now() -> Timestamp {
    Timestamp::from_second(START).unwrap()
}

async fn world(anonymous: bool) -> World {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::ensure(dir.path(), now()).unwrap();
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let window = Window::open(Arc::clone(&store)).await.unwrap();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let audiences = vec!["api".to_owned()];
    let tokens = Tokens::new(
        &key.serialize_pem(),
        &key.public_key_pem(),
        vec!["https://a".to_owned()],
        audiences,
    );
    let authn = Authn::new(AuthnParts {
        client_certificates: Some(tls::client_trust(authority.cert_pem(), None).unwrap()),
        token_file: TokenFile::parse("secret,static,7,\"g\"").unwrap(),
        tokens: Arc::new(tokens.unwrap()),
        anonymous,
        clock: Arc::new(TokioClock::starting_at(now())),
    });
    World {
        authn,
        reader: Reader::new(&window),
        _window: window,
        store,
        authority,
        _dir: dir,
    }
}

fn certificate(authority: &Authority, at: Timestamp) -> CertificateDer<'static> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let identity = Identity {
        cert_pem: authority
            .issue(&Subject::client("alice", &["dev".to_owned()]), &key, at)
            .unwrap(),
        key_pem: key.serialize_pem(),
    };
    CertificateDer::from_pem_slice(identity.cert_pem.as_bytes()).unwrap()
}

fn request(header: Option<(&str, &str)>) -> Parts {
    let mut request = http::Request::get("/");
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    request.body(()).unwrap().into_parts().0
}

impl World {
    async fn ask(&self, header: Option<(&str, &str)>, cert: Option<CertificateDer<'static>>) -> Result<User, u16> {
        let certs = cert.map(|cert| vec![cert]);
        let answer = self
            .authn
            .authenticate(&request(header), certs.as_deref(), &self.reader)
            .await;
        answer.map_err(|error| error.code)
    }

    async fn put(&self, key: &str, value: serde_json::Value) {
        let bytes = as_stored(key, &value);
        self.store.put(key, bytes, Expect::Absent).await.unwrap();
        self.reader.refresh().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn certificates_tokens_and_nothing() {
    let world = world(true).await;
    let user = world
        .ask(None, Some(certificate(&world.authority, now())))
        .await
        .unwrap();
    assert_eq!(
        (
            user.name.as_str(),
            user.is_in("dev"),
            user.is_in("system:authenticated")
        ),
        ("alice", true, true)
    );
    assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("X509SHA256="));
    let user = world.ask(Some(("authorization", "Bearer secret")), None).await.unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_deref()), ("static", Some("7")));
    assert_eq!(world.ask(None, None).await.unwrap().name, "system:anonymous");
}

#[test]
fn a_websocket_may_offer_one_token_beside_what_it_speaks() {
    let token = |upgrade: &str, offered: &str| {
        let mut headers = HeaderMap::new();
        headers.insert("upgrade", upgrade.parse().unwrap());
        headers.insert("sec-websocket-protocol", offered.parse().unwrap());
        socket_token(&headers)
    };
    let secret = format!("{}{}", websocket::BEARER, URL_SAFE_NO_PAD.encode("secret"));
    assert_eq!(token("websocket", &format!("a, {secret}")).as_deref(), Some("secret"));
    assert_eq!(token("websocket", "a"), None);
    assert_eq!(token("SPDY/3.1", &format!("a, {secret}")), None);
    for refused in [
        &secret,
        &format!("a, {secret}, {secret}"),
        &format!("a, {}%", websocket::BEARER),
    ] {
        assert_eq!(token("websocket", refused).as_deref(), Some(""), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_credential_is_never_anonymous() {
    let (ours, other) = (world(true).await, world(true).await);
    assert_eq!(ours.ask(Some(("authorization", "Bearer wrong")), None).await, Err(401));
    assert_eq!(
        ours.ask(None, Some(certificate(&other.authority, now()))).await,
        Err(401)
    );
    let old = now() - Duration::from_secs(400 * 86_400);
    assert_eq!(ours.ask(None, Some(certificate(&ours.authority, old))).await, Err(401));
    assert_eq!(world(false).await.ask(None, None).await, Err(401));
}

#[tokio::test(start_paused = true)]
async fn a_remembered_certificate_still_expires() {
    let world = world(true).await;
    let nearly = now() - Duration::from_secs(365 * 86_400 - 3600 - 30);
    let cert = certificate(&world.authority, nearly);
    assert!(world.ask(None, Some(cert.clone())).await.is_ok());
    tokio::time::advance(Duration::from_secs(40)).await;
    assert_eq!(world.ask(None, Some(cert)).await, Err(401));
}

#[tokio::test(start_paused = true)]
async fn bootstrap_tokens_come_from_secrets() {
    let world = world(true).await;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    world
        .put(
            "/registry/secrets/kube-system/bootstrap-token-abcdef",
            serde_json::json!({"metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token", "data": {
                "token-id": encode("abcdef"), "token-secret": encode("0123456789abcdef"),
                "usage-bootstrap-authentication": encode("true"), "expiration": encode("2027-01-15T08:01:00Z"),
                "auth-extra-groups": encode("system:bootstrappers:x,system:masters"),
            }}),
        )
        .await;
    let ask = || world.ask(Some(("authorization", "Bearer abcdef.0123456789abcdef")), None);
    let user = ask().await.unwrap();
    assert_eq!(user.name, "system:bootstrap:abcdef");
    assert!(user.is_in("system:bootstrappers:x") && !user.is_in("system:masters"));
    assert_eq!(
        world
            .ask(Some(("authorization", "Bearer abcdef.0123456789abcdee")), None)
            .await,
        Err(401)
    );
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(ask().await, Err(401));
}

#[tokio::test(start_paused = true)]
async fn impersonation_needs_the_right() {
    let world = world(true).await;
    let mut headers = http::HeaderMap::new();
    headers.insert("impersonate-user", "system:serviceaccount:ns:sa".parse().unwrap());
    let authz = Authz::default();
    let nobody = User::named("nobody", &[]);
    assert_eq!(
        impersonate(&nobody, &headers, &authz, &world.reader).unwrap_err().code,
        403
    );
    let root = User::named("root", &["system:masters"]);
    let user = impersonate(&root, &headers, &authz, &world.reader).unwrap().unwrap();
    assert_eq!(
        user.groups,
        [
            "system:serviceaccounts",
            "system:serviceaccounts:ns",
            "system:authenticated"
        ]
    );
    assert_eq!(
        impersonate(&root, &http::HeaderMap::new(), &authz, &world.reader).unwrap(),
        None
    );
}

#[tokio::test(start_paused = true)]
async fn another_trust_counts_at_once_also_for_what_is_remembered() {
    let (world, other) = (world(true).await, world(true).await);
    let (ours, theirs) = (
        certificate(&world.authority, now()),
        certificate(&other.authority, now()),
    );
    assert!(world.ask(None, Some(ours.clone())).await.is_ok());
    assert_eq!(world.ask(None, Some(theirs.clone())).await, Err(401));
    world
        .authn
        .trust(tls::client_trust(other.authority.cert_pem(), None).unwrap());
    assert_eq!(world.ask(None, Some(ours)).await, Err(401));
    assert!(world.ask(None, Some(theirs)).await.is_ok());
}
