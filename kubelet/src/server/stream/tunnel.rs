//! A tunnel from an upgraded request to the runtime's streaming server.

use crate::server::answer::{self, Answer};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
const BUFFER: usize = 32 << 10;
/// Longest refusal passed on to the client.
const REFUSAL_MAX: usize = 64 << 10;

/// Why there is no tunnel.
#[derive(Debug, thiserror::Error)]
enum TunnelError {
    #[error("the runtime's streaming URL {0:?} is not of the form http://host:port/path")]
    Url(String),
    #[error("connect to the runtime's streaming server {0}: {1}")]
    Connect(String, io::Error),
    #[error("the runtime's streaming server did not answer in time")]
    Deadline,
    #[error("the runtime's streaming server: {0}")]
    Http(#[from] hyper::Error),
    #[error("request to the runtime's streaming server: {0}")]
    Request(#[from] http::Error),
}

/// Passes the request on to `url`; when the runtime upgrades, so does the answer, and bytes flow until both ends are done or
/// nothing has moved for `idle`.
pub(super) async fn tunnel(url: &str, request: Request<Incoming>, idle: Duration) -> Answer {
    match connect(url, request, idle).await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::warn!(%error, "stream not opened");
            answer::text(502, &format!("{error}\n"))
        }
    }
}

async fn connect(url: &str, mut request: Request<Incoming>, idle: Duration) -> Result<Answer, TunnelError> {
    let bad = || TunnelError::Url(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| bad())?;
    let authority = uri.authority().ok_or_else(bad)?.clone();
    if uri.scheme_str() != Some("http") {
        return Err(bad());
    }
    let place = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
    let socket = tokio::time::timeout(CONNECT_DEADLINE, TcpStream::connect(&place)).await;
    let socket = socket
        .map_err(|_| TunnelError::Deadline)?
        .map_err(|e| TunnelError::Connect(place, e))?;
    let _ = socket.set_nodelay(true);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "runtime stream ended");
        }
    });
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    let mut passed = Request::builder().method(request.method().clone()).uri(path);
    for (name, value) in request.headers() {
        // The runtime is not told who the client is.
        if name != HOST && name != AUTHORIZATION {
            passed = passed.header(name, value);
        }
    }
    let passed = passed.header(HOST, authority.as_str()).body(Empty::<Bytes>::new())?;
    let ours = hyper::upgrade::on(&mut request);
    let answered = tokio::time::timeout(ANSWER_DEADLINE, sender.send_request(passed)).await;
    let mut answered = answered.map_err(|_| TunnelError::Deadline)??;
    if answered.status() != StatusCode::SWITCHING_PROTOCOLS {
        return refusal(answered).await;
    }
    let theirs = hyper::upgrade::on(&mut answered);
    let mut out = Response::new(answer::whole(Bytes::new()));
    *out.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *out.headers_mut() = answered.headers().clone();
    tokio::spawn(join(ours, theirs, idle));
    Ok(out)
}

/// The runtime did not upgrade: what it said goes to the client.
async fn refusal(answered: Response<Incoming>) -> Result<Answer, TunnelError> {
    let code = answered.status().as_u16();
    let body = http_body_util::Limited::new(answered.into_body(), REFUSAL_MAX);
    let text = match tokio::time::timeout(ANSWER_DEADLINE, body.collect()).await {
        Ok(Ok(whole)) => String::from_utf8_lossy(&whole.to_bytes()).into_owned(),
        _ => String::new(),
    };
    // A runtime that redirects or claims success without upgrading has failed all the same.
    let code = if code >= 400 { code } else { 502 };
    Ok(answer::text(code, &text))
}

async fn join(ours: OnUpgrade, theirs: OnUpgrade, idle: Duration) {
    let both = tokio::time::timeout(ANSWER_DEADLINE, async { tokio::try_join!(ours, theirs) }).await;
    let (client, runtime) = match both {
        Ok(Ok(both)) => both,
        Ok(Err(error)) => {
            tracing::debug!(%error, "connection not upgraded");
            return;
        }
        Err(_) => return,
    };
    copy_both(
        TokioIo::<Upgraded>::new(client),
        TokioIo::<Upgraded>::new(runtime),
        idle,
    )
    .await;
}

/// Copies both ways. The client's end closes the runtime's input and leaves the answer open; the runtime's end is the end:
/// nobody is left to read what the client still sends (a command that ended before its input).
async fn copy_both(a: impl AsyncRead + AsyncWrite, b: impl AsyncRead + AsyncWrite, idle: Duration) {
    let (a_read, a_write) = tokio::io::split(a);
    let (b_read, b_write) = tokio::io::split(b);
    let moved = Arc::new(watch::Sender::new(Instant::now()));
    let silence = moved.subscribe();
    tokio::pin!(a_read, a_write, b_read, b_write);
    let copying = async {
        let up = copy(a_read, b_write, &moved);
        let down = copy(b_read, a_write, &moved);
        tokio::pin!(up, down);
        tokio::select! {
            biased;
            _ = &mut down => {}
            _ = &mut up => drop(down.await),
        }
    };
    tokio::select! {
        biased;
        () = copying => {}
        () = silent_for(silence, idle) => tracing::info!("stream closed: nothing moved for too long"),
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: &watch::Sender<Instant>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let size = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(size) => size,
        };
        moved.send_replace(Instant::now());
        to.write_all(&buffer[..size]).await?;
        to.flush().await?;
    }
    to.shutdown().await
}

