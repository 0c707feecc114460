//! What exec, attach and port-forward speak with the client, and what with the kubelet (control-plane contract §2.1, KEP-4006).
//!
//! [`way_of`] decides, purely; [`translate`] carries out. Kubelets that declare [`DECLARED`] are left to translate themselves.

use super::super::request::{Query, RequestInfo};
use super::super::status::ApiError;
use super::super::{Body, body};
use super::target::Target;
use super::tunnel;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use streaming::translate::{SPDY_PROTOCOL, Streams};
use streaming::websocket;

/// What a node's kubelet declares that takes WebSockets of every version (upstream's feature gate of that name).
pub(super) const DECLARED: &str = "ExtendWebSocketsToKubelet";

const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const PORT_FORWARD_PROTOCOL: &str = "portforward.k8s.io";

/// How what the client speaks reaches the kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Both speak the same.
    AsItIs,
    /// A remote command over a WebSocket, over SPDY for the kubelet.
    Channels(Streams),
    /// SPDY inside a WebSocket, unwrapped for the kubelet.
    Unwrapped,
}

/// Decides by what the client wants to be upgraded to.
///
/// # Errors
/// 400 if it wants nothing that there is.
pub(super) fn way_of(
    headers: &HeaderMap,
    info: &RequestInfo,
    query: &Query,
    kubelet_translates: bool,
) -> Result<Way, ApiError> {
    if !websocket::is_asked_for(headers) {
        let wanted = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
        return match wanted.is_some_and(|wanted| wanted.eq_ignore_ascii_case("spdy/3.1")) {
            true => Ok(Way::AsItIs),
            false => Err(ApiError::bad_request("Upgrade request required")),
        };
    }
    let is_forward = info.subresource == "portforward";
    let newest = if is_forward {
        websocket::PORT_FORWARD
    } else {
        websocket::V5
    };
    if kubelet_translates || !websocket::offers(headers, newest) {
        return Ok(Way::AsItIs);
    }
    if is_forward {
        return Ok(Way::Unwrapped);
    }
    Ok(Way::Channels(Streams {
        stdin: query.flag("stdin"),
        stdout: query.flag("stdout"),
        stderr: query.flag("stderr"),
        tty: query.flag("tty"),
    }))
}

/// Upgrades the client to a WebSocket and the kubelet to SPDY, and carries what is said from one to the other.
///
/// # Errors
/// 400 if the client's request is no handshake; what the kubelet answers if it does not upgrade.
pub(super) async fn translate(
    target: &Target,
    mut request: Request<Body>,
    way: Way,
) -> Result<Response<Body>, ApiError> {
    let (spoken, needed) = match way {
        Way::Unwrapped => (websocket::PORT_FORWARD, PORT_FORWARD_PROTOCOL),
        _ => (websocket::V5, SPDY_PROTOCOL),
    };
    let accepted =
        websocket::accept(request.headers(), spoken).map_err(|error| ApiError::bad_request(error.to_string()))?;
    let client = hyper::upgrade::on(&mut request);
    let backend = Request::builder()
        .method(Method::POST)
        .uri(target.path.as_str())
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "SPDY/3.1")
        .header(CONTENT_LENGTH, "0")
        .header(STREAM_PROTOCOL, HeaderValue::from_static(needed));
    let mut response = tunnel::send(target, backend.body(body::empty()).map_err(ApiError::internal)?).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(tunnel::refused(response));
    }
    let kubelet = hyper::upgrade::on(&mut response);
    tokio::spawn(async move {
        let Some((client, kubelet)) = tunnel::both(client, kubelet).await else {
            return;
        };
        let (client, kubelet) = (TokioIo::new(client), TokioIo::new(kubelet));
        let client = websocket::open(client).await;
        // The kubelet is who ends what is idle.
        match way {
            Way::Channels(streams) => {
                streaming::translate::translate(client, kubelet, streams, Duration::ZERO).await;
            }
            _ => streaming::tunnel::tunnel(client, kubelet, Duration::ZERO).await,
        }
    });
    let mut answer = Response::new(body::empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = accepted;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(headers: &[(&'static str, &'static str)], subresource: &str, query: &str, translates: bool) -> Option<Way> {
        let headers = headers.iter().map(|(name, value)| {
            let name: HeaderName = name.parse().expect("a name");
            (name, HeaderValue::from_static(value))
        });
        let info = RequestInfo {
            subresource: subresource.to_owned(),
            ..RequestInfo::default()
        };
        way_of(&headers.collect(), &info, &Query::parse(query), translates).ok()
    }

    #[test]
    fn only_the_newest_protocols_are_translated_and_only_for_kubelets_that_do_not() {
        let v5 = [
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", "v5.channel.k8s.io"),
        ];
        let streams = Streams {
            stdin: true,
            stdout: false,
            stderr: false,
            tty: true,
        };
        let query = "stdin=true&stdout=0&tty=1";
        assert_eq!(way(&v5, "exec", query, false), Some(Way::Channels(streams)));
        assert_eq!(way(&v5, "exec", query, true), Some(Way::AsItIs));
        let v4 = [
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", "v4.channel.k8s.io"),
        ];
        assert_eq!(way(&v4, "attach", "", false), Some(Way::AsItIs));
        let forward = [
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", "SPDY/3.1+portforward.k8s.io"),
        ];
        assert_eq!(way(&forward, "portforward", "", false), Some(Way::Unwrapped));
        assert_eq!(way(&[("upgrade", "SPDY/3.1")], "exec", "", true), Some(Way::AsItIs));
        assert_eq!(way(&[("upgrade", "h2c")], "exec", "", true), None);
        assert_eq!(way(&[], "exec", "", true), None);
    }
}
