use super::*;

#[test]
fn first_lines_are_read() {
    for (head, expected) in [
        ("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", Some(("GET", "/healthz"))),
        ("HEAD /metrics?x=1 HTTP/1.0\r\n\r\n", Some(("HEAD", "/metrics"))),
        ("GET http://node:10256/livez HTTP/1.1\n\n", Some(("GET", "/livez"))),
        ("GET http://node HTTP/1.1\r\n\r\n", Some(("GET", "/"))),
        ("get / HTTP/1.1\r\n\r\n", None),
        ("GET / HTTP/2.0\r\n\r\n", None),
        ("GET / x HTTP/1.1\r\n\r\n", None),
        ("GET healthz HTTP/1.1\r\n\r\n", None),
        ("GET /\r\n\r\n", None),
        ("\r\n\r\n", None),
        ("\u{16}\u{3}\u{1}", None),
    ] {
        let read = request(head.as_bytes());
        let read = read.as_ref().map(|read| (read.method.as_str(), read.path.as_str()));
        assert_eq!(read, expected, "{head:?}");
    }
}

#[test]
fn answers_are_written_with_their_length() {
    let answer = Answer {
        headers: vec![("X-Load-Balancing-Endpoint-Weight", "2".to_owned())],
        ..Answer::json(503, "{}".to_owned())
    };
    let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\
                X-Load-Balancing-Endpoint-Weight: 2\r\n\r\n";
    assert_eq!(answer.write(false), format!("{head}{{}}"));
    assert_eq!(answer.write(true), head);
}

#[test]
fn no_address_takes_all_places_and_places_come_back() {
    let places = Arc::new(Places::default());
    let address = |last: u8| IpAddr::from([10, 0, 0, last]);
    let of_one: Vec<Option<Place>> = (0..=OF_ADDRESS_MAX).map(|_| places.take(address(1))).collect();
    assert_eq!(of_one.iter().flatten().count(), OF_ADDRESS_MAX);
    let others: Vec<Option<Place>> = (2..=255).map(|last| places.take(address(last))).collect();
    assert_eq!(others.iter().flatten().count(), CONNECTIONS_MAX - OF_ADDRESS_MAX);
    drop((of_one, others));
    assert!(places.take(address(1)).is_some());
    assert!(
        places.0.lock().unwrap().is_empty(),
        "nothing is kept of those that are gone"
    );
}

/// A server on a port of the kernel's choice.
async fn server(stop: &CancellationToken) -> SocketAddr {
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let handler: Handler = Arc::new(|request| Answer::text(200, format!("{} {}", request.method, request.path)));
    tokio::spawn(serve(listener, handler, stop.clone()));
    address
}

async fn say(address: SocketAddr, words: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(words).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn requests_are_answered_and_nonsense_refused() {
    let stop = CancellationToken::new();
    let address = server(&stop).await;
    let answer = say(address, b"GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nGET /a"),
        "{answer}"
    );
    let answer = say(address, b"HEAD / HTTP/1.1\r\n\r\n").await;
    assert!(
        answer.contains("Content-Length: 6") && answer.ends_with("\r\n\r\n"),
        "{answer}"
    );
    let answer = say(address, b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello").await;
    assert!(answer.ends_with("POST /"), "{answer}");
    let answer = say(address, b"\x16\x03\x01\n\n").await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let answer = say(address, &[b'x'; HEAD_BYTES_MAX]).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    stop.cancel();
}

#[tokio::test]
async fn the_end_closes_connections() {
    let stop = CancellationToken::new();
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let handler: Handler = Arc::new(|_| Answer::not_found());
    let served = tokio::spawn(serve(listener, handler, stop.clone()));
    let mut silent = TcpStream::connect(address).await.unwrap();
    // Once another one has been answered, the silent one was accepted before it.
    assert!(
        say(address, b"GET / HTTP/1.1\r\n\r\n")
            .await
            .starts_with("HTTP/1.1 404 ")
    );
    stop.cancel();
    served.await.unwrap();
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn whoever_does_not_finish_loses_its_place() {
    let stop = CancellationToken::new();
    let address = server(&stop).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    silent.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
    let mut answer = Vec::new();
    silent.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 408 "), "{answer:?}");
    assert!(say(address, b"GET /b HTTP/1.1\r\n\r\n").await.ends_with("GET /b"));
    stop.cancel();
}
