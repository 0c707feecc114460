//! The kubelet's HTTPS server: logs, exec, attach, port-forward, pods, metrics; and the plain health port.
//!
//! Owns connections, authentication, authorization and routing. Reads pods from what workers publish and never asks a worker.

mod answer;
mod auth;
mod cadvisor;
mod checkpoint;
mod debug;
mod disabled;
mod doors;
mod health;
mod idle;
mod listen;
mod logs;
mod metrics;
mod node_logs;
mod peer;
mod pods;
mod request;
mod reviews;
mod router;
mod share;
mod stream;
mod summary;
mod zpages;

pub use answer::{Answer, Body};
pub use auth::{Auth, User};
pub use health::Health;
pub use listen::{BindError, bind, serve_health, serve_read_only, serve_tls};
pub use peer::{ClientCertificate, Peer};

use crate::certificate::store::Pair;
use crate::config::Handlers;
use crate::host::machine::Roots;
use crate::id::PodUid;
use crate::log::LogLevel;
use crate::metrics::{self as counted, Gates, Port};
use crate::parts::Parts;
use hyper::Request;
use hyper::body::Incoming;
use jiff::Timestamp;
use request::{Query, RequestPath};
use reviews::ReviewError;
use router::Route;
use share::Shares;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// Streams of exec, attach and port-forward that are open at a time.
const STREAMS_MAX: usize = 1000;
/// Of those, into one pod: whoever may enter one leaves room for others.
const STREAMS_OF_POD_MAX: usize = 100;

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
    /// The certificates from the cluster, to tell how long they last.
    pub certificates: Certificates,
    /// How much is logged, which can be changed.
    pub level: LogLevel,
    /// The flags of this process, as they are shown.
    pub flags: BTreeMap<String, String>,
    /// The feature gates that can be turned, as they are.
    pub gates: Gates,
}

/// A certificate from the cluster, once there is one.
pub type CurrentPair = watch::Receiver<Option<Arc<Pair>>>;

/// The certificates that the cluster gives this kubelet.
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    /// What it proves itself to the API server with.
    pub client: Option<CurrentPair>,
    /// What it serves with.
    pub server: Option<CurrentPair>,
}

impl Certificates {
    /// The seconds that are left of each, negative past its end.
    fn seconds_left(&self, now: Timestamp) -> (Option<f64>, Option<f64>) {
        let left = |pair: &Option<CurrentPair>| {
            let until = pair.as_ref()?.borrow().as_ref().map(|pair| pair.not_after)?;
            Some(until.duration_since(now).as_secs_f64())
        };
        (left(&self.client), left(&self.server))
    }
}

/// Answers requests of one connection's peer.
pub struct Server {
    /// The kubelet's parts: it reads the pods, asks the runtime, and counts what cgroups use.
    parts: Arc<Parts>,
    /// Who may do what.
    auth: Auth,
    settings: ServerSettings,
    checkpoints: checkpoint::Turn,
    node_logs: node_logs::Places,
    logs: logs::Logs,
    /// Places for streams: they outlive the connections they came by.
    streams: Arc<Semaphore>,
    /// What each pod has of them.
    of_pods: Shares<PodUid>,
    started: Timestamp,
}

impl Server {
    /// A server of a kubelet.
    pub fn new(parts: Arc<Parts>, auth: Auth, settings: ServerSettings) -> Arc<Self> {
        Arc::new(Self {
            started: parts.clock.now(),
            checkpoints: checkpoint::Turn::default(),
            node_logs: node_logs::Places::default(),
            logs: logs::Logs::default(),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            of_pods: Shares::new(STREAMS_OF_POD_MAX),
            parts,
            auth,
            settings,
        })
    }

    /// The time.
    fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    /// Answers one request.
    pub async fn answer(self: Arc<Self>, peer: Arc<Peer>, mut request: Request<Incoming>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let begun = self.parts.metrics.http_request(Port::ReadWrite, method.as_str(), &path);
        let begun = Arc::new(begun);
        // What is upgraded goes on after its answer.
        request.extensions_mut().insert(begun.clone());
        let answer = answer::holding(self.admit(&peer, request).await, begun);
        let code = answer.status().as_u16();
        tracing::debug!(%method, path, code, peer = %peer.address, "request");
        answer
    }

