//! The control plane of a simulation: a store that survives, everything else can be killed.

use super::Options;
use crate::judge::Judge;
use crate::network::{Reply, Wire, cut_at};
use crate::planted::{Lax, Planted};
use crate::store::Witnessed;
use client::Clock;
use controlplane::apiserver::gate::Gate;
use controlplane::apiserver::unstored::health::Health;
use controlplane::apiserver::user::User;
use controlplane::apiserver::{ApiServer, Parts};
use controlplane::bootstrap::{self, Facts};
use controlplane::config::{Config, flags};
use controlplane::controller::kept::Kept;
use controlplane::controller::{self, ControllerContext};
use controlplane::daemon::{self, Host};
use controlplane::pki::{self, Pki};
use controlplane::scheduler::{self, SchedulerContext};
use controlplane::store::Store;
use controlplane::store::disk::paced::Pace;
use http::Method;
use kube::client::Body;
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The longest a commit takes.
const COMMIT_MAX: Duration = Duration::from_millis(20);
/// The longest one takes where a crash has to come before the commit.
const SLOW_COMMIT_MAX: Duration = Duration::from_secs(2);
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Where clients find the API server that is alive now.
#[derive(Clone)]
pub struct Door {
    server: Arc<Mutex<Option<ApiServer>>>,
    /// Counts deaths: what was connected before is cut off.
    deaths: watch::Sender<u64>,
    judge: Judge,
}

/// What the judges want to know of a request, before and after.
#[derive(Default)]
struct Noted {
    /// The revision that an update is conditional on.
    base: Option<u64>,
}

impl Door {
    fn open(&self, server: ApiServer) {
        *self.server.lock().expect("no holder panics") = Some(server);
    }

    fn close(&self) {
        *self.server.lock().expect("no holder panics") = None;
        self.deaths.send_modify(|deaths| *deaths += 1);
    }

    /// A client of that identity, which finds each next server by itself.
    pub fn client_as(&self, user: User) -> kube::Client {
        let door = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (door, user) = (door.clone(), user.clone());
            async move { door.carry(user, request).await }
        });
        kube::Client::new(service, "default")
    }

    pub fn admin(&self) -> kube::Client {
        self.client_as(User::named("admin", &["system:masters"]))
    }

    pub fn client_of_node(&self, name: &str) -> kube::Client {
        self.client_as(User::named(format!("system:node:{name}"), &["system:nodes"]))
    }

    async fn carry(&self, user: User, request: http::Request<Body>) -> Result<http::Response<Reply>, tower::BoxError> {
        let mut deaths = self.deaths.subscribe();
        deaths.mark_unchanged();
        let server = self.server.lock().expect("no holder panics").clone();
        let Some(server) = server else {
            return Err("connection refused: the server is down".into());
        };
        let (request, noted) = self.note(&user, request).await?;
        let client = server.client_as(user);
        let response = tokio::select! {
            biased;
            _ = deaths.changed() => return Err("connection reset: the server died".into()),
            response = client.send(request) => response?,
        };
        let response = match noted.base {
            Some(base) => self.note_reply(base, response).await?,
            None => response,
        };
        let death = async move {
            // An error means the simulation is over.
            let _ = deaths.changed().await;
        };
        Ok(response.map(|body| cut_at(body, death)))
    }

    /// Tells the judges what they cannot see in the store: who collects what, and what an update is based on.
    async fn note(
        &self,
        user: &User,
        request: http::Request<Body>,
    ) -> Result<(http::Request<Body>, Noted), kube::Error> {
        let mut noted = Noted::default();
        let deletes = user
            .name
            .strip_prefix(ACCOUNTS)
            .filter(|_| request.method() == Method::DELETE);
        if deletes.is_none() && request.method() != Method::PUT {
            return Ok((request, noted));
        }
        let (parts, body) = request.into_parts();
        let bytes = body.collect_bytes().await?;
        if let Ok(body) = serde_json::from_slice::<Value>(&bytes) {
            if let Some((who, uid)) = deletes.zip(body["preconditions"]["uid"].as_str()) {
                self.judge.asked_to_delete(who, uid);
                if who == COLLECTOR {
                    self.judge.collects(uid);
                }
            }
            noted.base = revision(&body).filter(|_| deletes.is_none());
        }
        Ok((http::Request::from_parts(parts, Body::from(bytes)), noted))
    }

    async fn note_reply(&self, base: u64, reply: http::Response<Body>) -> Result<http::Response<Body>, kube::Error> {
        if !reply.status().is_success() {
            return Ok(reply);
        }
        let (parts, body) = reply.into_parts();
        let bytes = body.collect_bytes().await?;
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        // A write that changes nothing keeps its revision.
        if let Some(revision) = revision(&body).filter(|revision| *revision != base) {
            self.judge.conditional(base, revision);
        }
        Ok(http::Response::from_parts(parts, Body::from(bytes)))
    }
}

/// What controllers' names as users begin with.
const ACCOUNTS: &str = "system:serviceaccount:kube-system:";
const COLLECTOR: &str = "generic-garbage-collector";