/// Ends when the last movement is `idle` ago.
async fn silent_for(moved: watch::Receiver<Instant>, idle: Duration) {
    loop {
        let until = *moved.borrow() + idle;
        if Instant::now() >= until {
            return;
        }
        tokio::time::sleep_until(until).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_direction_may_end_before_the_other() {
        let (mut client, near) = tokio::io::duplex(64);
        let (far, mut runtime) = tokio::io::duplex(64);
        let task = tokio::spawn(copy_both(near, far, Duration::from_secs(60)));
        client.write_all(b"input").await.expect("write");
        client.shutdown().await.expect("half closed");
        let mut got = Vec::new();
        runtime.read_to_end(&mut got).await.expect("read");
        assert_eq!(got, b"input");
        runtime.write_all(b"still talking").await.expect("write");
        drop(runtime);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.expect("read");
        assert_eq!(answer, b"still talking");
        task.await.expect("ended");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_a_stream_and_traffic_keeps_it() {
        let (mut client, near) = tokio::io::duplex(64);
        let (far, _runtime) = tokio::io::duplex(64);
        let begun = Instant::now();
        let task = tokio::spawn(copy_both(near, far, Duration::from_secs(10)));
        tokio::time::sleep(Duration::from_secs(6)).await;
        client.write_all(b"x").await.expect("write");
        task.await.expect("ended");
        assert_eq!(begun.elapsed().as_secs(), 16);
    }

    /// A runtime's streaming server that takes one connection, answers with `head` and then echoes.
    async fn streaming_server(head: &'static str) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port");
        let url = format!("http://{}/exec/token?x=1", listener.local_addr().expect("address"));
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.expect("connection");
            let request = read_head(&mut socket).await;
            assert!(request.starts_with("POST /exec/token?x=1 HTTP/1.1\r\n"), "{request}");
            assert!(
                request.to_lowercase().contains("x-stream-protocol-version: v4"),
                "{request}"
            );
            assert!(!request.to_lowercase().contains("authorization"), "{request}");
            socket.write_all(head.as_bytes()).await.expect("write");
            let (mut from, mut to) = socket.split();
            let _ = tokio::io::copy(&mut from, &mut to).await;
        });
        url
    }

    async fn read_head(socket: &mut TcpStream) -> String {
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            text.push(socket.read_u8().await.expect("a byte"));
        }
        String::from_utf8(text).expect("text")
    }

    /// Sends an upgrade request through a server that tunnels to `url`.
    async fn ask(url: String) -> TcpStream {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port");
        let address = listener.local_addr().expect("address");
        tokio::spawn(async move {
            let (socket, _) = listener.accept().await.expect("connection");
            let service = hyper::service::service_fn(move |request| {
                let url = url.clone();
                async move { Ok::<_, std::convert::Infallible>(tunnel(&url, request, Duration::from_secs(60)).await) }
            });
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service);
            let _ = connection.with_upgrades().await;
        });
        let mut client = TcpStream::connect(address).await.expect("connect");
        let head = "POST /exec/ns/p/c HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";
        client.write_all(head.as_bytes()).await.expect("write");
        client
    }

    #[tokio::test]
    async fn bytes_flow_after_an_upgrade() {
        let url = streaming_server("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n").await;
        let mut client = ask(url).await;
        let head = read_head(&mut client).await.to_lowercase();
        assert!(head.starts_with("http/1.1 101"), "{head}");
        assert!(head.contains("x-stream-protocol-version: v4.channel.k8s.io"), "{head}");
        let sent: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        let mut got = Vec::new();
        let (mut from, mut to) = client.split();
        let (_, read) = tokio::join!(
            async {
                to.write_all(&sent).await.expect("write");
                to.shutdown().await.expect("half close");
            },
            from.read_to_end(&mut got)
        );
        read.expect("read");
        assert!(got == sent, "{} of {} bytes came back", got.len(), sent.len());
    }

    #[tokio::test]
    async fn a_refusal_is_passed_on_and_a_redirect_is_not_followed() {
        let refused = streaming_server("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno").await;
        assert!(read_head(&mut ask(refused).await).await.starts_with("HTTP/1.1 404"));
        let redirect =
            streaming_server("HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n").await;
        assert!(read_head(&mut ask(redirect).await).await.starts_with("HTTP/1.1 502"));
        assert!(
            read_head(&mut ask("https://x/".into()).await)
                .await
                .starts_with("HTTP/1.1 502")
        );
    }
}
