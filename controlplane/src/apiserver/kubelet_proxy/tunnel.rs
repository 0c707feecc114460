//! One connection per request: open, send, and after an upgrade copy bytes both ways until both sides have ended.

use super::target::Target;
use crate::apiserver::status::ApiError;
use crate::apiserver::{Body, body};
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
    UPGRADE,
};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a connection may take to open, TLS included.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// How long the other side may take to begin its answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(60);
/// How long an upgrade both sides have agreed to may take to happen.
const UPGRADE_DEADLINE: Duration = Duration::from_secs(30);

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

fn dialing(target: &Target, error: impl std::fmt::Display) -> ApiError {
    let (host, port) = (&target.host, target.port);
    ApiError::internal(format!("error dialing backend: dial tcp {host}:{port}: {error}"))
}

async fn connect(target: &Target) -> Result<Box<dyn Stream>, ApiError> {
    let opened = tokio::time::timeout(CONNECT_DEADLINE, async {
        let tcp = match target.addresses.as_slice() {
            [] => TcpStream::connect((target.host.as_str(), target.port)).await?,
            found => {
                let all: Vec<SocketAddr> = found.iter().map(|ip| SocketAddr::new(*ip, target.port)).collect();
                TcpStream::connect(all.as_slice()).await?
            }
        };
        tcp.set_nodelay(true)?;
        let Some(tls) = &target.tls else {
            return Ok(Box::new(tcp) as Box<dyn Stream>);
        };
        let name = ServerName::try_from(target.host.clone()).map_err(std::io::Error::other)?;
        let connector = tokio_rustls::TlsConnector::from(tls.clone());
        Ok::<_, std::io::Error>(Box::new(connector.connect(name, tcp).await?) as Box<dyn Stream>)
    })
    .await;
    match opened {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(dialing(target, error)),
        Err(_) => Err(dialing(target, "i/o timeout")),
    }
}

fn concrete(error: body::BodyError) -> std::io::Error {
    std::io::Error::other(error)
}

/// Sends a request and returns the answer as soon as its head is there. Redirects are refused.
pub(super) async fn send(target: &Target, mut request: Request<Body>) -> Result<Response<Incoming>, ApiError> {
    let stream = connect(target).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| dialing(target, error))?;
    tokio::spawn(async move {
        // Ends with the response's body, or hands the connection over after an upgrade.
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "proxied connection ended");
        }
    });
    let host = match target.host.contains(':') {
        true => format!("[{}]:{}", target.host, target.port),
        false => format!("{}:{}", target.host, target.port),
    };
    let host = HeaderValue::try_from(host).map_err(ApiError::internal)?;
    request.headers_mut().insert(HOST, host);
    // A concrete error type: with the boxed one the compiler cannot prove this future Send.
    let request = request.map(|content| BodyExt::boxed_unsync(content.map_err(concrete)));
    let answer = tokio::time::timeout(ANSWER_DEADLINE, sender.send_request(request)).await;
    let response = match answer {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Err(dialing(target, error)),
        Err(_) => return Err(dialing(target, "no answer in time")),
    };
    if response.status().is_redirection() && response.status() != StatusCode::NOT_MODIFIED {
        return Err(ApiError::new(
            502,
            "",
            "the backend attempted to redirect this request, which is not permitted",
        ));
    }
    Ok(response)
}

/// Headers that speak of one connection, or for the client itself, and stay behind.
pub(super) fn forwarded(headers: &HeaderMap) -> HeaderMap {
    let own = [
        AUTHORIZATION,
        COOKIE,
        HOST,
        CONNECTION,
        TRANSFER_ENCODING,
        UPGRADE,
        CONTENT_LENGTH,
    ];
    let named = [
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
    ];
    let stays = |name: &HeaderName| {
        let text = name.as_str();
        own.contains(name) || named.contains(&text) || text.starts_with("impersonate-") || text.starts_with("x-remote-")
    };
    let passed = headers.iter().filter(|(name, _)| !stays(name));
    let mut passed: HeaderMap = passed.map(|(name, value)| (name.clone(), value.clone())).collect();
    streaming::websocket::remove_credentials(&mut passed);
    passed
}

