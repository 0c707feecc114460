//! Health and metrics of a part that runs without an API server: HTTPS on its own port, as upstream's daemons.
//!
//! `/healthz`, `/livez`, `/readyz` are open to all; `/metrics` is for whom the API server lets (`get` on the path): it is asked who a bearer token
//! is and what that user may (TokenReview, SubjectAccessReview). Client certificates are not looked at.

use crate::apiserver::unstored::metrics;
use crate::leader::Fence;
use crate::metrics::Metrics;
use crate::pki::{Identity, PkiError, tls};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Connections at once; more wait to be accepted.
const CONNECTIONS: usize = 64;
/// Questions to the API server at once.
const REVIEWS: usize = 4;
const REVIEW_DEADLINE: Duration = Duration::from_secs(10);
/// The longest token that is asked about.
const TOKEN_BYTES: usize = 16 << 10;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a connection may be silent between requests, or slow to send a head.
const HEAD: Duration = Duration::from_secs(30);
/// The longest a connection lasts: a client that does not read its replies holds a place no longer.
const CONNECTION: Duration = Duration::from_secs(300);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What is answered from.
pub(super) struct Endpoints {
    metrics: Arc<Metrics>,
    fence: Fence,
    client: kube::Client,
    proc: PathBuf,
    reviews: Semaphore,
}

type Reply = Response<Full<Bytes>>;

fn text(code: StatusCode, kind: &'static str, text: String) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(text)));
    *reply.status_mut() = code;
    let kind = http::HeaderValue::from_static(kind);
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}

fn plain(code: StatusCode, words: impl Into<String>) -> Reply {
    text(code, "text/plain; charset=utf-8", words.into())
}

/// What somebody may not, in the API's form.
fn status(code: StatusCode, reason: &str, message: &str) -> Reply {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code.as_u16()});
    text(code, "application/json", body.to_string())
}

impl Endpoints {
    pub(super) fn new(metrics: Arc<Metrics>, fence: Fence, client: kube::Client, proc: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            metrics,
            fence,
            client,
            proc,
            reviews: Semaphore::new(REVIEWS),
        })
    }

    async fn answer<B>(&self, request: &Request<B>) -> Reply {
        let path = request.uri().path();
        match path {
            "/healthz"
            | "/livez"
            | "/readyz"
            | "/healthz/leaderElection"
            | "/livez/leaderElection"
            | "/readyz/leaderElection"
            | "/metrics"
                if *request.method() != Method::GET =>
            {
                plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n")
            }
            "/metrics" => match self.review(request, path).await {
                Ok(()) => {
                    let body = metrics::render_part(&self.metrics, &self.proc);
                    text(StatusCode::OK, metrics::CONTENT_TYPE, body)
                }
                Err(refusal) => refusal,
            },
            "/healthz"
            | "/livez"
            | "/readyz"
            | "/healthz/leaderElection"
            | "/livez/leaderElection"
            | "/readyz/leaderElection" => match self.fence.is_healthy() {
                true => plain(StatusCode::OK, "ok"),
                false => plain(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "[-]leaderElection failed: reason withheld\n",
                ),
            },
            _ => plain(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    /// Whether the API server lets whoever asks read the path.
    async fn review<B>(&self, request: &Request<B>, path: &str) -> Result<(), Reply> {
        let Ok(_turn) = self.reviews.acquire().await else {
            return Err(plain(StatusCode::INTERNAL_SERVER_ERROR, "shutting down\n"));
        };
        let unauthorized = || status(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized");
        let user = match bearer(request) {
            None => json!({"user": "system:anonymous", "groups": ["system:unauthenticated"]}),
            Some(token) if token.len() > TOKEN_BYTES => return Err(unauthorized()),
            Some(token) => {
                let review =
                    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
                let said = self.ask("/apis/authentication.k8s.io/v1/tokenreviews", &review).await?;
                if said["status"]["authenticated"] != true {
                    return Err(unauthorized());
                }
                let user = &said["status"]["user"];
                json!({"user": user["username"], "groups": user["groups"], "uid": user["uid"], "extra": user["extra"]})
            }
        };
        let name = user["user"].as_str().unwrap_or_default().to_owned();
        let mut spec = user;
        spec["nonResourceAttributes"] = json!({"path": path, "verb": "get"});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        let said = self
            .ask("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review)
            .await?;
        if said["status"]["allowed"] == true {
            return Ok(());
        }
        let message = format!("forbidden: User {name:?} cannot get path {path:?}");
        Err(status(StatusCode::FORBIDDEN, "Forbidden", &message))
    }

    async fn ask(&self, path: &str, body: &Value) -> Result<Value, Reply> {
        let failed = |why: String| {
            tracing::warn!(path, why, "the API server cannot be asked who may read metrics");
            let message = "the API server cannot be asked";
            status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
        };
        let request = Request::post(path).header(CONTENT_TYPE, "application/json");
        let request = request.body(body.to_string().into_bytes());
        let request = request.map_err(|error| failed(error.to_string()))?;
        match timeout(REVIEW_DEADLINE, self.client.request::<Value>(request)).await {
            Ok(Ok(said)) => Ok(said),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed("deadline exceeded".to_owned())),
        }
    }
}

fn bearer<B>(request: &Request<B>) -> Option<&str> {
    let header = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The TLS configuration: HTTP/1.1 alone, which is all that probes and scrapers need.
///
/// # Errors
/// Names the certificate (as `path`) that cannot be used.
pub(super) fn tls(serving: &Identity, path: &Path) -> Result<Arc<rustls::ServerConfig>, PkiError> {
    let mut config = tls::server_config(serving, path)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Serves until `shutdown`. New connections use the newest `tls` configuration.
pub(super) async fn serve(
    listener: TcpListener,
    tls: watch::Receiver<Arc<rustls::ServerConfig>>,
    endpoints: Arc<Endpoints>,
    shutdown: CancellationToken,
) {
    let (places, tasks) = (Arc::new(Semaphore::new(CONNECTIONS)), TaskTracker::new());
    let accepting = async {
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let acceptor = TlsAcceptor::from(Arc::clone(&tls.borrow()));
                    let endpoints = Arc::clone(&endpoints);
                    tasks.spawn(async move {
                        let _place = place;
                        // A connection that lasts too long is cut.
                        let _ = timeout(CONNECTION, talk(stream, acceptor, endpoints)).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = accepting => {}
    }
}

async fn talk(stream: TcpStream, acceptor: TlsAcceptor, endpoints: Arc<Endpoints>) {
    let stream = match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake took too long"),
    };
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let endpoints = Arc::clone(&endpoints);
        async move { Ok::<_, Infallible>(endpoints.answer(&request).await) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_headers(100);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "connection ended with an error");
    }
}

#[cfg(test)]
mod tests;
