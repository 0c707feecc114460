//! Connections that ask for nothing, and many of one address.

use super::*;
use crate::server::doors::Limits;
use crate::server::listen::serve_tls_within;
use hyper::Version;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

const HOUR: Duration = Duration::from_secs(3600);

/// Whether the server ends the connection within an hour, which passes at once where nothing happens.
async fn is_ended(mut connection: impl AsyncRead + Unpin) -> bool {
    tokio::time::pause();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(HOUR, connection.read_to_end(&mut rest)).await;
    tokio::time::resume();
    // What the server did within the hour may take the kernel a moment.
    ended.is_ok()
        || tokio::time::timeout(Duration::from_secs(20), connection.read_to_end(&mut rest))
            .await
            .is_ok()
}

#[tokio::test]
async fn who_asks_for_nothing_is_not_waited_for() {
    let bench = bench().await;
    let silent = TcpStream::connect(bench.read_only).await.expect("connect");
    assert!(is_ended(silent).await, "without TLS");
    assert!(is_ended(bench.greeted(false).await).await, "after the handshake");
    // HTTP/2 whose peer is there but answers no question whether it is.
    let mut preface = bench.greeted_for(bench.address, false, &[b"h2"]).await;
    let settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    preface.write_all(settings).await.expect("sent");
    assert!(is_ended(preface).await, "after the preface");
    let mut idle = TcpStream::connect(bench.read_only).await.expect("connect");
    let asked = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";
    idle.write_all(asked).await.expect("sent");
    idle.read_u8().await.expect("an answer");
    assert!(is_ended(idle).await, "between requests");
}

#[tokio::test]
async fn http2_is_spoken_with_who_says_so() {
    let bench = bench().await;
    for (protocols, version) in [
        (&[b"h2".as_slice(), b"http/1.1"][..], Version::HTTP_2),
        (&[b"http/1.1"], Version::HTTP_11),
        (&[], Version::HTTP_11),
    ] {
        let stream = bench.greeted_for(bench.address, false, protocols).await;
        let stream = TokioIo::new(stream);
        let request = hyper::Request::get("https://node-a/pods").header("host", "node-a");
        let request = request.body(Empty::<bytes::Bytes>::new()).expect("request");
        let answer = if version == Version::HTTP_2 {
            let made = http2::handshake(TokioExecutor::new(), stream).await;
            let (mut sender, connection) = made.expect("http");
            tokio::spawn(connection);
            sender.send_request(request).await
        } else {
            let (mut sender, connection) = http1::handshake(stream).await.expect("http");
            tokio::spawn(connection);
            sender.send_request(request).await
        };
        let answer = answer.expect("an answer");
        assert_eq!((answer.status().as_u16(), answer.version()), (401, version));
    }
}

#[tokio::test]
async fn one_address_leaves_places_for_others() {
    let bench = bench().await;
    let connect = || async { TcpStream::connect(bench.read_only).await.expect("connect") };
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(connect().await);
    }
    let mut refused = connect().await;
    let read = refused.read(&mut [0]).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.2:0".parse().expect("an address")).expect("bound");
    let mut other = socket.connect(bench.read_only).await.expect("connect");
    let asked = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";
    other.write_all(asked).await.expect("sent");
    other.read_u8().await.expect("an answer");
}

/// A server with few places, and where it listens.
async fn narrow(bench: &Bench) -> SocketAddr {
    let limits = Limits {
        handshakes: 8,
        handshakes_of_address: 4,
        strangers: 3,
        of_address: 2,
        vouched_for: 2,
    };
    let listener = bind([127, 0, 0, 1].into(), 0, "test").await.expect("port");
    let address = listener.local_addr().expect("address");
    let (offered, server, stop) = (bench.offered.subscribe(), bench.server.clone(), bench.stop.clone());
    tokio::spawn(serve_tls_within(limits, listener, offered, server, stop));
    address
}

/// Whether a connection is served: it answers.
async fn is_served(mut stream: TlsStream) -> Option<impl Sized> {
    let asked = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";
    stream.write_all(asked).await.ok()?;
    stream.read_u8().await.ok()?;
    Some(stream)
}

/// Pods whose traffic is masqueraded come from the API server's own address.
#[tokio::test]
async fn silent_strangers_of_its_address_do_not_keep_the_authoritys_own_out() {
    let bench = bench().await;
    let address = narrow(&bench).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(address).await.expect("connect"));
    }
    let mut greeted = Vec::new();
    for _ in 0..2 {
        greeted.push(
            is_served(bench.greeted_at(address, false).await)
                .await
                .expect("a place"),
        );
    }
    let refused = is_served(bench.greeted_at(address, false).await).await;
    assert!(refused.is_none(), "strangers of one address have two places");
    for _ in 0..2 {
        greeted.push(is_served(bench.greeted_at(address, true).await).await.expect("a place"));
    }
    let beyond = is_served(bench.greeted_at(address, true).await).await;
    assert!(beyond.is_none(), "places are bounded for everybody");
}

#[tokio::test]
async fn an_older_tls_than_configured_is_refused() {
    let newest = ServingTls {
        tls13_only: true,
        ..ServingTls::default()
    };
    let bench = bench_with(Handlers::default(), newest).await;
    assert_eq!(bench.get(Some("good"), "/pods").await.0, 200, "TLS 1.3 is spoken");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let old = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .expect("a version")
        .with_root_certificates(bench.roots.clone())
        .with_no_client_auth();
    let socket = TcpStream::connect(bench.address).await.expect("connect");
    let name = ServerName::try_from("node-a").expect("name");
    let refused = tokio_rustls::TlsConnector::from(Arc::new(old))
        .connect(name, socket)
        .await;
    assert!(refused.expect_err("refused").to_string().contains("ProtocolVersion"));
}