fn revision(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// Store, certificates, and the parts that live and die.
pub struct ControlPlane {
    store: Arc<Witnessed>,
    planted: Option<Planted>,
    config: Config,
    host: Host,
    pki: Pki,
    wire: Wire,
    door: Door,
    tasks: JoinSet<()>,
    shutdown: CancellationToken,
    /// Starts so far: each start draws other UIDs and names, as a real one does.
    starts: u64,
    _dir: tempfile::TempDir,
}

impl ControlPlane {
    pub fn new(options: Options, clock: Arc<dyn Clock>, wire: Wire, judge: Judge) -> Self {
        let Options { seed, planted, script } = options;
        // What only a disk can lose needs one.
        let needs_disk = script.or(planted) == Some(Planted::AnswersFirst);
        let dir = super::scratch();
        let words = ["--data-dir".to_owned(), dir.path().display().to_string()];
        let config = Config::resolve(&flags::parse(words)).expect("valid flags");
        let host = Host {
            clock,
            seed,
            hostname: "sim".into(),
            address: ADDRESS,
            proc: "/proc".into(),
        };
        let pki = pki::ensure(&config, ADDRESS, "sim", host.clock.now()).expect("certificates");
        let door = Door {
            server: Arc::default(),
            deaths: watch::Sender::new(0),
            judge: judge.clone(),
        };
        let pace = Pace {
            seed,
            commit_max: match script {
                Some(Planted::AnswersFirst) => SLOW_COMMIT_MAX,
                _ => COMMIT_MAX,
            },
            answers_first: planted == Some(Planted::AnswersFirst),
        };
        // Otherwise in memory and on disk, turn and turn about.
        let on_disk = seed % 2 == 1 || needs_disk;
        let disk = on_disk.then(|| (dir.path().join("store"), pace));
        Self {
            store: Arc::new(Witnessed::new(disk, judge)),
            planted,
            config,
            host,
            pki,
            wire,
            door,
            tasks: JoinSet::new(),
            shutdown: CancellationToken::new(),
            starts: 0,
            _dir: dir,
        }
    }

    pub fn door(&self) -> Door {
        self.door.clone()
    }

    pub async fn start(&mut self) {
        let seed = self.host.seed ^ (self.starts << 32);
        self.starts += 1;
        let host = Host {
            seed,
            ..self.host.clone()
        };
        self.store.open().await;
        let gate = daemon::handler_chain(&self.config, &host, &self.pki, ADDRESS, Health::default()).expect("the gate");
        let gate: Arc<dyn Gate> = match self.planted {
            Some(Planted::AlwaysAuthorized) => Arc::new(Lax(gate)),
            _ => Arc::new(gate),
        };
        let store: Arc<dyn Store> = self.store.clone();
        let parts = Parts {
            store,
            clock: self.host.clock.clone(),
            seed,
            gate,
        };
        let server = ApiServer::new(parts).await.expect("a server");
        let facts = Facts {
            cluster_ip: "10.96.0.1".parse().expect("an address"),
            service_ranges: Vec::new(),
            cluster_dns: None,
            advertise: ADDRESS,
            port: 6443,
            client_ca_pem: "PEM".to_owned(),
        };
        bootstrap::run(&server, &facts).await.expect("the first objects");
        self.door.open(server);
        self.shutdown = CancellationToken::new();
        let (door, wire) = (self.door.clone(), self.wire.clone());
        let client_for =
            Arc::new(move |name: &str| wire.wrap(door.client_as(User::service_account("kube-system", name))));
        let informers = controller::read(&*client_for, seed, Kept::Asked);
        let mut controllers = controller::spawn_all(ControllerContext {
            informers: informers.clone(),
            client_for,
            clock: self.host.clock.clone(),
            seed,
            cluster_cidr: Some("10.244.0.0/16".into()),
            // Made anew in every run, and stored: it is no part of the seed.
            root_ca_pem: tokio::sync::watch::channel("PEM".to_owned()).1,
            authority: None,
            sign: None,
            selection: Default::default(),
            rates: Default::default(),
            options: Default::default(),
            metrics: Arc::default(),
            shutdown: self.shutdown.clone(),
        });
        self.tasks
            .spawn(async move { while controllers.join_next().await.is_some() {} });
        self.tasks.spawn(scheduler::run(SchedulerContext {
            informers: (&informers).into(),
            config: Default::default(),
            client: self
                .wire
                .wrap(self.door.client_as(User::named("system:kube-scheduler", &[]))),
            clock: self.host.clock.clone(),
            seed,
            host: "sim".to_owned(),
            metrics: Arc::default(),
            shutdown: self.shutdown.clone(),
        }));
    }

    /// Ends everything but the store at once; a store on disk loses what is not committed. Tells whether it was on disk.
    pub async fn kill(&mut self) -> bool {
        self.door.close();
        self.shutdown.cancel();
        self.tasks.shutdown().await;
        self.store.crash().await
    }
}
