//! A tunnel from an upgraded request to the runtime's streaming server.

use super::Place;
use crate::server::answer::{self, Answer};
use bytes::Bytes;
use futures::FutureExt;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use streaming::translate::{self, Streams};
use streaming::websocket;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
/// The version of a remote command's streams over SPDY.
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const PORT_FORWARD_PROTOCOL: &str = "portforward.k8s.io";
const BUFFER: usize = 32 << 10;
/// How long the runtime may say nothing more once the client is gone, before it is left.
const GONE: Duration = Duration::from_secs(30);
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

/// How what a client upgraded to reaches the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Both speak the same: byte by byte.
    AsItIs,
    /// A remote command over a WebSocket that is accepted with these headers, over SPDY for the runtime.
    Channels(Streams, HeaderMap),
    /// SPDY inside a WebSocket that is accepted with these headers, unwrapped for the runtime.
    Unwrapped(HeaderMap),
}

/// Passes the request on to `url`; when the runtime upgrades, so does the answer, and what is said flows until both ends are
/// done or nothing has moved for `idle`; it keeps its place until then.
pub(super) async fn tunnel(url: &str, request: Request<Incoming>, way: Way, idle: Duration, place: Place) -> Answer {
    let opened = match way {
        Way::AsItIs => connect(url, request, idle, place).await,
        Way::Channels(streams, accepted) => connect_socket(url, request, (accepted, Some(streams)), idle, place).await,
        Way::Unwrapped(accepted) => connect_socket(url, request, (accepted, None), idle, place).await,
    };
    opened.unwrap_or_else(|error| {
        tracing::warn!(%error, "stream not opened");
        answer::text(502, &format!("{error}\n"))
    })
}

/// The runtime speaks what the client does.
async fn connect(
    url: &str,
    mut request: Request<Incoming>,
    idle: Duration,
    place: Place,
) -> Result<Answer, TunnelError> {
    let mut headers = request.headers().clone();
    // The runtime is not told who the client is.
    headers.remove(AUTHORIZATION);
    websocket::remove_credentials(&mut headers);
    let ours = hyper::upgrade::on(&mut request);
    let answered = send(url, request.method().clone(), headers).await?;
    let (theirs, headers) = match answered {
        Answered::Upgraded(theirs, headers) => (theirs, headers),
        Answered::Refused(refusal) => return Ok(refusal),
    };
    tokio::spawn(
        async move {
            if let Some((client, runtime)) = join(ours, theirs).await {
                copy_both(client, runtime, idle).await;
            }
            drop(place);
        }
        .boxed(),
    );
    Ok(upgraded(headers))
}

/// The client speaks WebSocket, the runtime SPDY.
async fn connect_socket(
    url: &str,
    mut request: Request<Incoming>,
    (accepted, streams): (HeaderMap, Option<Streams>),
    idle: Duration,
    place: Place,
) -> Result<Answer, TunnelError> {
    let needed = match streams {
        Some(_) => translate::SPDY_PROTOCOL,
        None => PORT_FORWARD_PROTOCOL,
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    headers.insert(STREAM_PROTOCOL, HeaderValue::from_static(needed));
    let ours = hyper::upgrade::on(&mut request);
    let theirs = match send(url, Method::POST, headers).await? {
        Answered::Upgraded(theirs, _) => theirs,
        Answered::Refused(refusal) => return Ok(refusal),
    };
    tokio::spawn(
        async move {
            let Some((client, runtime)) = join(ours, theirs).await else {
                return;
            };
            let client = websocket::open(client).await;
            match streams {
                Some(streams) => translate::translate(client, runtime, streams, idle).await,
                None => streaming::tunnel::tunnel(client, runtime, idle).await,
            }
            drop(place);
        }
        .boxed(),
    );
    Ok(upgraded(accepted))
}

fn upgraded(headers: HeaderMap) -> Answer {
    let mut answer = Response::new(answer::whole(Bytes::new()));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = headers;
    answer
}

/// What the runtime's streaming server said.
enum Answered {
    Upgraded(OnUpgrade, HeaderMap),
    Refused(Answer),
}

async fn send(url: &str, method: Method, headers: HeaderMap) -> Result<Answered, TunnelError> {
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
    tokio::spawn(
        async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "runtime stream ended");
            }
        }
        .boxed(),
    );
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    let mut passed = Request::builder()
        .method(method)
        .uri(path)
        .body(Empty::<Bytes>::new())?;
    *passed.headers_mut() = headers;
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| bad())?;
    passed.headers_mut().insert(HOST, host);
    let answered = tokio::time::timeout(ANSWER_DEADLINE, sender.send_request(passed)).await;
    let mut answered = answered.map_err(|_| TunnelError::Deadline)??;
    if answered.status() != StatusCode::SWITCHING_PROTOCOLS {
        return refusal(answered).await.map(Answered::Refused);
    }
    let theirs = hyper::upgrade::on(&mut answered);
    Ok(Answered::Upgraded(theirs, answered.headers().clone()))
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

