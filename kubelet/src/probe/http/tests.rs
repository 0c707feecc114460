use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Answers each connection with the next reply; `{port}` in a reply is the server's own. Yields the requests seen.
async fn serve(replies: Vec<&'static str>) -> (u16, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let task = tokio::spawn(async move {
        let mut requests = Vec::new();
        for reply in replies {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut request = vec![0; 4096];
            let n = stream.read(&mut request).await.expect("a request");
            requests.push(String::from_utf8_lossy(&request[..n]).into_owned());
            stream
                .write_all(reply.replace("{port}", &port.to_string()).as_bytes())
                .await
                .expect("sent");
        }
        requests
    });
    (port, task)
}

fn to(port: u16) -> HttpCheck {
    HttpCheck {
        tls: false,
        host: "127.0.0.1".into(),
        port,
        path: "/live".into(),
        headers: Vec::new(),
    }
}

async fn run(replies: Vec<&'static str>) -> (Finding, Vec<String>) {
    let (port, server) = serve(replies).await;
    let finding = check(&to(port), "kube-probe/1.36", Duration::from_secs(5)).await;
    (finding, server.await.expect("the server lives"))
}

#[tokio::test]
async fn status_codes_decide() {
    let (finding, requests) = run(vec!["HTTP/1.1 204 No Content\r\n\r\n"]).await;
    assert_eq!(finding, Finding::Pass);
    let request = requests[0].to_lowercase();
    assert!(request.starts_with("get /live http/1.1"), "{request}");
    assert!(
        request.contains("user-agent: kube-probe/1.36") && request.contains("accept: */*"),
        "{request}"
    );
    let (finding, _) = run(vec!["HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno"]).await;
    assert_eq!(finding, Finding::Fail("HTTP probe failed with statuscode: 503".into()));
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_host_only() {
    let (finding, requests) = run(vec![
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{port}/next\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
    ])
    .await;
    assert_eq!(finding, Finding::Fail("HTTP probe failed with statuscode: 500".into()));
    assert!(requests[1].starts_with("GET /next"), "{}", requests[1]);
    let (finding, _) = run(vec![
        "HTTP/1.1 302 Found\r\nLocation: http://elsewhere.invalid/\r\nContent-Length: 0\r\n\r\n",
    ])
    .await;
    assert!(matches!(finding, Finding::Warning(_)), "{finding:?}");
}

#[tokio::test]
async fn a_refused_connection_and_a_silent_server_fail() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let silent = check(&to(port), "p", Duration::from_millis(100)).await;
    assert!(
        matches!(&silent, Finding::Fail(text) if text.contains("deadline exceeded")),
        "{silent:?}"
    );
    drop(listener);
    let refused = check(&to(port), "p", Duration::from_secs(5)).await;
    assert!(
        matches!(&refused, Finding::Fail(text) if text.contains("connection refused")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn own_headers_replace_the_defaults_and_empty_ones_remove_them() {
    let mut check = to(80);
    check.headers = vec![
        ("Host".into(), "example".into()),
        ("User-Agent".into(), "me".into()),
        ("Accept".into(), String::new()),
    ];
    let request = request(&check, "kube-probe/1.36").expect("a request");
    let get = |name: &str| {
        request
            .headers()
            .get(name)
            .map(|value| value.to_str().expect("text").to_owned())
    };
    assert_eq!(
        (get("host"), get("user-agent"), get("accept")),
        (Some("example".into()), Some("me".into()), None)
    );
}
