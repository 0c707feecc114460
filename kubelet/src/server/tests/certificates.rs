//! Client certificates: what they are worth is judged at each request.

use super::*;
use http_body_util::BodyExt;

/// About a thousand years, after which even the certificates of these tests have ended.
const AGES: i64 = 3000 * 365 * 24 * 3600;

/// An authority (`ca.crt`) that has signed one client certificate (`client.crt`, `client.key`), in place of what was there.
pub(super) fn client_of_new_authority(directory: &Path) {
    let authority = rcgen::KeyPair::generate().expect("key");
    let mut params = rcgen::CertificateParams::new(vec![]).expect("params");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&authority).expect("authority");
    std::fs::write(directory.join("ca.crt"), certificate.pem()).expect("ca");
    let issuer = rcgen::Issuer::new(params, authority);
    let key = rcgen::KeyPair::generate().expect("key");
    let mut params = rcgen::CertificateParams::new(vec![]).expect("params");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "good");
    let signed = params.signed_by(&key, &issuer).expect("signed");
    std::fs::write(directory.join("client.crt"), signed.pem()).expect("cert");
    std::fs::write(directory.join("client.key"), key.serialize_pem()).expect("key");
}

fn pods(token: Option<&str>) -> hyper::Request<Empty<bytes::Bytes>> {
    let mut request = hyper::Request::get("/pods").header("host", "node-a");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.body(Empty::new()).expect("request")
}

/// A connection that stays.
struct Kept(hyper::client::conn::http1::SendRequest<Empty<bytes::Bytes>>);

impl Kept {
    async fn open(bench: &Bench) -> Self {
        let stream = bench.greeted(true).await;
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.expect("http");
        tokio::spawn(connection);
        Self(sender)
    }

    async fn ask(&mut self, token: Option<&str>) -> u16 {
        self.0.ready().await.expect("open");
        let answer = self.0.send_request(pods(token)).await.expect("an answer");
        let code = answer.status().as_u16();
        answer.into_body().collect().await.expect("body");
        code
    }
}

#[tokio::test]
async fn a_certificate_that_ends_is_worth_nothing_on_a_connection_that_lives() {
    let bench = bench().await;
    let mut kept = Kept::open(&bench).await;
    assert_eq!((kept.ask(None).await, kept.ask(None).await), (200, 200));
    bench.clock.0.store(AGES, Ordering::SeqCst);
    assert_eq!(kept.ask(None).await, 401);
    assert_eq!(kept.ask(Some("good")).await, 200, "a token is still heard");
    bench.clock.0.store(0, Ordering::SeqCst);
    assert_eq!(kept.ask(None).await, 200);
}

#[tokio::test]
async fn a_certificate_whose_authority_goes_is_worth_nothing_on_a_connection_that_lives() {
    let bench = bench().await;
    let mut kept = Kept::open(&bench).await;
    assert_eq!(kept.ask(None).await, 200);
    client_of_new_authority(bench.dir.path());
    let authority = bench.dir.path().join("ca.crt");
    let pki = bench.dir.path().join("pki");
    let serving = |authority| Serving::self_signed(&pki, "node-a", &[], authority).expect("made");
    bench
        .offered
        .send_replace(serving(Some(&*authority)).config().expect("tls"));
    assert_eq!(kept.ask(None).await, 401);
    assert_eq!(bench.send(true, pods(None)).await.0, 200, "the new one's");
    bench.offered.send_replace(serving(None).config().expect("tls"));
    assert_eq!(kept.ask(None).await, 401);
}

/// Upstream only requests certificates: one of another authority is no reason to end the handshake.
#[tokio::test]
async fn a_strangers_certificate_names_nobody_and_a_token_beside_it_counts() {
    let bench = bench().await;
    client_of_new_authority(bench.dir.path());
    assert_eq!(bench.send(true, pods(None)).await, (401, "Unauthorized".into()));
    assert_eq!(bench.send(true, pods(Some("good"))).await.0, 200);
}

#[tokio::test]
async fn who_shows_a_strangers_certificate_is_not_taken_for_somebody_anonymous() {
    let bench = bench().await;
    let anonymous = Settings {
        anonymous: true,
        ..settings()
    };
    let auth = Auth::new(&anonymous, Some(api()), "node-a");
    let chain = |name: &str| vec![CertificateDer::from_pem_file(bench.dir.path().join(name)).expect("pem")];
    let peer = |chain: Option<Vec<_>>| Peer {
        address: bench.address,
        certificate: chain.map(|chain| ClientCertificate::new(chain, bench.offered.subscribe())),
    };
    let headers = hyper::HeaderMap::new();
    let now = Timestamp::now();
    let who = async |peer: Peer| auth.authenticate(&peer, now, &headers).await.expect("judged");
    assert_eq!(
        who(peer(None)).await.map(|user| user.name).as_deref(),
        Some("system:anonymous")
    );
    let own = who(peer(Some(chain("client.crt")))).await;
    assert_eq!(own.map(|user| user.name).as_deref(), Some("good"));
    client_of_new_authority(bench.dir.path());
    assert_eq!(who(peer(Some(chain("client.crt")))).await, None);
}
