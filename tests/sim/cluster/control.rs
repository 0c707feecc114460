//! The control plane of a simulation: a store that survives, everything else can be killed.

use crate::network::{Reply, Wire, cut_at};
use client::Clock;
use controlplane::apiserver::extra::health::Health;
use controlplane::apiserver::user::User;
use controlplane::apiserver::{ApiServer, Parts};
use controlplane::bootstrap::{self, Facts};
use controlplane::config::{Config, flags};
use controlplane::controller::{self, ControllerContext};
use controlplane::daemon::{self, Host};
use controlplane::pki::{self, Pki};
use controlplane::scheduler::{self, SchedulerContext};
use controlplane::store::Store;
use controlplane::store::memory::Memory;
use kube::client::Body;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Where clients find the API server that is alive now.
#[derive(Clone)]
pub struct Door {
    server: Arc<Mutex<Option<ApiServer>>>,
    /// Counts deaths: what was connected before is cut off.
    deaths: watch::Sender<u64>,
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
        let client = server.client_as(user);
        let response = tokio::select! {
            biased;
            _ = deaths.changed() => return Err("connection reset: the server died".into()),
            response = client.send(request) => response?,
        };
        let death = async move {
            // An error means the simulation is over.
            let _ = deaths.changed().await;
        };
        Ok(response.map(|body| cut_at(body, death)))
    }
}

/// Store, certificates, and the parts that live and die.
pub struct ControlPlane {
    store: Arc<Memory>,
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
    pub fn new(seed: u64, clock: Arc<dyn Clock>, wire: Wire) -> Self {
        let dir = tempfile::tempdir().expect("a temp dir");
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
        };
        Self {
            store: Arc::new(Memory::new()),
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
        let gate = daemon::edge(&self.config, &host, &self.pki, ADDRESS, Health::default()).expect("the gate");
        let store: Arc<dyn Store> = self.store.clone();
        let parts = Parts {
            store,
            clock: self.host.clock.clone(),
            seed,
            gate: Arc::new(gate),
        };
        let server = ApiServer::new(parts).await.expect("a server");
        let facts = Facts {
            cluster_ip: "10.96.0.1".parse().expect("an address"),
            advertise: ADDRESS,
            port: 6443,
            client_ca_pem: "PEM".to_owned(),
        };
        bootstrap::run(&server, &facts).await.expect("the first objects");
        self.door.open(server);
        self.shutdown = CancellationToken::new();
        let (door, wire) = (self.door.clone(), self.wire.clone());
        let mut controllers = controller::spawn_all(ControllerContext {
            client_for: Arc::new(move |name| wire.wrap(door.client_as(User::service_account("kube-system", name)))),
            clock: self.host.clock.clone(),
            seed,
            cluster_cidr: Some("10.244.0.0/16".into()),
            root_ca_pem: self.pki.ca_pem.clone(),
            authority: None,
            metrics: Arc::default(),
            shutdown: self.shutdown.clone(),
        });
        self.tasks
            .spawn(async move { while controllers.join_next().await.is_some() {} });
        self.tasks.spawn(scheduler::run(SchedulerContext {
            client: self
                .wire
                .wrap(self.door.client_as(User::named("system:kube-scheduler", &[]))),
            clock: self.host.clock.clone(),
            seed,
            metrics: Arc::default(),
            shutdown: self.shutdown.clone(),
        }));
    }

    /// Ends everything but the store at once.
    pub async fn kill(&mut self) {
        self.door.close();
        self.shutdown.cancel();
        self.tasks.shutdown().await;
    }
}
