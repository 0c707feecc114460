//! The handshake of a WebSocket (RFC 6455 §4.2), and what is spoken on it.
//!
//! Pure but for [`open`], which wraps a connection that was upgraded. Never upgrades one itself.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
};
use http::header::{SEC_WEBSOCKET_VERSION, UPGRADE};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::Utf8Bytes;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};

/// Remote commands with half-closed streams: each message begins with the number of its channel.
pub const V5: &str = "v5.channel.k8s.io";
/// SPDY/3.1 of a port-forward, carried in messages.
pub const PORT_FORWARD: &str = "SPDY/3.1+portforward.k8s.io";

/// Bytes as they are.
pub const BINARY: &str = "binary.k8s.io";
/// Bytes in base64, for clients that take text alone.
pub const BASE64_BINARY: &str = "base64.binary.k8s.io";

/// What RFC 6455 §1.3 has appended to a key.
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes of a key, once decoded.
const KEY_BYTES: usize = 16;
/// Most bytes of a message; clients send 32 KiB.
const MESSAGE_MAX: usize = 1 << 18;
/// Bytes that are read, or collected, at a time.
const BUFFER: usize = 32 << 10;
/// How long a client may take to read what is left, and to say that it is done.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// Why a request opens no WebSocket.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// No `Sec-WebSocket-Key`, or not one of 16 bytes.
    #[error("unable to upgrade: Sec-WebSocket-Key is missing or invalid")]
    Key,
    /// Another version than 13.
    #[error("unable to upgrade: Sec-WebSocket-Version is not 13")]
    Version,
}

/// How the offered protocol begins that carries a token, for browsers, which can send no other header.
pub const BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// Takes tokens out of the offered protocols: they are for the API server, and for nobody behind it.
pub fn remove_credentials(headers: &mut HeaderMap) {
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        return;
    }
    let offered = protocols(headers).filter(|name| !name.starts_with(BEARER));
    let kept = offered.collect::<Vec<_>>().join(", ");
    match HeaderValue::from_str(&kept) {
        Ok(kept) if !kept.is_empty() => drop(headers.insert(SEC_WEBSOCKET_PROTOCOL, kept)),
        _ => drop(headers.remove(SEC_WEBSOCKET_PROTOCOL)),
    }
}

/// The protocols a request offers, in its order.
pub fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter();
    let values = values.filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|name| !name.is_empty())
}

/// Whether a request asks for a WebSocket.
pub fn is_asked_for(headers: &HeaderMap) -> bool {
    let wanted = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    wanted.is_some_and(|wanted| wanted.eq_ignore_ascii_case("websocket"))
}

/// Whether a request offers to speak that protocol.
pub fn offers(headers: &HeaderMap, protocol: &str) -> bool {
    protocols(headers).any(|name| name == protocol)
}

/// The headers of the answer that accepts the request, with the protocol that will be spoken, if it has a name.
///
/// # Errors
/// [`HandshakeError`] if the request is no handshake of RFC 6455.
pub fn accept(headers: &HeaderMap, protocol: impl Into<Option<&'static str>>) -> Result<HeaderMap, HandshakeError> {
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(HandshakeError::Version);
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok());
    let key = key.map(str::trim).unwrap_or_default();
    if !STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == KEY_BYTES) {
        return Err(HandshakeError::Key);
    }
    let digest = ring::digest::digest(
        &ring::digest::SHA1_FOR_LEGACY_USE_ONLY,
        format!("{key}{KEY_SUFFIX}").as_bytes(),
    );
    let mut answer = HeaderMap::new();
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(protocol) = protocol.into() {
        answer.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    if let Ok(accept) = HeaderValue::from_str(&STANDARD.encode(digest)) {
        answer.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    Ok(answer)
}

/// The WebSocket on a connection whose upgrade [`accept`] has granted.
pub async fn open<S: AsyncRead + AsyncWrite + Unpin>(connection: S) -> WebSocketStream<S> {
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER)
        // Answers to pings of a client that reads none of them replace each other from here on.
        .max_write_buffer_size(MESSAGE_MAX + BUFFER)
        .max_message_size(Some(MESSAGE_MAX))
        .max_frame_size(Some(MESSAGE_MAX));
    WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await
}