/// Both ends, once they are upgraded.
async fn join(ours: OnUpgrade, theirs: OnUpgrade) -> Option<(TokioIo<Upgraded>, TokioIo<Upgraded>)> {
    let both = tokio::time::timeout(ANSWER_DEADLINE, async { tokio::try_join!(ours, theirs) }).await;
    match both {
        Ok(Ok((client, runtime))) => Some((TokioIo::new(client), TokioIo::new(runtime))),
        Ok(Err(error)) => {
            tracing::debug!(%error, "connection not upgraded");
            None
        }
        Err(_) => None,
    }
}

/// Copies both ways. The client's end closes the runtime's input and leaves the answer open for as long as it goes on: a runtime that
/// does not notice is left, and with it its command. The runtime's end is the end:
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
            _ = &mut up => {
                moved.send_replace(Instant::now());
                tokio::select! {
                    biased;
                    _ = &mut down => {}
                    () = silent_for(moved.subscribe(), GONE) => {}
                }
            }
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
    use crate::server::share::Shares;

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
    async fn a_client_that_is_gone_leaves_no_stream_to_a_runtime_that_says_nothing() {
        let (client, near) = tokio::io::duplex(64);
        let (far, mut runtime) = tokio::io::duplex(64);
        let begun = Instant::now();
        let task = tokio::spawn(copy_both(near, far, Duration::from_secs(4 * 3600)));
        drop(client);
        let mut got = Vec::new();
        runtime.read_to_end(&mut got).await.expect("its input is closed");
        task.await.expect("ended");
        assert_eq!(begun.elapsed(), GONE);
        assert!(runtime.write_all(b"x").await.is_err(), "and it has nobody to write to");
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
        let head = "POST /exec/ns/p/c HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";
        ask_with(url, Way::AsItIs, head).await
    }

    async fn ask_with(url: String, way: Way, head: &str) -> TcpStream {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port");
        let address = listener.local_addr().expect("address");
        tokio::spawn(async move {
            let (socket, _) = listener.accept().await.expect("connection");
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let (url, way) = (url.clone(), way.clone());
                let idle = Duration::from_secs(60);
                let all = Arc::new(tokio::sync::Semaphore::new(1));
                let place = Place::take(&all, &Shares::new(1), &"u-1".into(), &request).expect("a place");
                async move { Ok::<_, std::convert::Infallible>(tunnel(&url, request, way, idle, place).await) }
            });
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service);
            let _ = connection.with_upgrades().await;
        });
        let mut client = TcpStream::connect(address).await.expect("connect");
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

    /// What the runtime hears is SPDY, whatever the client speaks: the fake server asks for its headers, and echoes frames.
    #[tokio::test]
    async fn a_websocket_is_accepted_once_the_runtime_has_upgraded() {
        let spdy = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
        let streams = Streams {
            stdin: true,
            stdout: true,
            stderr: false,
            tty: false,
        };
        let way = || {
            let mut headers = HeaderMap::new();
            for (name, value) in [
                ("sec-websocket-version", "13"),
                ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ] {
                headers.insert(name, HeaderValue::from_static(value));
            }
            Way::Channels(streams, websocket::accept(&headers, websocket::V5).expect("accepted"))
        };
        let request = "GET /exec/ns/p/c HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let url = streaming_server(spdy).await;
        let mut client = ask_with(url, way(), request).await;
        let head = read_head(&mut client).await.to_lowercase();
        assert!(head.starts_with("http/1.1 101"), "{head}");
        assert!(head.contains("sec-websocket-protocol: v5.channel.k8s.io"), "{head}");
        assert!(
            head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="),
            "{head}"
        );
        let refused = streaming_server("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno").await;
        let head = read_head(&mut ask_with(refused, way(), request).await).await;
        assert!(head.starts_with("HTTP/1.1 404"), "{head}");
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
