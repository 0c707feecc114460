//! The composed server: what one process's API consists of, and the one path every request takes.

use super::definitions::Definitions;
use super::drain::{Deadline, HeldResources, Lift, OnStall, OutgoingReplies, STALL};
use super::flow::{self, Flow, fairness};
use super::gate::Gate;
use super::negotiate::Output;
use super::reader::Reader;
use super::receive::receive;
use super::record::{RequestEnd, RequestRecord};
use super::request::{Query, RequestInfo};
use super::route::{has_route, kind_of, nothing_there};
use super::served::Served;
use super::service::{OpenEnded, PeerCertificates};
use super::state::ServerState;
use super::status::ApiError;
use super::user::User;
use super::{Body, body, deadline, discovery, expiry, heavy, reply, verbs};
use crate::metrics::Metrics;
use crate::resource::{Kind, Registry};
use crate::store::window::Window;
use crate::store::{Store, StoreError};
use bytes::Bytes;
use client::Clock;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue, USER_AGENT};
use http::{Request, Response};
use jiff::Timestamp;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Audit identifier, taken from the client or made here.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Which flow schema a request was sorted into, and which priority level (contract §2).
const FLOW_SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// What an [`ApiServer`] is built from.
pub struct Parts {
    /// Where objects live.
    pub store: Arc<dyn Store>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Seed of uids, generated names and jitter.
    pub seed: u64,
    /// Authentication, authorization, admission, and all that is not storage.
    pub gate: Arc<dyn Gate>,
}

struct Inner {
    state: Arc<ServerState>,
    drains: Arc<OutgoingReplies>,
    tasks: [JoinHandle<()>; 4],
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The API server. Cheap to clone; all clones are one server.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

impl ApiServer {
    /// Reads the store and is ready to serve.
    ///
    /// # Errors
    /// Whatever the store answers.
    pub async fn new(parts: Parts) -> Result<Self, StoreError> {
        let window = Window::open(parts.store).await?;
        let state = Arc::new(ServerState::new(window, parts.clock, parts.seed, parts.gate));
        fairness::begin(&state);
        let fairness = tokio::spawn(fairness::follow(Arc::clone(&state)));
        let (store, clock) = (Arc::clone(state.store()), Arc::clone(state.clock()));
        let expiry = tokio::spawn(expiry::run(store, state.reader().clone(), clock));
        let definitions = Definitions::begin(Arc::clone(&state)).await?;
        let definitions = tokio::spawn(definitions.keep());
        let drains: Arc<OutgoingReplies> = Arc::default();
        let draining = tokio::spawn(Arc::clone(&drains).run());
        Ok(Self {
            inner: Arc::new(Inner {
                state,
                drains,
                tasks: [expiry, draining, definitions, fairness],
            }),
        })
    }

    /// Reads straight from memory.
    pub fn reader(&self) -> &Reader {
        self.inner.state.reader()
    }

    /// The kinds served now.
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(self.inner.state.served().registry())
    }

    /// Serves a resource as these kinds from now on, one for each version; as none, it is served no more, and watches of it end.
    pub fn serve_resource(&self, group: &str, plural: &str, kinds: &[Arc<Kind>]) {
        self.inner.state.publisher().serve(group, plural, kinds);
    }

