//! Clients that read nothing or little, over real HTTP on a stream in memory: what they lose, and what the server gets back.

use super::silent::Deafened;
use super::*;
use crate::store::Expect;
use crate::store::value::testing::as_stored;
use client::TokioClock;
use hyper::client::conn::{http1, http2};
use std::sync::atomic::AtomicBool;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The collection.
const MAPS: &str = "/api/v1/namespaces/a/configmaps";
/// The server's.
const DEADLINE: Duration = Duration::from_secs(60);
/// A config map's data.
const DATA_BYTES: usize = 10_000;

async fn server(maps: usize) -> ApiServer {
    let server = ApiServer::new(Parts {
        store: Arc::new(Memory::new()),
        clock: Arc::new(TokioClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())),
        seed: 7,
        gate: Arc::new(ByCertificate),
    })
    .await
    .unwrap();
    for number in 0..maps {
        let name = format!("{number:05}");
        let object = json!({"metadata": {"name": name, "namespace": "a"}, "data": {"k": "x".repeat(DATA_BYTES)}});
        let key = format!("/registry/configmaps/a/{name}");
        let bytes = as_stored(&key, &object);
        server.store().put(&key, bytes, Expect::Absent).await.unwrap();
    }
    server.reader().refresh().await.unwrap();
    server
}

/// The server at one end of a stream that holds `buffer` bytes; the task ends with the connection.
fn connect(server: &ApiServer, buffer: usize) -> (DuplexStream, JoinHandle<()>) {
    let (near, far) = tokio::io::duplex(buffer);
    let patient = Patient::default();
    let stream = Impatient::new(far, Timeouts::USUAL.stall, Arc::clone(&patient));
    let peer = PeerCertificates(Arc::new(vec![CertificateDer::from(vec![0; 7])]));
    let connection = Connection {
        timeouts: Timeouts::USUAL,
        address: PeerAddress("192.0.2.1:1".parse().unwrap()),
        server: server.clone(),
        shutdown: CancellationToken::new(),
    };
    let talking = connection.talk(stream, Some(peer), patient);
    let serving = tokio::spawn(async move {
        drain::breakable(talking).await;
    });
    (near, serving)
}

/// An HTTP/2 client whose streams take `window` bytes unless read.
async fn http2(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    window: u32,
) -> (http2::SendRequest<Body>, JoinHandle<()>) {
    let (sender, connection) = http2::Builder::new(hyper_util::rt::TokioExecutor::new())
        .initial_stream_window_size(window)
        .initial_connection_window_size(window.max(65_535))
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let driver = tokio::spawn(async move {
        let _ = connection.await;
    });
    (sender, driver)
}

async fn send(sender: &mut http2::SendRequest<Body>, path: &str) -> http::Response<hyper::body::Incoming> {
    sender.ready().await.unwrap();
    let request = Request::get(format!("http://localhost{path}")).body(body::empty());
    sender.send_request(request.unwrap()).await.unwrap()
}

