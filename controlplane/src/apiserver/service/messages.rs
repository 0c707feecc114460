//! Watches and logs over a WebSocket (control-plane contract §2.1): the reply is the ordinary one, and what goes out is its body,
//! as messages. Over HTTP/1 alone, as upstream. Knows nothing of what the reply is about, and answers no request itself.

use super::super::request::{Query, RequestInfo};
use super::super::status::ApiError;
use super::super::{Body, body, drain, reply};
use crate::apiserver::negotiate::Output;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyDataStream;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use streaming::plain::{self, Form};
use streaming::websocket::{self, BEARER, HandshakeError};

/// How long an upgrade that was agreed to may take to happen.
const UPGRADE_DEADLINE: Duration = Duration::from_secs(30);

/// A WebSocket that a watch or a log is wanted on.
pub(super) struct Wanted {
    connection: OnUpgrade,
    /// What agrees to it, and the protocol that was agreed on.
    accepted: Result<(HeaderMap, Option<&'static str>), HandshakeError>,
    is_watch: bool,
    output: Output,
}

impl Wanted {
    /// What the request wants, if that is a watch or a log over a WebSocket.
    pub(super) fn of<B>(request: &mut Request<B>) -> Option<Self> {
        if request.method() != Method::GET || !websocket::is_asked_for(request.headers()) {
            return None;
        }
        let query = Query::parse(request.uri().query().unwrap_or(""));
        let info = RequestInfo::parse(request.method(), request.uri().path(), &query);
        let is_watch = info.verb == "watch";
        if !info.is_resource || (!is_watch && info.subresource != "log") {
            return None;
        }
        let headers = request.headers();
        let offered = || websocket::protocols(headers).filter(|name| !name.starts_with(BEARER));
        let known = plain::LOG_PROTOCOLS
            .into_iter()
            .filter(|known| offered().any(|name| name == *known));
        // The client's first choice of those there are.
        let chosen = known.min_by_key(|known| offered().position(|name| name == *known));
        let accepted = websocket::accept(headers, chosen).map(|headers| (headers, chosen));
        let output = Output::of_status(headers, &query);
        Some(Self {
            connection: hyper::upgrade::on(request),
            accepted,
            is_watch,
            output,
        })
    }

    /// The answer: the upgrade, if there is something to send on it, else the reply itself.
    pub(super) fn answer(self, response: Response<Body>) -> Response<Body> {
        if response.status() != StatusCode::OK {
            return response;
        }
        let (headers, protocol) = match self.accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                let error = ApiError::bad_request(error.to_string());
                return reply::error(&error, &error.to_status(), self.output);
            }
        };
        let content_type = response.headers().get(CONTENT_TYPE);
        let is_protobuf =
            content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/vnd.kubernetes.protobuf"));
        let form = match (self.is_watch, is_protobuf) {
            (false, _) => Form::of_log(protocol),
            (true, true) => Form::Delimited,
            (true, false) => Form::Lines,
        };
        let (mut parts, content) = response.into_parts();
        parts.headers.remove(CONTENT_TYPE);
        let connection = self.connection;
        // A reply nobody reads ends this task, as it would its connection.
        tokio::spawn(drain::breakable(async move {
            let Ok(Ok(connection)) = tokio::time::timeout(UPGRADE_DEADLINE, connection).await else {
                return;
            };
            let socket = websocket::open(TokioIo::new(connection)).await;
            plain::send(socket, BodyDataStream::new(content), form).await;
        }));
        parts.status = StatusCode::SWITCHING_PROTOCOLS;
        parts.headers.extend(headers);
        Response::from_parts(parts, body::empty())
    }
}