    /// The store behind the server.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.inner.state.store()
    }

    /// What everything is read from.
    pub(crate) fn window(&self) -> &Window {
        self.inner.state.publisher().window()
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        self.inner.state.now()
    }

    /// Wall time, for parts that live as long as the server.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        self.inner.state.clock()
    }

    /// Random bits from the server's seed.
    pub fn random(&self) -> u64 {
        self.inner.state.random()
    }

    /// A random UUID (version 4) from the server's seed.
    pub fn uuid(&self) -> String {
        self.inner.state.uuid()
    }

    /// Ends all watches, and those that begin later at once: the server is about to end.
    pub fn close(&self) {
        self.inner.state.closing().cancel();
    }

    /// Cancelled by [`ApiServer::close`].
    pub fn closing(&self) -> &CancellationToken {
        self.inner.state.closing()
    }

    /// What is counted here; the other parts of the control plane count into the same.
    pub fn metrics(&self) -> &Arc<Metrics> {
        self.inner.state.metrics()
    }

    /// Requests under way now: reads, writes. Those of this process and long-running ones do not count.
    pub(super) fn inflight(&self) -> (usize, usize) {
        self.flow().inflight()
    }

    pub(super) fn flow(&self) -> &Flow {
        self.inner.state.flow()
    }

    /// Replies of which something has not left this process.
    #[cfg(test)]
    pub(super) fn replies_on_their_way(&self) -> usize {
        self.inner.drains.len()
    }

    /// Held while nobody writes a Service: what readers see of Services and of their addresses fits together.
    pub(crate) async fn services_at_rest(&self) -> tokio::sync::OwnedMutexGuard<()> {
        self.inner.state.write_locks().write_service().await
    }

    #[cfg(test)]
    pub(super) fn write_locks(&self) -> &super::write_locks::WriteLocks {
        self.inner.state.write_locks()
    }

    #[cfg(test)]
    pub(super) fn charges(&self) -> &super::quota::Charges {
        self.inner.state.charges()
    }

    pub(super) fn gate(&self) -> &dyn Gate {
        self.inner.state.gate()
    }

    /// A client that reaches this server without a socket, as `user`; it calls itself what upstream's program of that identity does.
    ///
    /// Must be called within a tokio runtime (the client owns a task).
    pub fn client_as(&self, user: User) -> kube::Client {
        let server = self.clone();
        let program = user.program();
        let service = tower::service_fn(move |mut request: Request<kube::client::Body>| {
            if let Some(program) = program {
                let agents = request.headers_mut().entry(USER_AGENT);
                agents.or_insert(HeaderValue::from_static(program));
            }
            let answer = server.handle(Some(user.clone()), request);
            answer.map(Ok::<_, std::convert::Infallible>)
        });
        kube::Client::new(service, "default")
    }

    /// Answers one request. `user` is an identity established in process; `None` asks the gate to authenticate.
    pub fn handle<B>(&self, user: Option<User>, request: Request<B>) -> BoxFuture<'static, Response<Body>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<body::BodyError>,
    {
        let server = self.clone();
        let request = request.map(body::boxed);
        async move { server.handle_boxed(user, request).await }.boxed()
    }

    async fn handle_boxed(&self, user: Option<User>, request: Request<Body>) -> Response<Body> {
        let audit_id = request.headers().get(AUDIT_ID).cloned();
        let audit_id = audit_id.or_else(|| HeaderValue::try_from(self.uuid()).ok());
        let query = Query::parse(request.uri().query().unwrap_or(""));
        let output = Output::of_status(request.headers(), &query);
        let info = RequestInfo::parse(request.method(), request.uri().path(), &query);
        let shown_id = audit_id.as_ref().and_then(|id| id.to_str().ok());
        let served = self.inner.state.served();
        let record = RequestRecord::new(served.registry(), (&info, &query), shown_id.unwrap_or_default());
        let is_remote = user.is_none();
        let asked = Asked { info, query, served };
        let work = self.route(user, &asked, request, &record);
        let (mut response, end) = match AssertUnwindSafe(work).catch_unwind().await {
            Ok(Ok(response)) => (response, RequestEnd::Answered),
            Ok(Err(error)) => {
                let status = Box::new(error.to_status());
                (reply::error(&error, &status, output), RequestEnd::Failed(status))
            }
            Err(_) => {
                tracing::error!(path = %asked.info.path, "a request handler panicked");
                let text = "This request caused apiserver to panic. Look in the logs for details.";
                let error = ApiError::new(500, "InternalError", text);
                (reply::error(&error, &error.to_status(), output), RequestEnd::Panicked)
            }
        };
        let headers = response.headers_mut();
        if let Some(flow) = record.flow() {
            for (name, uid) in [FLOW_SCHEMA_UID, PRIORITY_LEVEL_UID].into_iter().zip(&flow.uids) {
                if let Some(uid) = uid {
                    headers.insert(name, uid.clone());
                }
            }
        }
        if let Some(audit_id) = audit_id {
            headers.insert(AUDIT_ID, audit_id);
        }
        headers
            .entry(CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
        if is_remote && !matches!(end, RequestEnd::Answered) {
            // Of its own: what says that the request's time is over comes when it is.
            let deadline = Deadline::new(Instant::now() + STALL, Lift::default());
            response = response.map(|body| {
                let drains = &self.inner.drains;
                drains.guard(body, HeldResources::default(), OnStall::Break, Some(deadline))
            });
        }
        record.finish(response, end, self.metrics())
    }

    async fn route(
        &self,
        user: Option<User>,
        asked: &Asked,
        request: Request<Body>,
        record: &RequestRecord,
    ) -> Result<Response<Body>, ApiError> {
        let is_long = asked.info.is_long_running();
        let deadline = (!is_long).then(|| deadline::of(&asked.query)).transpose()?;
        let ends_at = Instant::now() + deadline.unwrap_or(deadline::DEADLINE);
        let work = self.answer(user, asked, request, record, ends_at);
        match deadline {
            None => work.await,
            Some(limit) => match tokio::time::timeout(limit, work).await {
                // Too late: the connection would be broken in place of an answer.
                Ok(Ok(_)) if ends_at <= Instant::now() => Err(deadline::exceeded()),
                Ok(done) => done,
                Err(_) => Err(deadline::exceeded()),
            },
        }
    }

    async fn answer(
        &self,
        user: Option<User>,
        asked: &Asked,
        request: Request<Body>,
        record: &RequestRecord,
        ends_at: Instant,
    ) -> Result<Response<Body>, ApiError> {
        let Asked { info, query, .. } = asked;
        let (parts, body) = request.into_parts();
        let gate = self.gate();
        // Callers in process are bounded by themselves, and some of them work for a request that has its place already.
        let is_remote = user.is_none();
        let user = match user {
            Some(user) => {
                record.sent_by(&user, info, &parts, gate.audit());
                user
            }
            None => {
                let peer = parts.extensions.get::<PeerCertificates>().cloned();
                let peer = peer.as_ref().map(PeerCertificates::chain);
                let sender = match gate.authenticate(&parts, peer, self.reader()).await {
                    Ok(sender) => sender,
                    Err(error) => {
                        record.sent_by(&User::default(), info, &parts, gate.audit());
                        return Err(error);
                    }
                };
                record.sent_by(&sender, info, &parts, gate.audit());
                match gate.impersonate(&sender, &parts, self.reader()).await? {
                    None => sender,
                    Some(other) => {
                        record.acts_as(&other);
                        other
                    }
                }
            }
        };
        let is_bounded = is_remote && !info.is_long_running();
        let is_watch = is_remote && info.is_resource && info.verb == "watch";
        let flow = match is_bounded || is_watch {
            true => self.flow().classify(&user, info),
            false => None,
        };
        record.sorted_into(flow.as_ref());
        let allowed = gate.authorize(&user, info, self.reader()).await;
        record.authorized(allowed.is_ok());
        allowed?;
        // First the body, then the place: who sends slowly keeps nobody from his.
        let (body, room) = match (is_bounded, may_have_body(&parts.method)) {
            (true, true) => {
                let (bytes, room) = receive(self.flow(), &user, info, body).await?;
                (body::full(bytes), room)
            }
            // Nobody asks for it, and nobody reads it.
            (true, false) => (body::empty(), None),
            (false, _) => (body, None),
        };
        let watch = match is_watch {
            true => self.flow().watch(&user, info)?,
            false => None,
        };
        let seat = match flow {
            Some(flow) => {
                let stored = || self.reader().count(&info.group, &info.resource);
                let seat = self.flow().seat(flow, (&user, info, query), ends_at, stored).await?;
                Some(Arc::new(seat))
            }
            None => None,
        };
        let body = record.body(body, &parts.headers).await?;
        let mut request = Request::from_parts(parts, body);
        request.extensions_mut().insert(verbs::Keeps {
            seat: seat.clone(),
            _room: room.map(Arc::new),
        });
        let mut response = self.perform(&user, asked, request, is_remote).await?;
        if !is_remote {
            return Ok(response);
        }
        if info.subresource == "log" && !query.flag("follow") {
            // It ends by itself if it is read, however long that takes.
            let drains = &self.inner.drains;
            return Ok(response.map(|body| drains.guard(body, HeldResources::default(), OnStall::Break, None)));
        }
        if info.is_long_running() && info.verb != "watch" {
            response.extensions_mut().insert(OpenEnded);
            return Ok(response);
        }
        Ok(self.sent(response, seat, watch, info, ends_at))
    }

    /// The reply on its way: it keeps its request's place until it has been sent, and ends if it is not read, or not all of it
    /// in the request's time (the initial state of a watch counts, what follows does not).
    fn sent(
        &self,
        mut response: Response<Body>,
        seat: Option<Arc<flow::Seat>>,
        watch: Option<flow::ByteReservation>,
        info: &RequestInfo,
        ends_at: Instant,
    ) -> Response<Body> {
        let extensions = response.extensions_mut();
        let lift = extensions.remove::<Lift>();
        let bytes = extensions.remove::<Arc<flow::ByteReservation>>();
        // A watch needs its place and its room while it sends its initial state; without one, only until here.
        let (seat, bytes) = match (&lift, info.verb.as_str()) {
            (Some(lift), _) => {
                lift.keep(seat, bytes);
                (None, None)
            }
            (None, "watch") => (None, None),
            (None, _) => (seat, bytes),
        };
        let holds = HeldResources {
            _seat: seat,
            _bytes: bytes,
            _watch: watch,
        };
        let (on_stall, deadline) = match info.verb.as_str() {
            "watch" => (OnStall::End, lift.map(|lift| Deadline::new(ends_at, lift))),
            _ => (OnStall::Break, Some(Deadline::new(ends_at, Lift::default()))),
        };
        response.map(|body| self.inner.drains.guard(body, holds, on_stall, deadline))
    }

    /// What an authorized request asks for.
    async fn perform(
        &self,
        user: &User,
        asked: &Asked,
        request: Request<Body>,
        is_remote: bool,
    ) -> Result<Response<Body>, ApiError> {
        let Asked { info, query, served } = asked;
        let kind = match info.is_resource {
            true => match kind_of(info, served.registry()) {
                Some(kind) => Some(kind),
                None => return nothing_there(info, served.registry()),
            },
            false => None,
        };
        if kind.is_some() && !has_route(info) {
            return Err(ApiError::no_method());
        }
        let is_scattered = info.namespace.is_empty() && matches!(info.verb.as_str(), "create" | "deletecollection");
        if let Some(kind) = kind.filter(|kind| kind.namespaced && is_scattered) {
            return Err(verbs::not_supported(kind, info));
        }
        if let Some(kind) = kind
            && verbs::serves(kind, info)
        {
            let (parts, body) = request.into_parts();
            let serving = verbs::Serving {
                server: &self.inner.state,
                served,
                user,
                is_remote,
            };
            return verbs::serve(serving, info, query, kind, &parts, body).await;
        }
        let (parts, body) = request.into_parts();
        let discovered = match discovery::takes_long(info, &parts.headers, served) {
            true => {
                // What is sent is shared by all who read it, so it takes no room.
                let (info_of, parts, served) = (info.clone(), parts.clone(), Arc::clone(served));
                heavy::run_without_turn(move || discovery::serve(&info_of, &parts, &served)).await??
            }
            false => discovery::serve(info, &parts, served)?,
        };
        if let Some(mut response) = discovered {
            discovery::expire(&mut response, self.now());
            return Ok(response);
        }
        let request = Request::from_parts(parts, body);
        match (self.gate().other(self, user, info, request).await, kind) {
            (Ok(response), _) => Ok(response),
            (Err(_), Some(kind)) => Err(verbs::not_supported(kind, info)),
            (Err(_), None) => Ok(reply::not_found_page()),
        }
    }
}

/// What is asked, and what was served when it was.
struct Asked {
    info: RequestInfo,
    query: Query,
    served: Arc<Served>,
}

fn may_have_body(method: &http::Method) -> bool {
    use http::Method;
    matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE)
}