/// Whatever the replies, small or large, of a list or an object: unread they lose their streams and nothing of them stays.
#[tokio::test(start_paused = true)]
async fn an_unread_reply_is_reset_and_freed_and_its_connection_goes_on() {
    for (path, has_place) in [
        (MAPS, true),
        ("/api/v1/namespaces/a/configmaps/00001", true),
        ("/api/v1/namespaces/a/configmaps/nope", false),
        ("/api/v1/namespaces/a/configmaps?watch=1", false),
        ("/api/v1/namespaces/a/configmaps?limit=20&pretty=1", true),
    ] {
        let server = server(50).await;
        let (stream, serving) = connect(&server, 64 << 10);
        let (mut sender, driver) = http2(stream, 50).await;
        let mut unread = Vec::new();
        for _ in 0..20 {
            unread.push(send(&mut sender, path).await);
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        if has_place {
            assert_eq!(server.inflight(), (20, 0), "{path}: a place is kept until all is sent");
        }
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(server.inflight(), (0, 0), "{path}");
        assert_eq!(server.flow().reply_bytes(), 0, "{path}");
        assert_eq!(server.replies_on_their_way(), 0, "{path}: nothing of them is in memory");
        for response in unread {
            assert!(response.into_body().collect().await.is_err(), "{path}");
        }
        let other = send(&mut sender, &format!("{MAPS}?limit=1")).await;
        assert_eq!(other.status(), 200, "{path}: others on the connection are served");
        other.into_body().collect().await.unwrap();
        drop(sender);
        serving.await.unwrap();
        driver.await.unwrap();
    }
}

/// Watches that begin with much and are not read are told to come back once their user has no room left, and give it back.
#[tokio::test(start_paused = true)]
async fn the_state_that_watches_begin_with_has_a_lists_room() {
    const MAPS_COUNT: usize = 1_000;
    let server = server(MAPS_COUNT).await;
    let (stream, serving) = connect(&server, 64 << 10);
    let (sender, driver) = http2(stream, 50).await;
    let opening = (0..20).map(|_| {
        let mut sender = sender.clone();
        tokio::spawn(async move { send(&mut sender, &format!("{MAPS}?watch=1")).await })
    });
    let mut unread = Vec::new();
    for opened in opening.collect::<Vec<_>>() {
        unread.push(opened.await.unwrap());
    }
    let count = |code: u16| unread.iter().filter(|watch| watch.status() == code).count();
    // A user has 32 MiB, three times what there is.
    assert_eq!((count(200), count(429)), (3, 17));
    let held = server.flow().reply_bytes();
    assert!(
        (3 * MAPS_COUNT * DATA_BYTES..32 << 20).contains(&held),
        "{held} bytes are counted"
    );
    let mut few = sender.clone();
    let one = send(&mut few, &format!("{MAPS}?watch=1&fieldSelector=metadata.name=00001")).await;
    assert_eq!(one.status(), 200, "what a watch does not choose it does not hold");
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!((server.flow().reply_bytes(), server.inflight()), (0, (0, 0)));
    assert_eq!(server.replies_on_their_way(), 0);
    let mut watch = send(&mut few, &format!("{MAPS}?watch=1")).await.into_body();
    let mut seen = 0;
    while seen < MAPS_COUNT {
        let data = watch.frame().await.unwrap().unwrap().into_data().unwrap();
        seen += data.iter().filter(|byte| **byte == b'\n').count();
    }
    assert_eq!(
        (server.flow().reply_bytes(), server.inflight()),
        (0, (0, 0)),
        "once it is written"
    );
    drop((sender, few, watch, unread, one));
    serving.await.unwrap();
    driver.await.unwrap();
}

/// Over HTTP/1 the connection ends.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_not_read_ends() {
    let server = server(100).await;
    let (mut stream, serving) = connect(&server, 1024);
    let request = format!("GET {MAPS} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(server.inflight(), (1, 0));
    tokio::time::timeout(Duration::from_secs(40), serving)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((server.inflight(), server.replies_on_their_way()), ((0, 0), 0));
    let mut text = Vec::new();
    stream.read_to_end(&mut text).await.unwrap();
    assert!(text.len() <= 1024, "the client had what lay in the stream");
}

/// Over HTTP/2 too, if the client reads nothing of its socket, whether that is full or all fits in.
#[tokio::test(start_paused = true)]
async fn a_connection_of_many_streams_that_is_not_read_ends() {
    for (window, buffer) in [(1 << 30, 1024), (1 << 30, 64 << 10), (50, 64 << 10)] {
        let server = server(100).await;
        let (stream, serving) = connect(&server, buffer);
        let is_deaf = Arc::new(AtomicBool::new(false));
        let stream = Deafened {
            stream,
            is_deaf: Arc::clone(&is_deaf),
        };
        let (mut sender, _driver) = http2(stream, window).await;
        is_deaf.store(true, Ordering::Relaxed);
        let mut unanswered = Vec::new();
        for path in [MAPS, &format!("{MAPS}?watch=1")].repeat(5) {
            sender.ready().await.unwrap();
            let request = Request::get(format!("http://localhost{path}")).body(body::empty());
            unanswered.push(tokio::spawn(sender.send_request(request.unwrap())));
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(
            server.replies_on_their_way(),
            10,
            "a window of {window}, a buffer of {buffer}"
        );
        let ended = tokio::time::timeout(Duration::from_secs(80), serving).await;
        ended
            .unwrap_or_else(|_| panic!("a window of {window}, a buffer of {buffer}"))
            .unwrap();
        assert_eq!((server.inflight(), server.replies_on_their_way()), ((0, 0), 0));
    }
}

/// A slow reader is let be for as long as the request's time lasts, and no longer; a watch goes on.
#[tokio::test(start_paused = true)]
async fn who_reads_slowly_has_the_requests_time_and_no_more() {
    let server = server(500).await;
    let began = Instant::now();
    let (mut stream, serving) = connect(&server, 1024);
    let request = format!("GET {MAPS} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut buffer = [0; 1024];
    let mut total = 0;
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(read) => total += read,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    serving.await.unwrap();
    let lasted = began.elapsed();
    assert!(
        lasted >= DEADLINE && lasted <= DEADLINE + Duration::from_secs(10),
        "{lasted:?}"
    );
    assert!(total < 500 * DATA_BYTES);
    assert_eq!((server.inflight(), server.replies_on_their_way()), ((0, 0), 0));

    let (stream, _serving) = connect(&server, 64 << 10);
    let (mut sender, _driver) = http2(stream, 1_000).await;
    let mut list = send(&mut sender, MAPS).await.into_body();
    let mut watch = send(
        &mut sender,
        &format!("{MAPS}?watch=1&resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"),
    )
    .await;
    let began = Instant::now();
    while let Some(Ok(_)) = list.frame().await {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let lasted = began.elapsed();
    assert!(
        lasted >= DEADLINE && lasted <= DEADLINE + Duration::from_secs(10),
        "{lasted:?}"
    );
    assert_eq!(server.inflight(), (0, 0));
    let created = json!({"metadata": {"name": "new", "namespace": "a"}});
    let key = "/registry/configmaps/a/new";
    let bytes = as_stored(key, &created);
    server.store().put(key, bytes, Expect::Absent).await.unwrap();
    let event = watch.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&event).unwrap()["type"], "ADDED");
}

/// Everything arrives, in both versions, and places are given back once it has.
#[tokio::test(start_paused = true)]
async fn who_reads_has_all_of_it() {
    let server = server(200).await;
    let (stream, _serving) = connect(&server, 4096);
    let (mut sender, _driver) = http2(stream, 65_535).await;
    for _ in 0..3 {
        let text = send(&mut sender, MAPS)
            .await
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes();
        let list: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), 200);
    }
    let (stream, _serving) = connect(&server, 4096);
    let (mut sender, connection) = http1::handshake::<_, Body>(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for path in [MAPS, "/api/v1/namespaces/a/configmaps/00001", MAPS] {
        sender.ready().await.unwrap();
        let request = Request::get(path)
            .header("host", "localhost")
            .body(body::empty())
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        assert!(serde_json::from_slice::<Value>(&text).is_ok());
    }
    assert_eq!((server.inflight(), server.replies_on_their_way()), ((0, 0), 0));
}

/// A body that is sent too slowly is answered, and its connection ends over HTTP/1: the rest of it will not be read.
#[tokio::test(start_paused = true)]
async fn a_request_whose_body_never_ends_is_answered_and_ends() {
    let server = server(0).await;
    let (stream, serving) = connect(&server, 4096);
    let (mut reader, mut writer) = tokio::io::split(stream);
    let head = format!("POST {MAPS} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n");
    let sending = tokio::spawn(async move {
        writer.write_all(head.as_bytes()).await.unwrap();
        while writer.write_all(b"1\r\n \r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    });
    let mut text = Vec::new();
    reader.read_to_end(&mut text).await.unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("HTTP/1.1 504 "), "{text}");
    serving.await.unwrap();
    assert_eq!((server.flow().body_bytes(), server.inflight()), (0, (0, 0)));
    sending.await.unwrap();
}
