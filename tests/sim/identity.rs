//! A kubelet's certificates against the real API server and its controllers, in one process on a paused clock.

use client::{Clock, TokioClock};
use controlplane::apiserver::user::User;
use controlplane::config::{Config, flags};
use controlplane::daemon::{Daemon, Host};
use controlplane::store::memory::Memory;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;
use kube::Api;
use kube::api::{ListParams, PostParams};
use kubelet::certificate::request::Wanted;
use kubelet::certificate::rotation::{Clients, Rotation};
use kubelet::certificate::store::{Pair, Store};
use kubelet::host::addresses::HostIps;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const DAY: i64 = 86_400;

/// A clock that can be put forward by months, which no timer then has to live through.
struct Calendar {
    clock: TokioClock,
    ahead_seconds: AtomicI64,
}

impl Clock for Calendar {
    fn now(&self) -> Timestamp {
        let second = self.clock.now().as_second() + self.ahead_seconds.load(Ordering::SeqCst);
        Timestamp::from_second(second).unwrap()
    }
}

struct World {
    daemon: Daemon,
    calendar: Arc<Calendar>,
    stop: CancellationToken,
    dir: tempfile::TempDir,
    address: watch::Sender<Arc<Vec<IpAddr>>>,
    host_ips: HostIps,
}

impl World {
    async fn new() -> Self {
        let calendar = Arc::new(Calendar {
            clock: TokioClock::starting_at("2027-01-15T08:00:00Z".parse().unwrap()),
            ahead_seconds: AtomicI64::new(0),
        });
        let dir = tempfile::tempdir().unwrap();
        let words = [
            "--data-dir".to_owned(),
            dir.path().join("controlplane").display().to_string(),
        ];
        let host = Host {
            clock: calendar.clone(),
            seed: 7,
            hostname: "sim".into(),
            address: "192.0.2.1".parse().unwrap(),
            proc: "/proc".into(),
        };
        let store = Arc::new(Memory::new());
        let daemon = Daemon::embed(&Config::resolve(&flags::parse(words)).unwrap(), host, store)
            .await
            .unwrap();
        let (address, host_ips) = HostIps::following(vec!["192.0.2.9".parse().unwrap()]);
        Self {
            address,
            host_ips,
            daemon,
            calendar,
            stop: CancellationToken::new(),
            dir,
        }
    }

    fn client(&self, name: &str, groups: &[&str]) -> kube::Client {
        self.daemon.server().client_as(User::named(name, groups))
    }

    /// Starts a keeper; what it keeps can be followed.
    fn keep(&self, serving: bool) -> watch::Receiver<Option<Arc<Pair>>> {
        let group = "system:bootstrappers:kubeadm:default-node-token";
        let pki = self.dir.path().join("pki");
        let rotation = Rotation {
            wanted: Wanted {
                node: "n1".to_owned(),
                serving: serving.then(|| (vec!["192.0.2.9".parse().unwrap()], vec!["n1".to_owned()])),
            },
            host_ips: Some(self.host_ips.clone()),
            store: if serving {
                Store::server(&pki)
            } else {
                Store::client(&pki)
            },
            clients: Clients {
                own: self.client("system:node:n1", &["system:nodes"]),
                bootstrap: (!serving).then(|| self.client("system:bootstrap:abcdef", &["system:bootstrappers", group])),
            },
            clock: self.calendar.clone(),
            seed: 3,
            current: watch::Sender::new(None),
            server_is_there: watch::Sender::new(false),
        };
        let current = rotation.current.subscribe();
        tokio::spawn(rotation.run(self.stop.clone()));
        current
    }

    async fn requests(&self) -> Vec<Csr> {
        let api: Api<Csr> = Api::all(self.client("root", &["system:masters"]));
        api.list(&ListParams::default()).await.unwrap().items
    }

    async fn end(self) {
        self.stop.cancel();
        self.daemon.stop().await;
    }
}

/// The next pair, within so many seconds.
async fn next(current: &mut watch::Receiver<Option<Arc<Pair>>>, seconds: u64) -> Arc<Pair> {
    let changed = tokio::time::timeout(Duration::from_secs(seconds), current.changed());
    changed.await.expect("a certificate in time").expect("the keeper lives");
    current.borrow_and_update().clone().expect("a certificate")
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_joins_by_token_and_renews_by_itself_before_the_end() {
    let world = World::new().await;
    let mut current = world.keep(false);
    let first = next(&mut current, 60).await;
    let users = async || -> Vec<String> {
        let all = world.requests().await.into_iter();
        all.filter_map(|csr| csr.spec.username).collect()
    };
    assert_eq!(users().await, ["system:bootstrap:abcdef"]);
    let kept = Store::client(&world.dir.path().join("pki"));
    assert_eq!(kept.current().unwrap().as_ref(), Some(&*first));

    // Two thirds of a year: nothing happens. Nine tenths: a new one, asked for with the old one.
    world.calendar.ahead_seconds.fetch_add(240 * DAY, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(1300)).await;
    assert!(!current.has_changed().unwrap());
    world.calendar.ahead_seconds.fetch_add(90 * DAY, Ordering::SeqCst);
    let second = next(&mut current, 1300).await;
    assert!(second.not_after.as_second() - first.not_after.as_second() > 300 * DAY);
    assert!(users().await.contains(&"system:node:n1".to_owned()));
    assert_eq!(kept.current().unwrap().as_ref(), Some(&*second));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_serving_certificate_waits_for_a_human_and_is_asked_for_again_when_denied() {
    let world = World::new().await;
    let mut current = world.keep(true);
    let settle = async |kind: &str| {
        let api: Api<Csr> = Api::all(world.client("root", &["system:masters"]));
        let open = |csr: &Csr| csr.status.as_ref().is_none_or(|status| status.conditions.is_none());
        loop {
            let Some(mut csr) = world.requests().await.into_iter().find(open) else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let condition = json!([{"type": kind, "status": "True", "reason": "Human", "message": "by hand"}]);
            csr.status.get_or_insert_default().conditions = serde_json::from_value(condition).unwrap();
            let name = csr.metadata.name.clone().unwrap();
            api.replace_subresource("approval", &name, &PostParams::default(), &csr)
                .await
                .unwrap();
            return;
        }
    };
    settle("Denied").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!current.has_changed().unwrap());
    settle("Approved").await;
    next(&mut current, 60).await;

    // Another address: another certificate, and the old one until then.
    let moved: IpAddr = "192.0.2.77".parse().unwrap();
    world.address.send_replace(Arc::new(vec![moved]));
    settle("Approved").await;
    let second = next(&mut current, 60).await;
    assert!(second.names(&[moved], &["n1".to_owned()]));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!current.has_changed().unwrap(), "asked for once");
    assert!(
        Store::server(&world.dir.path().join("pki"))
            .current()
            .unwrap()
            .is_some()
    );
    world.end().await;
}
