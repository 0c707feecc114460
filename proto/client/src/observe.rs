//! Telling of requests as they go: which, how they ended, how long their answers took to begin. Changes nothing about them.

use futures::future::BoxFuture;
use http_body::Body as _;
use kube::client::Body;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use tower::Service;

/// One request whose answer began, or that failed before.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `GET` and so on.
    pub method: &'static str,
    /// The server, as the configuration names it.
    pub host: &'a str,
    /// The answer's status; nothing if there was no answer.
    pub status: Option<u16>,
    /// Whether the answer goes on for as long as somebody reads it.
    pub is_watch: bool,
    /// How long until the answer began.
    pub took: Duration,
    /// Bytes of the request's body, where that is known beforehand.
    pub sent_bytes: Option<u64>,
    /// Bytes of the answer's body, where the answer says so.
    pub received_bytes: Option<u64>,
}

/// Is told of requests. Cheap to clone.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(&Request<'_>) + Send + Sync>);

impl Observer {
    /// Tells this function; it must not block.
    pub fn new(tell: impl Fn(&Request<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Tells of a request.
    pub fn tell(&self, request: &Request<'_>) {
        (self.0)(request);
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

/// A service whose requests are told, if there is somebody to tell.
#[derive(Clone)]
pub(crate) struct Observed<S> {
    service: S,
    observer: Option<Observer>,
    host: Arc<str>,
}

impl<S> Observed<S> {
    pub(crate) fn new(service: S, observer: Option<Observer>, host: &str) -> Self {
        Self {
            service,
            observer,
            host: host.into(),
        }
    }
}

impl<S, B> Service<http::Request<Body>> for Observed<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: http_body::Body + Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = name_of(request.method());
        let is_watch = asks_for_watch(request.uri().query().unwrap_or_default());
        let sent_bytes = request.body().size_hint().exact();
        let (observer, host) = (self.observer.clone(), self.host.clone());
        let begun = Instant::now();
        let answer = self.service.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let Some(observer) = observer else { return answer };
            let answered = answer.as_ref().ok();
            observer.tell(&Request {
                method,
                host: &host,
                status: answered.map(|answer| answer.status().as_u16()),
                is_watch,
                took: begun.elapsed(),
                sent_bytes,
                received_bytes: answered.and_then(|answer| answer.body().size_hint().exact()),
            });
            answer
        })
    }
}

/// The names of the methods a client uses.
fn name_of(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

fn asks_for_watch(query: &str) -> bool {
    let mut pairs = query.split('&');
    pairs.any(|pair| matches!(pair, "watch=true" | "watch=1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test(start_paused = true)]
    async fn a_request_is_told_with_how_it_ended() {
        type Told = (&'static str, String, Option<u16>, bool, u64, Option<u64>);
        let told: Arc<Mutex<Vec<Told>>> = Arc::default();
        let seen = told.clone();
        let observer = Observer::new(move |request| {
            let took = request.took.as_secs();
            let told = (
                request.method,
                request.host.to_owned(),
                request.status,
                request.is_watch,
                took,
                request.sent_bytes,
            );
            seen.lock().expect("a lock").push(told);
        });
        let service = tower::service_fn(|request: http::Request<Body>| async move {
            tokio::time::sleep(Duration::from_secs(2)).await;
            match request.uri().path() {
                "/away" => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)),
                _ => Ok(http::Response::builder()
                    .status(409)
                    .body(Body::empty())
                    .expect("an answer")),
            }
        });
        let mut service = Observed::new(service, Some(observer), "server:6443");
        for (method, path, body) in [
            ("PATCH", "/pods", Body::from(b"1234".to_vec())),
            ("GET", "/pods?a=b&watch=true", Body::empty()),
            ("GET", "/away", Body::empty()),
        ] {
            let request = http::Request::builder()
                .method(method)
                .uri(path)
                .body(body)
                .expect("a request");
            let answered = service.call(request).await.map(|answer| answer.status().as_u16());
            assert_eq!(answered.ok(), (path != "/away").then_some(409), "{path}");
        }
        let of = |method, status, watch, bytes| (method, "server:6443".to_owned(), status, watch, 2, bytes);
        assert_eq!(
            *told.lock().expect("a lock"),
            [
                of("PATCH", Some(409), false, Some(4)),
                of("GET", Some(409), true, Some(0)),
                of("GET", None, false, Some(0)),
            ]
        );
    }
}