/// Ends a WebSocket: says why, and waits until the client has said so too, so that nothing it has not read yet is lost; not
/// for ever, as it may be gone or read nothing.
pub(crate) async fn close<S: AsyncRead + AsyncWrite + Unpin>(
    sink: &mut SplitSink<WebSocketStream<S>, Message>,
    messages: &mut SplitStream<WebSocketStream<S>>,
    code: CloseCode,
    last: Option<Message>,
) {
    let ending = async {
        if let Some(last) = last {
            sink.send(last).await?;
        }
        let reason = Utf8Bytes::default();
        sink.send(Message::Close(Some(CloseFrame { code, reason }))).await?;
        while !matches!(messages.next().await, None | Some(Ok(Message::Close(_)) | Err(_))) {}
        Ok::<(), tungstenite::Error>(())
    };
    if !matches!(tokio::time::timeout(CLOSE_DEADLINE, ending).await, Ok(Ok(()))) {
        tracing::debug!("the client was gone before the end of its stream");
    }
}

/// Answers the goodbye of a client, who takes a connection that ends without one for broken; not for ever, as it may read nothing.
pub(crate) async fn answer_close<S: AsyncRead + AsyncWrite + Unpin>(sink: &mut SplitSink<WebSocketStream<S>, Message>) {
    // The answer lies ready since the goodbye was read.
    if !matches!(tokio::time::timeout(CLOSE_DEADLINE, sink.flush()).await, Ok(Ok(()))) {
        tracing::debug!("the client was gone before its goodbye was answered");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let all = headers.iter();
        all.map(|(name, value)| {
            let name: http::HeaderName = name.parse().expect("a name");
            (name, HeaderValue::from_static(value))
        })
        .collect()
    }

    #[test]
    fn the_answer_to_the_key_of_the_specification() {
        let headers = asked(&[
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-version", "13"),
        ]);
        let answer = accept(&headers, V5).expect("accepted");
        assert_eq!(answer[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(answer[SEC_WEBSOCKET_PROTOCOL], V5);
    }

    #[test]
    fn what_is_no_handshake_is_refused() {
        let version = asked(&[("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")]);
        assert_eq!(accept(&version, V5), Err(HandshakeError::Version));
        for key in ["", "c2hvcnQ=", "not base64"] {
            let mut headers = asked(&[("sec-websocket-version", "13")]);
            headers.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_static(key));
            assert_eq!(accept(&headers, V5), Err(HandshakeError::Key), "{key:?}");
        }
    }

    #[test]
    fn no_token_is_passed_on() {
        let mut headers = asked(&[(
            "sec-websocket-protocol",
            "base64url.bearer.authorization.k8s.io.c2VjcmV0, a",
        )]);
        headers.append(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("b"));
        remove_credentials(&mut headers);
        assert_eq!(headers[SEC_WEBSOCKET_PROTOCOL], "a, b");
        let mut alone = asked(&[(
            "sec-websocket-protocol",
            "base64url.bearer.authorization.k8s.io.c2VjcmV0",
        )]);
        remove_credentials(&mut alone);
        assert!(alone.is_empty());
    }

    #[test]
    fn protocols_are_found_in_every_header_and_place() {
        let headers = asked(&[("sec-websocket-protocol", "a, v5.channel.k8s.io ,b")]);
        assert!(offers(&headers, V5) && !offers(&headers, "v5"));
        assert!(is_asked_for(&asked(&[("upgrade", "WebSocket")])));
        assert!(!is_asked_for(&asked(&[("upgrade", "SPDY/3.1")])));
    }
}
