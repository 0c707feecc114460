//! `/openapi/v3` and `/openapi/v2` over HTTP: negotiation, caching headers, redirects to the current hash (control-plane
//! contract §1). The documents are [`super::super::openapi`]'s.

use super::super::openapi::kept::Kept;
use super::super::openapi::{Answer, OpenApi};
use super::super::request::Query;
use super::super::{Body, body, negotiate, reply};
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, EXPIRES, HeaderValue, IF_NONE_MATCH, LOCATION, VARY,
};
use http::request::Parts;
use http::{Response, StatusCode};
use jiff::Timestamp;
use std::time::Duration;

use crate::apiserver::status::ApiError;

/// Clients keep a document whose URL carries its hash this long.
const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, immutable, max-age=31536000");
const IMMUTABLE_FOR: Duration = Duration::from_hours(365 * 24);

/// The media type of v2's message, and how it was spelled before; answered is the first.
const V2_MESSAGE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const V2_MESSAGE_BEFORE: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// As those, of v3's.
const V3_MESSAGE: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
const V3_MESSAGE_BEFORE: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// Whether the document is asked for as protobuf.
pub(super) fn wants_message(path: &str, headers: &http::HeaderMap) -> bool {
    matches!(Form::of(path, headers), Some(Form::V2Message | Form::V3Message))
}

/// Answers `/openapi/v2` or a path below `/openapi/v3`.
pub(super) fn serve(path: &str, parts: &Parts, openapi: &OpenApi) -> Result<Response<Body>, ApiError> {
    let form = Form::of(path, &parts.headers).ok_or_else(negotiate::not_acceptable)?;
    let query = Query::parse(parts.uri.query().unwrap_or(""));
    let (document, immutable) = match openapi.answer(path, query.text("hash")) {
        Answer::NotFound => return Ok(reply::not_found_page()),
        Answer::Moved(to) => return Ok(moved(&to)),
        Answer::Document { document, immutable } => match form {
            Form::Json => (document, immutable),
            Form::V2Message => (openapi.v2_message(), false),
            Form::V3Message => match openapi.message_of(path) {
                Some(message) => (message, immutable),
                None => return Ok(reply::not_found_page()),
            },
        },
    };
    let etag = format!("\"{}\"", document.hash);
    let known = parts.headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let mut response = if known == Some(etag.as_str()) {
        let mut response = Response::new(body::full(Bytes::new()));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        whole(&document, form, reply::accepts_gzip(&parts.headers))
    };
    let headers = response.headers_mut();
    if let Ok(etag) = HeaderValue::try_from(etag) {
        headers.insert(ETAG, etag);
    }
    headers.append(VARY, HeaderValue::from_static("Accept"));
    if immutable {
        headers.insert(CACHE_CONTROL, IMMUTABLE);
    }
    Ok(response)
}

/// Tells clients that know no ages when a document of one hash ends: a year ahead.
pub(in crate::apiserver) fn expire(response: &mut Response<Body>, now: Timestamp) {
    if response.headers().get(CACHE_CONTROL) != Some(&IMMUTABLE) {
        return;
    }
    let then = now + IMMUTABLE_FOR;
    if let Ok(value) = HeaderValue::try_from(then.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()) {
        response.headers_mut().insert(EXPIRES, value);
    }
}

/// The document, compressed for clients that take it so; for others it is uncompressed as it is sent.
fn whole(document: &Kept, form: Form, is_compressed: bool) -> Response<Body> {
    let body = match is_compressed {
        true => body::full(document.compressed.clone()),
        false => body::stream(futures::stream::iter(document.pieces())),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if is_compressed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// How a document is written down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    V2Message,
    V3Message,
}

impl Form {
    /// The form that is accepted first; `None` if there is none.
    fn of(path: &str, headers: &http::HeaderMap) -> Option<Self> {
        let is_v2 = path.starts_with("/openapi/v2");
        // The index of v3 is JSON alone.
        let is_v3 = path.starts_with("/openapi/v3/") && path.len() > "/openapi/v3/".len();
        let accepted = negotiate::accepted(headers);
        if accepted.is_empty() {
            return Some(Self::Json);
        }
        accepted.iter().find_map(|media| match media.as_str() {
            "*/*" | "application/*" | "application/json" => Some(Self::Json),
            V2_MESSAGE | V2_MESSAGE_BEFORE if is_v2 => Some(Self::V2Message),
            V3_MESSAGE | V3_MESSAGE_BEFORE if is_v3 => Some(Self::V3Message),
            _ => None,
        })
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::V2Message => V2_MESSAGE,
            Self::V3Message => V3_MESSAGE,
        }
    }
}

