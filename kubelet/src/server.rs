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

use crate::cgroup::Cgroups;
use crate::config::Handlers;
use crate::heartbeat::Heartbeat;
use crate::host::machine::Roots;
use crate::metrics::{Metrics, Port};
use crate::pod::view::PodView;
use crate::runtime::Runtime;
use hyper::Request;
use hyper::body::Incoming;
use request::{Query, RequestPath};
use router::Route;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What the server serves from.
pub struct ServerParts {
    /// The pods.
    pub pods: PodView,
    /// The runtime: exec, attach, port-forward.
    pub runtime: Arc<dyn Runtime>,
    /// Who may do what.
    pub auth: Auth,
    /// The sign of life of the loop over pods.
    pub heartbeat: Heartbeat,
    /// Wall time, for `sinceSeconds`.
    pub clock: Arc<dyn client::Clock>,
    /// Usage of pods.
    pub cgroups: Cgroups,
    /// Metrics of this kubelet.
    pub metrics: Arc<Metrics>,
    /// This node's name.
    pub node_name: String,
    /// Which endpoints there are.
    pub handlers: Handlers,
    /// `streamingConnectionIdleTimeout`.
    pub stream_idle: Duration,
    /// The KubeletConfiguration in force.
    pub configuration: serde_json::Value,
    /// Where the machine tells of itself.
    pub roots: Roots,
    /// `--root-dir`, whose file system is the node's.
    pub root_dir: PathBuf,
}

/// Answers requests of one connection's peer.
pub struct Server {
    parts: ServerParts,
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
    /// A server over these parts.
    pub fn new(parts: ServerParts) -> Arc<Self> {
        Arc::new(Self { parts })
    }

    /// Answers one request.
    pub async fn answer(self: Arc<Self>, peer: Arc<Peer>, request: Request<Incoming>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let begun = self.parts.metrics.http_request(Port::ReadWrite, method.as_str(), &path);
        let answer = answer::counted(self.admit(&peer, request).await, begun);
        let code = answer.status().as_u16();
        tracing::debug!(%method, path, code, peer = %peer.address, "request");
        answer
    }

    async fn admit(&self, peer: &Peer, request: Request<Incoming>) -> Answer {
        let auth = &self.parts.auth;
        let user = match auth.authenticate(peer.certificate.as_ref(), request.headers()).await {
            Ok(Some(user)) => user,
            Ok(None) => return answer::text(401, "Unauthorized"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "request not authenticated");
                return answer::text(401, "Unauthorized");
            }
        };
        let verb = router::verb(request.method());
        let path = RequestPath::parse(request.uri().path());
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
        let begun = self.parts.metrics.http_request(Port::ReadOnly, method.as_str(), path);
        let parsed = RequestPath::parse(path);
        let answer = match router::route(method, &parsed) {
            Ok(route) if router::is_read_only(&route) => self.route(&parsed, request).await,
            _ => answer::text(405, disabled::DEBUG),
        };
        answer::counted(answer, begun)
    }

    async fn route(&self, path: &RequestPath, request: Request<Incoming>) -> Answer {
        let parts = &self.parts;
        if let Some(text) = disabled::refusal(&parts.handlers, path) {
            return answer::text(405, text);
        }
        if disabled::is_absent(&parts.handlers, path) {
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
            Route::Configz => answer::json(serde_json::json!({"kubeletconfig": parts.configuration}).to_string()),
            Route::Summary => answer::json(
                summary::summary(parts, query.on("only_cpu_and_memory"))
                    .await
                    .to_string(),
            ),
            Route::RunningPods => pods::running_pods(&parts.pods),
            Route::Metrics => answer::metrics(&parts.metrics.text(&parts.pods)),
            Route::MetricsResource => answer::metrics(&metrics::resource(parts).await),
            Route::ContainerLogs(target) => logs::answer(&parts.pods, &target, &query, parts.clock.now()).await,
            Route::Run(target) => stream::run(parts, &target, &query).await,
            Route::Exec(target) => stream::exec(parts, &target, &query, request).await,
            Route::Attach(target) => stream::attach(parts, &target, &query, request).await,
            Route::PortForward(target) => stream::port_forward(parts, &target, &query, request).await,
        }
    }
}

#[cfg(test)]
mod tests;
