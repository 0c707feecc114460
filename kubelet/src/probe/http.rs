//! The HTTP check (kubelet contract §4.4): GET without proxy, keep-alive or TLS verification; 200 to 399 passes; redirects
//! are followed on the same host only.

mod tls;

use super::Finding;
use super::check::{HttpCheck, authority};
use super::tcp::{dial, dial_text};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// How much of a body is read.
const BODY_MAX: usize = 10 << 10;
/// Redirects followed.
const REDIRECTS_MAX: usize = 10;

/// Carries the check out.
pub async fn check(check: &HttpCheck, user_agent: &str, timeout: Duration) -> Finding {
    let url = check.url();
    match tokio::time::timeout(timeout, follow(check, user_agent, timeout)).await {
        Ok(finding) => finding,
        Err(_) => Finding::Fail(format!(
            "Get \"{url}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        )),
    }
}

async fn follow(check: &HttpCheck, user_agent: &str, timeout: Duration) -> Finding {
    let mut current = check.clone();
    for _ in 0..=REDIRECTS_MAX {
        let response = match get(&current, user_agent, timeout).await {
            Ok(response) => response,
            Err(text) => return Finding::Fail(format!("Get \"{}\": {text}", current.url())),
        };
        let status = response.status().as_u16();
        if !(300..400).contains(&status) {
            return finding(status, response).await;
        }
        let Some(location) = response
            .headers()
            .get(header::LOCATION)
            .and_then(|value| value.to_str().ok())
        else {
            return Finding::Pass;
        };
        match redirected(&current, location) {
            Some(next) if next.host == check.host => current = next,
            _ => {
                return Finding::Warning(format!(
                    "Probe terminated redirects, Response body: {}",
                    text(response).await
                ));
            }
        }
    }
    Finding::Fail(format!(
        "Get \"{}\": stopped after {REDIRECTS_MAX} redirects",
        check.url()
    ))
}

async fn finding(status: u16, response: Response<Incoming>) -> Finding {
    // The body is read even of a success: a server that cannot send it is not well.
    let body = text(response).await;
    if (200..400).contains(&status) {
        return Finding::Pass;
    }
    tracing::debug!(status, body, "HTTP probe failed");
    Finding::Fail(format!("HTTP probe failed with statuscode: {status}"))
}

async fn text(response: Response<Incoming>) -> String {
    match Limited::new(response.into_body(), BODY_MAX).collect().await {
        Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        Err(_) => String::new(),
    }
}

/// Where a redirect leads; nothing if it cannot be understood.
fn redirected(from: &HttpCheck, location: &str) -> Option<HttpCheck> {
    let uri: Uri = location.parse().ok()?;
    let tls = uri.scheme_str().map_or(from.tls, |scheme| scheme == "https");
    let host = uri
        .host()
        .map_or_else(|| from.host.clone(), |host| host.trim_matches(['[', ']']).to_owned());
    let default_port = match (uri.host(), tls) {
        (None, _) => from.port,
        (Some(_), true) => 443,
        (Some(_), false) => 80,
    };
    let port = uri.port_u16().unwrap_or(default_port);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    Some(HttpCheck {
        tls,
        host,
        port,
        path,
        headers: from.headers.clone(),
    })
}

async fn get(check: &HttpCheck, user_agent: &str, timeout: Duration) -> Result<Response<Incoming>, String> {
    let stream = dial(&check.host, check.port, timeout)
        .await
        .map_err(|error| dial_text(&check.host, check.port, &error))?;
    let request = request(check, user_agent)?;
    if check.tls {
        let stream = tls::connect(&check.host, stream)
            .await
            .map_err(|error| format!("tls: {error}"))?;
        send(stream, request).await
    } else {
        send(stream, request).await
    }
}

async fn send<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<Response<Incoming>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    // Ends with the response's body or, when this future is dropped at its deadline, with the sender.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(|error| error.to_string())
}

fn request(check: &HttpCheck, user_agent: &str) -> Result<Request<Empty<Bytes>>, String> {
    let mut request = Request::builder()
        .uri(check.path.as_str())
        .body(Empty::new())
        .map_err(|error| error.to_string())?;
    let headers = request.headers_mut();
    for (name, value) in &check.headers {
        let name: HeaderName = name.parse().map_err(|_| format!("invalid header name {name:?}"))?;
        let value: HeaderValue = value.parse().map_err(|_| format!("invalid value of header {name:?}"))?;
        headers.append(name, value);
    }
    let own = authority(&check.host, check.port);
    for (name, value) in [
        (header::HOST, own.as_str()),
        (header::USER_AGENT, user_agent),
        (header::ACCEPT, "*/*"),
    ] {
        match headers.get(&name) {
            // Set empty on purpose: not sent at all (but a request needs its host).
            Some(set) if set.is_empty() && name != header::HOST => drop(headers.remove(&name)),
            Some(_) => {}
            None => {
                let value = HeaderValue::from_str(value).map_err(|error| error.to_string())?;
                headers.insert(name, value);
            }
        }
    }
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(request)
}

#[cfg(test)]
mod tests;