/// Passes an upgrade request on; when the other side agrees, its bytes and the client's are copied both ways.
pub(super) async fn upgrade(target: &Target, mut request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let client = hyper::upgrade::on(&mut request);
    let protocol = request.headers().get(UPGRADE).cloned();
    let mut backend = Request::builder()
        .method(request.method().clone())
        .uri(target.path.as_str());
    if let Some(headers) = backend.headers_mut() {
        *headers = forwarded(request.headers());
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        if let Some(protocol) = protocol {
            headers.insert(UPGRADE, protocol);
        }
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    let backend = backend.body(body::empty()).map_err(ApiError::internal)?;
    let mut response = send(target, backend).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(refused(response));
    }
    let kubelet = hyper::upgrade::on(&mut response);
    tokio::spawn(relay(client, kubelet));
    let (parts, _) = response.into_parts();
    let mut answer = Response::new(body::empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = forwarded(&parts.headers);
    for name in [UPGRADE, CONNECTION] {
        if let Some(value) = parts.headers.get(&name) {
            answer.headers_mut().insert(name, value.clone());
        }
    }
    Ok(answer)
}

/// What a backend said that did not upgrade.
pub(super) fn refused(response: Response<Incoming>) -> Response<Body> {
    let (mut parts, content) = response.into_parts();
    parts.headers = forwarded(&parts.headers);
    Response::from_parts(parts, body::boxed(content))
}

/// Both ends, once they are upgraded.
pub(super) async fn both(client: OnUpgrade, kubelet: OnUpgrade) -> Option<(Upgraded, Upgraded)> {
    let both = tokio::time::timeout(UPGRADE_DEADLINE, async { tokio::try_join!(client, kubelet) }).await;
    match both {
        Ok(Ok(both)) => return Some(both),
        Ok(Err(error)) => tracing::debug!(%error, "an upgrade did not happen"),
        Err(_) => tracing::debug!("an upgrade did not happen in time"),
    }
    None
}

async fn relay(client: OnUpgrade, kubelet: OnUpgrade) {
    if let Some((client, kubelet)) = both(client, kubelet).await {
        copy_both(TokioIo::new(client), TokioIo::new(kubelet)).await;
    }
}

/// Copies both ways. The client's end is passed on and leaves the answer open; the kubelet's end is the end: nobody is left to
/// read what the client still sends.
async fn copy_both(client: impl AsyncRead + AsyncWrite, kubelet: impl AsyncRead + AsyncWrite) {
    let (mut client_read, mut client_write) = tokio::io::split(client);
    let (mut kubelet_read, mut kubelet_write) = tokio::io::split(kubelet);
    let up = async {
        let copied = tokio::io::copy(&mut client_read, &mut kubelet_write).await;
        // The kubelet may be gone already.
        let _ = kubelet_write.shutdown().await;
        copied
    };
    let down = async {
        let copied = tokio::io::copy(&mut kubelet_read, &mut client_write).await;
        let _ = client_write.shutdown().await;
        copied
    };
    tokio::pin!(up, down);
    let down_bytes = tokio::select! {
        biased;
        copied = &mut down => copied,
        _ = &mut up => down.await,
    };
    match down_bytes {
        Ok(down_bytes) => tracing::debug!(down_bytes, "stream ended"),
        Err(error) => tracing::debug!(%error, "stream broke"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_and_connection_headers_stay_behind() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer x"),
            ("impersonate-user", "root"),
            ("x-remote-user", "root"),
            ("connection", "upgrade"),
            ("cookie", "c"),
            (
                "sec-websocket-protocol",
                "base64url.bearer.authorization.k8s.io.c2VjcmV0",
            ),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers.append(
            "x-stream-protocol-version",
            HeaderValue::from_static("v3.channel.k8s.io"),
        );
        let forwarded = forwarded(&headers);
        assert_eq!(forwarded.keys_len(), 1);
        assert_eq!(forwarded.get_all("x-stream-protocol-version").iter().count(), 2);
    }
}
