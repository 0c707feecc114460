//! The kubelet's HTTPS server: logs, exec, attach, port-forward, pods, metrics; and the plain health port.
//!
//! Owns connections, authentication, authorization and routing. Reads pods from what workers publish and never asks a worker.

mod answer;
mod auth;
mod disabled;
mod listen;
mod logs;
mod metrics;
mod pods;
mod request;
mod router;
mod stream;
mod summary;

pub use answer::{Answer, Body};
pub use auth::{Auth, User};
pub use listen::{BindError, bind, serve_health, serve_read_only, serve_tls};

use crate::config::Handlers;
use crate::host::machine::Roots;
use crate::metrics::{Metrics, Port};
use crate::parts::Parts;
use hyper::Request;
use hyper::body::Incoming;
use request::{Query, RequestPath};
use router::Route;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How the server behaves.
pub struct ServerSettings {
    /// Which endpoints there are.
    pub handlers: Handlers,
    /// `streamingConnectionIdleTimeout`.
    pub stream_idle: Duration,
    /// The KubeletConfiguration in force.
    pub configuration: serde_json::Value,
    /// Where the machine tells of itself.
    pub roots: Roots,
}

/// Answers requests of one connection's peer.
pub struct Server {
    /// The kubelet's parts: it reads the pods, asks the runtime, and counts what cgroups use.
    parts: Arc<Parts>,
    /// Who may do what.
    auth: Auth,
    metrics: Metrics,
    settings: ServerSettings,
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Who its client certificate says it is; verified against the client authority.
    pub certificate: Option<User>,
}

impl Server {
    /// A server of a kubelet.
    pub fn new(parts: Arc<Parts>, auth: Auth, settings: ServerSettings) -> Arc<Self> {
        let metrics = Metrics::new(&parts.context.node_name);
        Arc::new(Self {
            parts,
            auth,
            metrics,
            settings,
        })
    }

    /// Answers one request.
    pub async fn answer(self: Arc<Self>, peer: Arc<Peer>, request: Request<Incoming>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let begun = self.metrics.http_request(Port::ReadWrite, method.as_str(), &path);
        let answer = answer::counted(self.admit(&peer, request).await, begun);
        let code = answer.status().as_u16();
        tracing::debug!(%method, path, code, peer = %peer.address, "request");
        answer
    }

    async fn admit(&self, peer: &Peer, request: Request<Incoming>) -> Answer {
        let auth = &self.auth;
        let user = match auth.authenticate(peer.certificate.as_ref(), request.headers()).await {
            Ok(Some(user)) => user,
            Ok(None) => return answer::text(401, "Unauthorized"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "request not authenticated");
                return answer::text(401, "Unauthorized");
            }
        };
        let path = RequestPath::parse(request.uri().path());
        let verb = router::verb(request.method(), &path);
        let subresources = router::subresources(&path);
        match auth.authorize(&user, verb, subresources).await {
            Ok(true) => self.route(&path, request).await,
            Ok(false) => {
                let list = subresources.join(" ");
                let name = &user.name;
                answer::text(
                    403,
                    &format!("Forbidden (user={name}, verb={verb}, resource=nodes, subresource(s)=[{list}])\n"),
                )
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    user = user.name,
                    "request not authorized"
                );
                let text = format!(
                    "Authorization error (user={}, verb={verb}, resource=nodes, subresource(s)={subresources:?})",
                    user.name
                );
                answer::text(500, &text)
            }
        }
    }

    /// Answers one request of the read-only port, where nobody is asked who they are.
    pub async fn answer_read_only(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        let (method, path) = (request.method(), request.uri().path());
        let begun = self.metrics.http_request(Port::ReadOnly, method.as_str(), path);
        let parsed = RequestPath::parse(path);
        let answer = match router::route(method, &parsed) {
            Ok(route) if router::is_read_only(&route) => self.route(&parsed, request).await,
            _ => answer::text(405, disabled::DEBUG),
        };
        answer::counted(answer, begun)
    }

    async fn route(&self, path: &RequestPath, request: Request<Incoming>) -> Answer {
        let (parts, settings) = (&*self.parts, &self.settings);
        if let Some(text) = disabled::refusal(&settings.handlers, path) {
            return answer::text(405, text);
        }
        if disabled::is_absent(&settings.handlers, path) {
            return answer::text(404, "404 page not found\n");
        }
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let route = match router::route(request.method(), path) {
            Ok(route) => route,
            Err(code) => return answer::text(code.as_u16(), code.canonical_reason().unwrap_or_default()),
        };
        match route {
            Route::Healthz => answer::health(&parts.heartbeat),
            Route::Pods => pods::pods(&parts.pods),
            Route::Configz => answer::json(serde_json::json!({"kubeletconfig": settings.configuration}).to_string()),
            Route::Summary => answer::json(
                summary::summary(self, query.on("only_cpu_and_memory"))
                    .await
                    .to_string(),
            ),
            Route::RunningPods => pods::running_pods(&parts.pods),
            Route::Metrics => answer::metrics(&self.metrics.text(&parts.pods)),
            Route::MetricsResource => answer::metrics(&metrics::resource(self).await),
            Route::ContainerLogs(target) => logs::answer(&parts.pods, &target, &query, parts.clock.now()).await,
            Route::Run(target) => stream::run(self, &target, &query).await,
            Route::Exec(target) => stream::exec(self, &target, &query, request).await,
            Route::Attach(target) => stream::attach(self, &target, &query, request).await,
            Route::PortForward(target) => stream::port_forward(self, &target, &query, request).await,
        }
    }
}

#[cfg(test)]
mod tests;