fn moved(to: &str) -> Response<Body> {
    let mut response = Response::new(body::full(Bytes::new()));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::try_from(to) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Registry;
    use http::Request;
    use http::header::ACCEPT;
    use std::sync::Arc;

    fn openapi() -> OpenApi {
        OpenApi::new(Arc::clone(Registry::built_in()))
    }

    fn get(path: &str, accept: &str) -> Result<Response<Body>, ApiError> {
        let request = Request::get(path).header(ACCEPT, accept).body(()).unwrap();
        let parts = request.into_parts().0;
        let path = parts.uri.path().to_owned();
        serve(&path, &parts, &openapi())
    }

    #[test]
    fn documents_are_cached_moved_and_refused() {
        let group = "/openapi/v3/apis/coordination.k8s.io/v1";
        let stale = get(&format!("{group}?hash=0"), "application/json").unwrap();
        assert_eq!(stale.status(), 301);
        let current = stale.headers()[LOCATION].to_str().unwrap();
        let mut fresh = get(current, "application/json, */*").unwrap();
        let mut changing = get(group, "*/*").unwrap();
        for response in [&mut fresh, &mut changing] {
            expire(response, "2026-03-01T00:00:00Z".parse().unwrap());
        }
        assert_eq!(fresh.headers()[EXPIRES], "Mon, 01 Mar 2027 00:00:00 GMT");
        assert!(!changing.headers().contains_key(EXPIRES));
        assert_eq!(
            (fresh.status(), &fresh.headers()[CACHE_CONTROL]),
            (StatusCode::OK, &IMMUTABLE)
        );
        assert!(fresh.headers()[ETAG].to_str().unwrap().len() > 128);
        assert_eq!(get("/openapi/v3/apis/none/v1", "*/*").unwrap().status(), 404);
        let known = Request::get(group).header(IF_NONE_MATCH, &fresh.headers()[ETAG]);
        let known = known.body(()).unwrap().into_parts().0;
        assert_eq!(serve(group, &known, &openapi()).unwrap().status(), 304);
    }

    #[test]
    fn v3_is_a_message_for_those_who_accept_that_first() {
        let group = "/openapi/v3/apis/coordination.k8s.io/v1";
        let json = get(group, "application/json").unwrap();
        for accept in [V3_MESSAGE, V3_MESSAGE_BEFORE] {
            let moved = get(&format!("{group}?hash=0"), accept).unwrap();
            assert_eq!(moved.status(), 301);
            let message = get(moved.headers()[LOCATION].to_str().unwrap(), accept).unwrap();
            assert_eq!(message.headers()[CONTENT_TYPE], V3_MESSAGE);
            assert_eq!(
                (&message.headers()[ETAG], &message.headers()[CACHE_CONTROL]),
                (&json.headers()[ETAG], &IMMUTABLE)
            );
        }
        let refused = |path: &str, accept: &str| get(path, accept).map(|_| ()).map_err(|error| error.code);
        assert_eq!(refused("/openapi/v3", V3_MESSAGE), Err(406), "the index is JSON");
        assert_eq!(refused(group, V2_MESSAGE), Err(406));
        assert_eq!(refused("/openapi/v2", V3_MESSAGE), Err(406));
        assert_eq!(get("/openapi/v3/apis/none/v1", V3_MESSAGE).unwrap().status(), 404);
    }

    #[test]
    fn v2_is_a_message_for_those_who_accept_that_first() {
        for (accept, expected) in [
            (V2_MESSAGE, V2_MESSAGE),
            (V2_MESSAGE_BEFORE, V2_MESSAGE),
            (
                "application/json;q=0.9, application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
                V2_MESSAGE,
            ),
            (
                "application/com.github.proto-openapi.spec.v2@v1.0+protobuf;q=0.5, */*",
                "application/json",
            ),
        ] {
            let answer = get("/openapi/v2", accept).unwrap();
            assert_eq!(answer.headers()[CONTENT_TYPE], expected, "{accept}");
        }
        assert!(get("/openapi/v3/api/v1", V2_MESSAGE).is_err());
    }

    #[tokio::test]
    async fn a_document_is_the_same_compressed_and_not() {
        use http_body_util::BodyExt;
        use std::io::Read;
        for path in ["/openapi/v2", "/openapi/v3", "/openapi/v3/apis/apps/v1"] {
            let plain = get(path, "*/*").unwrap();
            assert!(!plain.headers().contains_key(CONTENT_ENCODING));
            let plain = plain.into_body().collect().await.unwrap().to_bytes();
            let parts = Request::get(path)
                .header(http::header::ACCEPT_ENCODING, "br, gzip;q=0.5")
                .body(())
                .unwrap();
            let compressed = serve(path, &parts.into_parts().0, &openapi()).unwrap();
            assert_eq!(compressed.headers()[CONTENT_ENCODING], "gzip");
            assert_eq!(compressed.headers()[CONTENT_TYPE], "application/json");
            let compressed = compressed.into_body().collect().await.unwrap().to_bytes();
            let mut bytes = Vec::new();
            flate2::read::GzDecoder::new(&*compressed)
                .read_to_end(&mut bytes)
                .unwrap();
            assert!(bytes == plain, "{path}");
            serde_json::from_slice::<serde_json::Value>(&bytes).unwrap();
        }
    }
}