    async fn admit(&self, peer: &Peer, request: Request<Incoming>) -> Answer {
        let auth = &self.auth;
        let user = match auth.authenticate(peer, self.now(), request.headers()).await {
            Ok(Some(user)) => user,
            Ok(None) => return answer::text(401, "Unauthorized"),
            Err(error) if matches!(*error, ReviewError::TooMany(_)) => return too_many(&error),
            Err(error) => {
                tracing::warn!(error = &*error as &dyn std::error::Error, "request not authenticated");
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
            Err(error) if matches!(*error, ReviewError::TooMany(_)) => too_many(&error),
            Err(error) => {
                tracing::warn!(
                    error = &*error as &dyn std::error::Error,
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
        answer::holding(answer, begun)
    }

    fn health(&self) -> Health {
        self.parts.health()
    }

    async fn all_metrics(&self) -> String {
        let roots = self.settings.roots.clone();
        let process = client::blocking::spawn(move || counted::process(&roots)).await;
        let (client, server) = self.settings.certificates.seconds_left(self.parts.clock.now());
        self.parts.metrics.node.certificates(client, server);
        let text = self.parts.metrics.text(&self.parts.pods);
        let logs = metrics::logs(&self.parts.stats.logs.of(&self.parts).await);
        text + &counted::features(self.settings.gates) + &process.unwrap_or_default() + &logs
    }

    async fn route(&self, path: &RequestPath, request: Request<Incoming>) -> Answer {
        let (parts, settings) = (&*self.parts, &self.settings);
        if let Some(text) = disabled::refusal(&settings.handlers, path) {
            return answer::text(405, text);
        }
        if disabled::is_absent(&settings.handlers, path) {
            return answer::not_found();
        }
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let route = match router::route(request.method(), path) {
            Ok(route) => route,
            Err(code) => return answer::text(code.as_u16(), code.canonical_reason().unwrap_or_default()),
        };
        match route {
            Route::Healthz => self.health().answer(path.parts().get(1..).unwrap_or_default(), &query),
            Route::Pods => pods::pods(&parts.pods),
            Route::Configz => answer::json(serde_json::json!({"kubeletconfig": settings.configuration}).to_string()),
            Route::Summary => answer::json(summary::summary(self, query.on("only_cpu_and_memory")).await),
            Route::RunningPods => pods::running_pods(&parts.pods),
            Route::Metrics => answer::metrics(self.all_metrics().await),
            Route::MetricsCadvisor => answer::metrics(cadvisor::page(self).await),
            Route::MetricsSlis => answer::metrics(parts.metrics.health.text()),
            Route::MetricsProbes => answer::metrics(parts.metrics.probes.text()),
            Route::MetricsResource => answer::metrics(metrics::resource(self).await),
            Route::ContainerLogs(target) => logs::answer(self, &target, &query).await,
            Route::NodeLogs => {
                let (directory, raw) = (Path::new(node_logs::DIRECTORY), request.uri().path());
                let with_queries = settings.handlers.system_log_query;
                node_logs::answer(&self.node_logs, directory, path, raw, &query, with_queries).await
            }
            Route::Statusz => zpages::status(request.headers(), self.started, parts.clock.now(), router::PATHS),
            Route::Flagz => zpages::flags(request.headers(), &settings.flags),
            Route::Profile => debug::profile(path.parts().get(2..).unwrap_or_default()),
            Route::LogLevel => debug::set_level(&settings.level, request.into_body()).await,
            Route::Checkpoint(target) => checkpoint::checkpoint(self, &target, &query).await,
            Route::Run(target) => stream::run(self, &target, &query, &request).await,
            Route::Exec(target) => stream::exec(self, &target, &query, request).await,
            Route::Attach(target) => stream::attach(self, &target, &query, request).await,
            Route::PortForward(target) => stream::port_forward(self, &target, &query, request).await,
        }
    }
}

/// Who asks is to be found out later: too many others are being asked about.
fn too_many(why: &ReviewError) -> Answer {
    answer::busy(&format!("{why}\n"), Duration::from_secs(1))
}

#[cfg(test)]
pub(crate) mod tests;
